/* cli_cluster_move.c: moves slots between nodes.
 *
 * A slot moves key by key: it is importing at the target and migrating at the source, MIGRATE moves the keys of each
 * database in batches, and then the target, the source and the other primaries learn of the new owner, in this order:
 * at no time would a node send clients to one that refuses them. Or by an atomic slot migration, in which the servers
 * do all of this themselves.
 *
 * An interrupt (^C) ends the work after the current batch of keys; a second one ends the program at once. */
#include "lib/system/memory.h"
#include "tools/cli_cluster.h"
#include "tools/cli_cluster_options.h"
#include "tools/cli_format.h"
#include <stdlib.h>
#include <unistd.h>

enum { SETSLOT_TRIES = 5, ATOMIC_POLL_MS = 100, ARGUMENTS = 13, NUMBER_TEXT = 24 };

/* --- Keys --- */

struct keys_move {
    struct cli_cluster *c;
    struct cli_node *source, *target;
    char slot[NUMBER_TEXT], db[NUMBER_TEXT];
    bool replace; /* keys that exist at the target */
    bool show;
};

struct resp_value *cluster_migrate(struct cli_cluster *c, struct cli_node *source, const struct cli_node *target,
                                   const char *db, const struct slice *keys, int count, bool copy, bool replace) {
    const struct cli_cluster_options *o = c->options;
    const struct endpoint *e = &c->cli->options.endpoint;
    struct slice *argv = mem_alloc((size_t)(count + ARGUMENTS) * sizeof *argv);
    char port[NUMBER_TEXT], timeout[NUMBER_TEXT];
    int argc = 0;
    snprintf(port, sizeof port, "%d", target->line.port);
    snprintf(timeout, sizeof timeout, "%lld", (long long)o->timeout_ms);
    argv[argc++] = SLICE("MIGRATE");
    argv[argc++] = slice_of(target->line.host);
    argv[argc++] = slice_of(port);
    argv[argc++] = SLICE("");
    argv[argc++] = slice_of(db);
    argv[argc++] = slice_of(timeout);
    if (copy) argv[argc++] = SLICE("COPY");
    if (replace) argv[argc++] = SLICE("REPLACE");
    if (e->password) {
        argv[argc++] = e->user ? SLICE("AUTH2") : SLICE("AUTH");
        if (e->user) argv[argc++] = slice_of(e->user);
        argv[argc++] = slice_of(e->password);
    }
    argv[argc++] = SLICE("KEYS");
    for (int i = 0; i < count; i++) argv[argc++] = keys[i];
    struct resp_value *reply = cluster_try(source, argc, argv, CLUSTER_CALL_MS + o->timeout_ms);
    mem_free(argv);
    return reply;
}

/* The digest of a value, "" if there is none; false: the node cannot tell, with a message. */
static bool digest_ask(struct cli_node *node, const char *db, struct slice key, char digest[64]) {
    if (!CLUSTER_CALL(node, "SELECT", db)) return false;
    struct slice argv[] = {SLICE("DEBUG"), SLICE("DIGEST-VALUE"), key};
    const struct resp_value *reply = cluster_call(node, 3, argv);
    if (!reply || reply->count != 1 || !reply->children[0].text.data) return false;
    snprintf(digest, 64, "%s", reply->children[0].text.data);
    return true;
}

