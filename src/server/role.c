/* role.c: see role.h. role_apply() installs the command filters and changes the settings that depend on the role, once,
 * whenever the role, the link or an option changes. A primary therefore pays nothing for them. */
#include "server/role.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/number.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"
#include "server/feature.h"
#include "server/repl_hooks.h"
#include "server/server.h"
#include "server/stats/info.h"
#include <string.h>

const struct repl_hooks *repl_hooks;
static struct role current;
const struct role *const role = &current;
struct role_sync role_sync;
static bool read_only, serve_stale, ignore_maxmemory, started;
static uint64_t positions_lost;
static struct list listeners = LIST_INIT(listeners);
static const char *const link_names[] = {[ROLE_LINK_CONNECT] = "connect",
                                         [ROLE_LINK_CONNECTING] = "connecting",
                                         [ROLE_LINK_HANDSHAKE] = "handshake",
                                         [ROLE_LINK_SYNC] = "sync",
                                         [ROLE_LINK_CONNECTED] = "connected"};

void role_listen(struct role_listener *listener) {
    list_add_listener(&listeners, &listener->link);
}

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

static const char *role_apply(void) {
    bool replica = current.is_replica;
    if (started) log_set_role(replica ? 'S' : 'M');
    server_pause_deletion(DELETION_PAUSE_REPLICA, replica);
    dispatch_set_filter(&write_filter, replica && read_only);
    dispatch_set_filter(&note_filter, replica && !read_only);
    dispatch_set_filter(&stale_filter, replica && !serve_stale && current.link != ROLE_LINK_CONNECTED);
    return NULL;
}

bool role_is_stale(void) {
    return list_is_linked(&stale_filter.link);
}

bool role_is_read_only(void) {
    return read_only;
}

bool role_ignores_maxmemory(void) {
    return current.is_replica && ignore_maxmemory;
}

/* --- Changes --- */

static void changed(void) {
    role_apply();
    listeners_call(&listeners, struct role_listener, changed);
}

/* In import mode a command that writes must delete all expired keys that it looks up, and propagate this, because
 * replicas execute the command with the keys that they have: SUNIONSTORE would find an expired source. */
static bool deletes_expired(void) {
    const struct call *call = dispatch_running();
    return call && call->command->spec->flags & CMD_WRITE && !current.is_replica;
}

void role_start(void) {
    started = true;
    store_settings.deletes_expired = deletes_expired;
    role_apply();
}

void role_follow(struct slice host, int port) {
    char *copy = mem_strndup(host.data, host.len);
    mem_free(current.host);
    current = (struct role){.is_replica = true, .position = current.position, .host = copy, .port = port};
    changed();
}

void role_set_port(int port) {
    current.port = port;
    changed();
}

void role_lead(void) {
    if (!current.is_replica) return;
    mem_free(current.host);
    current = (struct role){.position = current.position};
    changed();
}

void role_set_link(enum role_link link) {
    bool was_up = current.link == ROLE_LINK_CONNECTED, up = link == ROLE_LINK_CONNECTED;
    if (!current.is_replica) return;
    if (was_up != up) current.link_since_ms = clock_mono_ms();
    current.link = link;
    role_apply();
}

void role_set_position(const struct stream_position *position) {
    current.position = *position;
}

void role_set_offset(int64_t offset) {
    must_within(current.position.offset, offset); /* a stream only grows */
    current.position.offset = offset;
}

void role_set_stream_db(int db) {
    current.position.db = db;
}

void role_set_position_known(bool known) {
    current.position.known = known;
    positions_lost += !known;
}

uint64_t role_positions_lost(void) {
    return positions_lost;
}

void role_note_local_change(void) {
    current.position.local_changes |= current.is_replica;
}

void role_data_replaced(void) {
    role_set_position_known(false);
    if (!current.is_replica && repl_hooks) repl_hooks->data_replaced();
}

