/* sync.c: synchronous replication in the server: drives the state machine (sync_who.h) with connections, the time and
 * commands, and carries out its effects. See sync.h.
 *
 * On a primary each change of the data is issued to a reply barrier (server/clients/reply_barrier.h). Before the loop
 * waits, the end of the stream is marked; the barrier releases the replies when the mark is committed. A read while the
 * lease is over waits until replicas have acknowledged a COMMIT that the stream gets at the end of the turn. So a
 * primary that was frozen, or cut off, answers no stale read. sync_lease.h decides all that.
 *
 * On a replica the changes that it executes are marked in the same way, and released by the COMMIT messages of the
 * primary: a reader of a replica sees old data, but no data that may disappear.
 *
 * A filter refuses commands on data while this server is a primary that does not lead, stands for election, or has too
 * few replicas. Commands of the server itself (expiry, eviction) are not refused: they depend on the time and on memory
 * only, and what they delete is shown to nobody before it is committed, because reads wait. The exception is a read
 * that itself finds a key expired: its reply does not wait for the DEL, and is true by this server's wall clock. */
#include "repl/sync/sync.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include "persistence/aof.h"
#include "repl/repl_feed.h"
#include "repl/replica.h"
#include "repl/sync/sync_lease.h"
#include "server/clients/blocking.h"
#include "server/clients/reply_barrier.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/role.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TICK_US = 20 * 1000,
    COMMIT_DELAY_US = 5 * 1000 /* the longest time for which replicas do not know that a write is committed */
};

bool sync_on, sync_fsync;
struct sync_settings_of_server sync_settings;
struct sync_who sync_who;

const struct sync_host *sync_host;
static bool may_show(struct reply_barrier *self);
static const char *refusal(struct reply_barrier *self);
static struct reply_barrier barrier = {.may_show = may_show, .refusal = refusal};
static struct sync_lease lease = {.committed = -1};
static struct event_timer tick_timer, commit_timer;
static bool writable; /* sync_who_writable() */
static bool started;  /* the data set is loaded */
static bool had_file; /* of promises, when it started */

int64_t sync_now_ms(void) {
    return (int64_t)(clock_boot_us() / 1000);
}

/* --- Replies --- */

static void on_change(struct propagation_listener *self, const struct propagation *propagation) {
    sync_lease_changed(&lease, reply_barrier_issue(&barrier), lease.changed_at ? 0 : clock_boot_us());
}
static struct propagation_listener changes = {.command = on_change, .changes_only = true, .target = PROPAGATE_REPLICAS};

static void send_commit(void) {
    char text[NUMBER_TEXT_MAX];
    if (repl_stream_is_marked() || repl_offset_is_final()) return;
    struct slice offset = {text, format_int64(text, sync_lease_tell(&lease))};
    repl_feed_request(3, (struct slice[]){SLICE("REPLCONF"), SLICE("COMMIT"), offset});
}

/* Before what this turn has written to the stream is sent. Within a transaction its place is not known yet. */
static void mark(void) {
    if (repl_stream_is_marked()) return;
    bool leads = sync_who.status == SYNC_LEADING;
    if (lease.issued == lease.marked && !leads) return;
    uint64_t now = clock_boot_us();
    int64_t from = role->position.offset;
    if (leads && sync_lease_asks(&lease, replicas.len != 0, now)) send_commit();
    sync_lease_mark(&lease, from, role->position.offset, now);
}

static uint64_t commit_due(struct event_timer *timer) {
    if (sync_who.status == SYNC_LEADING && sync_lease_has_news(&lease)) send_commit();
    return 0;
}

static void committed_up_to(int64_t offset) {
    if (!sync_lease_commit(&lease, offset)) return;
    if (sync_who.status == SYNC_LEADING && sync_lease_has_news(&lease) && !commit_timer.heap_index)
        event_timer_set(server.loop, &commit_timer, COMMIT_DELAY_US, commit_due);
    reply_barrier_release(&barrier, lease.released);
}