/* True: no key has different values on the two nodes. */
static bool values_are_equal(struct keys_move *m, const struct slice *keys, int count) {
    static const char missing[] = "0000000000000000000000000000000000000000";
    int different = 0;
    cluster_say(m->c, TONE_WARNING, "*** Checking key values on both nodes...\n");
    for (int i = 0; i < count; i++) {
        char here[64], there[64];
        if (!digest_ask(m->source, m->db, keys[i], here) || !digest_ask(m->target, m->db, keys[i], there)) {
            cluster_say(m->c, TONE_ERROR, "*** Value check failed!\n");
            return false;
        }
        if (strcmp(here, there) == 0 || strcmp(there, missing) == 0 || strcmp(here, missing) == 0) continue;
        different++;
    }
    if (!different) return true;
    cluster_say(m->c, TONE_ERROR,
                "*** Found %d key(s) in both source node and target node having different values.\n"
                "    Source node: %s\n    Target node: %s\n    Keys(s):\n",
                different, m->source->name, m->target->name);
    for (int i = 0; i < count; i++) {
        char here[64], there[64];
        if (!digest_ask(m->source, m->db, keys[i], here) || !digest_ask(m->target, m->db, keys[i], there)) return false;
        if (strcmp(here, there) == 0 || strcmp(there, missing) == 0 || strcmp(here, missing) == 0) continue;
        struct memory_output out = MEMORY_OUTPUT_INIT;
        format_quoted(&out.out, keys[i]);
        struct slice text = memory_output_slice(&out);
        bool plain = text.len == keys[i].len + 2; /* nothing was escaped */
        printf("    - %.*s\n", plain ? (int)keys[i].len : (int)text.len, plain ? keys[i].data : text.data);
        memory_output_free(&out);
    }
    printf("Please fix the above key(s) manually and try again or relaunch the command \n"
           "with --cluster-replace option to force key overriding.\n");
    return false;
}

static bool migrate_batch(struct keys_move *m, const struct slice *keys, int count) {
    const struct resp_value *reply = cluster_migrate(m->c, m->source, m->target, m->db, keys, count, false, m->replace);
    if (!reply) return false;
    if (reply->type == RESP_ERROR && strstr(reply->text.data, "BUSYKEY")) {
        cluster_say(m->c, TONE_WARNING, "\n*** Target key exists\n");
        if (m->c->options->replace) {
            m->replace = true;
        } else if (!values_are_equal(m, keys, count) || !CLUSTER_CALL(m->source, "SELECT", m->db)) {
            return false;
        }
        cluster_say(m->c, TONE_WARNING, "*** Replacing target keys...\n");
        reply = cluster_migrate(m->c, m->source, m->target, m->db, keys, count, false, true);
        if (!reply) return false;
    }
    if (reply->type == RESP_ERROR) {
        printf("\n");
        cluster_show_error(m->source, reply);
        return false;
    }
    for (int i = 0; i < count && m->show; i++) cluster_progress('.');
    return true;
}

/* Moves all keys of the slot in one database. */
static bool database_move(struct keys_move *m) {
    char limit[NUMBER_TEXT];
    snprintf(limit, sizeof limit, "%lld", (long long)m->c->options->pipeline);
    if (!CLUSTER_CALL(m->source, "SELECT", m->db)) return false;
    while (!cli_interrupted) {
        const struct resp_value *reply = CLUSTER_CALL(m->source, "CLUSTER", "GETKEYSINSLOT", m->slot, limit);
        if (!reply || !resp_is_aggregate(reply)) return false;
        int count = (int)reply->count;
        if (count == 0) return true;
        struct slice *keys = mem_alloc((size_t)count * sizeof *keys); /* copies: the next call replaces the reply */
        for (int i = 0; i < count; i++) {
            struct slice key = reply->children[i].text;
            keys[i] = slice_make(mem_strndup(key.len ? key.data : "", key.len), key.len);
        }
        bool moved = migrate_batch(m, keys, count);
        for (int i = 0; i < count; i++) mem_free((char *)keys[i].data);
        mem_free(keys);
        if (!moved) return false;
    }
    return false;
}

static bool keys_move(struct keys_move *m) {
    int *databases, count = cluster_databases(m->source, &databases);
    bool moved = count >= 0;
    for (int i = 0; i < count && moved; i++) {
        snprintf(m->db, sizeof m->db, "%d", databases[i]);
        moved = database_move(m);
    }
    mem_free(databases);
    /* The next user of the connection expects database 0. */
    return moved && CLUSTER_CALL(m->source, "SELECT", "0") != NULL;
}

/* --- One slot --- */

