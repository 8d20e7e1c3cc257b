/* sink.c: see sink.h.
 *
 * Periodic sync: after each interval, the sink asks the kernel to start writing it to the disk, waits for the previous
 * interval and drops that from the page cache. So the disk is always busy, and the number of dirty pages is bounded. */
#include "formats/sink.h"
#include "lib/hash/crc64.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static void sum(struct sink *sink) {
    must(sink->summed <= sink->out.pos && sink->out.pos <= sink->out.end);
    if (sink->checksum) sink->crc = crc64(sink->crc, sink->summed, (size_t)(sink->out.pos - sink->summed));
    sink->summed = sink->out.pos;
}

static void hand_over(struct sink *sink, const void *bytes, size_t len) {
    if (!len) return;
    if (!sink->error) sink->error = sink->ops->write(sink, bytes, len);
    sink->flushed += len;
}
/* If space() offers less than OUTPUT_RESERVE_MAX bytes, writers fill the own buffer, which write() copies. */
static void next_buffer(struct sink *sink) {
    size_t size = SINK_BUFFER, space_size = 0;
    char *space = sink->ops->space ? sink->ops->space(sink, &space_size) : NULL;
    if (sink->ops->space) size = space && space_size >= OUTPUT_RESERVE_MAX ? space_size : OUTPUT_RESERVE_MAX;
    sink->buffer = space && space_size >= OUTPUT_RESERVE_MAX ? space : sink->own;
    sink->out.pos = sink->summed = sink->buffer;
    sink->out.end = sink->buffer + size;
}
static void hand_over_buffer(struct sink *sink) {
    sum(sink);
    hand_over(sink, sink->buffer, (size_t)(sink->out.pos - sink->buffer));
    sink->out.pos = sink->summed = sink->buffer;
}
static void empty_buffer(struct sink *sink) {
    hand_over_buffer(sink);
    next_buffer(sink);
}

static void sink_make_space(struct output *out, size_t len) {
    must_within(len, (size_t)OUTPUT_RESERVE_MAX);
    empty_buffer((struct sink *)out);
}
static void sink_share(struct output *out, struct blob *blob) {
    struct sink *sink = (struct sink *)out;
    hand_over_buffer(sink);
    if (sink->checksum) sink->crc = crc64(sink->crc, blob->data, blob->len);
    hand_over(sink, blob->data, blob->len);
    next_buffer(sink);
    blob_release(blob);
}
static const struct output_ops output_ops = {
    .make_space = sink_make_space, .share = sink_share, .share_min = SINK_SHARE_MIN};
_Static_assert((int)SINK_BUFFER >= (int)OUTPUT_RESERVE_MAX, "the buffer is smaller than one reservation");

void sink_init(struct sink *sink, const struct sink_ops *ops, void *context) {
    *sink = (struct sink){.out.ops = &output_ops, .ops = ops, .context = context, .fd = -1};
    sink->own = mem_alloc(SINK_BUFFER);
    next_buffer(sink);
}

static int sync_interval(struct sink *sink, off_t from, off_t len) {
    off_t before = from - len;
    if (sync_file_range(sink->fd, from, len, SYNC_FILE_RANGE_WRITE) != 0)
        return errno == EIO || errno == ENOSPC ? -errno : 0; /* other errors: this kind of file does not support it */
    if (before < 0) return 0;
    if (sync_file_range(sink->fd, before, len,
                        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER) != 0)
        return errno == EIO || errno == ENOSPC ? -errno : 0;
    posix_fadvise(sink->fd, before, len, POSIX_FADV_DONTNEED);
    return 0;
}

static int fd_write(struct sink *sink, const void *bytes, size_t len) {
    const char *at = bytes;
    while (len) {
        ssize_t written = write(sink->fd, at, len);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return written < 0 ? -errno : -EIO;
        at += written, len -= (size_t)written;
    }
    uint64_t now = sink->flushed + (uint64_t)(at - (const char *)bytes);
    while (sink->sync_interval && now - sink->synced >= sink->sync_interval) {
        int error = sync_interval(sink, (off_t)sink->synced, (off_t)sink->sync_interval);
        if (error) return error;
        sink->synced += sink->sync_interval;
    }
    return 0;
}
static const struct sink_ops fd_ops = {.write = fd_write};

void sink_init_fd(struct sink *sink, int fd) {
    sink_init(sink, &fd_ops, NULL);
    sink->fd = fd;
}
void sink_free(struct sink *sink) {
    mem_free(sink->own);
    sink->own = sink->buffer = NULL;
}

uint64_t sink_offset(const struct sink *sink) {
    return sink->flushed + (uint64_t)(sink->out.pos - sink->buffer);
}
uint64_t sink_checksum(struct sink *sink) {
    sum(sink);
    return sink->crc;
}
int sink_flush(struct sink *sink) {
    empty_buffer(sink);
    return sink->error;
}
int sink_sync(struct sink *sink) {
    if (sink_flush(sink) == 0 && fsync(sink->fd) != 0) sink->error = -errno;
    return sink->error;
}
