/* direct_transfer.c: see direct_transfer.h.
 *
 * The sockets are non-blocking, because they share this flag with the server's descriptors. The writer polls those that
 * have not accepted all bytes yet.
 *
 * Rejected: a thread for each replica, so that a slow one does not hold up the others. Each thread would need a copy of
 * the snapshot's bytes, and the slowest one decides how long the save takes in any case. */
#include "repl/primary/direct_transfer.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { REPORT_US = 1000 * 1000 };

/* Smaller than PIPE_BUF, so writes are atomic. */
struct report {
    uint64_t event, value;
};

/* False: the pipe is full, because the server is stopped. */
static bool write_report(const struct direct_writer *writer, enum direct_event event, uint64_t value) {
    struct report report = {event, value};
    ssize_t written;
    do written = write(writer->report_fd, &report, sizeof report);
    while (written < 0 && errno == EINTR);
    return written == (ssize_t)sizeof report;
}

static void report_sent(struct direct_writer *writer) {
    if (writer->unreported && write_report(writer, DIRECT_SENT, writer->unreported)) writer->unreported = 0;
    writer->reported_us = clock_monotonic_us();
}

static void drop(const struct direct_writer *writer, struct direct_target *target, const char *why) {
    log_warning("Failed transferring the RDB to the replica of client id=%llu: %s",
                (unsigned long long)target->client_id, why);
    target->lost = true;
    shutdown(target->fd, SHUT_RDWR);
    write_report(writer, DIRECT_LOST, target->client_id);
}

static ssize_t target_send(const struct direct_target *target, const void *bytes, size_t len) {
    if (target->conn) return conn_child_send(target->conn, bytes, len);
    ssize_t sent = send(target->fd, bytes, len, MSG_NOSIGNAL);
    return sent < 0 ? -errno : sent;
}

/* Sends as much as the socket accepts. True: some bytes are left. */
static bool send_some(struct direct_writer *writer, struct direct_target *target, const char *bytes, size_t len) {
    while (target->sent < len) {
        ssize_t sent = target_send(target, bytes + target->sent, len - target->sent);
        if (sent > 0) {
            target->sent += (size_t)sent;
            target->progress_us = clock_monotonic_us();
            writer->unreported += (uint64_t)sent;
        } else if (sent == -EAGAIN) {
            return true;
        } else if (sent != -EINTR) {
            drop(writer, target, strerror((int)-sent));
            return false;
        }
    }
    return false;
}

/* Waits for the sockets. 0 or a negative errno: -ECANCELED if the save stops. */
static int wait_for_space(const struct direct_writer *writer, struct pollfd *full, nfds_t count) {
    struct pollfd *stop = &full[count];
    *stop = (struct pollfd){.fd = writer->save ? writer->stop_fd : -1};
    int ready = poll(full, count + 1, REPORT_US / 1000);
    if (ready < 0) return errno == EINTR ? 0 : -errno;
    if (stop->revents) return -ECANCELED;
    return ready || !writer->save || background_save_goes_on(writer->save) ? 0 : -ECANCELED;
}

static int direct_write(struct sink *sink, const void *bytes, size_t len) {
    struct direct_writer *writer = sink->context;
    struct pollfd full[DIRECT_MAX + 1];
    uint64_t now = clock_monotonic_us();
    for (int i = 0; i < writer->count; i++) {
        writer->targets[i].sent = 0;
        writer->targets[i].progress_us = now;
    }
    for (;;) {
        int left = 0;
        nfds_t waiting = 0;
        now = clock_monotonic_us();
        for (int i = 0; i < writer->count; i++) {
            struct direct_target *target = &writer->targets[i];
            if (target->lost) continue;
            if (send_some(writer, target, bytes, len)) {
                if (now > target->progress_us && now - target->progress_us > writer->timeout_us)
                    drop(writer, target, "timeout");
                else
                    full[waiting++] = (struct pollfd){.fd = target->fd, .events = POLLOUT};
            }
            left += !target->lost;
        }
        if (now - writer->reported_us >= REPORT_US) report_sent(writer);
        if (!left) return -EPIPE;
        if (!waiting) return 0;
        int error = wait_for_space(writer, full, waiting);
        if (error) return error;
    }
}

void direct_sink_init(struct sink *sink, struct direct_writer *writer) {
    static const struct sink_ops ops = {.write = direct_write};
    sink_init(sink, &ops, writer);
}

void direct_last_bytes(struct direct_writer *writer) {
    for (int i = 0; i < writer->count; i++)
        if (!writer->targets[i].lost) write_report(writer, DIRECT_LAST, writer->targets[i].client_id);
}

void direct_end(struct direct_writer *writer) {
    report_sent(writer);
}

enum direct_event direct_read_report(int fd, uint64_t *value) {
    struct report report;
    ssize_t got;
    do got = read(fd, &report, sizeof report);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) return DIRECT_NOTHING;
    if (got != (ssize_t)sizeof report) return DIRECT_CLOSED;
    *value = report.value;
    return (enum direct_event)report.event;
}