void role_heard(void) {
    current.heard_ms = clock_mono_ms();
}

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
    bool up = current.link == ROLE_LINK_CONNECTED;
    int64_t now = clock_mono_ms(), offset = current.position.known ? current.position.offset : 1;
    info_line(out, "role:slave\r\nmaster_host:%s\r\nmaster_port:%d\r\nmaster_link_status:%s", current.host,
              current.port, up ? "up" : "down");
    info_line(out, "master_last_io_seconds_ago:%lld", up ? seconds_since(now, current.heard_ms) : -1LL);
    info_line(out, "master_sync_in_progress:%d", current.link == ROLE_LINK_SYNC);
    info_line(out, "slave_read_repl_offset:%lld\r\nslave_repl_offset:%lld", (long long)offset + role_sync.read_ahead,
              (long long)offset);
    info_line(out, "replicas_repl_buffer_size:%zu\r\nreplicas_repl_buffer_peak:%zu", role_sync.buffer,
              role_sync.buffer_peak);
    if (current.link == ROLE_LINK_SYNC) write_sync(out, now);
    if (!up) info_line(out, "master_link_down_since_seconds:%lld", seconds_since(now, current.link_since_ms));
    info_line(out, "slave_priority:%lld\r\nslave_read_only:%d\r\nreplica_announced:%lld",
              (long long)config_number("replica-priority"), read_only, (long long)config_number("replica-announced"));
}

void role_write_info(struct output *out) {
    if (current.is_replica)
        write_info_of_replica(out);
    else
        info_line(out, "role:master");
}

static void role_run(struct call *call) {
    struct reply *reply = call->reply;
    if (!current.is_replica) {
        reply_array(reply, 3);
        reply_bulk_text(reply, "master");
        reply_integer(reply, current.position.offset);
        if (repl_hooks)
            repl_hooks->write_replicas(reply);
        else
            reply_array(reply, 0);
        return;
    }
    reply_array(reply, 5);
    reply_bulk_text(reply, "slave");
    reply_bulk_text(reply, current.host);
    reply_integer(reply, current.port);
    reply_bulk_text(reply, link_names[current.link]);
    reply_integer(reply, current.link == ROLE_LINK_CONNECTED ? current.position.offset : -1);
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
     (const char *const[]){
         "ROLE <PRIMARY|REPLICA <host> <port>|LINK <state>|AS-PRIMARY>",
         "    Take a role without following anybody; set the state of a replica's link, as ROLE names it; treat what",
         "    this connection sends as the stream of the primary.", NULL}},
    {NULL, 0, 0, NULL, NULL}};

static const struct config_option role_options[] = {
    {.name = "replica-read-only",
     .alias = "slave-read-only",
     .type = CONFIG_BOOL,
     .value = &read_only,
     .initial = "yes",
     .apply = role_apply},
    {.name = "replica-serve-stale-data",
     .alias = "slave-serve-stale-data",
     .type = CONFIG_BOOL,
     .value = &serve_stale,
     .initial = "yes",
     .apply = role_apply},
    {.name = "replica-ignore-maxmemory",
     .alias = "slave-ignore-maxmemory",
     .type = CONFIG_BOOL,
     .value = &ignore_maxmemory,
     .initial = "yes"},
    {.name = NULL},
};

static const struct command_spec role_commands[] = {
    {.name = "role",
     .run = role_run,
     .arity = 1,
     .flags = CMD_NO_DATA | CMD_NOSCRIPT | CMD_LOADING | CMD_STALE | CMD_FAST,
     .categories = CAT_ADMIN | CAT_DANGEROUS,
     .group = GROUP_SERVER,
     .since = "2.8.12",
     .complexity = "O(1)",
     .summary = "Returns the role of the server, and its replication offset."},
    {.name = NULL},
};

const struct feature role_feature = {.name = "role",
                                     .options = OPTIONS(role_options),
                                     .commands = COMMANDS(role_commands),
                                     .debug = DEBUG_SUBCOMMANDS(role_debug_subcommands)};
