/* source.c: see source.h.
 *
 * The window of a source that is not in memory is in its buffer. Reading more first adds the consumed bytes to the
 * checksum, in long pieces, and then moves the remaining bytes towards the start of the buffer.
 *
 * The address of a byte in the buffer equals its offset in the input modulo the page size. The kernel copies from its
 * page cache with "rep movsb", which on AMD processors is several times slower if source and destination have different
 * alignments.
 *
 * If the input shows its pieces (source_ops.show), the buffer is used only to join bytes that are needed together and
 * are in two pieces. */
#include "formats/source.h"
#include "formats/read_helper.h"
#include "lib/hash/crc64.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PAGE = 4096,
    HELPED_MIN = 8192,        /* shortest string that the helper reads */
    HELPED_MAX = 256 * 1024,  /* bytes of one piece for the helper */
    FILL_AFTER_HELPED = 1024, /* bytes read into the window between large strings; more would be copied twice */
};

/* --- Life --- */

void source_init_memory(struct source *source, struct slice bytes) {
    *source = (struct source){.at = bytes.data, .end = bytes.data + bytes.len, .fd = -1};
    source->summed = source->at;
    source->size = source->end_offset = bytes.len;
}

void source_init(struct source *source, const struct source_ops *ops, void *context, uint64_t size) {
    *source = (struct source){.ops = ops, .context = context, .fd = -1, .size = size, .capacity = SOURCE_BUFFER};
    source->fill_max = source->capacity;
    source->allocation = mem_alloc(source->capacity + PAGE - 1);
    source->buffer = (char *)(((uintptr_t)source->allocation + PAGE - 1) & ~(uintptr_t)(PAGE - 1));
    source->at = source->end = source->summed = source->buffer;
}

static ssize_t fd_read(struct source *source, void *to, size_t len) {
    ssize_t got;
    do
        got = source->helper ? pread(source->fd, to, len, (off_t)(source->file_offset + source->end_offset))
                             : read(source->fd, to, len);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}
static const struct source_ops fd_ops = {.read = fd_read};

void source_init_fd(struct source *source, int fd) {
    struct stat info;
    uint64_t size = UINT64_MAX;
    off_t at = lseek(fd, 0, SEEK_CUR);
    if (at >= 0 && fstat(fd, &info) == 0 && S_ISREG(info.st_mode))
        size = info.st_size > at ? (uint64_t)(info.st_size - at) : 0;
    source_init(source, &fd_ops, NULL, size);
    source->fd = fd;
}

void source_use_helper(struct source *source) {
    struct stat info;
    off_t at = source->fd < 0 || source->helper ? -1 : lseek(source->fd, 0, SEEK_CUR);
    if (at < 0 || fstat(source->fd, &info) != 0 || !S_ISREG(info.st_mode)) return;
    source->file_offset = (uint64_t)at - source->end_offset;
    source->helper = read_helper_new(source->fd, source->checksum);
}

void source_free(struct source *source) {
    read_helper_free(source->helper);
    mem_free(source->allocation);
    *source = (struct source){.failed = true, .fd = -1};
}

/* --- Position --- */

uint64_t source_offset(const struct source *source) {
    return source->failed ? source->failed_at : source->end_offset - (uint64_t)(source->end - source->at);
}

uint64_t source_left(const struct source *source) {
    if (source->failed) return 0;
    if (source->size == UINT64_MAX) return UINT64_MAX;
    /* The size is not an upper bound: a file may grow while it is read. */
    uint64_t offset = source_offset(source), window = (uint64_t)(source->end - source->at);
    return source->size > offset + window ? source->size - offset : window;
}

static void sum_consumed(struct source *source) {
    must(source->summed <= source->at && source->at <= source->end);
    if (source->checksum) source->crc = crc64(source->crc, source->summed, (size_t)(source->at - source->summed));
    source->gap += (uint64_t)(source->at - source->summed);
    source->summed = source->at;
}
void source_start_checksum(struct source *source) {
    source->checksum = true;
    source->crc = source->gap = 0;
    source->summed = source->at;
}
uint64_t source_checksum(struct source *source) {
    if (source_settle(source)) sum_consumed(source);
    return source->crc;
}

