/* redirect.c: which node serves a command: MOVED, ASK, TRYAGAIN, CROSSSLOT and CLUSTERDOWN.
 *
 * A filter of dispatch decides. The order of the steps is visible to clients:
 *
 *  1. Keys and shard channels of one command, and of all commands of an EXEC, are in one slot: CROSSSLOT. Without any
 *     the command is served.
 *  2. The slot has an owner: CLUSTERDOWN.
 *  3. An open slot: SETSLOT moves its keys to or from this node one by one. The keys that are missing here are counted,
 *     but for shard channels and for a command that is only queued. Commands that need a key in two databases:
 *     TRYAGAIN, also when they are queued.
 *  4. The cluster is up: CLUSTERDOWN. Options let reads and shard channels pass.
 *  5. MIGRATE is served where the slot is open.
 *  6. The slot leaves: all keys are here, or ASK, or TRYAGAIN if some are.
 *  7. The slot arrives and the client was sent here (ASKING): it is served unless some of several keys are missing.
 *  8. A replica serves reads of clients that sent READONLY, unless its data are behind (replica_slots.h), and shard
 *     channels.
 *  9. The owner is another node: MOVED.
 *
 * A command with a single key in a slot that is not open needs a hash and a comparison (look()), and so does MOVED for
 * most of those. The slot is kept in the client for the call.
 *
 * A client that waits for keys is redirected when another node serves their slot, or none does. A failover moves
 * thousands of slots at once, so the clients are checked once, at the end of the turn.
 *
 * ASKING is for the next command. It is over when the command after that one arrives, or when a request is refused; a
 * transaction that begins with it keeps it until EXEC. */
#include "cluster/redirect.h"
#include "cluster/endpoint.h"
#include "cluster/settings.h"
#include "cluster/replica_slots.h"
#include "cluster/this_node.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/reply_barrier.h"
#include "server/clients/transactions.h"
#include "server/command/dispatch.h"
#include "server/server.h"
#include "store/key_slot.h"
#include <stdio.h>

enum { KEYS_ON_STACK = 64, ERROR_MAX = 256, SLOT_NONE = -1, SLOT_SEVERAL = -2 /* transaction_slot() */ };

static const char cross_slot[] = "CROSSSLOT Keys in request don't hash to the same slot";
static const char try_again[] = "TRYAGAIN Multiple keys request during rehashing of slot";

/* --- Keys and slots --- */

/* Arguments from 1 on that are no keys but have a slot all the same: shard channels, the cursor of CLUSTERSCAN. */
static int other_names(const struct command *command, int argc) {
    const struct key_spec *names = &command->spec->keys[0];
    if (!(names->flags & KEY_NOT_KEY)) return 0;
    return names->a < 0 ? argc - 1 : 1;
}

/* The slot of the keys and other names of a command: SLOT_NONE: it has none, or its arguments are invalid. */
static int slot_of(const struct command *command, int argc, const struct slice *argv) {
    if (command->only_key && command->only_key < argc) return (int)key_slot_of_request(argv[command->only_key]);
    int slot = SLOT_NONE, count = other_names(command, argc);
    for (int i = 1; i <= count; i++) {
        int other = (int)hash_slot(argv[i]);
        if (slot >= 0 && slot != other) return SLOT_SEVERAL;
        slot = other;
    }
    if (count) return slot;
    struct key_position few[KEYS_ON_STACK], *positions = few;
    if (argc > KEYS_ON_STACK) positions = mem_alloc((size_t)argc * sizeof(*positions));
    count = command_find_keys(command, argc, argv, positions, argc > KEYS_ON_STACK ? argc : KEYS_ON_STACK);
    for (int i = 0; i < count && slot != SLOT_SEVERAL; i++) {
        int other = (int)(i ? hash_slot(argv[positions[i].index]) : key_slot_of_request(argv[positions[i].index]));
        slot = slot < 0 || slot == other ? other : SLOT_SEVERAL;
    }
    if (positions != few) mem_free(positions);
    return slot;
}

int redirect_slot(const struct command *command, int argc, const struct slice *argv) {
    return slot_of(command, argc, argv);
}

