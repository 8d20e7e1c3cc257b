/* quorum.c: synchronous replication in the server: drives the state machine (machine.h) with connections, the time and
 * commands, and carries out its effects. See sync.h.
 *
 * On a primary each change of the data is issued to a reply barrier (server/clients/reply_barrier.h). Before the loop
 * waits, the end of the stream is marked; the barrier releases the replies when the mark is committed. When the
 * lease is over, a read waits like a write: until replicas have acknowledged a COMMIT that the stream gets at the end
 * of the turn. So a primary that was frozen, or cut off, answers no stale read. lease.h decides all that.
 *
 * On a replica the changes that it executes are marked in the same way, and released by the COMMIT messages of the
 * primary: a reader of a replica sees old data, but no data that may disappear.
 *
 * A filter refuses commands on data while this server is a primary that does not lead, is a candidate, or has too few
 * replicas. Commands of the server itself (expiry, eviction) are not refused: they depend on the time and on memory
 * only, and what they delete is shown to nobody before it is committed, because reads wait. The exception is a read
 * that itself finds a key expired: its reply does not wait for the DEL, and is true by this server's wall clock. */
#include "repl/quorum/quorum.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include "persistence/aof.h"
#include "repl/feed.h"
#include "repl/history.h"
#include "repl/quorum/file.h"
#include "repl/quorum/protocol/lease.h"
#include "repl/quorum/question.h"
#include "repl/roles.h"
#include "repl/settings.h"
#include "server/clients/blocking.h"
#include "server/clients/reply_barrier.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/command/command.h"
#include "server/config/config.h"
#include "server/role.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    TICK_US = 20 * 1000,
    COMMIT_DELAY_US = 5 * 1000 /* the longest time for which replicas do not know that a write is committed */
};

bool quorum_on, quorum_fsync;
struct quorum_config quorum_config;
struct quorum_machine quorum_machine;

const struct quorum_host *quorum_host;
static bool quorum_may_show(struct reply_barrier *self);
static const char *quorum_refusal(struct reply_barrier *self);
static struct reply_barrier barrier = {.may_show = quorum_may_show, .refusal = quorum_refusal};
static struct quorum_lease lease = {.committed = -1};
static struct event_timer tick_timer, commit_timer;
static bool writable; /* quorum_machine_writable() */
static bool started;  /* the data set is loaded */
static bool had_file; /* of promises, when it started */

int64_t quorum_now_ms(void) {
    return (int64_t)(clock_boot_us() / 1000);
}

/* --- Replies --- */

static void quorum_data_changed(struct propagation_listener *self, const struct propagation *propagation) {
    quorum_lease_changed(&lease, reply_barrier_issue(&barrier), lease.changed_at ? 0 : clock_boot_us());
}
static struct propagation_listener changes = {
    .command = quorum_data_changed, .changes_only = true, .target = PROPAGATE_REPLICAS};

static void send_commit(void) {
    char text[NUMBER_TEXT_MAX];
    if (repl_stream_is_marked() || repl_offset_is_final()) return;
    struct slice offset = {text, format_int64(text, quorum_lease_announce(&lease))};
    repl_feed_request(3, (struct slice[]){SLICE("REPLCONF"), SLICE("COMMIT"), offset});
}

/* Before what this turn has written to the stream is sent. Within a transaction its place is not known yet. */
static void mark(void) {
    if (repl_stream_is_marked()) return;
    bool leads = quorum_machine.status == QUORUM_LEADING;
    if (lease.issued == lease.marked && !leads) return;
    uint64_t now = clock_boot_us();
    int64_t from = role->position.offset;
    if (leads && quorum_lease_asks(&lease, replicas.len != 0, now)) send_commit();
    quorum_lease_mark(&lease, from, role->position.offset, now);
}

static uint64_t commit_due(struct event_timer *timer) {
    if (quorum_machine.status == QUORUM_LEADING && quorum_lease_has_news(&lease)) send_commit();
    return 0;
}