/* Closes all clients that wait for replies: the replies will not come. */
static void fail_waiting(const char *reason) {
    size_t closed = reply_barrier_close_waiting();
    if (closed) log_warning("Synchronous replication: closed %zu clients that waited for replies: %s", closed, reason);
}

/* Replaces all marks by one at the end of the data: nothing up to there is known to be committed. Replies that wait go
 * on waiting for it. */
static void mark_all_again(void) {
    sync_lease_reset(&lease, reply_barrier_issue(&barrier), role->position.offset, clock_boot_us());
}

/* The same after the clients that wait for replies were closed; `unblocked`: those that wait for keys, or for replicas,
 * get this error. It shows no data, so the barrier need not hold it. */
static void mark_data(const char *reason, const char *unblocked) {
    fail_waiting(reason);
    reply_barrier_disarm(&barrier);
    list_each(clients_all(), link) {
        struct client *client = container_of(link, struct client, link);
        if (unblocked && blocking_command(client)) client_unblock(client, unblocked);
    }
    reply_barrier_arm(&barrier);
    mark_all_again();
}

/* --- The filter --- */

static void update(void) {
    writable = sync_who_writable(&sync_who);
}

static bool lease_holds(void) {
    return sync_lease_holds(&lease, clock_boot_us());
}

/* A primary shows data only while it knows that no other server leads. A replica shows what is committed. */
static bool may_show(struct reply_barrier *self) {
    if (sync_who.status != SYNC_LEADING) return true;
    uint64_t now = clock_boot_us();
    enum sync_read read = sync_lease_read(&lease, now);
    if (read == SYNC_READ_ASKS) sync_lease_asked(&lease, reply_barrier_issue(&barrier), now);
    return read == SYNC_READ_PASSES;
}

static const uint32_t DATA_FLAGS = CMD_WRITE | CMD_READONLY | CMD_RUNS_SCRIPT | CMD_SHOWS_DATA;

static bool is_plain_replica(void) {
    return role_is_replica() && sync_who.status == SYNC_FOLLOWING;
}

static enum filter_answer data_look(struct client *client, const struct command *command, int argc,
                                    const struct slice *argv) {
    return writable ? FILTER_PASS : FILTER_ASK;
}

static enum filter_answer data_ask(struct client *client, const struct command *command, int argc,
                                   const struct slice *argv, const char **error) {
    static char text[320];
    if (!started) return FILTER_PASS;
    if (is_plain_replica()) {
        if (role->link == ROLE_LINK_CONNECTED || sync_lease_all_released(&lease)) return FILTER_PASS;
        *error =
            "NOSYNCREPLICAS This replica has writes that may never be acknowledged, and its link to the primary is "
            "down.";
        return FILTER_REFUSE;
    }
    if (sync_who.status == SYNC_LEADING) {
        /* WAIT: it waits for what is missing. */
        if (writable || (command && !(command->spec->flags & DATA_FLAGS))) return FILTER_PASS;
        const struct sync_members *members = &sync_who.state.set.now;
        int least = members->replicas > sync_settings.replicas ? members->replicas : sync_settings.replicas;
        snprintf(text, sizeof text,
                 "NOSYNCREPLICAS Not enough in-sync replicas: %d of at least %d (min-sync-replicas) are connected.",
                 sync_who_in_sync(&sync_who), least);
    } else {
        snprintf(text, sizeof text,
                 "NOSYNCREPLICAS This server does not lead its %s: %s. Use %s, or accept that acknowledged writes are "
                 "lost: REPLCONF SYNC-FORCE ACCEPT-LOSS.",
                 sync_host ? "shard" : "group", sync_who.obstacle ? sync_who.obstacle : "it is not the primary",
                 sync_host ? "CLUSTER FAILOVER on a replica" : "REPLICAOF to follow the primary");
    }
    *error = text;
    return FILTER_REFUSE;
}
static struct command_filter data_filter = {
    .order = FILTER_REPLICAS, .flags = DATA_FLAGS | CMD_BLOCKING, .look = data_look, .ask = data_ask};

