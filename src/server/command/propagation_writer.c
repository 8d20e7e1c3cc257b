/* propagation_writer.c: see propagation_writer.h. */
#include "server/command/propagation_writer.h"
#include "lib/text/number.h"
#include "resp/request.h"

static void write_select(struct propagation_writer *writer, int db) {
    char text[NUMBER_TEXT_MAX];
    struct slice argv[] = {SLICE("SELECT"), {text, format_int64(text, db)}};
    request_write(writer->out, 2, argv);
    writer->db = db;
}

static void write_command(struct output *out, const struct propagation *propagation) {
    request_write_count(out, (size_t)propagation->argc);
    for (int i = 0; i < propagation->argc; i++) {
        struct blob *blob = propagation_blob(propagation, i);
        if (blob && blob->len == propagation->argv[i].len)
            request_write_blob(out, blob);
        else
            request_write_argument(out, propagation->argv[i]);
    }
}

void propagation_writer_begin(struct propagation_writer *writer) {
    writer->in_group = true;
    writer->commands = 0;
}

void propagation_writer_command(struct propagation_writer *writer, const struct propagation *propagation) {
    if (writer->in_group && writer->commands == 0) writer->mark(writer);
    if (writer->in_group && writer->commands == 1) writer->insert(writer, SLICE("*1\r\n$5\r\nMULTI\r\n"));
    if (propagation->db != writer->db) write_select(writer, propagation->db);
    write_command(writer->out, propagation);
    writer->commands++;
}

void propagation_writer_seal(struct propagation_writer *writer) {
    if (writer->in_group && writer->commands > 1) output_write(writer->out, SLICE("*1\r\n$4\r\nEXEC\r\n"));
    writer->commands = 0;
}

void propagation_writer_end(struct propagation_writer *writer) {
    propagation_writer_seal(writer);
    writer->in_group = false;
}
