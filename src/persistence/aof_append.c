/* aof_append.c: formats propagated commands into the buffer that aof_sync.c writes.
 *
 * server/command/propagation_writer.h formats the commands. A value in a blob is not copied: the buffer holds a
 * reference until it is written. */
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/number.h"
#include "persistence/aof_private.h"
#include "server/command/propagation_writer.h"
#include <errno.h>
#include <limits.h>
#include <sys/uio.h>
#include <unistd.h>

enum { KEPT_MAX = 1024 * 1024, IOVECS = 64 };

static struct {
    struct aof_buffer buffer;
    struct propagation_listener listener;
    struct propagation_writer writer;
    int64_t second;                    /* of the last #TS annotation */
    size_t group_start;                /* position of the open group's first command in the buffer */
    uint64_t sequence, group_sequence; /* of the last command; of the last command before the open group */
    bool listening;
} append;

struct reply_barrier aof_barrier;

/* --- The buffer --- */

static void reference_add(struct aof_buffer *buffer, struct blob *blob, size_t at) {
    mem_grow(buffer->references, buffer->count, buffer->capacity, 16);
    must(!buffer->count || buffer->references[buffer->count - 1].at <= at);
    buffer->references[buffer->count++] = (struct aof_reference){at, blob};
    buffer->blob_bytes += blob->len;
}

static void share(struct output *out, struct blob *blob) {
    struct aof_buffer *buffer = container_of(out, struct aof_buffer, bytes.out);
    reference_add(buffer, blob, memory_output_slice(&buffer->bytes).len);
}

/* A memory output that shares large blobs instead of copying them. */
static void bytes_init(struct memory_output *bytes) {
    static struct output_ops ops;
    memory_output_init(bytes);
    ops = *bytes->out.ops;
    ops.share = share;
    ops.share_min = OUTPUT_SHARE_MIN;
    bytes->out.ops = &ops;
}

void aof_buffer_init(struct aof_buffer *buffer) {
    *buffer = (struct aof_buffer){0};
    bytes_init(&buffer->bytes);
}

static void references_release(struct aof_buffer *buffer) {
    for (size_t i = 0; i < buffer->count; i++) blob_release(buffer->references[i].blob);
    buffer->count = 0;
    buffer->blob_bytes = 0;
}

void aof_buffer_free(struct aof_buffer *buffer) {
    references_release(buffer);
    mem_free(buffer->references);
    memory_output_free(&buffer->bytes);
}

void aof_buffer_clear(struct aof_buffer *buffer) {
    references_release(buffer);
    if (buffer->bytes.capacity > KEPT_MAX) {
        memory_output_free(&buffer->bytes);
        bytes_init(&buffer->bytes);
    } else {
        memory_output_clear(&buffer->bytes);
    }
}

/* Appends `tail` and frees it. */
static void aof_buffer_join(struct aof_buffer *buffer, struct aof_buffer *tail) {
    struct slice bytes = memory_output_slice(&tail->bytes);
    size_t before = memory_output_slice(&buffer->bytes).len;
    output_write(&buffer->bytes.out, bytes);
    for (size_t i = 0; i < tail->count; i++)
        reference_add(buffer, blob_hold(tail->references[i].blob), before + tail->references[i].at);
    aof_buffer_free(tail);
}

size_t aof_buffer_len(const struct aof_buffer *buffer) {
    return memory_output_slice(&buffer->bytes).len + buffer->blob_bytes;
}

/* Fills `iov` with the pieces from byte `done` on. Returns their number. */
static int pieces(const struct aof_buffer *buffer, size_t done, struct iovec iov[static IOVECS]) {
    struct slice bytes = memory_output_slice(&buffer->bytes);
    size_t at = 0, position = 0; /* in `bytes`; in the whole buffer, blobs included */
    int count = 0;
    for (size_t i = 0; i <= buffer->count && count + 2 <= IOVECS; i++) {
        const struct aof_reference *reference = i < buffer->count ? &buffer->references[i] : NULL;
        must_within(at, reference ? reference->at : bytes.len);
        size_t plain = (reference ? reference->at : bytes.len) - at;
        if (position + plain > done) {
            size_t skip = done > position ? done - position : 0;
            iov[count++] = (struct iovec){(char *)(uintptr_t)bytes.data + at + skip, plain - skip};
        }
        at += plain;
        position += plain;
        if (!reference) break;
        size_t len = reference->blob->len;
        if (position + len > done) {
            size_t skip = done > position ? done - position : 0;
            iov[count++] = (struct iovec){reference->blob->data + skip, len - skip};
        }
        position += len;
    }
    return count;
}