/* --- Keys of an open slot --- */

struct presence {
    struct db *db; /* selected, as the commands of a transaction change it */
    struct slice first;
    size_t existing, missing;
    bool several;       /* different keys */
    bool two_databases; /* a command that moves or copies a key to another database */
};

static bool names_other_db(const struct presence *presence, struct slice text) {
    int64_t number;
    return !parse_int64(text, &number) || number != db_id(presence->db);
}

static void presence_see_command(struct presence *presence, const struct command *command, int argc,
                                 const struct slice *argv) {
    const char *name = command->full_name;
    if (strcmp(name, "select") == 0) {
        int64_t number;
        struct db *db = parse_int64(argv[1], &number) && number >= 0 && number < INT32_MAX
                            ? keyspace_db(server.keyspace, (int)number)
                            : NULL;
        if (db) presence->db = db;
    } else if (strcmp(name, "move") == 0) {
        presence->two_databases = true;
    } else if (strcmp(name, "copy") == 0) {
        for (int i = 3; i + 1 < argc; i++)
            if (slice_is(argv[i], "db") && names_other_db(presence, argv[i + 1])) presence->two_databases = true;
    }
}

static void presence_see(void *context, const struct command *command, int argc, const struct slice *argv) {
    struct presence *presence = context;
    struct key_position few[KEYS_ON_STACK], *positions = few;
    presence_see_command(presence, command, argc, argv);
    if (command->keyless) return;
    presence->missing +=
        (size_t)other_names(command, argc); /* the cursor of CLUSTERSCAN counts as a key, as in Valkey */
    if (argc > KEYS_ON_STACK) positions = mem_alloc((size_t)argc * sizeof(*positions));
    int count = command_find_keys(command, argc, argv, positions, argc > KEYS_ON_STACK ? argc : KEYS_ON_STACK);
    for (int i = 0; i < count; i++) {
        struct slice key = argv[positions[i].index];
        struct entry *entry = db_find(presence->db, key, LOOKUP_NOTOUCH | LOOKUP_NOSTATS | LOOKUP_NOEXPIRE);
        if (entry && !entry_is_expired(entry))
            presence->existing++;
        else
            presence->missing++;
        if (!presence->first.data) presence->first = key;
        presence->several |= !slice_equal(presence->first, key);
    }
    if (positions != few) mem_free(positions);
}

/* --- The decision --- */

/* What a command, or the commands of a transaction, name. */
struct redirect_names {
    bool keys, channels;
};
static void names_see(void *context, const struct command *command, int argc, const struct slice *argv) {
    struct redirect_names *names = context;
    if (command->spec->flags & CMD_PUBSUB)
        names->channels |= slot_of(command, argc, argv) >= 0;
    else
        names->keys |= slot_of(command, argc, argv) >= 0;
}

/* In Valkey a transaction in which any command names a channel counts as one of channels only, and EXEC writes while
 * only reads are allowed. Here both are refused: the options must not allow writes in a cluster that is down. */
static const char *down_error(const struct redirect_names *names, bool writes) {
    if (names->channels && !cluster_options.shard_messages_when_down) return "CLUSTERDOWN The cluster is down";
    if (!names->keys) return NULL;
    if (!cluster_options.reads_when_down) return "CLUSTERDOWN The cluster is down";
    return writes ? "CLUSTERDOWN The cluster is down and only accepts read commands" : NULL;
}

/* "The key is not here" is a statement about data. The client may next write a new value at the target; if a replica
 * without the removal took over here, the client could later read the old value. So ASK and TRYAGAIN wait like the
 * reply to a read, and are refused where a read is refused. */
static const char *of_data(struct client *client, const char *error) {
    const char *refusal = reply_barrier_before_answer(client);
    return refusal ? refusal : error;
}

