/* sink.h: output for writers of persistent formats: an output (lib/text/output.h) with a bounded buffer, which is
 * written to a file or passed to a callback.
 *
 * Writers of values use only the output, so the same code writes a DUMP payload, a file and a replica's stream, and a
 * large value is never serialized in memory as a whole. Large blobs are written without a copy.
 *
 * Errors are sticky: after an error, written bytes are dropped, and sink_flush() and sink_error() return the error.
 * Writers need not check after each value; long loops check from time to time to end early.
 *
 * A sink belongs to one thread. */
#pragma once
#include "lib/text/output.h"

enum { SINK_BUFFER = 256 * 1024, SINK_SHARE_MIN = 64 * 1024 };

struct sink;
struct sink_ops {
    /* Writes all bytes. Returns 0 or a negative errno. */
    int (*write)(struct sink *sink, const void *bytes, size_t len);
    /* NULL, or returns the memory in which the sink builds the next bytes, and its size; write() then receives that
     * address. Must not wait. NULL: no memory is available now. */
    char *(*space)(struct sink *sink, size_t *size);
};

struct sink {
    struct output out; /* must be first */
    const struct sink_ops *ops;
    void *context; /* of the ops */
    int fd;        /* of sink_init_fd() */
    bool checksum; /* compute the CRC-64 of the bytes written; set it before the first byte */
    /* For files: after each `sync_interval` bytes, the data is synced to the disk and dropped from the page cache, so
     * that the final fsync() does not stall other users of the disk. 0: never. */
    uint64_t sync_interval;
    /* private */
    char *own, *buffer, *summed; /* buffer: `own`, or the memory from space() */
    uint64_t crc, flushed, synced;
    int error;
};

void sink_init(struct sink *sink, const struct sink_ops *ops, void *context);
void sink_init_fd(struct sink *sink, int fd); /* the caller keeps and closes the descriptor */
void sink_free(struct sink *sink);            /* bytes that were not flushed are lost */

uint64_t sink_offset(const struct sink *sink);          /* bytes written so far, including those in the buffer */
uint64_t sink_checksum(struct sink *sink);              /* CRC-64 of these bytes */
static inline int sink_error(const struct sink *sink) { /* 0, or the negative errno of the first failure */
    return sink->error;
}
int sink_flush(struct sink *sink); /* writes the buffer; 0 or a negative errno */
int sink_sync(struct sink *sink);  /* sink_flush() and fsync() */