bool cluster_set_slot(struct cli_node *node, int slot, const char *state, const char *id) {
    char text[NUMBER_TEXT];
    snprintf(text, sizeof text, "%d", slot);
    for (int tries = 1;; tries++) {
        const struct resp_value *reply = id ? CLUSTER_TRY(node, "CLUSTER", "SETSLOT", text, state, id)
                                            : CLUSTER_TRY(node, "CLUSTER", "SETSLOT", text, state);
        if (!reply || reply->type != RESP_ERROR) return reply != NULL;
        if (strncmp(reply->text.data, "NOREPLICAS", 10) != 0 || tries == SETSLOT_TRIES || cli_interrupted) {
            printf("\n");
            cluster_show_error(node, reply);
            return false;
        }
    }
}

static bool owner_announce(struct cli_cluster *c, struct cli_node *source, struct cli_node *target, int slot) {
    char text[NUMBER_TEXT];
    snprintf(text, sizeof text, "%d", slot);
    if (!cluster_set_slot(target, slot, "NODE", target->line.id) ||
        !cluster_set_slot(source, slot, "NODE", target->line.id))
        return false;
    /* The others would learn it from the target anyway. */
    for (int i = 0; i < c->count; i++) {
        struct cli_node *other = c->nodes[i];
        if (other == source || other == target || !node_is_primary(other)) continue;
        if (!CLUSTER_TRY(other, "CLUSTER", "SETSLOT", text, "NODE", target->line.id)) return false;
    }
    return true;
}

static void open_slot_explain(const struct cli_cluster *c, const struct keys_move *m) {
    cluster_say(c, TONE_ERROR,
                "[ERR] Slot %s is left open between %s and %s. No key is lost: clients are redirected between the two "
                "until valkey-cli --cluster fix %s finishes the move.\n",
                m->slot, m->source->name, m->target->name, c->nodes[0]->name);
}

bool cluster_move_slot(struct cli_cluster *c, struct cli_node *source, struct cli_node *target, int slot,
                       unsigned flags) {
    struct keys_move m = {.c = c, .source = source, .target = target, .show = flags & MOVE_SHOW};
    snprintf(m.slot, sizeof m.slot, "%d", slot);
    if (cli_interrupted) return false;
    if (m.show) {
        printf("Moving slot %d from %s to %s", slot, source->name, target->name);
        fflush(stdout);
    }
    bool keys_only = flags & MOVE_KEYS_ONLY, opened = keys_only;
    if (!keys_only) {
        opened = cluster_set_slot(target, slot, "IMPORTING", source->line.id);
        if (opened && !cluster_set_slot(source, slot, "MIGRATING", target->line.id)) {
            open_slot_explain(c, &m);
            return false;
        }
    }
    if (!opened) return false;
    bool moved = keys_move(&m) && (keys_only || owner_announce(c, source, target, slot));
    if (m.show) printf("\n");
    if (!moved && !keys_only) open_slot_explain(c, &m);
    if (!moved || keys_only) return moved;
    slot_bitmap_clear(&source->line.slots, slot);
    slot_bitmap_set(&target->line.slots, slot);
    source->line.slots_count--;
    target->line.slots_count++;
    return true;
}

/* --- Atomic slot migrations --- */

enum job_state { JOB_RUNS, JOB_SUCCEEDED, JOB_FAILED, JOB_UNKNOWN };

static struct slice field_text(const struct resp_value *job, const char *name) {
    const struct resp_value *value = resp_value_get(job, name);
    return value && value->text.data ? value->text : SLICE("");
}