static const char *decide(struct client *client, const struct command *command, uint32_t flags, int argc,
                          const struct slice *argv, unsigned slot) {
    const struct cluster *cluster = this_cluster;
    const struct cluster_node *owner = cluster->slots.owner[slot], *myself = cluster->myself;
    bool executes = flags & CMD_RUNS_QUEUED, writes = flags & CMD_WRITE, reads_only = client->flags & CLIENT_READONLY;
    if (!owner) return "CLUSTERDOWN Hash slot not served";

    const struct cluster_node *target = slots_migrating_to(&cluster->slots, slot);
    if (owner != cluster_shard_primary(cluster)) target = NULL;
    bool imports = slots_importing_from(&cluster->slots, slot) != NULL;
    /* A replica has the open slots of its primary for its readers only. */
    if (node_is_replica(myself) && !reads_only) {
        target = NULL;
        imports = false;
    }
    if (owner == myself && cluster->ok && !target && !imports) return NULL;
    struct redirect_names names = {0};
    if (executes)
        transaction_each(client, names_see, &names);
    else
        *(command->spec->flags & CMD_PUBSUB ? &names.channels : &names.keys) = true;
    bool channels = !names.keys;
    struct presence presence = {.db = client->db};
    if ((target || imports) && !channels) {
        if (executes)
            transaction_each(client, presence_see, &presence);
        else if (transaction_queued(client) < 0)
            presence_see(&presence, command, argc, argv);
        else
            presence_see_command(&presence, command, argc, argv);
        if (presence.two_databases) return try_again;
    }

    const char *down = cluster->ok ? NULL : down_error(&names, writes);
    if (down) return down;
    if ((target || imports) && node_is_primary(myself) && strcmp(command->full_name, "migrate") == 0) return NULL;
    if (target && presence.missing) {
        if (presence.existing) return of_data(client, try_again);
        const char *refusal = of_data(client, NULL);
        return refusal ? refusal : endpoint_redirection(target, slot, true, client).data;
    }
    if (imports && (client->flags & CLIENT_ASKING || flags & CMD_ASKING))
        return presence.several && presence.missing ? of_data(client, try_again) : NULL;
    if (owner == myself) return NULL;
    bool replicates = node_is_replica(myself) && myself->primary == owner;
    if (replicates && (channels || (reads_only && !replica_slot_is_behind(slot))) && !writes) return NULL;
    return endpoint_redirection(owner, slot, false, client).data;
}

/* The errors that a script gets for its commands. */
static const char *for_script(const struct command *command, const char *error) {
    static char text[ERROR_MAX];
    static const char down[] = "CLUSTERDOWN The cluster is down";
    if (strncmp(error, down, sizeof(down) - 1) != 0) return "ERR Attempted to access a non local key in a cluster node";
    if (error[sizeof(down) - 1])
        snprintf(text, sizeof(text), "ERR Can not execute a write command '%s' while the cluster is down and readonly",
                 command->full_name);
    else
        snprintf(text, sizeof(text), "ERR Can not execute a command '%s' while the cluster is down",
                 command->full_name);
    return text;
}

/* --- The filter --- */

/* ASKING holds for the command after it, also when that has waited and is called again. */
static void asking_use(struct client *client, const struct command *command) {
    if (!(client->flags & CLIENT_ASKING) || client->flags & (CLIENT_INTERNAL | CLIENT_CALLED_AGAIN)) return;
    if (transaction_queued(client) >= 0) return;
    if (client->flags & CLIENT_ASKING_USED)
        client->flags &= ~(uint32_t)(CLIENT_ASKING | CLIENT_ASKING_USED);
    else
        client->flags |= CLIENT_ASKING_USED;
}

/* The owner of a slot that is not open, and of a command's only key, is not this node. Most such requests are refused
 * here with MOVED: those of clients whose state does not matter. */
static __attribute__((noinline)) enum filter_answer send_to_owner(struct client *client, const struct command *command,
                                                                  unsigned slot) {
    const struct cluster_node *owner = this_cluster->slots.owner[slot];
    if (!owner || client->flags & (CLIENT_READONLY | CLIENT_INTERNAL)) return FILTER_ASK;
    if (command->spec->flags & (CMD_PUBSUB | CMD_RUNS_QUEUED) || transaction_queued(client) >= 0) return FILTER_ASK;
    client->slot = SLOT_NONE;
    dispatch_refuse_moved(client, command, endpoint_redirection(owner, slot, false, client));
    return FILTER_TAKEN;
}

