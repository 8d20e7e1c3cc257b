/* role_commands.c: what depends on the role: the commands that it refuses, its options, ROLE and its lines of INFO.
 *
 * role_limit() installs the command filters and changes the settings that depend on the role, once, whenever the role,
 * the link or an option changes. A primary therefore pays nothing for them. */
#include "server/role_commands.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/text/number.h"
#include "server/clients/client.h"
#include "server/command/command.h"
#include "server/command/dispatch.h"
#include "server/command/spec.h"
#include "server/config/config.h"
#include "server/debug/debug.h"
#include "server/feature.h"
#include "server/repl_hooks.h"
#include "server/role.h"
#include "server/server.h"
#include "server/stats/info.h"
#include <string.h>

static bool started;

/* --- Commands that the role refuses --- */

static enum filter_answer write_ask(struct client *client, const struct command *command, int argc,
                                    const struct slice *argv, const char **error) {
    if (!(dispatch_flags(client, command, argv) & CMD_WRITE)) return FILTER_PASS;
    *error = "READONLY You can't write against a read only replica.";
    return FILTER_REFUSE;
}

static enum filter_answer stale_ask(struct client *client, const struct command *command, int argc,
                                    const struct slice *argv, const char **error) {
    uint32_t flags = dispatch_flags(client, command, argv);
    if (flags & CMD_STALE) return FILTER_PASS;
    /* SCRIPT KILL: the link cannot come back while the script runs. Valkey refuses it and can only be killed. */
    if (flags & CMD_ALLOW_BUSY && dispatch_running()) return FILTER_PASS;
    /* The request to become the primary: with synchronous replication the primary that hands over has already closed
     * the link. */
    if (argc == 4 && strcmp(command->name, "psync") == 0 && slice_is(argv[3], "failover")) return FILTER_PASS;
    *error = "MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.";
    return FILTER_REFUSE;
}

/* A write that is not refused. */
static enum filter_answer note_write(struct client *client, const struct command *command, int argc,
                                     const struct slice *argv, const char **error) {
    if (dispatch_flags(client, command, argv) & CMD_WRITE) role_note_local_change();
    return FILTER_PASS;
}

static struct command_filter note_filter = {.order = FILTER_READONLY, .flags = CMD_WRITE, .ask = note_write};
static struct command_filter write_filter = {.order = FILTER_READONLY, .flags = CMD_WRITE, .ask = write_ask};
static struct command_filter stale_filter = {.order = FILTER_STALE, .ask = stale_ask};

static void role_limit(void) {
    bool replica = role->is_replica;
    if (started) log_set_role(replica ? 'S' : 'M');
    server_pause_deletion(DELETION_PAUSE_REPLICA, replica);
    dispatch_set_filter(&write_filter, replica && role_settings.read_only);
    dispatch_set_filter(&note_filter, replica && !role_settings.read_only);
    dispatch_set_filter(&stale_filter, replica && !role_settings.serve_stale && role->link != ROLE_LINK_CONNECTED);
}

static const char *role_apply(void) {
    role_limit();
    return NULL;
}

/* In import mode a command that writes must delete all expired keys that it looks up, and propagate this, because
 * replicas execute the command with the keys that they have: SUNIONSTORE would find an expired source. */
static bool deletes_expired(void) {
    const struct call *call = dispatch_running();
    return call && call->command->spec->flags & CMD_WRITE && !role->is_replica;
}

void role_start(void) {
    started = true;
    store_settings.deletes_expired = deletes_expired;
    role_enforce = role_limit;
    role_limit();
}

static const char *const link_names[] = {[ROLE_LINK_CONNECT] = "connect",
                                         [ROLE_LINK_CONNECTING] = "connecting",
                                         [ROLE_LINK_HANDSHAKE] = "handshake",
                                         [ROLE_LINK_SYNC] = "sync",
                                         [ROLE_LINK_CONNECTED] = "connected"};

/* --- ROLE and INFO --- */

static long long seconds_since(int64_t now, int64_t since_ms) {
    return since_ms ? (long long)(now - since_ms) / 1000 : -1LL;
}

static void write_sync(struct output *out, int64_t now) {
    long long total = role_sync.total, read = role_sync.read;
    if (total < 0) total = 0;
    info_line(out, "master_sync_total_bytes:%lld\r\nmaster_sync_read_bytes:%lld\r\nmaster_sync_left_bytes:%lld", total,
              read, total - read);
    info_line(out, "master_sync_perc:%.2f", total ? (double)read * 100 / (double)total : 0.0);
    info_line(out, "master_sync_last_io_seconds_ago:%lld", seconds_since(now, role_sync.heard_ms));
}

