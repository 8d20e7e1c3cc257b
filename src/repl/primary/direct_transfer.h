/* direct_transfer.h: a snapshot that its writer, a child process or a thread of a save, writes straight to the sockets
 * of RDB channels.
 *
 * An RDB channel carries nothing but the copy, so the writer can send on its socket while the main thread only reads
 * from it. The main thread then spends no time on sending, and a child continues while the server is busy or stopped.
 * The writer waits for the slowest replica, and drops one that accepts no bytes for repl-timeout. Through a pipe it
 * reports to the server how many bytes it has sent, which replicas it has dropped, and which ones are about to receive
 * their last bytes.
 *
 * The server drops a replica by shutdown() of its socket, so that the writer's next write to it fails. A thread has
 * descriptors of its own (dup()), because the server closes those of its connections. */
#pragma once
#include "formats/sink.h"
#include "net/connection.h"
#include "persistence/background_save.h"
#include <stdbool.h>
#include <stdint.h>

enum { DIRECT_MAX = 60 }; /* replicas per writer */

/* --- In the child, or on the thread --- */
struct direct_target {
    uint64_t client_id;
    int fd;
    struct connection *conn; /* in a child: for conn_child_send(). NULL: send(fd) */
    bool lost;
    size_t sent; /* bytes of the current write */
    uint64_t progress_us;
};
struct direct_writer {
    struct direct_target targets[DIRECT_MAX];
    int count;
    int report_fd; /* the write end of the pipe */
    /* The save that writes, and the read end of a pipe whose end says that it is to stop. NULL: a child that goes on
     * until it is killed. */
    struct background_save *save;
    int stop_fd;
    uint64_t timeout_us;
    uint64_t unreported, reported_us; /* bytes sent since the last report; time of the last report */
};
void direct_sink_init(struct sink *sink, struct direct_writer *writer); /* writes fail when all replicas are lost */
void direct_last_bytes(struct direct_writer *writer);                   /* before the last write; all others are done */
void direct_end(struct direct_writer *writer);                          /* after the last write */

/* --- In the server --- */
enum direct_event {
    DIRECT_NOTHING, /* there is no report now */
    DIRECT_SENT,    /* `value` more bytes were sent, to all replicas together */
    DIRECT_LAST,    /* the client `value` is about to get its last bytes, and may then close its connection */
    DIRECT_LOST,    /* the client `value` was dropped */
    DIRECT_CLOSED   /* the writer has closed the pipe */
};
/* Reads the next report from the pipe's other end, which does not block. */
enum direct_event direct_read_report(int fd, uint64_t *value);
