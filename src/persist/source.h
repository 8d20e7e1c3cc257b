/* source.h: where persistent formats are read from: memory, a file, or any stream of bytes, with bounded memory.
 *
 * A source shows a window, the bytes [at, end) that are there and not consumed. Readers take bytes from the window and
 * move `at`. When the window has too few bytes, source_need() reads more behind those that are left. Bytes of large
 * strings do not pass through the window: source_read() reads them straight to their destination. An input that lies in
 * memory piece by piece is not copied into the source's buffer: each piece is a window (source_ops.show).
 *
 * Errors are sticky. The first one is kept with its reason and the offset at which it was found; the window is empty
 * from then on, and everything fails. So a reader may check once, after several reads.
 *
 * Lengths that were read are claims. A reader that allocates memory for one asks source_left() first and uses the
 * mem_try_ functions. Where the size of the input is unknown (a connection) it allocates in steps, as bytes arrive.
 *
 * A source belongs to one thread. It may have a helper, a background thread that reads some of the large strings
 * (read_helper.h): source_read_blob(). */
#ifndef PERSIST_SOURCE_H
#define PERSIST_SOURCE_H
#include "lib/slice.h"
#include <stdint.h>
#include <sys/types.h>

enum {
    SOURCE_NEED_MAX = 64 * 1024, /* the most that source_need() may ask for */
    SOURCE_BUFFER = 256 * 1024,  /* bytes of the buffer of a source that is not in memory */
    SOURCE_STEP = 1024 * 1024,   /* what a string of unknown backing grows by at first */
    SOURCE_REASON_MAX = 160
};

struct blob;
struct read_helper;
struct source;
struct source_ops {
    /* Reads 1 to `len` bytes; waits for the first one. 0: the end of the input. A negative errno: it failed. */
    ssize_t (*read)(struct source *source, void *to, size_t len);
    /* NULL, or: shows the next bytes where they lie, 1 or more, and waits for the first one. They stay until the next
     * call of either function. Returns their number, else as read() does. */
    ssize_t (*show)(struct source *source, const char **bytes);
};

struct source {
    const char *at, *end;         /* the window */
    const struct source_ops *ops; /* NULL: all there is, is in the window */
    void *context;                /* of the ops */
    int fd;                       /* of source_init_fd() */
    bool failed;
    bool truncated; /* it failed because the input ended too early */
    bool checksum;  /* source_start_checksum() was called */
    /* Called each time `progress_interval` more bytes were read, all of which have arrived; false: the caller wants no
     * more (-ECANCELED). */
    bool (*progress)(struct source *source);
    void *progress_context;
    uint64_t progress_interval, progress_next;
    /* private */
    char *allocation;   /* which holds `buffer` */
    char *buffer;       /* aligned to a page */
    size_t capacity;    /* bytes of `buffer` */
    const char *summed; /* bytes of the window before it are in `crc` */
    uint64_t crc;
    struct read_helper *helper; /* or NULL */
    uint64_t file_offset;       /* of the input's first byte, if there is a helper */
    uint64_t gap;               /* bytes in `crc`, which starts anew with each piece that the helper gets */
    size_t fill_max;            /* the most to read into the window at once */
    bool ended;                 /* the input is known to have ended */
    uint64_t end_offset;        /* offset of `end` in the input */
    uint64_t size;              /* of the input; UINT64_MAX: unknown */
    uint64_t failed_at;
    int error;
    char reason[SOURCE_REASON_MAX];
};

void source_init_memory(struct source *source, struct slice bytes); /* which must stay */
/* From the present position of a descriptor, which stays the caller's. */
void source_init_fd(struct source *source, int fd);
/* `size`: bytes that the input will have, UINT64_MAX where unknown. */
void source_init(struct source *source, const struct source_ops *ops, void *context, uint64_t size);
void source_free(struct source *source);
/* Reads large strings with two threads from here on, if the input is a regular file and another CPU is free for it. */
void source_use_helper(struct source *source);

uint64_t source_offset(const struct source *source); /* bytes consumed; after a failure, where it was found */
uint64_t source_left(const struct source *source);   /* the most that may still come; UINT64_MAX where unknown */
bool source_at_end(struct source *source);           /* no byte is left. Reads where it must to know */
void source_start_checksum(struct source *source);   /* compute the CRC-64 of what is consumed from here on */
uint64_t source_checksum(struct source *source);     /* CRC-64 of all bytes consumed */

/* Fails with a reason in the format of printf. `error` is a negative errno: -EINVAL for malformed input, -ENOMEM, or
 * what reading returned. Only the first call counts. Returns false. */
bool source_fail(struct source *source, int error, const char *format, ...) __attribute__((format(printf, 3, 4)));
bool source_fail_truncated(struct source *source); /* the input ends too early; the offset is that of its end */
/* The same at an offset that has been passed. */
bool source_fail_at(struct source *source, uint64_t offset, int error, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* The window has at least `len` <= SOURCE_NEED_MAX bytes; moves it where needed. False: the input ends before, and the
 * source has failed. Pointers into the window are dead after the call. */
bool source_need_slow(struct source *source, size_t len);
static inline bool source_need(struct source *source, size_t len) {
    return __builtin_expect((size_t)(source->end - source->at) >= len, 1) || source_need_slow(source, len);
}
/* Makes the window `len` <= SOURCE_NEED_MAX bytes long where the input has that many; the end of the input is no
 * failure. Pointers into the window are dead after the call. */
void source_want_slow(struct source *source, size_t len);
static inline void source_want(struct source *source, size_t len) {
    if (__builtin_expect((size_t)(source->end - source->at) < len, 0)) source_want_slow(source, len);
}
/* Copies the next `len` bytes. False: the input ends before; what was copied is undefined then. */
bool source_read_slow(struct source *source, void *to, size_t len);
static inline bool source_read(struct source *source, void *to, size_t len) {
    if (__builtin_expect((size_t)(source->end - source->at) < len, 0)) return source_read_slow(source, to, len);
    if (len) memcpy(to, source->at, len);
    source->at += len;
    return true;
}
/* Copies the next `len` bytes to the blob, at `at`. If the source has a helper they may arrive later, until
 * source_settle(): only code that does not look at the blob's content may run before. False: as source_read(). */
bool source_read_blob(struct source *source, struct blob *blob, size_t at, size_t len);
/* Waits until the bytes of all blobs have arrived. Without a helper it does nothing. False: the source has failed. */
bool source_settle(struct source *source);
bool source_skip(struct source *source, uint64_t len);
static inline bool source_byte(struct source *source, uint8_t *byte) {
    if (!source_need(source, 1)) return false;
    *byte = (uint8_t)*source->at++;
    return true;
}

/* Memory that is used again for one string after the other. Starts zeroed. */
struct source_buffer {
    char *data;
    size_t capacity;
};
void source_buffer_free(struct source_buffer *buffer);
/* Space for `len` bytes, whatever was there before. False: no memory, and the source has failed. */
bool source_buffer_reserve(struct source *source, struct source_buffer *buffer, uint64_t len);
/* The next `len` bytes, in the window where they fit into it, else in the buffer. Valid until the next call that reads
 * from the source, or uses the buffer. */
bool source_view(struct source *source, struct source_buffer *buffer, uint64_t len, struct slice *bytes);
/* The next `len` bytes, always in the buffer: they survive further reading. */
bool source_keep(struct source *source, struct source_buffer *buffer, uint64_t len, struct slice *bytes);
#endif
