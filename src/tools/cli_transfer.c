/* cli_transfer.c: --pipe, --rdb and --replica, which transfer streams. */
#include "lib/system/clock.h"
#include "lib/system/random.h"
#include "net/reply_line.h"
#include "tools/cli_format.h"
#include "tools/cli_modes.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

/* --- --pipe --- */

enum { PIPE_CHUNK = 16 * 1024, PIPE_QUEUED_MAX = 256 * 1024, MARK = 20 };

struct pipe_run {
    struct cli *cli;
    struct event_io input;
    struct event_timer tick;
    char mark[MARK]; /* the text of the final ECHO */
    bool input_ended, done;
    uint64_t errors, replies, last_us;
};
static struct pipe_run pipe_run;

static void pipe_finish_input(struct pipe_run *p) {
    struct output *out = &p->cli->session.conn->out;
    event_io_remove(p->cli->session.loop, &p->input);
    p->input_ended = true;
    p->last_us = clock_monotonic_us();
    /* The line end completes a last line that has none. */
    output_write(out, SLICE("\r\n"));
    request_write(out, 2, (struct slice[]){SLICE("ECHO"), slice_make(p->mark, MARK)});
    conn_flush(p->cli->session.conn);
    printf("All data transferred. Waiting for the last reply...\n");
    fflush(stdout);
}

/* Sends standard input until PIPE_QUEUED_MAX bytes are queued in the connection. */
static void pipe_input(struct event_io *io, int mask) {
    struct pipe_run *p = container_of(io, struct pipe_run, input);
    struct connection *conn = p->cli->session.conn;
    char chunk[PIPE_CHUNK];
    while (conn_pending(conn) < PIPE_QUEUED_MAX) {
        ssize_t got = read(STDIN_FILENO, chunk, sizeof chunk);
        if (got < 0 && (errno == EAGAIN || errno == EINTR)) break;
        if (got <= 0) {
            if (got < 0) fprintf(stderr, "Error reading from stdin: %s\n", strerror(errno));
            pipe_finish_input(p);
            return;
        }
        output_write(&conn->out, slice_make(chunk, (size_t)got));
        conn_flush(conn);
        p->last_us = clock_monotonic_us();
        if (got < (ssize_t)sizeof chunk) break;
    }
}

static void pipe_reply(struct pipe_run *p, const struct resp_value *v) {
    p->last_us = clock_monotonic_us();
    if (v->type == RESP_PUSH || v->type == RESP_ATTRIBUTE) return;
    if (p->input_ended && v->type == RESP_BULK && slice_equal(v->text, slice_make(p->mark, MARK))) {
        printf("Last reply received from server.\n");
        p->done = true;
        return;
    }
    p->replies++;
    if (v->type != RESP_ERROR) return;
    p->errors++;
    fprintf(stderr, "%s\n", v->text.data);
}

/* Handles all received replies. Returns false at the end of the connection. */
static bool pipe_replies(struct pipe_run *p) {
    struct session *s = &p->cli->session;
    for (;;) {
        size_t used;
        enum reply_status status = reply_read(&s->reader, conn_peek(s->conn), &used);
        if (used) conn_consume(s->conn, used);
        if (status == REPLY_FAILED) {
            fprintf(stderr, "Protocol error, %s\n", s->reader.error);
            return false;
        }
        if (status == REPLY_PARTIAL) break;
        pipe_reply(p, &s->reader.value);
        if (p->done) return true;
    }
    if (conn_is_open(s->conn)) return true;
    fprintf(stderr, "Error: %s\n",
            s->conn->error ? endpoint_error_text(s->conn, false) : "Server closed the connection");
    return false;
}

int mode_pipe(struct cli *cli) {
    struct pipe_run *p = &pipe_run;
    p->cli = cli;
    cli_connect_or_exit(cli);
    random_bytes(p->mark, MARK);
    p->last_us = clock_monotonic_us();
    struct session *s = &cli->session;
    /* epoll does not accept regular files, so they are read between the turns of the loop. */
    bool watched = event_io_set(s->loop, &p->input, STDIN_FILENO, EVENT_READ, pipe_input) == 0;
    if (watched) fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) | O_NONBLOCK);
    uint64_t timeout_us = (uint64_t)cli->options.pipe_timeout_s * 1000 * 1000;
    while (!p->done) {
        bool full = conn_pending(s->conn) >= PIPE_QUEUED_MAX;
        if (!p->input_ended && !watched)
            pipe_input(&p->input, EVENT_READ);
        else if (!p->input_ended)
            event_io_set(s->loop, &p->input, STDIN_FILENO, full ? 0 : EVENT_READ, pipe_input);
        if (!p->done) event_loop_turn(s->loop, !p->input_ended && !watched && !full ? 0 : 100 * 1000);
        if (!pipe_replies(p)) {
            p->errors++;
            break;
        }
        if (p->input_ended && !p->done && timeout_us && clock_monotonic_us() - p->last_us > timeout_us) {
            fprintf(stderr, "No replies for %lld seconds: exiting.\n", (long long)cli->options.pipe_timeout_s);
            p->errors++;
            break;
        }
    }
    if (watched) fcntl(STDIN_FILENO, F_SETFL, fcntl(STDIN_FILENO, F_GETFL) & ~O_NONBLOCK);
    printf("errors: %llu, replies: %llu\n", (unsigned long long)p->errors, (unsigned long long)p->replies);
    return p->errors > 0;
}