static const char *refusal(struct reply_barrier *self) {
    const char *error = NULL;
    return writable || data_ask(NULL, NULL, 0, NULL, &error) == FILTER_PASS ? NULL : error;
}

/* --- Effects --- */

static uint64_t effect_save(void *context, const struct sync_state *state) {
    return sync_file_save(state);
}
static int64_t effect_offset(void *context) {
    return role->position.offset;
}
static void effect_ask(void *context, const struct sync_member *member, const struct sync_ask *ask) {
    sync_asker_ask(member, ask);
}
static void effect_unfollow(void *context) {
    repl_drop_link(true);
}
static void effect_copy_from(void *context, const struct sync_member *member) {
    log_notice("Synchronous replication: copying the newest data from %s:%d before leading", member->host,
               member->port);
    repl_follow(slice_of(member->host), member->port, REPL_FOLLOW);
}

static void effect_lead(void *context) {
    log_notice("Synchronous replication: this server leads its group in term %llu",
               (unsigned long long)sync_who.standing.number);
    if (role_is_replica()) {
        repl_lead();
    } else if (!repl_stream_has_backlog()) {
        repl_history_new();
    }
    if (!repl_stream_has_backlog()) repl_stream_create_backlog();
    /* Nothing of the data is known to be committed before an entry of this term is. */
    mark_all_again();
    if (sync_host) sync_host->leads();
}

static void effect_elected(void *context) {
    if (sync_host->owns())
        sync_who_lead(&sync_who, sync_now_ms());
    else
        sync_host->elected();
}

static void effect_stand_down(void *context) {
    log_warning("Synchronous replication: this server no longer leads its group");
    writable = false;
    /* The data may have writes that no reply has acknowledged. A reader of this server, once it is a replica, waits
     * until the new primary has committed up to here, or its copy has replaced the data. */
    mark_data("this server is no longer the primary",
              "UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)");
    repl_disconnect_replicas("this server no longer leads its group");
}

static void effect_send_set(void *context, const struct sync_set *set) {
    struct memory_output text;
    memory_output_init(&text);
    sync_set_print(&text.out, set);
    repl_feed_request(3, (struct slice[]){SLICE("REPLCONF"), SLICE("SYNC-SET"), memory_output_slice(&text)});
    memory_output_free(&text);
}

static void effect_say_stored(void *context, const struct sync_set *set) {
    char number[NUMBER_TEXT_MAX], version[NUMBER_TEXT_MAX];
    struct slice words[] = {SLICE("REPLCONF"),
                            SLICE("SYNC-STORED"),
                            {number, format_uint64(number, set->term.number)},
                            slice_of(set->term.id),
                            {version, format_uint64(version, set->version)}};
    apply_say(5, words);
}

static void effect_committed(void *context, int64_t offset) {
    committed_up_to(offset);
}
static void effect_log(void *context, const char *text) {
    log_notice("Synchronous replication: %s", text);
}
static const struct sync_effects effects = {.save = effect_save,
                                            .offset = effect_offset,
                                            .ask = effect_ask,
                                            .unfollow = effect_unfollow,
                                            .copy_from = effect_copy_from,
                                            .lead = effect_lead,
                                            .stand_down = effect_stand_down,
                                            .send_set = effect_send_set,
                                            .say_stored = effect_say_stored,
                                            .committed = effect_committed,
                                            .elected = effect_elected,
                                            .log = effect_log};

/* --- The replica --- */

void sync_write_hello(struct output *out) {
    struct sync_hello hello;
    sync_who_hello(&sync_who, &hello);
    sync_hello_print(out, &hello);
}

const char *sync_welcomed(const char *line) {
    struct sync_welcome welcome;
    if (line[0] == '-') return line + 1;
    if (line[0] != '+' || !sync_welcome_parse(slice_of(line + 1), &welcome))
        return "it does not speak the protocol of sync-replication";
    return sync_who_welcomed(&sync_who, &welcome, sync_now_ms());
}

void sync_link_lost(void) {
    if (sync_on) sync_who_link_lost(&sync_who);
}

void sync_data_lost(void) {
    if (sync_on) sync_who_data_lost(&sync_who);
}

