/* source.h: input for readers of persistent formats: memory, a file, or any stream of bytes, read with bounded memory.
 *
 * A source has a window, the bytes [at, end) that have arrived and are not consumed. Readers consume bytes by advancing
 * `at`. If the window has too few bytes, source_need() appends more. Bytes of large strings bypass the window:
 * source_read() reads them directly to their destination. An input that is in memory in pieces is not copied into the
 * source's buffer: each piece becomes the window (source_ops.show).
 *
 * Errors are sticky. The source keeps the first error with its reason and its offset. After it the window is empty and
 * every read fails, so a reader may check once after several reads.
 *
 * Lengths in the input are not trusted. A reader that allocates memory for a length checks source_left() first and uses
 * the mem_try_ functions. If the size of the input is unknown (a connection), it allocates in steps, as bytes arrive.
 *
 * A source belongs to one thread. With a helper (read_helper.h), a background thread reads some of the large strings
 * for source_read_blob(). */
#pragma once
#include "lib/text/slice.h"
#include <stdint.h>
#include <sys/types.h>

enum {
    SOURCE_NEED_MAX = 64 * 1024, /* maximum of source_need() */
    SOURCE_BUFFER = 256 * 1024,  /* size of the buffer if the input is not in memory */
    SOURCE_STEP = 1024 * 1024,   /* first allocation for a string that may be longer than the input */
    SOURCE_REASON_MAX = 256
};

struct blob;
struct read_helper;
struct source;
struct source_ops {
    /* Reads 1 to `len` bytes and waits for the first one. 0: the end of the input. Negative: an errno. */
    ssize_t (*read)(struct source *source, void *to, size_t len);
    /* NULL, or sets *bytes to the next bytes in place, at least one, and waits for the first one. They are valid until
     * the next call of either function. Returns their number, 0 or an errno, as read() does. */
    ssize_t (*show)(struct source *source, const char **bytes);
};

struct source {
    const char *at, *end;         /* the window */
    const struct source_ops *ops; /* NULL: the whole input is in the window */
    void *context;                /* of the ops */
    int fd;                       /* of source_init_fd() */
    bool failed;
    bool truncated; /* the source failed because the input ended too early */
    bool checksum;  /* source_start_checksum() was called */
    /* Called after each `progress_interval` bytes that were read completely. False stops reading with -ECANCELED. */
    bool (*progress)(struct source *source);
    uint64_t progress_interval, progress_next;
    /* private */
    char *allocation;   /* contains `buffer` */
    char *buffer;       /* aligned to a page */
    size_t capacity;    /* bytes of `buffer` */
    const char *summed; /* bytes of the window before it are in `crc` */
    uint64_t crc;
    struct read_helper *helper; /* or NULL */
    uint64_t file_offset;       /* file offset of the first byte of the input; only with a helper */
    uint64_t gap;               /* number of bytes in `crc`, which restarts after each piece that the helper reads */
    size_t fill_max;            /* maximum bytes of one read into the window */
    bool ended;                 /* the end of the input was reached */
    uint64_t end_offset;        /* offset of `end` in the input */
    uint64_t size;              /* of the input; UINT64_MAX: unknown */
    uint64_t failed_at;
    int error;
    char reason[SOURCE_REASON_MAX];
};

void source_init_memory(struct source *source, struct slice bytes); /* the bytes must outlive the source */
/* Reads from the current position of a descriptor, which the caller keeps and closes. */
void source_init_fd(struct source *source, int fd);
/* `size`: total bytes of the input; UINT64_MAX: unknown. */
void source_init(struct source *source, const struct source_ops *ops, void *context, uint64_t size);
void source_free(struct source *source);
/* From now on reads large strings with two threads, if the input is a regular file and more than one CPU is
 * available. */
void source_use_helper(struct source *source);

uint64_t source_offset(const struct source *source); /* bytes consumed; after a failure, its offset */
uint64_t source_left(const struct source *source);   /* upper bound of the remaining bytes; UINT64_MAX: unknown */
bool source_at_end(struct source *source);           /* true: no byte is left. May read */
void source_start_checksum(struct source *source);   /* computes the CRC-64 of all bytes consumed from now on */
uint64_t source_checksum(struct source *source);     /* CRC-64 of all bytes consumed */

/* Sets the error and its reason (as in printf). `error` is a negative errno: -EINVAL for malformed input, -ENOMEM, or
 * the error of a read. Later calls have no effect. Returns false. */
bool source_fail(struct source *source, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool source_fail_truncated(struct source *source); /* the input ends too early; the offset is its end */
/* The same for an error at an earlier offset. */
bool source_fail_at(struct source *source, uint64_t offset, int error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Extends the window to at least `len` <= SOURCE_NEED_MAX bytes. False: the input has fewer bytes, and the source has
 * failed. The call invalidates pointers into the window. */
bool source_need_slow(struct source *source, size_t len);
static inline bool source_need(struct source *source, size_t len) {
    return __builtin_expect((size_t)(source->end - source->at) >= len, 1) || source_need_slow(source, len);
}
/* Extends the window to `len` <= SOURCE_NEED_MAX bytes, or to the end of the input, which is not a failure. The call
 * invalidates pointers into the window. */
void source_want_slow(struct source *source, size_t len);
static inline void source_want(struct source *source, size_t len) {
    if (__builtin_expect((size_t)(source->end - source->at) < len, 0)) source_want_slow(source, len);
}
/* Copies the next `len` bytes. False: the input has fewer bytes; the content of `to` is undefined. */
bool source_read_slow(struct source *source, void *to, size_t len);
static inline bool source_read(struct source *source, void *to, size_t len) {
    if (__builtin_expect((size_t)(source->end - source->at) < len, 0)) return source_read_slow(source, to, len);
    if (len) memcpy(to, source->at, len);
    source->at += len;
    return true;
}
/* Copies the next `len` bytes to the blob, at `at`. With a helper the bytes may be missing until source_settle(): do
 * not read the blob's content before that call. False: as source_read(). */
bool source_read_blob(struct source *source, struct blob *blob, size_t at, size_t len);
/* Waits until the bytes of all blobs have been read. Does nothing without a helper. False: the source has failed. */
bool source_settle(struct source *source);
bool source_skip(struct source *source, uint64_t len);
static inline bool source_byte(struct source *source, uint8_t *byte) {
    if (!source_need(source, 1)) return false;
    *byte = (uint8_t)*source->at++;
    return true;
}

/* Memory that is reused for successive strings. Zero it first. */
struct source_buffer {
    char *data;
    size_t capacity;
};
void source_buffer_free(struct source_buffer *buffer);
/* Makes space for `len` bytes; the previous content is lost. False: out of memory, and the source has failed. */
bool source_buffer_reserve(struct source *source, struct source_buffer *buffer, uint64_t len);
/* Reads the next `len` bytes, in the window if they fit, otherwise in the buffer. Valid until the next call that reads
 * from the source or uses the buffer. */
bool source_view(struct source *source, struct source_buffer *buffer, uint64_t len, struct slice *bytes);
/* Reads the next `len` bytes into the buffer, so that they stay valid during further reads. */
bool source_keep(struct source *source, struct source_buffer *buffer, uint64_t len, struct slice *bytes);
