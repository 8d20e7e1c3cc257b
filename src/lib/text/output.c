/* output.c: the slow paths of output.h, the memory output and the null output. */
#include "lib/text/output.h"
#include "lib/system/memory.h"

void output_write_slow(struct output *out, struct slice bytes) {
    while (bytes.len) {
        size_t space = (size_t)(out->end - out->pos);
        if (!space) {
            out->ops->make_space(out, bytes.len < OUTPUT_RESERVE_MAX ? bytes.len : OUTPUT_RESERVE_MAX);
            space = (size_t)(out->end - out->pos);
        }
        if (space > bytes.len) space = bytes.len;
        memcpy(out->pos, bytes.data, space);
        out->pos += space;
        bytes.data += space, bytes.len -= space;
    }
}

void output_write_blob(struct output *out, struct blob *blob) {
    if (output_shares(out, blob)) {
        out->ops->share(out, blob_hold(blob));
        if (out->end > out->pos) out->end--; /* see output.h */
    } else
        output_write(out, blob_slice(blob));
}

void output_discard(struct output *out) {
    static _Thread_local char scratch[OUTPUT_RESERVE_MAX];
    out->pos = scratch;
    out->end = scratch + sizeof scratch;
}

static void memory_make_space(struct output *out, size_t len) {
    struct memory_output *m = (struct memory_output *)out;
    size_t used = (size_t)(out->pos - m->data), wanted = m->capacity * 2;
    if (wanted < used + len) wanted = used + len;
    if (wanted < 64) wanted = 64;
    m->data = mem_realloc_usable(m->data, wanted, &m->capacity);
    out->pos = m->data + used;
    out->end = m->data + m->capacity;
}
static const struct output_ops memory_ops = {.make_space = memory_make_space};

void memory_output_init(struct memory_output *m) {
    *m = (struct memory_output){.out.ops = &memory_ops};
}
void memory_output_free(struct memory_output *m) {
    mem_free(m->data);
    memory_output_init(m);
}
void memory_output_clear(struct memory_output *m) {
    m->out.pos = m->data;
}

static void null_make_space(struct output *out, size_t len) {
    struct null_output *n = (struct null_output *)out;
    out->pos = n->scratch;
    out->end = n->scratch + sizeof(n->scratch);
}
static void null_share(struct output *out, struct blob *blob) {
    blob_release(blob);
}
static const struct output_ops null_ops = {
    .make_space = null_make_space, .share = null_share, .share_min = OUTPUT_SHARE_MIN};

void null_output_init(struct null_output *n) {
    n->out.ops = &null_ops;
    null_make_space(&n->out, 0);
}
