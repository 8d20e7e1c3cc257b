/* client_list.c: CLIENT LIST, and the cron that checks clients, a slice of them at a time. */
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/remote.h"
#include "server/clients/client_private.h"
#include "server/clients/transactions.h"
#include "server/clients/user.h"
#include "server/command/dispatch.h"
#include "server/config/settings.h"
#include <stdio.h>

enum { CRON_MIN = 5, RECENT_SECONDS = 8, LINE_MAX = 2048, OUTPUT_PIECE = 16 * 1024 };

enum client_class client_class(const struct client *client) {
    if (client->flags & CLIENT_PRIMARY) return CLIENT_CLASS_PRIMARY;
    if (client->flags & CLIENT_REPLICA) return CLIENT_CLASS_REPLICA;
    return client->flags & CLIENT_PUBSUB ? CLIENT_CLASS_PUBSUB : CLIENT_CLASS_NORMAL;
}

const char *client_class_name(enum client_class class) {
    static const char *const names[] = {"normal", "replica", "pubsub", "primary"};
    return names[class];
}

bool client_class_parse(struct slice name, enum client_class *class) {
    for (int i = 0; i < CLIENT_CLASSES; i++) {
        if (!slice_is(name, client_class_name(i))) continue;
        *class = i;
        return true;
    }
    if (slice_is(name, "slave"))
        *class = CLIENT_CLASS_REPLICA;
    else if (slice_is(name, "master"))
        *class = CLIENT_CLASS_PRIMARY;
    else
        return false;
    return true;
}

size_t client_memory(const struct client *client) {
    size_t size = sizeof *client + client->reader.memory, input = 0, output = 0;
    struct client_report report;
    if (client->name) size += mem_size(client->name);
    if (client->lib_name) size += mem_size(client->lib_name);
    if (client->lib_ver) size += mem_size(client->lib_ver);
    if (client->conn) size += conn_memory(client->conn, &input, &output);
    if (!client->states) return size;
    client_report(client, &report);
    return size + report.memory;
}

void client_flags_text(const struct client *client, const struct client_report *report,
                       char text[static CLIENT_FLAGS_TEXT]) {
    const struct {
        bool is;
        char letter;
    } letters[] = {{client->flags & CLIENT_REPLICA && !(client->flags & CLIENT_MIGRATION), 'S'},
                   {client->flags & CLIENT_REPLICA && client->flags & CLIENT_MIGRATION, 'E'},
                   {!(client->flags & CLIENT_REPLICA) && client->flags & CLIENT_MIGRATION, 'i'},
                   {client->flags & CLIENT_MONITOR, 'O'},
                   {client->flags & CLIENT_PRIMARY, 'M'},
                   {client->flags & CLIENT_PUBSUB, 'P'},
                   {transaction_queued(client) >= 0 || transaction_runs(client), 'x'},
                   {client->holds, 'b'},
                   {client->flags & CLIENT_TRACKING, 't'},
                   {report->redirect_broken, 'R'},
                   {report->broadcasts, 'B'},
                   {client->flags & CLIENT_DIRTY_WATCH, 'd'},
                   {client->flags & CLIENT_CLOSE_AFTER_REPLY, 'c'},
                   {client->flags & (CLIENT_CLOSING | CLIENT_CLOSE_WANTED), 'A'},
                   {client->conn && strcmp(conn_transport_name(client->conn), "unix") == 0, 'U'},
                   {client->flags & CLIENT_READONLY, 'r'},
                   {client->flags & CLIENT_NO_EVICT, 'e'},
                   {client->flags & CLIENT_NO_TOUCH, 'T'},
                   {client->flags & CLIENT_IMPORT_SOURCE, 'I'}};
    size_t len = 0;
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        if (letters[i].is) text[len++] = letters[i].letter;
    if (len == 0) text[len++] = 'N';
    text[len] = 0;
}

void client_capa_text(const struct client *client, char text[static CLIENT_FLAGS_TEXT]) {
    size_t len = 0;
    if (client->flags & CLIENT_CAPA_REDIRECT) text[len++] = 'r';
    if (client->flags & CLIENT_CAPA_RDMA_ENDPOINTS) text[len++] = 'e';
    text[len] = 0;
}

/* Bytes of a client's input: not parsed yet; of memory for more; of arguments that are complete. */
struct input_figures {
    size_t waiting, unused, arguments;
};

static struct input_figures input_figures(const struct client *client, const struct connection *conn, size_t memory) {
    size_t input = conn->in_len > client->used ? conn->in_len - client->used : 0;
    struct request_figures request = request_figures(&client->reader, input, conn->sink_len);
    struct input_figures in = {.waiting = request.waiting, .unused = request.missing, .arguments = request.arguments};
    if (memory > conn->in_len) in.unused += memory - conn->in_len;
    if (client->threaded && client->conn) in.waiting += remote_waiting(conn);
    return in;
}

