/* direct_transfer.h: a snapshot that the child process writes straight to the sockets of RDB channels.
 *
 * An RDB channel carries the copy and nothing else, so the child may write to its socket while the server only reads
 * from it. The copy then takes no time of the server, and goes on while the server is busy or stopped. The child waits
 * for the slowest replica; one that accepts no bytes for repl-timeout is dropped. It tells the server through a pipe
 * how many bytes it has sent, which replicas it has dropped, and which ones get the end of the copy.
 *
 * The server drops a replica by shutting its socket down: the child notices that at its next write. */
#ifndef REPL_DIRECT_TRANSFER_H
#define REPL_DIRECT_TRANSFER_H
#include "formats/sink.h"
#include <stdbool.h>
#include <stdint.h>

enum { DIRECT_MAX = 60 }; /* replicas that one child serves so */

/* --- In the child --- */
struct direct_target {
    uint64_t client_id;
    int fd;
    bool lost;
    size_t sent; /* of the bytes that are being written */
    uint64_t progress_us;
};
struct direct_writer {
    struct direct_target targets[DIRECT_MAX];
    int count;
    int notes_fd; /* the write end of the pipe */
    uint64_t timeout_us;
    uint64_t unreported, reported_us; /* bytes sent; when they were reported last */
};
void direct_sink_init(struct sink *sink, struct direct_writer *writer); /* fails when all replicas are lost */
void direct_last_bytes(struct direct_writer *writer);                   /* what is written next ends the copy */
void direct_end(struct direct_writer *writer);                          /* everything is written */

/* --- In the server --- */
enum direct_event {
    DIRECT_NOTHING, /* there are no more notes now */
    DIRECT_SENT,    /* `value` more bytes were sent, to all replicas together */
    DIRECT_LAST,    /* the client `value` gets its last bytes: it may close its connection */
    DIRECT_LOST,    /* the client `value` was dropped */
    DIRECT_CLOSED   /* there are no more notes: the child has ended */
};
/* Reads the next note from the pipe's other end, which does not block. */
enum direct_event direct_read_note(int fd, uint64_t *value);
#endif