static bool source_file_fail(struct source *source, uint64_t offset, int error, const char *format, va_list arguments) {
    if (source->failed) return false;
    source->failed_at = offset;
    source->failed = true;
    source->error = error;
    vsnprintf(source->reason, sizeof source->reason, format, arguments);
    source->at = source->end = source->summed = "";
    return false;
}
bool source_fail(struct source *source, int error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    source_file_fail(source, source_offset(source), error, format, arguments);
    va_end(arguments);
    return false;
}
bool source_fail_at(struct source *source, uint64_t offset, int error, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    source_file_fail(source, offset, error, format, arguments);
    va_end(arguments);
    return false;
}

/* --- Reading --- */

/* Updates the source with the result of a read. */
static ssize_t have_read(struct source *source, ssize_t got) {
    if (got < 0) {
        source_fail(source, (int)got, "reading failed: %s", strerror((int)-got));
        return -1;
    }
    source->end_offset += (uint64_t)got;
    if (source->progress && source->end_offset >= source->progress_next) {
        source->progress_next = source->end_offset + source->progress_interval;
        if (!source_settle(source)) return -1;
        if (!source->progress(source)) {
            source->end_offset -= (uint64_t)got; /* these are not in the window */
            source_fail(source, -ECANCELED, "loading was cancelled");
            return -1;
        }
    }
    return got;
}

/* Reads up to `len` bytes. 0: the end. Negative: the source has failed. */
static ssize_t read_some(struct source *source, void *to, size_t len) {
    if (source->failed) return -1;
    if (!source->ops) return 0;
    return have_read(source, source->ops->read(source, to, len));
}

/* Makes the next piece of the input the window. Returns the same as read_some(). */
static ssize_t show_next(struct source *source) {
    const char *bytes = NULL;
    ssize_t got = have_read(source, source->ops->show(source, &bytes));
    if (got <= 0) return got;
    source->at = source->summed = bytes;
    source->end = bytes + got;
    return got;
}

bool source_fail_truncated(struct source *source) {
    if (!source_settle(source)) return false; /* the helper may know where the input ended */
    source->truncated = true;
    /* A string that is longer than the rest of the input is rejected before the rest is read. */
    bool ahead = !source->ended && source->size != UINT64_MAX && source->size > source->end_offset;
    return source_fail_at(source, ahead ? source->size : source->end_offset, -EINVAL, "unexpected end of the input");
}

/* Extends the window to `len` bytes or to the end of the input. False: the source has failed. */
static bool fill(struct source *source, size_t len) {
    size_t left = (size_t)(source->end - source->at);
    if (source->failed || !source->ops) return !source->failed;
    sum_consumed(source);
    if (left == 0 && source->ops->show) {
        ssize_t got = show_next(source);
        source->ended = got == 0;
        if (got <= 0 || (size_t)got >= len) return got >= 0;
        left = (size_t)got;
    }
    char *start = source->buffer + ((source->end_offset - left) & (PAGE - 1));
    if (left) memmove(start, source->at, left);
    source->at = source->summed = start;
    source->end = start + left;
    while ((size_t)(source->end - source->at) < len) {
        size_t space = source->capacity - (size_t)(source->end - source->buffer),
               missing = len - (size_t)(source->end - start);
        if (space > source->fill_max) space = source->fill_max > missing ? source->fill_max : missing;
        ssize_t got = read_some(source, (char *)source->end, source->ops->show ? missing : space);
        if (got <= 0) {
            source->ended = got == 0;
            return got == 0;
        }
        source->end += got;
    }
    if (source->fill_max < source->capacity) source->fill_max *= 2;
    return true;
}

void source_want_slow(struct source *source, size_t len) {
    if (!source->ended) fill(source, len);
}
bool source_need_slow(struct source *source, size_t len) {
    if (!fill(source, len)) return false;
    return (size_t)(source->end - source->at) >= len || source_fail_truncated(source);
}

bool source_at_end(struct source *source) {
    if (source->at != source->end) return false;
    return !fill(source, 1) || source->at == source->end;
}

/* Bytes that would fill the buffer are read directly to their destination. */
bool source_read_slow(struct source *source, void *to, size_t len) {
    char *next = to;
    for (;;) {
        size_t window = (size_t)(source->end - source->at), piece = window < len ? window : len;
        if (piece) memcpy(next, source->at, piece);
        source->at += piece, next += piece, len -= piece;
        if (!len) return true;
        if (!source->ops || len < source->capacity) {
            if (!source_need_slow(source, len < SOURCE_NEED_MAX ? len : SOURCE_NEED_MAX)) return false;
            continue;
        }
        sum_consumed(source);
        ssize_t got = read_some(source, next, source->capacity);
        source->ended = got == 0;
        if (got <= 0) return got < 0 ? false : source_fail_truncated(source);
        if (source->checksum) source->crc = crc64(source->crc, next, (size_t)got);
        source->gap += (uint64_t)got;
        next += got, len -= (size_t)got;
    }
}