/* Without a position in a history the offsets are 1, as Valkey shows them. */
static void write_info_of_replica(struct output *out) {
    bool up = role->link == ROLE_LINK_CONNECTED;
    int64_t now = clock_mono_ms(), offset = role->position.known ? role->position.offset : 1;
    info_line(out, "role:slave\r\nmaster_host:%s\r\nmaster_port:%d\r\nmaster_link_status:%s", role->host, role->port,
              up ? "up" : "down");
    info_line(out, "master_last_io_seconds_ago:%lld", up ? seconds_since(now, role->heard_ms) : -1LL);
    info_line(out, "master_sync_in_progress:%d", role->link == ROLE_LINK_SYNC);
    info_line(out, "slave_read_repl_offset:%lld\r\nslave_repl_offset:%lld", (long long)offset + role_sync.read_ahead,
              (long long)offset);
    info_line(out, "replicas_repl_buffer_size:%zu\r\nreplicas_repl_buffer_peak:%zu", role_sync.buffer,
              role_sync.buffer_peak);
    if (role->link == ROLE_LINK_SYNC) write_sync(out, now);
    if (!up) info_line(out, "master_link_down_since_seconds:%lld", seconds_since(now, role->link_since_ms));
    info_line(out, "slave_priority:%lld\r\nslave_read_only:%d\r\nreplica_announced:%lld",
              (long long)config_number("replica-priority"), role_settings.read_only,
              (long long)config_number("replica-announced"));
}

void role_write_info(struct output *out) {
    if (role->is_replica)
        write_info_of_replica(out);
    else
        info_line(out, "role:master");
}

static void role_run(struct call *call) {
    struct reply *reply = call->reply;
    if (!role->is_replica) {
        reply_array(reply, 3);
        reply_bulk_text(reply, "master");
        reply_integer(reply, role->position.offset);
        if (repl_hooks)
            repl_hooks->write_replicas(reply);
        else
            reply_array(reply, 0);
        return;
    }
    reply_array(reply, 5);
    reply_bulk_text(reply, "slave");
    reply_bulk_text(reply, role->host);
    reply_integer(reply, role->port);
    reply_bulk_text(reply, link_names[role->link]);
    reply_integer(reply, role->link == ROLE_LINK_CONNECTED ? role->position.offset : -1);
}

/* --- For tests --- */

static bool link_parse(struct slice name, enum role_link *link) {
    for (size_t i = 0; i < sizeof link_names / sizeof *link_names; i++) {
        if (!slice_is(name, link_names[i])) continue;
        *link = (enum role_link)i;
        return true;
    }
    return false;
}

static void run_debug_role(struct call *call) {
    struct slice what = call->argv[2];
    int64_t port;
    enum role_link link;
    if (slice_is(what, "primary") && call->argc == 3) {
        role_lead();
        role_report();
    } else if (slice_is(what, "replica") && call->argc == 5 && parse_int64(call->argv[4], &port) && port > 0 &&
               port < 65536) {
        role_follow(call->argv[3], (int)port);
    } else if (slice_is(what, "link") && call->argc == 4 && link_parse(call->argv[3], &link)) {
        role_set_link(link);
    } else if (slice_is(what, "as-primary") && call->argc == 3) {
        call->client->flags |= CLIENT_PRIMARY;
    } else {
        reply_syntax_error(call->reply);
        return;
    }
    reply_ok(call->reply);
}

static const struct debug_subcommand role_debug_subcommands[] = {
    {"role", 1, 3, run_debug_role,
     WORDS("ROLE <PRIMARY|REPLICA <host> <port>|LINK <state>|AS-PRIMARY>",
           "    Take a role without following anybody; set the state of a replica's link, as ROLE names it; treat what",
           "    this connection sends as the stream of the primary.")},
    {NULL, 0, 0, NULL, NULL}};

static const struct config_option role_options[] = {
    {OPTION("replica-read-only", CONFIG_BOOL, &role_settings.read_only, "yes"), .alias = "slave-read-only",
     .apply = role_apply},
    {OPTION("replica-serve-stale-data", CONFIG_BOOL, &role_settings.serve_stale, "yes"),
     .alias = "slave-serve-stale-data", .apply = role_apply},
    {OPTION("replica-ignore-maxmemory", CONFIG_BOOL, &role_settings.ignore_maxmemory, "yes"),
     .alias = "slave-ignore-maxmemory"},
    {.name = NULL},
};

static const struct command_spec role_commands[] = {
    {COMMAND("role", role_run, 1, CMD_NO_DATA | CMD_NOSCRIPT | CMD_LOADING | CMD_STALE | CMD_FAST,
             .group = GROUP_SERVER, "2.8.12"),
     .categories = CAT_ADMIN | CAT_DANGEROUS, .complexity = "O(1)",
     .summary = "Returns the role of the server, and its replication offset."},
    {.name = NULL},
};

const struct feature role_feature = {.name = "role",
                                     .options = OPTIONS(role_options),
                                     .commands = COMMANDS(role_commands),
                                     .debug = DEBUG_SUBCOMMANDS(role_debug_subcommands)};
