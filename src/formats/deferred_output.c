/* deferred_output.c: see deferred_output.h. */
#include "formats/deferred_output.h"
#include "formats/rdb.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include <string.h>

/* --- Batches --- */

void deferred_batch_free(struct deferred_batch *batch) {
    for (size_t i = 0; i < batch->strings; i++)
        if (batch->string[i].blob) blob_release(batch->string[i].blob);
    mem_free(batch->string);
    mem_free(batch);
}

static void write_bytes(const struct deferred_batch *batch, struct output *out, size_t from, size_t to) {
    must_within(to, batch->len);
    if (from < to) output_write(out, (struct slice){batch->bytes + from, to - from});
}

/* In pieces, so that a long string does not delay the end of the thread's work. */
static void write_pieces(struct output *out, struct slice text, const _Atomic bool *stop) {
    enum { PIECE = 1024 * 1024 };
    while (text.len && !*stop) {
        size_t len = text.len < PIECE ? text.len : PIECE;
        output_write(out, (struct slice){text.data, len});
        text.data += len, text.len -= len;
    }
}

void deferred_batch_write(const struct deferred_batch *batch, struct output *out, const _Atomic bool *stop) {
    size_t written = 0;
    for (size_t i = 0; i < batch->strings && !*stop; i++) {
        const struct deferred_string *string = &batch->string[i];
        write_bytes(batch, out, written, string->at);
        written = (size_t)string->at + string->len;
        must_within(written, batch->len);
        struct slice text =
            string->blob ? blob_slice(string->blob) : (struct slice){batch->bytes + string->at, string->len};
        if (!string->plain && rdb_write_packed(out, text)) continue;
        if (!string->plain) rdb_write_length(out, text.len);
        write_pieces(out, text, stop);
    }
    write_bytes(batch, out, written, batch->len);
}

/* --- The writer --- */

static void begin(struct deferred_output *output) {
    struct deferred_batch *batch = mem_alloc(sizeof *batch);
    batch->len = batch->held = batch->strings = batch->capacity = 0;
    batch->string = NULL;
    batch->owner = NULL;
    batch->keys = 0;
    output->batch = batch;
    output->out.pos = batch->bytes;
    output->out.end = batch->bytes + DEFERRED_BATCH;
}

static size_t used(const struct deferred_output *output) {
    return (size_t)(output->out.pos - output->batch->bytes);
}

void deferred_output_flush(struct deferred_output *output) {
    struct deferred_batch *batch = output->batch;
    batch->len = used(output);
    output->out.end = batch->bytes + DEFERRED_BATCH; /* output_write_blob() moves it */
    if (!batch->len && !batch->strings) return;
    begin(output);
    output->full(output->context, batch);
}

static void deferred_make_space(struct output *out, size_t len) {
    must_within(len, (size_t)OUTPUT_RESERVE_MAX);
    deferred_output_flush((struct deferred_output *)out);
}

static void add_string(struct deferred_output *output, const struct deferred_string *string) {
    enum { STRINGS_FIRST = 64 };
    struct deferred_batch *batch = output->batch;
    if (batch->strings == batch->capacity) {
        batch->capacity = batch->capacity ? batch->capacity * 2 : STRINGS_FIRST;
        batch->string = mem_realloc(batch->string, batch->capacity * sizeof *batch->string);
    }
    batch->string[batch->strings++] = *string;
}

/* Takes over a reference. */
static void add_blob(struct deferred_output *output, struct blob *blob, bool plain) {
    add_string(output, &(struct deferred_string){.at = (uint32_t)used(output), .plain = plain, .blob = blob});
    output->batch->held += blob->len;
    if (output->batch->held >= DEFERRED_BATCH) deferred_output_flush(output);
}

static void deferred_share(struct output *out, struct blob *blob) {
    add_blob((struct deferred_output *)out, blob, true);
}

static void deferred_string(struct output *out, struct slice text, struct blob *blob) {
    struct deferred_output *output = (struct deferred_output *)out;
    if (output->uncompressed) {
        rdb_write_plain(out, text, blob);
        return;
    }
    if (blob && blob->len >= DEFERRED_SHARE_MIN) {
        add_blob(output, blob_hold(blob), false);
        return;
    }
    if (text.len > (size_t)(out->end - out->pos)) deferred_output_flush(output);
    if (text.len > DEFERRED_BATCH) {
        struct blob *copy = blob_try_new(text.len);
        if (copy) {
            memcpy(copy->data, text.data, text.len);
            add_blob(output, copy, false);
        } else { /* in pieces, which cannot be compressed */
            rdb_write_plain(out, text, NULL);
        }
        return;
    }
    add_string(output, &(struct deferred_string){.at = (uint32_t)used(output), .len = (uint32_t)text.len});
    output_write(out, text);
}

static void deferred_string_copied(struct output *out, struct slice text, struct blob *blob) {
    deferred_string(out, text, NULL);
}

static const struct output_ops copying_ops = {.make_space = deferred_make_space, .string = deferred_string_copied};
static const struct output_ops deferred_ops = {.make_space = deferred_make_space,
                                               .share = deferred_share,
                                               .share_min = DEFERRED_SHARE_MIN,
                                               .string = deferred_string};

void deferred_output_init(struct deferred_output *output, void (*full)(void *, struct deferred_batch *),
                          void *context) {
    *output = (struct deferred_output){.out.ops = &deferred_ops, .full = full, .context = context};
    begin(output);
}
void deferred_output_copies(struct deferred_output *output, bool copies) {
    output->out.ops = copies ? &copying_ops : &deferred_ops;
}
size_t deferred_output_memory(const struct deferred_output *output) {
    return deferred_batch_memory(output->batch) + output->batch->held;
}
void deferred_output_free(struct deferred_output *output) {
    output->batch->len = used(output);
    deferred_batch_free(output->batch);
    output->batch = NULL;
}