/* The newest job of `asked` with these slots and this peer; shows why it failed. */
static enum job_state job_look_at(struct cli_cluster *c, struct cli_node *asked, const char *peer_field,
                                  const struct cli_node *peer, const char *range) {
    const struct resp_value *reply = CLUSTER_CALL(asked, "CLUSTER", "GETSLOTMIGRATIONS");
    if (!reply) return JOB_UNKNOWN;
    for (size_t i = 0; i < reply->count; i++) {
        const struct resp_value *job = &reply->children[i];
        if (!resp_is_aggregate(job) || !slice_is(field_text(job, "slot_ranges"), range) ||
            !slice_is(field_text(job, peer_field), peer->line.id))
            continue;
        struct slice state = field_text(job, "state");
        if (slice_is(state, "success")) return JOB_SUCCEEDED;
        if (!slice_is(state, "failed") && !slice_is(state, "cancelled")) return JOB_RUNS;
        struct slice message = field_text(job, "message");
        printf("\n");
        cluster_say(c, TONE_ERROR, "Atomic slot migration failed: %.*s\n",
                    message.len ? (int)message.len : (int)state.len, message.len ? message.data : state.data);
        return JOB_FAILED;
    }
    return JOB_UNKNOWN;
}

/* A source without any slot left becomes a replica of the target, and forgets its jobs when it gets the data. */
static enum job_state job_look(struct cli_cluster *c, struct cli_node *source, struct cli_node *target,
                               const char *range) {
    enum job_state state = job_look_at(c, source, "target_node", target, range);
    if (state != JOB_UNKNOWN) return state;
    state = job_look_at(c, target, "source_node", source, range);
    if (state != JOB_UNKNOWN) return state;
    cluster_say(c, TONE_ERROR, "\nAtomic slot migration failed: %s does not know about it any more\n", source->name);
    return JOB_UNKNOWN;
}

/* The ranges of moves as "0-2 7-7", and as words for CLUSTER MIGRATESLOTS; free both. Returns the number of words. */
static int ranges_format(const struct slot_move *moves, int count, char **text, struct slice **words) {
    struct memory_output m = MEMORY_OUTPUT_INIT;
    int written = 0;
    *words = mem_alloc(2 * (size_t)count * sizeof **words);
    for (int i = 0, next; i < count; i = next) {
        int ends[2] = {moves[i].slot, moves[(next = slot_moves_range(moves, count, i)) - 1].slot};
        for (int k = 0; k < 2; k++) {
            char number[NUMBER_TEXT];
            int len = snprintf(number, sizeof number, "%d", ends[k]);
            (*words)[written++] = slice_make(mem_strndup(number, (size_t)len), (size_t)len);
            if (k || i) output_write(&m.out, k ? SLICE("-") : SLICE(" "));
            output_write(&m.out, slice_make(number, (size_t)len));
        }
    }
    *text = mem_strndup(memory_output_slice(&m).data, memory_output_slice(&m).len);
    memory_output_free(&m);
    return written;
}

/* Starts a migration of these slots, which have one source. */
static bool job_start(struct cli_cluster *c, struct cli_node *source, const struct cli_node *target,
                      const struct slice *ranges, int count) {
    struct slice *argv = mem_alloc((size_t)(count + ARGUMENTS) * sizeof *argv);
    int argc = 0;
    argv[argc++] = SLICE("CLUSTER");
    argv[argc++] = SLICE("MIGRATESLOTS");
    argv[argc++] = SLICE("SLOTSRANGE");
    for (int i = 0; i < count; i++) argv[argc++] = ranges[i];
    argv[argc++] = SLICE("NODE");
    argv[argc++] = slice_of(target->line.id);
    const struct resp_value *reply = cluster_try(source, argc, argv, CLUSTER_CALL_MS);
    mem_free(argv);
    if (reply && reply->type == RESP_ERROR) {
        printf("\n");
        cluster_say(c, TONE_ERROR, "Atomic slot migration failed: %s\n", reply->text.data);
    }
    return reply && reply->type != RESP_ERROR;
}