void sync_data_copied(void) {
    if (!sync_on) return;
    mark_data("the data were replaced", NULL); /* the copy may contain writes that are not committed */
}

void sync_stream_joined(void) {
    if (sync_on) sync_who_joined(&sync_who);
}

static void got_set(struct slice text) {
    static struct sync_set set;
    if (!sync_set_parse(text, &set)) {
        log_warning("Synchronous replication: the primary sent a damaged set");
        return;
    }
    /* The primary does not know under which address others reach it; this server does. */
    struct sync_members *lists[] = {&set.now, &set.before};
    for (int l = 0; l < 2; l++) {
        for (int i = 0; i < lists[l]->count; i++) {
            struct sync_member *member = &lists[l]->list[i];
            if (strcmp(member->id, set.term.id) != 0 || !sync_host_is_valid(slice_of(role->host))) continue;
            snprintf(member->host, sizeof member->host, "%s", role->host);
            member->port = role->port;
        }
    }
    sync_who_got_set(&sync_who, &set, sync_now_ms());
}

bool sync_stream_request(const struct request_reader *request) {
    int64_t offset;
    if (request->argc != 3 || !slice_is(request->argv[0], "replconf")) return false;
    if (slice_is(request->argv[1], "commit")) {
        if (!sync_on || !parse_int64(request->argv[2], &offset) || offset < 0) return true;
        mark(); /* changes before it, which the loop has not marked yet */
        committed_up_to(offset);
        return true;
    }
    if (!slice_is(request->argv[1], "sync-set")) return false;
    if (sync_on) got_set(request->argv[2]);
    return true;
}

void sync_acknowledges(void) {
    if (sync_on) sync_who_acknowledges(&sync_who, sync_now_ms());
}

bool sync_acks_at_once(void) {
    return sync_on && sync_who.linked;
}

bool sync_leads(void) {
    return sync_on && sync_who.status == SYNC_LEADING;
}

bool sync_stands(void) {
    return sync_on && sync_who.status != SYNC_LEADING && sync_who.status != SYNC_FOLLOWING;
}

void sync_follow(void) {
    if (!sync_on) return;
    sync_who_follow(&sync_who, sync_now_ms());
    update();
}

void sync_stand(void) {
    if (sync_who.status == SYNC_STANDING || sync_who.status == SYNC_CATCHING_UP) return;
    const char *reason = sync_who_stand(&sync_who, sync_now_ms());
    if (sync_who.status != SYNC_LEADING) repl_drop_link(false);
    if (reason)
        log_warning("Synchronous replication: this server cannot lead: %s", reason);
    else if (sync_who.status != SYNC_LEADING)
        log_notice("Synchronous replication: asking the other servers of the group to lead it");
    update();
}

/* --- The cluster --- */

bool sync_is_elected(void) {
    return sync_who.status == SYNC_ELECTED || sync_who.status == SYNC_LEADING;
}

void sync_stand_for(bool polite) {
    if (polite && (sync_who_cannot_stand(&sync_who) || sync_now_ms() < sync_who.polite_ms)) return;
    sync_stand();
}

void sync_take_over(void) {
    if (sync_who.status == SYNC_ELECTED)
        sync_who_lead(&sync_who, sync_now_ms());
    else
        sync_stand();
    update();
}

static void new_id(char id[static SYNC_ID_LEN + 1]) {
    random_hex(id, SYNC_ID_LEN);
    id[SYNC_ID_LEN] = 0;
}

static void leave(void) {
    char id[SYNC_ID_LEN + 1];
    new_id(id);
    log_notice("Synchronous replication: this server leaves its group");
    sync_who_leave(&sync_who, id, sync_now_ms());
    update();
}

static void found(void) {
    char group[SYNC_ID_LEN + 1];
    new_id(group);
    log_notice("Synchronous replication: this server founds a group");
    sync_who_found(&sync_who, group, sync_now_ms());
    update();
}

void sync_leave(void) {
    if (sync_on && sync_who.state.group[0]) leave();
}