bool source_read_blob(struct source *source, struct blob *blob, size_t at, size_t len) {
    size_t window = (size_t)(source->end - source->at);
    char *to = blob->data + at;
    if (!source->helper || len < window + HELPED_MIN) return source_read(source, to, len);
    if (!source_read(source, to, window)) return false;
    for (to += window, len -= window; len;) {
        size_t piece = len < HELPED_MAX ? len : HELPED_MAX;
        sum_consumed(source);
        read_helper_add(source->helper, blob, to, piece, (off_t)(source->file_offset + source->end_offset), source->crc,
                        source->gap);
        source->crc = source->gap = 0;
        if (have_read(source, (ssize_t)piece) < 0) return false;
        to += piece, len -= piece;
    }
    source->fill_max = FILL_AFTER_HELPED;
    return true;
}

bool source_settle(struct source *source) {
    uint64_t crc;
    off_t failed_at;
    if (!source->helper) return !source->failed;
    sum_consumed(source);
    int64_t bytes = read_helper_finish(source->helper, &crc, &failed_at);
    if (source->failed) return false;
    if (bytes < 0) {
        uint64_t offset = (uint64_t)failed_at - source->file_offset;
        source->truncated = bytes == -ENODATA;
        return source->truncated
                   ? source_fail_at(source, offset, -EINVAL, "unexpected end of the input")
                   : source_fail_at(source, offset, (int)bytes, "reading failed: %s", strerror((int)-bytes));
    }
    source->crc = crc64_combine(crc, source->crc, source->gap);
    source->gap += (uint64_t)bytes;
    return true;
}

bool source_skip(struct source *source, uint64_t len) {
    if (len > source_left(source)) return source_fail_truncated(source);
    while (len) {
        if (!source_need(source, 1)) return false;
        uint64_t window = (uint64_t)(source->end - source->at), piece = window < len ? window : len;
        source->at += piece, len -= piece;
    }
    return true;
}

/* --- Strings --- */

void source_buffer_free(struct source_buffer *buffer) {
    mem_free(buffer->data);
    *buffer = (struct source_buffer){0};
}

static bool resize(struct source *source, struct source_buffer *buffer, uint64_t len) {
    char *data = len < SIZE_MAX ? mem_try_realloc(buffer->data, (size_t)len) : NULL;
    if (!data) return source_fail(source, -ENOMEM, "no memory for a string of %llu bytes", (unsigned long long)len);
    buffer->data = data;
    buffer->capacity = (size_t)len;
    return true;
}

bool source_buffer_reserve(struct source *source, struct source_buffer *buffer, uint64_t len) {
    enum { CAPACITY_MIN = 256 };
    if (source->failed) return false;
    if (__builtin_expect(len <= buffer->capacity && buffer->data, 1)) return true;
    return resize(source, buffer, len < CAPACITY_MIN ? CAPACITY_MIN : len);
}

bool source_keep(struct source *source, struct source_buffer *buffer, uint64_t len, struct slice *bytes) {
    uint64_t left = source_left(source);
    if (len > left) return source_fail_truncated(source);
    uint64_t got = 0, known = left == UINT64_MAX ? SOURCE_STEP : len;
    while (got < len || !buffer->data) {
        uint64_t step = got + (got > known ? got : known);
        if (step > len) step = len;
        if (!source_buffer_reserve(source, buffer, step) ||
            !source_read(source, buffer->data + got, (size_t)(step - got)))
            return false;
        got = step;
    }
    *bytes = (struct slice){buffer->data, (size_t)len};
    return true;
}

bool source_view(struct source *source, struct source_buffer *buffer, uint64_t len, struct slice *bytes) {
    if (len > (size_t)(source->end - source->at)) {
        if (len > SOURCE_NEED_MAX || !source->ops) return source_keep(source, buffer, len, bytes);
        if (!source_need_slow(source, (size_t)len)) return false;
    }
    *bytes = (struct slice){source->at, (size_t)len};
    source->at += len;
    return !source->failed;
}