/* --- --rdb and --replica --- */

enum { EOF_MARK = 40, ANSWER_MAX = 1024 /* bytes of a line before the snapshot */ };

static void stream_fail(struct cli *cli, const char *what) {
    struct session *s = &cli->session;
    fprintf(stderr, "%s: %s\n", what,
            s->conn && s->conn->error ? endpoint_error_text(s->conn, false) : "Server closed the connection");
    exit(1);
}

/* False: the server refused the option. The snapshot is then complete. */
static bool replconf(struct cli *cli, const char *name, const char *value) {
    fprintf(stderr, "sending REPLCONF %s %s\n", name, value);
    const struct resp_value *reply = CLI_CALL(cli, "REPLCONF", name, value);
    if (reply->type != RESP_ERROR) return true;
    fprintf(stderr, "REPLCONF %s error: %s\n", name, reply->text.data);
    return false;
}

enum { SYNC_UNTIL_MARK = -1, SYNC_CONTINUES = -2 };

/* Sends SYNC or the user's PSYNC, and reads the header of the reply. Returns the length of the snapshot; or
 * SYNC_UNTIL_MARK, with the mark that ends it; or SYNC_CONTINUES: the stream follows without a snapshot. */
static int64_t sync_begin(struct cli *cli, int argc, const struct slice *argv, char mark[EOF_MARK]) {
    struct session *s = &cli->session;
    session_send(s, argc, argv);
    for (;;) {
        char line[ANSWER_MAX];
        struct slice text;
        ssize_t used = reply_line_read(conn_peek(s->conn), sizeof line, &text);
        if (used < 0 || (used == 0 && conn_wait_readable(s->conn, conn_peek(s->conn).len, -1) != 0))
            stream_fail(cli, "Error reading the answer to SYNC");
        if (used == 0) continue;
        memcpy(line, text.data, text.len);
        line[text.len] = '\0';
        conn_consume(s->conn, (size_t)used);
        if (*line == '-') {
            fprintf(stderr, "SYNC with primary failed: %s\n", line);
            exit(1);
        }
        if (!*line) continue; /* a keepalive while the server writes the snapshot */
        if (*line == '+') {   /* the answer to PSYNC */
            fprintf(stderr, "PSYNC replied %s\n", line);
            if (strncmp(line, "+CONTINUE", 9) == 0) return SYNC_CONTINUES;
            continue;
        }
        if (strncmp(line, "$EOF:", 5) == 0 && strlen(line + 5) == EOF_MARK) {
            memcpy(mark, line + 5, EOF_MARK);
            return SYNC_UNTIL_MARK;
        }
        char *rest;
        long long size = strtoll(line + 1, &rest, 10);
        if (*line != '$' || *rest || size < 0) {
            fprintf(stderr, "SYNC with primary failed: unexpected answer \"%s\"\n", line);
            exit(1);
        }
        return size;
    }
}

static void bytes_keep(int fd, const char *data, size_t len) {
    while (fd >= 0 && len > 0) {
        ssize_t done = write(fd, data, len);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0) {
            fprintf(stderr, "Error writing data to file: %s\n", strerror(errno));
            exit(1);
        }
        data += done;
        len -= (size_t)done;
    }
}