void sync_leave_and_found(void) {
    if (sync_who.state.group[0]) leave();
    found();
}

bool sync_may_leave(void) {
    return !sync_on || sync_who_may_leave(&sync_who);
}

bool sync_has_joined(void) {
    return sync_who.joined;
}

bool sync_has_committed(int64_t offset) {
    return !sync_on || (sync_who.status == SYNC_LEADING && lease.committed >= offset);
}

bool sync_leads_for_certain(void) {
    return !sync_on || (sync_who.status == SYNC_LEADING && sync_who_writable(&sync_who) && lease_holds());
}

/* --- The primary --- */

static void hello(struct call *call) {
    struct sync_hello hello;
    struct sync_welcome welcome;
    struct memory_output text;
    if (!sync_hello_parse(call->argv[2], &hello)) {
        reply_error(call->reply, "ERR Malformed SYNC-HELLO");
        return;
    }
    const char *reason = sync_who_hello_from(&sync_who, &hello, sync_now_ms(), &welcome);
    update();
    if (reason) {
        reply_error_format(call->reply, "NOSYNCREPLICAS %s", reason);
        return;
    }
    struct replica *replica = replica_get(call->client);
    sync_replica_left(replica);
    mem_free(replica->sync);
    replica->sync = mem_alloc(sizeof hello);
    *replica->sync = hello;
    replica->sync_copies = !welcome.leads;
    replica->sync_linked = false;
    memory_output_init(&text);
    sync_welcome_print(&text.out, &welcome);
    output_write(&text.out, (struct slice){"", 1});
    reply_status(call->reply, memory_output_slice(&text).data);
    memory_output_free(&text);
}

static void asked(struct call *call) {
    static struct sync_vote vote;
    struct sync_ask ask;
    struct memory_output text;
    if (!sync_ask_parse(call->argv[2], &ask)) {
        reply_error(call->reply, "ERR Malformed SYNC-ASK");
        return;
    }
    if (server_is_loading()) { /* it must not end the link that it loads from, and its vote would not count */
        reply_error(call->reply, "LOADING Valkey is loading the dataset in memory");
        return;
    }
    sync_who_asked(&sync_who, &ask, sync_now_ms(), &vote);
    update();
    memory_output_init(&text);
    sync_vote_print(&text.out, &vote);
    output_write(&text.out, (struct slice){"", 1});
    reply_status(call->reply, memory_output_slice(&text).data);
    memory_output_free(&text);
}

static void stored(struct call *call) {
    struct sync_term term;
    uint64_t version;
    struct replica *replica = replica_find(call->client);
    if (!replica || !replica->sync || !replica->sync_linked) return;
    if (!sync_term_parse_words(call->argv[2], call->argv[3], &term) || !parse_uint64(call->argv[4], &version)) return;
    sync_who_peer_stored(&sync_who, replica->sync->id, &term, version);
    update();
}

static void force(struct call *call) {
    char group[SYNC_ID_LEN + 1];
    if (!slice_is(call->argv[2], "accept-loss")) {
        reply_error(call->reply, "ERR SYNC-FORCE makes this server the primary although it may lack acknowledged "
                                 "writes, which are then lost: REPLCONF SYNC-FORCE ACCEPT-LOSS");
        return;
    }
    if (sync_who.status == SYNC_LEADING) {
        reply_error(call->reply, "ERR this server leads its group");
        return;
    }
    if (server_is_loading()) {
        reply_error(call->reply, "LOADING Valkey is loading the dataset in memory");
        return;
    }
    log_warning("Synchronous replication: an operator accepts that acknowledged writes are lost (%s)",
                client_log_text(call->client));
    random_hex(group, SYNC_ID_LEN);
    group[SYNC_ID_LEN] = 0;
    sync_who_force(&sync_who, group, sync_now_ms());
    update();
    reply_ok(call->reply);
}