/* Asking the kernel costs more than the rest of the line. */
static void addresses_keep(struct client *client, const char *peer, const char *local) {
    size_t peer_size = strlen(peer) + 1, local_size = strlen(local) + 1;
    client->addresses = mem_alloc(peer_size + local_size);
    memcpy(client->addresses, peer, peer_size);
    memcpy(client->addresses + peer_size, local, local_size);
}

/* `crashing`: without the details of the transport, which a lock of the I/O threads may protect. */
static size_t line_write(struct client *client, char *line, size_t size, bool redacted, bool crashing) {
    static const struct connection none;
    const struct connection *conn = client->conn ? client->conn : &none;
    char peer_text[128] = "", local_text[128] = "", flags[CLIENT_FLAGS_TEXT], capa[CLIENT_FLAGS_TEXT], about[256] = "",
         events[3] = "", transfers[64] = "";
    const char *peer = peer_text, *local = local_text;
    size_t input = 0, output = 0, pending = 0, shared = 0, memory = client_memory_caused(client);
    int fd = -1;
    struct client_report report;
    client_report(client, &report);
    if (client->conn) {
        if (!client->addresses) {
            conn_format_address(conn, true, peer_text);
            conn_format_address(conn, false, local_text);
            if (!crashing && conn->state == CONN_OPEN) addresses_keep(client, peer_text, local_text);
        } else {
            peer = client->addresses, local = peer + strlen(peer) + 1;
        }
        conn_memory(conn, &input, &output);
        pending = conn_pending(conn) + report.held_output;
        shared = conn_pending_shared(conn);
        fd = conn_fd(conn);
        if (!crashing) conn_describe(conn, about, sizeof about);
        bool blocked = pending && !list_is_linked(&client->flush_link) && !dispatch_replies_to(client);
        size_t n = 0;
        if (!conn->reading_paused) events[n++] = 'r';
        if (blocked) events[n++] = 'w';
    }
    client_flags_text(client, &report, flags);
    client_capa_text(client, capa);
    if (report.transfers)
        snprintf(transfers, sizeof transfers, " transfers=%zu pinned=%zu", report.transfers, report.pinned);
    struct client_output_figures out = client_output_figures(client, pending, shared);
    struct input_figures in = input_figures(client, conn, input);
    int64_t now = clock_mono_ms();
    const struct command *exec = transaction_exec(client), *command = exec ? exec : client->current;
    int len = snprintf(
        line, size,
        "id=%llu addr=%s laddr=%s fd=%d name=%s age=%lld idle=%lld flags=%s capa=%s db=%d sub=%d psub=%d ssub=%d "
        "multi=%d "
        "watch=%d qbuf=%zu "
        "qbuf-free=%zu argv-mem=%zu multi-mem=%zu rbs=%zu rbp=%zu obl=%zu oll=%zu omem=%zu tot-mem=%zu events=%s "
        "cmd=%s user=%s "
        "redir=%lld resp=%d lib-name=%s lib-ver=%s tot-net-in=%llu tot-net-out=%llu tot-cmds=%llu transport=%s%s%s%s",
        (unsigned long long)client->id, peer, local, fd,
        redacted       ? "*redacted*"
        : client->name ? client->name
                       : "",
        (long long)(now - client->created_ms) / 1000, (long long)(now - client->active_ms) / 1000, flags, capa,
        client->db ? db_id(client->db) : 0, report.subscriptions[0], report.subscriptions[1], report.subscriptions[2],
        report.queued_commands, report.watched_keys, in.waiting, in.unused, in.arguments + report.waiting_arguments,
        report.queued_memory, (size_t)client->buffer.size, (size_t)client->buffer.peak, out.buffered, out.blocks,
        out.queued, memory, events, command ? command->full_name : "NULL", redacted ? "*redacted*" : client->user->name,
        (long long)report.redirect, client->reply.protocol, client->lib_name ? client->lib_name : "",
        client->lib_ver ? client->lib_ver : "", (unsigned long long)conn->bytes_in,
        (unsigned long long)client_bytes_out(client), (unsigned long long)client->commands,
        client->conn ? conn_transport_name(conn) : "none", about[0] ? " " : "", about, transfers);
    return len < 0 ? 0 : (size_t)len < size ? (size_t)len : size - 1;
}

void client_describe(struct client *client, struct output *out) {
    char line[LINE_MAX];
    output_write(out, (struct slice){line, line_write(client, line, sizeof line, false, false)});
}

static const char *log_text(struct client *client, bool crashing) {
    static char line[LINE_MAX];
    line_write(client, line, sizeof line, server_settings.hide_user_data, crashing);
    return line;
}

const char *client_log_text(struct client *client) {
    return log_text(client, false);
}