/* Writes the snapshot to the file (-1: discards it). Returns its length. */
static uint64_t snapshot_read(struct cli *cli, int64_t size, const char mark[EOF_MARK], int fd) {
    struct connection *conn = cli->session.conn;
    uint64_t total = 0;
    for (;;) {
        struct slice input = conn_peek(conn);
        size_t take = input.len;
        if (size >= 0) {
            if (take > (uint64_t)size - total) take = (size_t)((uint64_t)size - total);
        } else {
            const char *found = input.len >= EOF_MARK ? memmem(input.data, input.len, mark, EOF_MARK) : NULL;
            if (found) {
                bytes_keep(fd, input.data, (size_t)(found - input.data));
                total += (uint64_t)(found - input.data);
                conn_consume(conn, (size_t)(found - input.data) + EOF_MARK);
                return total;
            }
            take = input.len >= EOF_MARK ? input.len - EOF_MARK + 1 : 0; /* the rest may be the start of the mark */
        }
        bytes_keep(fd, input.data, take);
        total += take;
        if (take) conn_consume(conn, take);
        if (size >= 0 && total == (uint64_t)size) return total;
        if (conn_wait_readable(conn, input.len - take, -1) != 0) stream_fail(cli, "Error reading the snapshot");
    }
}

int mode_rdb(struct cli *cli, bool functions_only) {
    const char *file = cli->options.file;
    char mark[EOF_MARK];
    cli_connect_or_exit(cli);
    replconf(cli, "capa", "eof");
    replconf(cli, "rdb-only", "1");
    if (functions_only && !replconf(cli, "rdb-filter-only", "functions")) {
        fprintf(stderr, "Failed requesting functions only RDB from server, aborting\n");
        return 1;
    }
    int64_t size = sync_begin(cli, 1, (struct slice[]){SLICE("SYNC")}, mark);
    bool standard = strcmp(file, "-") == 0;
    if (size < 0)
        fprintf(stderr, "SYNC sent to primary, writing bytes of bulk transfer until EOF marker to '%s'\n", file);
    else
        fprintf(stderr, "SYNC sent to primary, writing %lld bytes to '%s'\n", (long long)size, file);
    int fd = standard ? STDOUT_FILENO : open(file, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    if (fd < 0) {
        fprintf(stderr, "Error opening '%s': %s\n", file, strerror(errno));
        return 1;
    }
    uint64_t total = snapshot_read(cli, size, mark, fd);
    session_close(&cli->session); /* otherwise the server keeps the connection as a replica */
    if (!standard && (fsync(fd) != 0 || close(fd) != 0)) {
        fprintf(stderr, "Fail to fsync '%s': %s\n", file, strerror(errno));
        return 1;
    }
    if (size < 0)
        fprintf(stderr, "Transfer finished with success after %llu bytes\n", (unsigned long long)total);
    else
        fprintf(stderr, "Transfer finished with success.\n");
    return 0;
}

/* Reads the snapshot after the header of the reply, and discards it. */
static void snapshot_skip(struct cli *cli, int64_t size, const char mark[EOF_MARK]) {
    if (size < 0)
        fprintf(stderr, "Full resync with primary, discarding bytes of bulk transfer until EOF marker...\n");
    else
        fprintf(stderr, "Full resync with primary, discarding %lld bytes of bulk transfer...\n", (long long)size);
    uint64_t total = snapshot_read(cli, size, mark, -1);
    fprintf(stderr, "Full resync done after %llu bytes. Logging commands from primary.\n", (unsigned long long)total);
    if (size < 0) { /* the primary waits for an acknowledgement before it sends the stream */
        fprintf(stderr, "sending REPLCONF ACK 0\n");
        session_send(&cli->session, 3, (struct slice[]){SLICE("REPLCONF"), SLICE("ACK"), SLICE("0")});
    }
}

int mode_replica(struct cli *cli) {
    cli_connect_or_exit(cli);
    replconf(cli, "capa", "eof");
    replconf(cli, "rdb-filter-only", ""); /* a snapshot without keys, which would be discarded anyway */
    return replica_follow(cli, 1, (struct slice[]){SLICE("SYNC")});
}

int replica_follow(struct cli *cli, int argc, const struct slice *argv) {
    char mark[EOF_MARK];
    int64_t size = sync_begin(cli, argc, argv, mark);
    if (size != SYNC_CONTINUES) snapshot_skip(cli, size, mark);
    for (;;) {
        /* Bare line ends between commands are keepalives. */
        struct slice input = conn_peek(cli->session.conn);
        if (input.len && (*input.data == '\n' || *input.data == '\r') && cli->session.reader.depth == 0 &&
            !cli->session.reader.bulk) {
            conn_consume(cli->session.conn, 1);
            continue;
        }
        const struct resp_value *command = session_read(&cli->session, -1);
        if (!command) stream_fail(cli, "Error");
        struct memory_output m = MEMORY_OUTPUT_INIT;
        format_reply(&m.out, command, &cli->options, CLI_CSV);
        cli_show(&m);
    }
}
