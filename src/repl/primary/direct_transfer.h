/* direct_transfer.h: a snapshot that the child process writes straight to the sockets of RDB channels.
 *
 * An RDB channel carries nothing but the copy, so the child can write to its socket while the server only reads from
 * it. The copy then takes no CPU time of the server, and continues while the server is busy or stopped. The child waits
 * for the slowest replica, and drops one that accepts no bytes for repl-timeout. Through a pipe it reports to the
 * server how many bytes it has sent, which replicas it has dropped, and which ones are about to receive their last
 * bytes.
 *
 * The server drops a replica by shutdown() of its socket, so that the child's next write to it fails. */
#ifndef REPL_PRIMARY_DIRECT_TRANSFER_H
#define REPL_PRIMARY_DIRECT_TRANSFER_H
#include "formats/sink.h"
#include "net/connection.h"
#include <stdbool.h>
#include <stdint.h>

enum { DIRECT_MAX = 60 }; /* replicas per child */

/* --- In the child --- */
struct direct_target {
    uint64_t client_id;
    int fd;
    struct connection *conn; /* for conn_child_send() */
    bool lost;
    size_t sent; /* bytes of the current write */
    uint64_t progress_us;
};
struct direct_writer {
    struct direct_target targets[DIRECT_MAX];
    int count;
    int report_fd; /* the write end of the pipe */
    uint64_t timeout_us;
    uint64_t unreported, reported_us; /* bytes sent since the last report; time of the last report */
};
void direct_sink_init(struct sink *sink, struct direct_writer *writer); /* writes fail when all replicas are lost */
void direct_last_bytes(struct direct_writer *writer);                   /* before the last write */
void direct_end(struct direct_writer *writer);                          /* after the last write */

/* --- In the server --- */
enum direct_event {
    DIRECT_NOTHING, /* there is no report now */
    DIRECT_SENT,    /* `value` more bytes were sent, to all replicas together */
    DIRECT_LAST,    /* the client `value` is about to get its last bytes, and may then close its connection */
    DIRECT_LOST,    /* the client `value` was dropped */
    DIRECT_CLOSED   /* the child has exited */
};
/* Reads the next report from the pipe's other end, which does not block. */
enum direct_event direct_read_report(int fd, uint64_t *value);
#endif