static void committed_up_to(int64_t offset) {
    if (!quorum_lease_commit(&lease, offset)) return;
    if (quorum_machine.status == QUORUM_LEADING && quorum_lease_has_news(&lease) && !commit_timer.heap_index)
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
    quorum_lease_reset(&lease, reply_barrier_issue(&barrier), role->position.offset, clock_boot_us());
}

/* The same after the clients that wait for replies were closed; `unblocked`: those that wait for keys, or for replicas,
 * get this error. It shows no data, so the barrier need not hold it. */
static void mark_data(const char *reason, const char *unblocked) {
    fail_waiting(reason);
    reply_barrier_disarm(&barrier);
    list_each_entry(clients_all(), struct client, link, client) {
        if (unblocked && blocking_command(client)) client_unblock(client, unblocked);
    }
    reply_barrier_arm(&barrier);
    mark_all_again();
}

/* --- The filter --- */

static void update_writable(void) {
    writable = quorum_machine_writable(&quorum_machine);
}

static bool lease_holds(void) {
    return quorum_lease_holds(&lease, clock_boot_us());
}

/* A primary shows data only while it knows that no other server leads. A replica shows what is committed. */
static bool quorum_may_show(struct reply_barrier *self) {
    if (quorum_machine.status != QUORUM_LEADING) return true;
    uint64_t now = clock_boot_us();
    enum quorum_read read = quorum_lease_read(&lease, now);
    if (read == QUORUM_READ_ASKS) quorum_lease_asked(&lease, reply_barrier_issue(&barrier), now);
    return read == QUORUM_READ_PASSES;
}

static const uint32_t DATA_FLAGS = CMD_WRITE | CMD_READONLY | CMD_RUNS_SCRIPT | CMD_SHOWS_DATA;

static bool is_plain_replica(void) {
    return role_is_replica() && quorum_machine.status == QUORUM_FOLLOWING;
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
        if (role->link == ROLE_LINK_CONNECTED || quorum_lease_all_released(&lease)) return FILTER_PASS;
        *error =
            "NOSYNCREPLICAS This replica has writes that may never be acknowledged, and its link to the primary is "
            "down.";
        return FILTER_REFUSE;
    }
    if (quorum_machine.status == QUORUM_LEADING) {
        /* WAIT: it waits for what is missing. */
        if (writable || (command && !(command->spec->flags & DATA_FLAGS))) return FILTER_PASS;
        const struct quorum_members *members = &quorum_machine.state.set.now;
        int least = members->replicas > quorum_config.replicas ? members->replicas : quorum_config.replicas;
        snprintf(text, sizeof text,
                 "NOSYNCREPLICAS Not enough in-sync replicas: %d of at least %d (min-sync-replicas) are connected.",
                 quorum_machine_in_sync(&quorum_machine), least);
    } else {
        snprintf(text, sizeof text,
                 "NOSYNCREPLICAS This server does not lead its %s: %s. Use %s, or accept that acknowledged writes are "
                 "lost: REPLCONF SYNC-FORCE ACCEPT-LOSS.",
                 quorum_host ? "shard" : "group",
                 quorum_machine.reason ? quorum_machine.reason : "it is not the primary",
                 quorum_host ? "CLUSTER FAILOVER on a replica" : "REPLICAOF to follow the primary");
    }
    *error = text;
    return FILTER_REFUSE;
}
static struct command_filter data_filter = {
    .order = FILTER_REPLICAS, .flags = DATA_FLAGS | CMD_BLOCKING, .look = data_look, .ask = data_ask};

static const char *quorum_refusal(struct reply_barrier *self) {
    const char *error = NULL;
    return writable || data_ask(NULL, NULL, 0, NULL, &error) == FILTER_PASS ? NULL : error;
}

/* --- Effects --- */

static uint64_t effect_save(void *context, const struct quorum_state *state) {
    return quorum_file_save(state);
}
static int64_t effect_offset(void *context) {
    return role->position.offset;
}
static void effect_request_vote(void *context, const struct quorum_member *member,
                                const struct quorum_vote_request *request) {
    quorum_question_send(member, request);
}
static void effect_unfollow(void *context) {
    repl_drop_link(true);
}
static void effect_copy_from(void *context, const struct quorum_member *member) {
    log_notice("Synchronous replication: copying the newest data from %s:%d before leading", member->host,
               member->port);
    repl_follow(slice_of(member->host), member->port, REPL_FOLLOW);
}