bool sync_replconf(struct call *call) {
    static const struct {
        const char *name;
        int argc;
        void (*run)(struct call *call);
    } messages[] = {
        {"sync-hello", 3, hello}, {"sync-ask", 3, asked}, {"sync-stored", 5, stored}, {"sync-force", 3, force}};
    for (size_t i = 0; call->argc > 1 && i < sizeof messages / sizeof *messages; i++) {
        if (!slice_is(call->argv[1], messages[i].name)) continue;
        if (!sync_on)
            reply_error(call->reply, "ERR sync-replication is off");
        else if (call->argc != messages[i].argc)
            reply_syntax_error(call->reply);
        else
            messages[i].run(call);
        return true;
    }
    return false;
}

const char *sync_refuses_copy(const struct replica *replica, bool *catches_up) {
    *catches_up = false;
    if (!sync_on) return NULL;
    if (replica->sync && replica->sync_copies) {
        *catches_up = sync_who.status != SYNC_LEADING;
        return *catches_up ? NULL : "NOMASTERLINK This server leads its group now";
    }
    if (sync_who.status == SYNC_LEADING || is_plain_replica()) return NULL;
    return "NOMASTERLINK This server does not lead its group of sync-replication";
}

static bool is_same_member(const struct replica *a, const struct replica *b) {
    return a->sync && b->sync && strcmp(a->sync->id, b->sync->id) == 0;
}

void sync_replica_left(struct replica *replica) {
    if (!sync_on || !replica->sync || !replica->sync_linked) return;
    replica->sync_linked = false;
    sync_who_peer_unlinked(&sync_who, replica->sync->id, sync_now_ms());
    update();
}

void sync_replica_freed(struct replica *replica) {
    mem_free(replica->sync);
}

void sync_replica_acked(struct replica *replica) {
    if (!sync_on || !replica->sync_linked) return;
    sync_who_peer_acked(&sync_who, replica->sync->id, sync_fsync ? replica->fsynced : replica->acked);
}

/* The same server, over a later link: this one has not noticed its end. */
static bool has_later_link(const struct replica *replica) {
    bool later = false;
    list_each(&replicas, link) {
        const struct replica *other = replica_of(link);
        if (later && other->sync_linked && is_same_member(other, replica)) return true;
        later |= other == replica;
    }
    return false;
}

/* Replicas that have gone online since the last tick. */
static void link_replicas(int64_t now_ms) {
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        if (!replica->sync || replica->sync_linked || replica->sync_copies || !replica_is_online(replica) ||
            replica->awaits_ack || has_later_link(replica))
            continue;
        list_each(&replicas, other_link) { /* the same server, over a link that has not noticed its end */
            struct replica *other = replica_of(other_link);
            if (other != replica && is_same_member(other, replica)) sync_replica_left(other);
        }
        char host[SYNC_HOST_MAX + 1] = "";
        struct slice address = replica_address(replica);
        int port = replica->port;
        if (sync_host && replica->node_id[0]) address = slice_of(sync_host->address(replica->node_id, &port));
        bool valid = sync_host_is_valid(address) && port > 0 && port <= 65535;
        if (valid) snprintf(host, sizeof host, "%.*s", (int)address.len, address.data);
        replica->sync_linked = true;
        sync_who_peer_linked(&sync_who, replica->sync, host, valid ? port : 0, now_ms);
        sync_replica_acked(replica);
    }
}

/* --- Time --- */

static void check_waiting(void) {
    uint64_t since = sync_lease_waits_since(&lease);
    if (!since || clock_boot_us() - since < repl_timeout_us()) return;
    if (reply_barrier_clients()) fail_waiting("no replica has acknowledged for repl-timeout");
}

static uint64_t tick(struct event_timer *timer) {
    int64_t now_ms = sync_now_ms();
    if (!started || repl_stream_is_marked() || server_is_loading()) return TICK_US;
    if (sync_who.status == SYNC_LEADING) link_replicas(now_ms);
    sync_who_tick(&sync_who, now_ms);
    update();
    check_waiting();
    return TICK_US;
}