static enum filter_answer look(struct client *client, const struct command *command, int argc,
                               const struct slice *argv) {
    if (__builtin_expect(client->flags & CLIENT_ASKING, 0)) return FILTER_ASK;
    unsigned key = command->only_key;
    if (!key) return command->keyless ? FILTER_PASS : FILTER_ASK;
    if (__builtin_expect((int)key >= argc, 0)) return FILTER_ASK;
    const struct cluster *cluster = this_cluster;
    unsigned slot = key_slot_of_request(argv[key]);
    client->slot = (int16_t)slot;
    if (__builtin_expect(!cluster->ok || slots_is_open(&cluster->slots, slot), 0)) return FILTER_ASK;
    /* The bitmap stays in the processor's cache; the table of owners is too large for that. */
    return node_has_slot(cluster->myself, slot) ? FILTER_PASS : send_to_owner(client, command, slot);
}

static enum filter_answer ask(struct client *client, const struct command *command, int argc, const struct slice *argv,
                              const char **error) {
    asking_use(client, command);
    uint32_t flags = dispatch_flags(client, command, argv);
    int slot = flags & CMD_RUNS_QUEUED ? transaction_slot(client)
               : client->slot >= 0     ? client->slot /* look() has found it */
                                       : slot_of(command, argc, argv);
    client->slot = SLOT_NONE;
    if (slot == SLOT_NONE) return FILTER_PASS;
    *error = slot == SLOT_SEVERAL ? cross_slot : decide(client, command, flags, argc, argv, (unsigned)slot);
    if (!*error) {
        client->slot = (int16_t)slot;
        return FILTER_PASS;
    }
    if (!(client->flags & CLIENT_INTERNAL)) return FILTER_ELSEWHERE;
    *error = for_script(command, *error);
    return FILTER_REFUSE;
}

static struct command_filter filter = {.order = FILTER_CLUSTER, .look = look, .ask = ask};
void redirect_set(bool on) {
    dispatch_set_filter(&filter, on);
}

/* --- Clients that wait for keys --- */

static bool check_due;

/* The error that ends the wait; NULL: it goes on. */
static const char *refuse_wait(const struct client *client, const struct command *command, unsigned slot) {
    const struct cluster *cluster = this_cluster;
    const struct cluster_node *owner = cluster->slots.owner[slot], *myself = cluster->myself;
    if (!cluster->ok) return "CLUSTERDOWN The cluster is down";
    if (owner == myself || slots_importing_from(&cluster->slots, slot)) return NULL;
    if (!owner) return "CLUSTERDOWN Hash slot not served";
    bool reads = client->flags & CLIENT_READONLY && !(command->spec->flags & CMD_WRITE);
    if (reads && node_is_replica(myself) && myself->primary == owner) return NULL;
    return endpoint_redirection(owner, slot, false, client).data;
}

static void waits_check(struct list *clients) {
    list_each_entry(clients, struct client, link, client) {
        int slot = blocking_slot(client);
        const struct command *command = blocking_command(client);
        const char *error = slot >= 0 ? refuse_wait(client, command, (unsigned)slot) : NULL;
        if (error && client->flags & CLIENT_INTERNAL) error = for_script(command, error);
        if (error) client_unblock(client, error);
    }
}
static void redirect_before_wait(void) {
    if (__builtin_expect(!check_due, 1) || dispatch_running()) return;
    check_due = false;
    waits_check(clients_all());
    waits_check(clients_internal()); /* calls of modules that wait */
}
const struct server_part redirect_part = {.name = "cluster-redirect", .before_wait = redirect_before_wait};

void redirect_check_waits(void) {
    check_due = true;
}
static void slot_moved(unsigned slot, const struct cluster_node *from, const struct cluster_node *to) {
    check_due = true;
}
static void state_changed(bool ok) {
    check_due = true;
}
static void role_changed(void) {
    check_due = true;
}
static struct cluster_listener listener = {
    .slot_moved = slot_moved, .state_changed = state_changed, .role_changed = role_changed};

void redirect_start(void) {
    dispatch_add_filter(&filter);
    cluster_listen(&listener);
}
