/* monitor.c: MONITOR. The listener to calls (dispatch.h) is registered only while monitors exist; without one it costs
 * nothing. A line is formatted once and copied to each monitor. */
#include "server/clients/monitor.h"
#include "lib/system/clock.h"
#include "server/clients/subscribers.h"
#include "server/command/command.h"
#include "server/command/dispatch.h"
#include "server/command/spec.h"
#include "server/feature.h"
#include <stdio.h>

static struct subscribers monitors;

/* Copies all bytes between two escapes in one call: a value may have megabytes. */
static void write_quoted(struct output *out, struct slice text) {
    static const char named[] = "\\\"\n\r\t\a\b", letters[] = "\\\"nrtab", digits[] = "0123456789abcdef";
    size_t begin = 0;
    output_write(out, SLICE("\""));
    for (size_t i = 0; i <= text.len; i++) {
        unsigned char c = i < text.len ? (unsigned char)text.data[i] : 0;
        if (c >= ' ' && c <= '~' && c != '"' && c != '\\') continue;
        if (i > begin) output_write(out, (struct slice){text.data + begin, i - begin});
        if (i == text.len) break;
        begin = i + 1;
        const char *name = c ? strchr(named, c) : NULL;
        char escaped[] = {'\\', name ? letters[name - named] : 'x', digits[c >> 4], digits[c & 15]};
        output_write(out, (struct slice){escaped, name ? 2 : sizeof escaped});
    }
    output_write(out, SLICE("\""));
}

static void write_line(const struct call *call, struct output *out) {
    char address[128] = "", head[256];
    const struct connection *conn = call->client->conn;
    if (!conn) {
        snprintf(address, sizeof address, "lua");
    } else if (strcmp(conn_transport_name(conn), "unix") == 0) {
        struct address local;
        snprintf(address, sizeof address, "unix:%s", conn_address(conn, false, &local) ? local.host : "");
    } else {
        conn_format_address(conn, true, address);
    }
    int64_t now = clock_us();
    int len = snprintf(head, sizeof head, "+%lld.%06lld [%d %s]", (long long)(now / 1000000),
                       (long long)(now % 1000000), db_id(call->db), address);
    output_write(out, (struct slice){head, (size_t)len});
    for (int i = 0; i < call->argc; i++) {
        output_write(out, SLICE(" "));
        write_quoted(out, client_hides_argument(call->client, i) ? SLICE("(redacted)") : call->argv[i]);
    }
    output_write(out, SLICE("\r\n"));
}

void monitor_show(const struct call *call) {
    if (!monitors.count) return;
    struct memory_output line;
    memory_output_init_try(&line); /* up to four times as long as the request */
    write_line(call, &line.out);
    if (line.out.failed)
        subscribers_fail(&monitors);
    else
        subscribers_send(&monitors, memory_output_slice(&line));
    memory_output_free(&line);
}

static void observe(struct call *call, uint64_t ticks) {
    if (!(call->command->spec->flags & (CMD_SKIP_MONITOR | CMD_ADMIN))) monitor_show(call);
}
static struct call_listener call_listener = {.after = observe};

/* A monitor could not distinguish replies to data commands from its lines. Valkey refuses such commands, as it does for
 * a replica. */
static enum filter_answer data_ask(struct client *client, const struct command *command, int argc,
                                   const struct slice *argv, const char **error) {
    if (!(client->flags & CLIENT_MONITOR)) return FILTER_PASS;
    *error = "ERR Replica can't interact with the keyspace";
    return FILTER_REFUSE;
}
static struct command_filter data_filter = {
    .order = FILTER_MONITOR, .flags = CMD_READONLY | CMD_WRITE, .ask = data_ask};

static void monitor_leave(struct client *client) {
    if (!(client->flags & CLIENT_MONITOR)) return;
    client->flags &= ~(uint32_t)CLIENT_MONITOR;
    subscribers_leave(&monitors, client);
    if (monitors.count) return;
    call_unlisten(&call_listener);
    dispatch_remove_filter(&data_filter);
}
static struct client_listener client_listener = {.freed = monitor_leave, .reset = monitor_leave};

static void monitor_run(struct call *call) {
    struct client *client = call->client;
    if (!client->conn || client->flags & CLIENT_DENY_BLOCKING) {
        reply_error(call->reply, "ERR MONITOR isn't allowed for DENY BLOCKING client");
        return;
    }
    if (client->flags & (CLIENT_MONITOR | CLIENT_REPLICA | CLIENT_PRIMARY))
        return; /* Valkey replies to the first one */
    client_listen(&client_listener);
    subscribers_join(&monitors, client);
    client->flags |= CLIENT_MONITOR;
    if (monitors.count == 1) {
        call_listen(&call_listener);
        dispatch_add_filter(&data_filter);
    }
    reply_ok(call->reply);
}

static const struct command_spec monitor_commands[] = {
    {COMMAND("monitor", monitor_run, 1, CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT | CMD_LOADING | CMD_STALE,
             .group = GROUP_SERVER, "1.0.0"),
     .complexity = "", .summary = "Shows the commands that the server executes, as they arrive."},
    {.name = NULL},
};

const struct feature monitor_feature = {.name = "monitor", .commands = COMMANDS(monitor_commands)};