const char *client_requester_text(const struct client *client) {
    static char line[LINE_MAX];
    char peer[128] = "", local[128] = "";
    bool redacted = server_settings.hide_user_data;
    if (client->conn) {
        conn_format_address(client->conn, true, peer);
        conn_format_address(client->conn, false, local);
    }
    const char *name = client->name ? client->name : "";
    snprintf(line, sizeof line, "id=%llu addr=%s laddr=%s fd=%d name=%s user=%s lib-name=%s lib-ver=%s",
             (unsigned long long)client->id, peer, local, client->conn ? conn_fd(client->conn) : -1,
             redacted ? "*redacted*" : name, redacted ? "*redacted*" : client->user->name,
             client->lib_name ? client->lib_name : "", client->lib_ver ? client->lib_ver : "");
    return line;
}

const char *client_crash_text(struct client *client) {
    return log_text(client, true);
}

/* --- The cron --- */

static struct list_link *cron_next;
static size_t recent_input[RECENT_SECONDS], recent_output[RECENT_SECONDS];

void client_cron_forget(struct client *client) {
    if (cron_next == &client->link) cron_next = list_next(clients_all(), &client->link);
}

static int recent_second;

static void recent_raise(size_t *slot, size_t *max, size_t size) {
    if (size > *slot) *slot = size;
    if (size > *max) *max = size;
}

void client_recent_input(size_t size) {
    recent_raise(&recent_input[recent_second], &client_stats.recent_max_input, size);
}

static void recent_note(const struct client *client) {
    size_t input = 0, output = 0;
    conn_memory(client->conn, &input, &output);
    client_recent_input(input + client->reader.memory);
    if (conn_pending(client->conn) <= OUTPUT_PIECE) return; /* one piece of send memory does not count as a queue */
    recent_raise(&recent_output[recent_second], &client_stats.recent_max_output, output);
}

static void recent_turn(int second) {
    if (second == recent_second) return;
    recent_second = second;
    recent_input[second] = recent_output[second] = 0;
    client_stats.recent_max_input = client_stats.recent_max_output = 0;
    for (int i = 0; i < RECENT_SECONDS; i++) {
        if (recent_input[i] > client_stats.recent_max_input) client_stats.recent_max_input = recent_input[i];
        if (recent_output[i] > client_stats.recent_max_output) client_stats.recent_max_output = recent_output[i];
    }
}

/* A client whose peer has closed the connection is freed after this time even if it has unsent replies. */
enum { ENDED_MS = 2000 };

/* Receive memory that a client has not used for more than this number of whole seconds is freed. What a large request
 * has left behind shrinks to INPUT_KEPT_SIZE if the next ones are small. */
enum { INPUT_KEPT_SECONDS = 2, INPUT_KEPT_SIZE = 20 * 1024 };

/* Frees memory for input that has not come: free space, and the rest of an announced argument. A transport that
 * reserves input may have told the peer where to write. */
static void input_trim(struct client *client) {
    struct connection *conn = client->conn;
    bool idle = clock_mono_ms() / 1000 - client->active_ms / 1000 > INPUT_KEPT_SECONDS;
    bool smaller = conn->in_kept > INPUT_KEPT_SIZE && conn->in_kept / 2 > client->input_peak;
    client->input_peak = 0;
    if (client->held || (!idle && !smaller)) return;
    conn->in_kept = idle ? 0 : INPUT_KEPT_SIZE;
    conn_trim(conn);
    if (!idle) return;
    if (client->threaded || !conn->sink_len || conn_reserves_input(conn) || client_must_be_obeyed(client)) return;
    request_shrink_large(&client->reader, conn->sink_len);
    if (client->reader.large_missing) conn_receive_stop(conn);
}

/* A client that has been idle for too long. */
static bool client_is_stale(const struct client *client) {
    if (client->conn->state != CONN_OPEN && clock_mono_ms() - client->active_ms > ENDED_MS) return true;
    if (!client_settings.timeout || client->holds) return false;
    if (client->flags & (CLIENT_REPLICA | CLIENT_PRIMARY | CLIENT_PUBSUB | CLIENT_MIGRATION)) return false;
    return clock_mono_ms() - client->active_ms > (int64_t)client_settings.timeout * 1000;
}

void clients_cron(int hz) {
    struct list *all = clients_all();
    size_t count = all->len / (size_t)hz;
    if (count < CRON_MIN) count = CRON_MIN;
    if (count > all->len) count = all->len;
    recent_turn((int)(clock_mono() / 1000000 % RECENT_SECONDS));
    while (count-- && all->len) {
        if (!cron_next) cron_next = list_first(all);
        struct client *client = container_of(cron_next, struct client, link);
        cron_next = list_next(all, cron_next);
        client_count_bytes(client);
        input_trim(client);
        recent_note(client);
        if (client_memory_bounded) client_memory_note(client);
        if (client_is_stale(client)) {
            if (client->conn->state == CONN_OPEN) log_verbose("Closing idle client");
            client_free(client);
        } else {
            client_output_cron(client);
        }
    }
}
