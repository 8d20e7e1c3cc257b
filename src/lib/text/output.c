/* output.c: the slow paths of output.h, the memory output and the null output. */
#include "lib/text/output.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"

void output_make_space(struct output *out, size_t len) {
    must_within(len, (size_t)OUTPUT_RESERVE_MAX);
    out->ops->make_space(out, len);
    must_within(len, (size_t)(out->end - out->pos));
}

void output_write_slow(struct output *out, struct slice bytes) {
    while (bytes.len) {
        size_t space = (size_t)(out->end - out->pos);
        if (!space) {
            output_make_space(out, bytes.len < OUTPUT_RESERVE_MAX ? bytes.len : OUTPUT_RESERVE_MAX);
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

static size_t memory_wanted(const struct memory_output *m, size_t used, size_t len) {
    size_t wanted = m->capacity * 2;
    if (wanted < used + len) wanted = used + len;
    return wanted < 64 ? 64 : wanted;
}

static void memory_set(struct memory_output *m, size_t used) {
    must_within(used, m->capacity);
    m->out.pos = m->data + used;
    m->out.end = m->data + m->capacity;
}

static void memory_make_space(struct output *out, size_t len) {
    struct memory_output *m = (struct memory_output *)out;
    size_t used = (size_t)(out->pos - m->data);
    m->data = mem_realloc_usable(m->data, memory_wanted(m, used, len), &m->capacity);
    memory_set(m, used);
}
const struct output_ops memory_output_ops = {.make_space = memory_make_space};

static void memory_fail(struct output *out) {
    struct memory_output *m = (struct memory_output *)out;
    mem_free(m->data);
    m->data = NULL;
    m->capacity = 0;
    m->out.failed = true;
    output_discard(out);
}

static void memory_try_space(struct output *out, size_t len) {
    struct memory_output *m = (struct memory_output *)out;
    size_t used = (size_t)(out->pos - m->data);
    char *data = m->out.failed ? NULL : mem_try_realloc(m->data, memory_wanted(m, used, len));
    if (!data) {
        memory_fail(out);
        return;
    }
    m->data = data;
    m->capacity = mem_size(data);
    memory_set(m, used);
}
static const struct output_ops memory_try_ops = {.make_space = memory_try_space, .give_up = memory_fail};

void memory_output_init(struct memory_output *m) {
    *m = (struct memory_output){.out.ops = &memory_output_ops};
}
void memory_output_init_try(struct memory_output *m) {
    *m = (struct memory_output){.out.ops = &memory_try_ops};
}
void memory_output_free(struct memory_output *m) {
    mem_free(m->data);
    *m = (struct memory_output){.out.ops = m->out.ops};
}
void memory_output_clear(struct memory_output *m) {
    memory_set(m, 0);
    m->out.failed = false;
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