int aof_buffer_write(const struct aof_buffer *buffer, int fd, size_t *done) {
    size_t len = aof_buffer_len(buffer);
    while (*done < len) {
        struct iovec iov[IOVECS];
        ssize_t written = writev(fd, iov, pieces(buffer, *done, iov));
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return -errno;
        if (written == 0) return -EIO;
        *done += (size_t)written;
    }
    return 0;
}

/* --- Commands --- */

static struct output *out(void) {
    return &append.buffer.bytes.out;
}

static size_t position(void) {
    return memory_output_slice(&append.buffer.bytes).len;
}

void aof_write_timestamp(struct output *out, int64_t second) {
    char text[NUMBER_TEXT_MAX];
    output_write(out, SLICE("#TS:"));
    output_write(out, (struct slice){text, format_int64(text, second)});
    output_write(out, SLICE("\r\n"));
}

static void write_timestamp(void) {
    int64_t second = clock_ms() / 1000;
    if (second <= append.second) return;
    append.second = second;
    aof_write_timestamp(out(), second);
}

static void aof_append_mark(struct propagation_writer *writer) {
    append.group_start = position();
    append.group_sequence = append.sequence;
}

static void insert(struct propagation_writer *writer, struct slice bytes) {
    must_within(append.group_start, position());
    size_t len = position() - append.group_start;
    output_reserve(out(), bytes.len);
    char *from = append.buffer.bytes.data + append.group_start;
    memmove(from + bytes.len, from, len);
    memcpy(from, bytes.data, bytes.len);
    output_commit(out(), bytes.len);
    for (size_t i = append.buffer.count; i > 0 && append.buffer.references[i - 1].at >= append.group_start; i--)
        append.buffer.references[i - 1].at += bytes.len;
}

static void on_command(struct propagation_listener *self, const struct propagation *p) {
    must(append.listening);
    bool first = !append.writer.in_group || append.writer.commands == 0;
    if (first && aof_settings.timestamps) write_timestamp();
    propagation_writer_command(&append.writer, p);
    append.sequence = reply_barrier_issue(&aof_barrier);
}

static void on_begin(struct propagation_listener *self, int db) {
    propagation_writer_begin(&append.writer);
}

void aof_append_seal(void) {
    propagation_writer_seal(&append.writer);
}

static void on_end(struct propagation_listener *self) {
    propagation_writer_end(&append.writer);
}

bool aof_append_in_group(void) {
    return append.listening && append.writer.in_group;
}

void aof_append_start(void) {
    if (append.listening) return;
    aof_buffer_init(&append.buffer);
    append.listener = (struct propagation_listener){
        .command = on_command, .begin = on_begin, .end = on_end, .changes_only = true, .target = PROPAGATE_AOF};
    append.writer = (struct propagation_writer){.out = out(), .mark = aof_append_mark, .insert = insert};
    append.sequence = 0;
    aof_append_select();
    propagate_listen(&append.listener);
    append.listening = true;
}

void aof_append_stop(void) {
    if (!append.listening) return;
    propagate_unlisten(&append.listener);
    aof_buffer_free(&append.buffer);
    append.listening = false;
}

void aof_append_select(void) {
    append.writer.db = -1;
    append.second = 0;
}

struct aof_buffer *aof_append_buffer(void) {
    return &append.buffer;
}
uint64_t aof_append_sequence(void) {
    return append.sequence;
}

static bool group_is_open(void) {
    return aof_append_in_group() && append.writer.commands;
}

bool aof_append_has_complete(void) {
    return group_is_open() ? append.group_start > 0 : aof_buffer_len(&append.buffer) > 0;
}
uint64_t aof_append_complete_sequence(void) {
    return group_is_open() ? append.group_sequence : append.sequence;
}

static void swap(struct aof_buffer *with) {
    struct aof_buffer filled = append.buffer;
    append.buffer = *with;
    *with = filled;
}

void aof_append_take(struct aof_buffer *to) {
    must_equal(aof_buffer_len(to), 0);
    swap(to);
    if (!group_is_open()) return;
    struct slice bytes = memory_output_slice(&to->bytes);
    size_t start = append.group_start, complete = to->count;
    must_within(start, bytes.len);
    while (complete && to->references[complete - 1].at >= start) complete--;
    for (size_t i = complete; i < to->count; i++) {
        reference_add(&append.buffer, to->references[i].blob, to->references[i].at - start);
        to->blob_bytes -= to->references[i].blob->len;
    }
    to->count = complete;
    output_write(out(), (struct slice){bytes.data + start, bytes.len - start});
    to->bytes.out.pos = to->bytes.data + start;
    append.group_start = 0;
}

void aof_append_give_back(struct aof_buffer *unwritten) {
    size_t len = memory_output_slice(&unwritten->bytes).len;
    swap(unwritten);
    aof_buffer_join(&append.buffer, unwritten);
    append.group_start += len;
}
