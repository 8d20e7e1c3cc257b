/* propagation_writer.h: writes what is propagated (propagate.h) as requests. The append-only file, replicas and DEBUG
 * FOLLOW read the same bytes: each command as a client would send it, SELECT where the database changes, MULTI and EXEC
 * around a group of two or more commands.
 *
 * A group needs MULTI if it has a second command. So the writer marks where the group begins, and inserts MULTI there
 * when the second command arrives. The owner of the output implements mark() and insert(). Large values are passed to
 * the output as blobs (output_write_blob). */
#pragma once
#include "lib/text/output.h"
#include "server/command/propagate.h"

struct propagation_writer {
    struct output *out;
    void (*mark)(struct propagation_writer *writer);                       /* a group's first command begins here */
    void (*insert)(struct propagation_writer *writer, struct slice bytes); /* at the mark */
    int db;            /* selected by what was written; -1: none, so that SELECT precedes the next command */
    bool in_group;     /* between begin and end */
    uint64_t commands; /* of the group, written since begin or seal */
};
void propagation_writer_begin(struct propagation_writer *writer);
void propagation_writer_command(struct propagation_writer *writer, const struct propagation *propagation);
/* Ends the group here; the commands that follow form a group of their own. */
void propagation_writer_seal(struct propagation_writer *writer);
void propagation_writer_end(struct propagation_writer *writer);
