/* sink.h: where persistent formats are written to: an output (lib/output.h) in front of a bounded buffer, which goes to
 * a file or a callback.
 *
 * Writers of values know only the output, so that a DUMP payload, a file and a replica's stream are written by the same
 * code, and a large value is never built in memory. Large blobs are written from where they lie.
 *
 * An error is sticky: what is written after it is dropped, and sink_flush() and sink_error() tell. Writers need not
 * check after each value; those of long loops do so now and then, to end early.
 *
 * A sink belongs to one thread. */
#ifndef PERSIST_SINK_H
#define PERSIST_SINK_H
#include "lib/output.h"

enum { SINK_BUFFER = 256 * 1024, SINK_SHARE_MIN = 64 * 1024 };

struct sink;
struct sink_ops {
    /* Writes all bytes. 0, or a negative errno. */
    int (*write)(struct sink *sink, const void *bytes, size_t len);
    /* NULL, or: the memory in which the next bytes would lie, and its size; they are built there, and write() gets that
     * address. Does not wait. NULL: there is none at present. */
    char *(*space)(struct sink *sink, size_t *size);
};

struct sink {
    struct output out; /* must be first */
    const struct sink_ops *ops;
    void *context; /* of the ops */
    int fd;        /* of sink_init_fd() */
    bool checksum; /* compute the CRC-64 of what is written: set it before the first byte */
    /* Of a file: after each `sync_interval` bytes, what is written is brought to the disk and dropped from the page
     * cache, so that the final fsync() does not stall other users of the disk. 0: never. */
    uint64_t sync_interval;
    /* private */
    char *own, *buffer, *summed; /* buffer: `own`, or what space() returned */
    uint64_t crc, flushed, synced;
    int error;
};

void sink_init(struct sink *sink, const struct sink_ops *ops, void *context);
void sink_init_fd(struct sink *sink, int fd); /* the descriptor stays the caller's */
void sink_free(struct sink *sink);            /* what was not flushed is lost */

uint64_t sink_offset(const struct sink *sink);          /* bytes written so far, those in the buffer included */
uint64_t sink_checksum(struct sink *sink);              /* CRC-64 of all of them */
static inline int sink_error(const struct sink *sink) { /* 0, or the negative errno of the first failure */
    return sink->error;
}
int sink_flush(struct sink *sink); /* hands over what is in the buffer; 0, or a negative errno */
int sink_sync(struct sink *sink);  /* sink_flush() and fsync() */
#endif