static void effect_lead(void *context) {
    log_notice("Synchronous replication: this server leads its group in term %llu",
               (unsigned long long)quorum_machine.term.number);
    if (role_is_replica()) {
        repl_lead();
    } else if (!repl_stream_has_backlog()) {
        repl_history_new();
    }
    if (!repl_stream_has_backlog()) repl_stream_create_backlog();
    /* Nothing of the data is known to be committed before an entry of this term is. */
    mark_all_again();
    if (quorum_host) quorum_host->leads();
}

static void effect_elected(void *context) {
    if (quorum_host->owns())
        quorum_machine_lead(&quorum_machine, quorum_now_ms());
    else
        quorum_host->elected();
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

static void effect_send_set(void *context, const struct quorum_set *set) {
    struct memory_output text = MEMORY_OUTPUT_INIT;
    quorum_set_print(&text.out, set);
    repl_feed_request(3, (struct slice[]){SLICE("REPLCONF"), SLICE("SYNC-SET"), memory_output_slice(&text)});
    memory_output_free(&text);
}

static void effect_say_stored(void *context, const struct quorum_set *set) {
    char number[NUMBER_TEXT_MAX], version[NUMBER_TEXT_MAX];
    struct slice words[] = {SLICE("REPLCONF"),
                            SLICE("SYNC-STORED"),
                            {number, format_uint64(number, set->term.number)},
                            slice_of(set->term.id),
                            {version, format_uint64(version, set->version)}};
    repl_say(5, words);
}

static void effect_committed(void *context, int64_t offset) {
    committed_up_to(offset);
}
static void effect_log(void *context, const char *text) {
    log_notice("Synchronous replication: %s", text);
}
static const struct quorum_effects effects = {.save = effect_save,
                                              .offset = effect_offset,
                                              .request_vote = effect_request_vote,
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

void quorum_write_hello(struct output *out) {
    struct quorum_hello hello;
    quorum_machine_hello(&quorum_machine, &hello);
    quorum_hello_print(out, &hello);
}

const char *quorum_welcomed(const char *line) {
    struct quorum_welcome welcome;
    if (line[0] == '-') return line + 1;
    if (line[0] != '+' || !quorum_welcome_parse(slice_of(line + 1), &welcome))
        return "it does not speak the protocol of sync-replication";
    return quorum_machine_welcomed(&quorum_machine, &welcome, quorum_now_ms());
}

void quorum_link_lost(void) {
    if (quorum_on) quorum_machine_link_lost(&quorum_machine);
}

void quorum_data_lost(void) {
    if (quorum_on) quorum_machine_data_lost(&quorum_machine);
}

void quorum_data_copied(void) {
    if (!quorum_on) return;
    mark_data("the data were replaced", NULL); /* the copy may contain writes that are not committed */
}

void quorum_stream_joined(void) {
    if (quorum_on) quorum_machine_joined(&quorum_machine);
}

static void set_received(struct slice text) {
    static struct quorum_set set;
    if (!quorum_set_parse(text, &set)) {
        log_warning("Synchronous replication: the primary sent a damaged set");
        return;
    }
    /* The primary does not know under which address others reach it; this server does. */
    struct quorum_members *lists[] = {&set.now, &set.before};
    for (int l = 0; l < 2; l++) {
        for (int i = 0; i < lists[l]->count; i++) {
            struct quorum_member *member = &lists[l]->list[i];
            if (strcmp(member->id, set.term.id) != 0 || !quorum_host_is_valid(slice_of(role->host))) continue;
            snprintf(member->host, sizeof member->host, "%s", role->host);
            member->port = role->port;
        }
    }
    quorum_machine_set_received(&quorum_machine, &set, quorum_now_ms());
}

bool quorum_stream_request(const struct request_reader *request) {
    int64_t offset;
    if (request->argc != 3 || !slice_is(request->argv[0], "replconf")) return false;
    if (slice_is(request->argv[1], "commit")) {
        if (!quorum_on || !parse_int64(request->argv[2], &offset) || offset < 0) return true;
        mark(); /* changes before it, which the loop has not marked yet */
        committed_up_to(offset);
        return true;
    }
    if (!slice_is(request->argv[1], "sync-set")) return false;
    if (quorum_on) set_received(request->argv[2]);
    return true;
}

void quorum_acknowledges(void) {
    if (quorum_on) quorum_machine_acknowledges(&quorum_machine, quorum_now_ms());
}

bool quorum_acks_at_once(void) {
    return quorum_on && quorum_machine.linked;
}

bool quorum_leads(void) {
    return quorum_on && quorum_machine.status == QUORUM_LEADING;
}

bool quorum_campaigns(void) {
    return quorum_on && quorum_machine.status != QUORUM_LEADING && quorum_machine.status != QUORUM_FOLLOWING;
}

void quorum_follow(void) {
    if (!quorum_on) return;
    quorum_machine_follow(&quorum_machine, quorum_now_ms());
    update_writable();
}

void quorum_start_election(void) {
    if (quorum_machine.status == QUORUM_CANDIDATE || quorum_machine.status == QUORUM_CATCHING_UP) return;
    const char *reason = quorum_machine_start_election(&quorum_machine, quorum_now_ms());
    if (quorum_machine.status != QUORUM_LEADING) repl_drop_link(false);
    if (reason)
        log_warning("Synchronous replication: this server cannot lead: %s", reason);
    else if (quorum_machine.status != QUORUM_LEADING)
        log_notice("Synchronous replication: asking the other servers of the group to lead it");
    update_writable();
}

/* --- The cluster --- */

bool quorum_is_elected(void) {
    return quorum_machine.status == QUORUM_ELECTED || quorum_machine.status == QUORUM_LEADING;
}

void quorum_start_shard_election(bool only_if_possible) {
    if (only_if_possible &&
        (quorum_machine_cannot_be_elected(&quorum_machine) || quorum_now_ms() < quorum_machine.pre_votes_from_ms))
        return;
    quorum_start_election();
}

void quorum_take_over(void) {
    if (quorum_machine.status == QUORUM_ELECTED)
        quorum_machine_lead(&quorum_machine, quorum_now_ms());
    else
        quorum_start_election();
    update_writable();
}

static void new_id(char id[static QUORUM_ID_LEN + 1]) {
    random_hex(id, QUORUM_ID_LEN);
    id[QUORUM_ID_LEN] = 0;
}

static void leave_group(void) {
    char id[QUORUM_ID_LEN + 1];
    new_id(id);
    log_notice("Synchronous replication: this server leaves its group");
    quorum_machine_leave(&quorum_machine, id, quorum_now_ms());
    update_writable();
}

static void quorum_establish(void) {
    char group[QUORUM_ID_LEN + 1];
    new_id(group);
    log_notice("Synchronous replication: this server founds a group");
    quorum_machine_establish(&quorum_machine, group, quorum_now_ms());
    update_writable();
}

void quorum_leave(void) {
    if (quorum_on && quorum_machine.state.group[0]) leave_group();
}

void quorum_leave_and_establish(void) {
    if (quorum_machine.state.group[0]) leave_group();
    quorum_establish();
}

bool quorum_may_leave(void) {
    return !quorum_on || quorum_machine_may_leave(&quorum_machine);
}

bool quorum_has_joined(void) {
    return quorum_machine.joined;
}

bool quorum_has_committed(int64_t offset) {
    return !quorum_on || (quorum_machine.status == QUORUM_LEADING && lease.committed >= offset);
}

bool quorum_leads_for_certain(void) {
    return !quorum_on ||
           (quorum_machine.status == QUORUM_LEADING && quorum_machine_writable(&quorum_machine) && lease_holds());
}

/* --- The primary --- */

static void hello_received(struct call *call) {
    struct quorum_hello hello;
    struct quorum_welcome welcome;
    struct memory_output text;
    if (!quorum_hello_parse(call->argv[2], &hello)) {
        reply_error(call->reply, "ERR Malformed SYNC-HELLO");
        return;
    }
    const char *reason = quorum_machine_hello_from(&quorum_machine, &hello, quorum_now_ms(), &welcome);
    update_writable();
    if (reason) {
        reply_error_format(call->reply, "NOSYNCREPLICAS %s", reason);
        return;
    }
    struct replica *replica = replica_get(call->client);
    quorum_replica_left(replica);
    mem_free(replica->quorum.hello);
    replica->quorum.hello = mem_alloc(sizeof hello);
    *replica->quorum.hello = hello;
    replica->quorum.copies = !welcome.leads;
    replica->quorum.linked = false;
    memory_output_init(&text);
    quorum_welcome_print(&text.out, &welcome);
    output_write(&text.out, (struct slice){"", 1});
    reply_status(call->reply, memory_output_slice(&text).data);
    memory_output_free(&text);
}

static void vote_requested(struct call *call) {
    static struct quorum_vote vote;
    struct quorum_vote_request request;
    struct memory_output text;
    if (!quorum_vote_request_parse(call->argv[2], &request)) {
        reply_error(call->reply, "ERR Malformed SYNC-ASK");
        return;
    }
    if (server_is_loading()) { /* it must not end the link that it loads from, and its vote would not count */
        reply_error(call->reply, "LOADING Valkey is loading the dataset in memory");
        return;
    }
    quorum_machine_vote_requested(&quorum_machine, &request, quorum_now_ms(), &vote);
    update_writable();
    memory_output_init(&text);
    quorum_vote_print(&text.out, &vote);
    output_write(&text.out, (struct slice){"", 1});
    reply_status(call->reply, memory_output_slice(&text).data);
    memory_output_free(&text);
}

static void set_stored(struct call *call) {
    struct quorum_term term;
    uint64_t version;
    struct replica *replica = replica_find(call->client);
    if (!replica || !replica->quorum.hello || !replica->quorum.linked) return;
    if (!quorum_term_parse_words(call->argv[2], call->argv[3], &term) || !parse_uint64(call->argv[4], &version)) return;
    quorum_machine_peer_stored(&quorum_machine, replica->quorum.hello->id, &term, version);
    update_writable();
}

static void force_lead(struct call *call) {
    char group[QUORUM_ID_LEN + 1];
    if (!slice_is(call->argv[2], "accept-loss")) {
        reply_error(call->reply, "ERR SYNC-FORCE makes this server the primary although it may lack acknowledged "
                                 "writes, which are then lost: REPLCONF SYNC-FORCE ACCEPT-LOSS");
        return;
    }
    if (quorum_machine.status == QUORUM_LEADING) {
        reply_error(call->reply, "ERR this server leads its group");
        return;
    }
    if (server_is_loading()) {
        reply_error(call->reply, "LOADING Valkey is loading the dataset in memory");
        return;
    }
    log_warning("Synchronous replication: an operator accepts that acknowledged writes are lost (%s)",
                client_log_text(call->client));
    random_hex(group, QUORUM_ID_LEN);
    group[QUORUM_ID_LEN] = 0;
    quorum_machine_force(&quorum_machine, group, quorum_now_ms());
    update_writable();
    reply_ok(call->reply);
}

bool quorum_replconf(struct call *call) {
    static const struct {
        const char *name;
        int argc;
        void (*run)(struct call *call);
    } messages[] = {{"sync-hello", 3, hello_received},
                    {"sync-ask", 3, vote_requested},
                    {"sync-stored", 5, set_stored},
                    {"sync-force", 3, force_lead}};
    for (size_t i = 0; call->argc > 1 && i < sizeof messages / sizeof *messages; i++) {
        if (!slice_is(call->argv[1], messages[i].name)) continue;
        if (!quorum_on)
            reply_error(call->reply, "ERR sync-replication is off");
        else if (call->argc != messages[i].argc)
            reply_syntax_error(call->reply);
        else
            messages[i].run(call);
        return true;
    }
    return false;
}

const char *quorum_refuses_copy(const struct replica *replica, bool *catches_up) {
    *catches_up = false;
    if (!quorum_on) return NULL;
    if (replica->quorum.hello && replica->quorum.copies) {
        *catches_up = quorum_machine.status != QUORUM_LEADING;
        return *catches_up ? NULL : "NOMASTERLINK This server leads its group now";
    }
    if (quorum_machine.status == QUORUM_LEADING || is_plain_replica()) return NULL;
    return "NOMASTERLINK This server does not lead its group of sync-replication";
}

static bool is_same_member(const struct replica *a, const struct replica *b) {
    return a->quorum.hello && b->quorum.hello && strcmp(a->quorum.hello->id, b->quorum.hello->id) == 0;
}

void quorum_replica_left(struct replica *replica) {
    if (!quorum_on || !replica->quorum.hello || !replica->quorum.linked) return;
    replica->quorum.linked = false;
    quorum_machine_peer_unlinked(&quorum_machine, replica->quorum.hello->id, quorum_now_ms());
    update_writable();
}

void quorum_replica_acked(struct replica *replica) {
    if (!quorum_on || !replica->quorum.linked) return;
    quorum_machine_peer_acked(&quorum_machine, replica->quorum.hello->id,
                              quorum_fsync ? replica->fsynced : replica->acked);
}

/* The same server, over a later link: this one has not noticed its end. */
static bool has_later_link(const struct replica *replica) {
    bool later = false;
    list_each_entry(&replicas, const struct replica, link, other) {
        if (later && other->quorum.linked && is_same_member(other, replica)) return true;
        later |= other == replica;
    }
    return false;
}

/* Replicas that have gone online since the last tick. */
static void link_replicas(int64_t now_ms) {
    list_each(&replicas, link) {
        struct replica *replica = replica_of(link);
        if (!replica->quorum.hello || replica->quorum.linked || replica->quorum.copies || !replica_is_online(replica) ||
            replica->awaits_ack || has_later_link(replica))
            continue;
        list_each_entry(&replicas, struct replica, link,
                        other) { /* the same server, over a link that has not noticed its end */
            if (other != replica && is_same_member(other, replica)) quorum_replica_left(other);
        }
        char host[QUORUM_HOST_MAX + 1] = "";
        struct slice address = replica_address(replica);
        int port = replica->announced.port;
        if (quorum_host && replica->announced.node_id[0])
            address = slice_of(quorum_host->address(replica->announced.node_id, &port));
        bool valid = quorum_host_is_valid(address) && port > 0 && port <= 65535;
        if (valid) snprintf(host, sizeof host, "%.*s", (int)address.len, address.data);
        replica->quorum.linked = true;
        quorum_machine_peer_linked(&quorum_machine, replica->quorum.hello, host, valid ? port : 0, now_ms);
        quorum_replica_acked(replica);
    }
}

/* --- Time --- */

static void check_waiting(void) {
    uint64_t since = quorum_lease_waits_since(&lease);
    if (!since || clock_boot_us() - since < repl_timeout_us()) return;
    if (reply_barrier_clients()) fail_waiting("no replica has acknowledged for repl-timeout");
}

static uint64_t quorum_tick(struct event_timer *timer) {
    int64_t now_ms = quorum_now_ms();
    if (!started || repl_stream_is_marked() || server_is_loading()) return TICK_US;
    if (quorum_machine.status == QUORUM_LEADING) link_replicas(now_ms);
    quorum_machine_tick(&quorum_machine, now_ms);
    update_writable();
    check_waiting();
    return TICK_US;
}

static void quorum_begin(void) {
    started = true;
    propagate_listen(&changes);
    reply_barrier_arm(&barrier);
    mark_all_again(); /* the data may have writes that were never acknowledged */
    if (role_is_replica()) {
        log_notice("Synchronous replication: this server follows the primary of its group");
    } else if (had_file && !quorum_machine.state.group[0] && quorum_host && quorum_host->has_slots()) {
        /* It has left a group for a shard whose primary it has not reached. The data of that shard are elsewhere. */
        quorum_machine_depose(&quorum_machine, quorum_now_ms());
        log_warning("Synchronous replication: this server cannot lead: %s", quorum_machine.reason);
    } else if (quorum_machine.state.group[0]) {
        quorum_machine_depose(&quorum_machine, quorum_now_ms());
        log_notice("Synchronous replication: asking the other servers of the group whether this server may lead it");
    } else {
        quorum_establish();
    }
    update_writable();
}

static void quorum_before_wait(void) {
    if (__builtin_expect(!quorum_on, 1)) return;
    if (__builtin_expect(!started, 0) && !server.loading) quorum_begin();
    mark();
    if (quorum_machine.linked && !quorum_machine_is_current(&quorum_machine)) quorum_machine_advanced(&quorum_machine);
}

static _Noreturn void refuse_configuration(const char *reason) {
    fprintf(stderr, "\n*** FATAL CONFIG FILE ERROR (Version %s) ***\nsync-replication yes: %s\n", SERVER_VERSION,
            reason);
    exit(1);
}

static void quorum_configured(void) {
    if (!quorum_config.on) return;
    if (quorum_config.fsync && !aof_is_configured())
        refuse_configuration("sync-replication-fsync yes needs appendonly yes");
}

static void quorum_start(void) {
    struct quorum_state state;
    char id[QUORUM_ID_LEN + 1] = "";
    if (!quorum_config.on) return;
    quorum_on = true;
    quorum_fsync = quorum_config.fsync;
    bool exists = had_file = quorum_file_load(&state);
    if (!exists) random_hex(id, QUORUM_ID_LEN);
    id[QUORUM_ID_LEN] = 0;
    struct quorum_settings settings = {.replicas = quorum_config.replicas,
                                       .eligible = quorum_config.eligible,
                                       .waits_for_cluster = server.cluster_enabled,
                                       .lease_ms = QUORUM_LEASE_MS,
                                       .absent_ms = (int64_t)repl_settings.timeout * 1000};
    quorum_machine_init(&quorum_machine, &settings, &effects, NULL, exists ? &state : NULL, id, quorum_now_ms());
    dispatch_add_filter(&data_filter);
    event_timer_set(server.loop, &tick_timer, TICK_US, quorum_tick);
}

static void quorum_stop(void) {
    quorum_file_stop();
}

void quorum_progress(struct quorum_progress *progress) {
    progress->committed = lease.committed;
    progress->waiting = lease.count;
    progress->lease = lease_holds();
}

const struct server_part quorum_part = {.name = "sync-replication",
                                        .configured = quorum_configured,
                                        .start = quorum_start,
                                        .before_wait = quorum_before_wait,
                                        .in_call = true,
                                        .stop = quorum_stop};

/* The state machine has copied the settings. Without it they have no effect. */
static const char *only_at_start(void) {
    return "it can be changed only in the configuration file, with a restart";
}
static const char *not_while_on(void) {
    return quorum_on ? "with sync-replication it can be changed only in the configuration file, with a restart" : NULL;
}

const struct config_option quorum_options[] = {
    {OPTION("sync-replication", CONFIG_BOOL, &quorum_config.on, "no"), .apply = only_at_start},
    {OPTION("min-sync-replicas", CONFIG_INT, &quorum_config.replicas, "1"), .apply = not_while_on, .min = 1,
     .max = QUORUM_MEMBERS_MAX - 1},
    {OPTION("sync-eligible", CONFIG_BOOL, &quorum_config.eligible, "yes"), .apply = not_while_on},
    {OPTION("sync-replication-fsync", CONFIG_BOOL, &quorum_config.fsync, "no"), .apply = not_while_on},
    {OPTION("sync-replication-file", CONFIG_STRING, &quorum_config.file, "sync-replication.promises"),
     .apply = not_while_on},
    {.name = NULL},
};