static void begin(void) {
    started = true;
    propagate_listen(&changes);
    reply_barrier_arm(&barrier);
    mark_all_again(); /* the data may have writes that were never acknowledged */
    if (role_is_replica()) {
        log_notice("Synchronous replication: this server follows the primary of its group");
    } else if (had_file && !sync_who.state.group[0] && sync_host && sync_host->has_slots()) {
        /* It has left a group for a shard whose primary it has not reached. The data of that shard are elsewhere. */
        sync_who_depose(&sync_who, sync_now_ms());
        log_warning("Synchronous replication: this server cannot lead: %s", sync_who.obstacle);
    } else if (sync_who.state.group[0]) {
        sync_who_depose(&sync_who, sync_now_ms());
        log_notice("Synchronous replication: asking the other servers of the group whether this server may lead it");
    } else {
        found();
    }
    update();
}

static void before_wait(void) {
    if (__builtin_expect(!sync_on, 1)) return;
    if (__builtin_expect(!started, 0) && !server.loading) begin();
    mark();
    if (sync_who.linked && !sync_who_is_current(&sync_who)) sync_who_advanced(&sync_who);
}

static _Noreturn void refuse_configuration(const char *reason) {
    fprintf(stderr, "\n*** FATAL CONFIG FILE ERROR (Version %s) ***\nsync-replication yes: %s\n", SERVER_VERSION,
            reason);
    exit(1);
}

static void configured(void) {
    if (!sync_settings.on) return;
    if (sync_settings.fsync && !aof_is_configured())
        refuse_configuration("sync-replication-fsync yes needs appendonly yes");
}

static void start(void) {
    struct sync_state state;
    char id[SYNC_ID_LEN + 1] = "";
    if (!sync_settings.on) return;
    sync_on = true;
    sync_fsync = sync_settings.fsync;
    bool exists = had_file = sync_file_load(&state);
    if (!exists) random_hex(id, SYNC_ID_LEN);
    id[SYNC_ID_LEN] = 0;
    struct sync_settings settings = {.replicas = sync_settings.replicas,
                                     .eligible = sync_settings.eligible,
                                     .waits = server.cluster_enabled,
                                     .lease_ms = SYNC_LEASE_MS,
                                     .absent_ms = (int64_t)repl_settings.timeout * 1000};
    sync_who_init(&sync_who, &settings, &effects, NULL, exists ? &state : NULL, id, sync_now_ms());
    dispatch_add_filter(&data_filter);
    event_timer_set(server.loop, &tick_timer, TICK_US, tick);
}

static void stop(void) {
    sync_file_stop();
}

void sync_progress(struct sync_progress *progress) {
    progress->committed = lease.committed;
    progress->waiting = lease.count;
    progress->lease = lease_holds();
}

const struct server_part sync_part = {.name = "sync-replication",
                                      .configured = configured,
                                      .start = start,
                                      .before_wait = before_wait,
                                      .in_call = true,
                                      .stop = stop};

/* The state machine has copied the settings. Without it they have no effect. */
static const char *only_at_start(void) {
    return "it can be changed only in the configuration file, with a restart";
}
static const char *not_while_on(void) {
    return sync_on ? "with sync-replication it can be changed only in the configuration file, with a restart" : NULL;
}

const struct config_option sync_options[] = {
    {.name = "sync-replication",
     .type = CONFIG_BOOL,
     .apply = only_at_start,
     .value = &sync_settings.on,
     .initial = "no"},
    {.name = "min-sync-replicas",
     .type = CONFIG_INT,
     .apply = not_while_on,
     .value = &sync_settings.replicas,
     .initial = "1",
     .min = 1,
     .max = SYNC_MEMBERS_MAX - 1},
    {.name = "sync-eligible",
     .type = CONFIG_BOOL,
     .apply = not_while_on,
     .value = &sync_settings.eligible,
     .initial = "yes"},
    {.name = "sync-replication-fsync",
     .type = CONFIG_BOOL,
     .apply = not_while_on,
     .value = &sync_settings.fsync,
     .initial = "no"},
    {.name = "sync-replication-file",
     .type = CONFIG_STRING,
     .apply = not_while_on,
     .value = &sync_settings.file,
     .initial = "sync-replication.promises"},
    {.name = NULL},
};