/* Waits for the end of the migration. */
static bool job_wait(struct cli_cluster *c, struct cli_node *source, struct cli_node *target, const char *ranges,
                     struct cluster_progress *progress, bool show) {
    for (;;) {
        enum job_state state = job_look(c, source, target, ranges);
        if (state != JOB_RUNS) return state == JOB_SUCCEEDED;
        if (cli_interrupted) {
            /* CANCELSLOTMIGRATIONS would end the jobs of other programs, too. */
            cluster_say(c, TONE_WARNING,
                        "\nInterrupted. The migration of slots %s goes on in the servers: see CLUSTER "
                        "GETSLOTMIGRATIONS at %s, and CLUSTER CANCELSLOTMIGRATIONS to end it.\n",
                        ranges, source->name);
            return false;
        }
        if (progress)
            cluster_progress_show(progress);
        else if (show)
            cluster_progress('.');
        usleep(ATOMIC_POLL_MS * 1000);
    }
}

static bool slots_migrate(struct cli_cluster *c, struct cli_node *source, struct cli_node *target,
                          const struct slot_move *moves, int count, bool show) {
    char *text;
    struct slice *words;
    int words_count = ranges_format(moves, count, &text, &words);
    if (show) printf("Moving slot range %s from %s to %s via atomic slot migration", text, source->name, target->name);
    fflush(stdout);
    struct cluster_progress *progress = cluster_progress_new(source, target, moves, count);
    bool moved = job_start(c, source, target, words, words_count) && job_wait(c, source, target, text, progress, show);
    cluster_progress_free(progress, moved);
    for (int i = 0; i < words_count; i++) mem_free((char *)words[i].data);
    mem_free(words);
    mem_free(text);
    for (int i = 0; i < count && moved; i++) {
        slot_bitmap_clear(&source->line.slots, moves[i].slot);
        slot_bitmap_set(&target->line.slots, moves[i].slot);
        if (!progress) cluster_progress('#');
    }
    if (moved) source->line.slots_count -= count, target->line.slots_count += count;
    return moved;
}

bool cluster_may_move_keys(const struct cli_cluster *c) {
    if (!c->cli->options.endpoint.rdma) return true;
    fprintf(stderr, "[ERR] Nodes move keys to each other over TCP, at ports that a client over RDMA is not told: use "
                    "atomic slot migrations, or connect without --rdma.\n");
    return false;
}

/* Whether the node knows atomic slot migrations: ours, and Valkey 9. */
static bool node_migrates(struct cli_node *node) {
    const struct resp_value *reply = CLUSTER_TRY(node, "COMMAND", "INFO", "CLUSTER|MIGRATESLOTS");
    return reply && resp_is_aggregate(reply) && reply->count == 1 && resp_is_aggregate(&reply->children[0]) &&
           reply->children[0].count > 0;
}

/* Keys that exist at the target are replaced only one by one. */
static bool moves_atomically(const struct cli_cluster *c, struct cli_node *source, struct cli_node *target) {
    if (c->options->atomic) return true;
    return !c->options->not_atomic && !c->options->replace && node_migrates(source) && node_migrates(target);
}

bool cluster_move_slots(struct cli_cluster *c, struct cli_node *const *sources, struct cli_node *target,
                        const struct slot_move *moves, int count, bool show) {
    bool moved = true;
    int i = 0;
    cli_catch_interrupt(c->cli, true);
    while (i < count && moved) {
        int next = i + 1;
        struct cli_node *source = sources[moves[i].source];
        bool atomic = moves_atomically(c, source, target);
        if (!atomic && !cluster_may_move_keys(c)) break;
        if (atomic) {
            while (next < count && moves[next].source == moves[i].source) next++;
            moved = slots_migrate(c, source, target, moves + i, next - i, show);
        } else {
            moved = cluster_move_slot(c, source, target, moves[i].slot, show ? MOVE_SHOW : 0);
            if (moved) cluster_progress('#');
        }
        if (!moved) {
            cluster_say(c, TONE_ERROR, "\n[ERR] %s%d of %d slots were moved to %s.\n",
                        cli_interrupted ? "Interrupted: " : "", i, count, target->name);
            break;
        }
        i = next;
    }
    cli_catch_interrupt(c->cli, false);
    return i == count;
}
