/* blocking.c: see blocking.h.
 *
 * One table holds every key that a client waits for, with its clients in the order in which they began to wait. The
 * store reports which keys change; changed keys that are in the table go on a list, which is served when the command
 * has finished. */
#include "server/clients/blocking.h"
#include "lib/hash/hash_slot.h"
#include "lib/structures/hashtable.h"
#include "lib/system/clock.h"
#include "lib/system/must.h"
#include "lib/system/ticks.h"
#include "lib/text/number.h"
#include "server/clients/client_private.h"
#include "server/clients/reply_barrier.h"
#include "server/clients/user.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/db_key.h"
#include "server/feature.h"
#include "server/server.h"
#include "server/command/command.h"
#include "server/store_events.h"
#include <math.h>

struct blocked_key {
    struct list waits;
    struct list_link ready_link;
    size_t unless_present; /* of the waits */
    bool present, woken;   /* when it was looked at last; for waits of any type: it has come, or blocking_wake() */
    uint32_t name_len;     /* length of the db_key */
    char name[];
};
struct blocking_wait {
    struct list_link of_key;
    struct blocked_key *key;
    struct blocked *blocked;
    uint64_t since; /* the serving round in which the wait began */
};
/* A client that waits for keys. */
struct blocked {
    struct client *client;
    struct list_link owned_link; /* of a client with an owner */
    struct command *command;
    enum value_type type;
    bool any_type, unless_present, call_at_end, changes_later, until_done;
    bool runs, waits_on; /* the command is called again; and finds that it must wait on */
    struct slice ready;  /* the key for which it is called again */
    void (*timed_out)(struct reply *reply);
    void *state; /* of the command; NULL `ended`: it has none */
    void (*ended)(void *state);
    struct event_timer timer;
    uint64_t ticks;      /* that the command ran before it blocked */
    size_t request_size; /* bytes on the wire */
    int slot;            /* see struct call */
    int wait_count;
    struct blocking_wait *waits;
    int argc;
    struct slice argv[]; /* then the bytes */
};

bool blocking_ready;
static struct hashtable *keys;
static struct list ready = LIST_INIT(ready);
static size_t blocked_count, blocked_of[VALUE_TYPES], blocked_of_any, unless_present_keys;
static struct blocked *called; /* the client whose command is called again, the innermost one */
static bool serving, quiet;
static struct list owned = LIST_INIT(owned);
static uint64_t serving_round, waits_visited;

static struct slice key_name(const void *entry) {
    const struct blocked_key *key = entry;
    return (struct slice){key->name, key->name_len};
}
static const struct hashtable_type key_type = {.key = key_name};

size_t blocking_keys(bool unless_present_only) {
    return unless_present_only ? unless_present_keys : keys ? hashtable_size(keys) : 0;
}

uint64_t blocking_visited(void) {
    return waits_visited;
}

/* --- Events of the store --- */

static struct entry *find_without_expiry(struct db *db, struct slice name) {
    return db_find(db, name, LOOKUP_NOTOUCH | LOOKUP_NOSTATS | LOOKUP_NOEXPIRE);
}

/* Keys are served in the order in which they became what a client waits for, even if that client waits for another key.
 * Earlier states of a key do not matter. */
static bool awaited(enum value_type type) {
    if (blocked_of[type]) return true;
    return blocked_of_any && type != TYPE_STRING && type != TYPE_SET && type != TYPE_HASH;
}
static void key_serve(struct blocked_key *key) {
    if (list_is_linked(&key->ready_link)) return;
    list_append(&ready, &key->ready_link);
    blocking_ready = true;
}
static void key_ready(struct blocked_key *key, const struct entry *entry) {
    bool came = entry && !key->present;
    key->present = entry;
    if (came || (entry && entry_type(entry) == TYPE_STREAM)) key->woken = true;
    if ((entry && awaited(entry_type(entry))) || key->unless_present) key_serve(key);
}
static struct blocked_key *key_find(struct db *db, struct slice name) {
    struct db_key full;
    struct blocked_key *key = hashtable_find(keys, db_key_make(&full, db, name));
    db_key_free(&full);
    return key;
}

static void key_changed(struct db *db, struct slice name) {
    struct blocked_key *key = key_find(db, name);
    if (!key) return;
    struct entry *entry = find_without_expiry(db, name);
    if (quiet)
        key->present = entry;
    else
        key_ready(key, entry);
}

/* A whole database is replaced by another one, or emptied (NULL): checks each key. slot: only the keys of this one are
 * concerned; -1: all. */
static void db_becomes(struct db *db, struct db *other, int slot) {
    struct hashtable_iterator it;
    hashtable_iterator_open(&it, keys);
    for (struct blocked_key *key; (key = hashtable_iterator_next(&it));) {
        struct slice full = key_name(key);
        if (db_key_db(full) != db) continue;
        if (slot >= 0 && hash_slot(db_key_name(full)) != (unsigned)slot) continue;
        struct entry *entry = other ? find_without_expiry(other, db_key_name(full)) : NULL;
        int64_t at = entry ? entry_expire_at(entry) : -1;
        key->present = false; /* whatever the other database has for this key has come */
        key_ready(key, at >= 0 && at <= clock_data_ms() ? NULL : entry); /* an expired key serves no client */
    }
    hashtable_iterator_close(&it);
}
static void db_flushed(struct db *db, size_t count) {
    db_becomes(db, NULL, -1);
}
static void slot_left(struct db *db, unsigned slot) {
    db_becomes(db, NULL, (int)slot);
}
static void dbs_swapped(struct db *a, struct db *b) {
    db_becomes(a, b, -1);
    db_becomes(b, a, -1);
}
static struct store_listener listener = {
    .hooks = {.changed = key_changed, .flushed = db_flushed, .slot_left = slot_left, .swapped = dbs_swapped}};

void blocking_changed_quietly(struct db *db, struct slice key) {
    quiet = true;
    db_changed(db, key);
    quiet = false;
}
void blocking_set_expire_quietly(struct db *db, struct entry *entry, int64_t at_ms) {
    quiet = true;
    db_set_expire(db, entry, at_ms);
    quiet = false;
}
void blocking_wake(struct db *db, struct slice key) {
    struct blocked_key *found = keys && hashtable_size(keys) ? key_find(db, key) : NULL;
    if (!found) return;
    found->woken = true;
    key_serve(found);
}

/* --- Waiting --- */

static struct blocked_key *key_of(struct db *db, struct slice name) {
    struct db_key storage;
    struct slice full = db_key_make(&storage, db, name);
    struct blocked_key *key = hashtable_find(keys, full);
    if (!key) {
        key = mem_alloc(sizeof *key + full.len);
        *key = (struct blocked_key){.name_len = (uint32_t)full.len, .present = find_without_expiry(db, name) != NULL};
        list_init(&key->waits);
        memcpy(key->name, full.data, full.len);
        hashtable_add(keys, key);
        if (hashtable_size(keys) == 1) store_events_listen(&listener);
    }
    db_key_free(&storage);
    return key;
}

static void wait_end(struct blocking_wait *wait) {
    struct blocked_key *key = wait->key;
    must(!wait->blocked->unless_present || key->unless_present > 0);
    list_remove(&key->waits, &wait->of_key);
    if (wait->blocked->unless_present && --key->unless_present == 0) unless_present_keys--;
    if (key->waits.len) return;
    if (list_is_linked(&key->ready_link)) list_remove(&ready, &key->ready_link);
    const struct blocked_key *known = hashtable_pop(keys, key_name(key));
    must(known == key);
    mem_free(key);
    if (hashtable_size(keys) == 0) store_events_unlisten(&listener);
}

static void client_gone(struct client *client);
static struct client_listener client_listener;

/* A blocked client keeps the arguments of its command. */
static void blocking_report(const struct client *client, struct client_report *report) {
    const struct blocked *blocked = client_state(client, &client_listener);
    for (int i = 0; i < blocked->argc; i++) report->waiting_arguments += blocked->argv[i].len;
    report->memory += mem_size(blocked);
}
static struct client_listener client_listener = {.freed = client_gone, .report = blocking_report};

static void blocked_free(struct blocked *blocked) {
    if (blocked->ended) blocked->ended(blocked->state);
    mem_free(blocked->waits);
    mem_free(blocked);
}

/* Ends the client's wait. A command that is called again needs its arguments and its state until it returns. */
static void blocked_end(struct blocked *blocked) {
    for (int i = 0; i < blocked->wait_count; i++) wait_end(&blocked->waits[i]);
    event_timer_cancel(server.loop, &blocked->timer);
    size_t *count = blocked->any_type ? &blocked_of_any : &blocked_of[blocked->type];
    must(blocked_count > 0 && *count > 0);
    --*count;
    client_set_state(blocked->client, &client_listener, NULL);
    if (list_is_linked(&blocked->owned_link)) list_remove(&owned, &blocked->owned_link);
    blocked_count--;
    if (!blocked->runs) blocked_free(blocked);
}

/* --- Clients without a connection --- */

static struct client_listener owner_listener;
static void owner_forget(struct client *client) {
    client_set_state(client, &owner_listener, NULL);
}
static struct client_listener owner_listener = {.freed = owner_forget};

static struct blocking_owner *owner_of(const struct client *client) {
    return client->conn ? NULL : client_state(client, &owner_listener);
}
void blocking_set_owner(struct client *client, struct blocking_owner *owner) {
    client_set_state(client, &owner_listener, owner);
}
bool blocking_cancel(struct client *client) {
    struct blocked *blocked = client_state(client, &client_listener);
    if (!blocked || blocked->runs) return false;
    client->flags |= CLIENT_CLOSING;
    blocked_end(blocked);
    client->flags &= ~(uint32_t)CLIENT_CLOSING;
    return true;
}
bool call_may_block(const struct call *call) {
    return (call->client->conn || owner_of(call->client)) && !(call->client->flags & CLIENT_DENY_BLOCKING);
}
void blocking_end_owned(const char *error) {
    list_each(&owned, link) client_unblock(container_of(link, struct blocked, owned_link)->client, error);
}

static void unblock(struct blocked *blocked) {
    struct client *client = blocked->client;
    struct blocking_owner *owner = owner_of(client);
    blocked_end(blocked);
    if (owner) {
        owner->over(owner, true);
        return;
    }
    if (client->flags & CLIENT_REPLY_SKIP) client_skip_end(client);
    client_flush_later(client);
    client_release(client);
}

static void answer_timeout(struct reply *reply, void (*timed_out)(struct reply *)) {
    if (timed_out)
        timed_out(reply);
    else
        reply_null_array(reply);
}

static uint64_t time_is_up(struct event_timer *timer) {
    enum { LATER_US = 1000 };
    struct blocked *blocked = container_of(timer, struct blocked, timer);
    if (!blocked->client->conn && dispatch_running()) return LATER_US; /* what its owner does may change keys */
    client_unblock(blocked->client, NULL);
    return 0;
}

static void call_again(struct blocked *blocked, struct slice ready_key);

void (*blocking_ended)(int slot, const struct command *command, uint64_t ticks);

bool client_unblock(struct client *client, const char *error) {
    struct blocked *blocked = client_state(client, &client_listener);
    if (!blocked || blocked->runs || blocked->until_done) return false;
    if (!error && blocked->call_at_end) {
        uint32_t before = client->flags & CLIENT_DENY_BLOCKING;
        client->flags |= CLIENT_DENY_BLOCKING;
        call_again(blocked, (struct slice){0});
        if (!before) client->flags &= ~(uint32_t)CLIENT_DENY_BLOCKING;
        return true;
    }
    struct command *command = blocked->command;
    struct blocking_owner *owner = owner_of(client);
    struct call_start start;
    if (owner)
        owner->begins(owner);
    else
        client_call_starts(client, &start);
    /* Nil says that nothing came: a statement about data. */
    if (!error) error = reply_barrier_before_answer(client);
    if (error) command->rejected++;
    if (error)
        reply_error(&client->reply, error);
    else
        answer_timeout(&client->reply, blocked->timed_out);
    dispatch_account(client, command, blocked->argc, blocked->argv, blocked->ticks);
    if (blocking_ended) blocking_ended(blocked->slot, command, blocked->ticks);
    if (!owner) client_call_ends(client, &start, blocked->argc, blocked->argv, blocked->request_size);
    unblock(blocked);
    return true;
}

const struct command *blocking_command(const struct client *client) {
    const struct blocked *blocked = client_state(client, &client_listener);
    return blocked ? blocked->command : NULL;
}

size_t blocking_request_size(const struct client *client) {
    const struct blocked *blocked = client_state(client, &client_listener);
    return blocked ? blocked->request_size : 0;
}

int blocking_slot(const struct client *client) {
    const struct blocked *blocked = client_state(client, &client_listener);
    return blocked ? blocked->slot : -1;
}

static struct blocked *blocked_new(struct call *call, const struct blocking *how) {
    const struct slice *argv = how->argv ? how->argv : call->argv;
    size_t bytes = 0;
    for (int i = 0; i < call->argc; i++) bytes += argv[i].len;
    struct blocked *blocked = mem_alloc(sizeof *blocked + (size_t)call->argc * sizeof *call->argv + bytes);
    *blocked = (struct blocked){.client = call->client,
                                .command = call->client->current,
                                .type = how->type,
                                .any_type = how->any_type,
                                .unless_present = how->unless_present,
                                .call_at_end = how->call_at_end,
                                .changes_later = how->changes_later,
                                .until_done = how->until_done,
                                .timed_out = how->timed_out,
                                .state = how->state,
                                .ended = how->ended,
                                .ticks = ticks_now() - dispatch_ticks,
                                .request_size = request_wire_size(&call->client->reader),
                                .slot = call->slot,
                                .argc = call->argc};
    char *at = (char *)&blocked->argv[call->argc];
    for (int i = 0; i < call->argc; i++) {
        if (argv[i].len) memcpy(at, argv[i].data, argv[i].len);
        blocked->argv[i] = (struct slice){at, argv[i].len};
        at += argv[i].len;
    }
    blocked->waits = mem_alloc((size_t)how->key_count * sizeof *blocked->waits);
    return blocked;
}

void *call_wait(const struct call *call, void (*ended)(void *state)) {
    return called && called->client == call->client && called->ended == ended ? called->state : NULL;
}

struct slice call_ready_key(const struct call *call) {
    return called && called->client == call->client ? called->ready : (struct slice){0};
}

static void wait_on(struct blocked *blocked, const struct blocking *how) {
    blocked->waits_on = true;
    blocked->until_done = how->until_done;
    if (!how->ended || how->state == blocked->state) return;
    if (blocked->ended) blocked->ended(blocked->state);
    blocked->state = how->state;
    blocked->ended = how->ended;
    event_timer_cancel(server.loop, &blocked->timer);
}

void call_block(struct call *call, const struct blocking *how) {
    struct client *client = call->client;
    call->blocked = true;
    if (called && called->client == client) {
        wait_on(called, how);
        return;
    }
    if (!call_may_block(call)) {
        call->blocked = false;
        answer_timeout(call->reply, how->refused ? how->refused : how->timed_out);
        if (how->ended) how->ended(how->state);
        return;
    }
    must(!client_state(client, &client_listener)); /* a client executes nothing while it waits */
    struct blocked *blocked = blocked_new(call, how);
    if (!keys) keys = hashtable_new(&key_type);
    for (int i = 0; i < how->key_count; i++) {
        struct blocked_key *key = key_of(call->db, how->keys ? how->keys[i] : call->argv[how->first_key + i]);
        struct list_link *last = key->waits.head.prev;
        /* The same key is named twice. */
        if (last != &key->waits.head && container_of(last, struct blocking_wait, of_key)->blocked == blocked) continue;
        struct blocking_wait *wait = &blocked->waits[blocked->wait_count++];
        *wait = (struct blocking_wait){.key = key, .blocked = blocked, .since = serving ? serving_round : 0};
        list_append(&key->waits, &wait->of_key);
        if (how->unless_present && key->unless_present++ == 0) unless_present_keys++;
    }
    client_set_state(client, &client_listener, blocked);
    blocked_count++;
    ++*(blocked->any_type ? &blocked_of_any : &blocked_of[blocked->type]);
    if (client->conn)
        client_hold(client);
    else
        list_append(&owned, &blocked->owned_link);
    if (how->timeout_ms) event_timer_set(server.loop, &blocked->timer, (uint64_t)how->timeout_ms * 1000, time_is_up);
}

/* --- Serving --- */

static bool may_serve(const struct blocked *blocked, const struct entry *entry, bool woken) {
    if (blocked->any_type) return entry ? woken : blocked->unless_present;
    return (entry && entry_type(entry) == blocked->type) || blocked->unless_present;
}

/* What permitted the command when it began to wait may have changed: the rights of the client's user, the node that has
 * the keys of a slot, and the state of this server. Most commands that do not wait for keys have done their work before
 * they are called again, or part of it: the state of the server no longer matters to them. */
static const char *refuse_again(const struct blocked *blocked) {
    enum {
        BY_STATE = FILTER_BIT(FILTER_MEMORY) | FILTER_BIT(FILTER_DISK) | FILTER_BIT(FILTER_REPLICAS) |
                   FILTER_BIT(FILTER_READONLY) | FILTER_BIT(FILTER_STALE)
    };
    struct client *client = blocked->client;
    const char *refusal = user_refusal(client, blocked->command, blocked->argc, blocked->argv);
    if (refusal) return refusal;
    bool by_state = blocked->wait_count || blocked->changes_later;
    uint32_t orders = (blocked->slot >= 0 ? FILTER_BIT(FILTER_CLUSTER) : 0) | (by_state ? BY_STATE : 0);
    if (blocked->slot >= 0) client->slot = -1;
    return dispatch_ask(client, blocked->command, blocked->command->spec->flags, blocked->argc, blocked->argv, orders);
}

static void call_again_now(struct blocked *blocked, struct slice ready_key) {
    struct client *client = blocked->client;
    struct blocked *outer = called;
    called = blocked;
    blocked->ready = ready_key;
    blocked->runs = true;
    blocked->waits_on = false;
    client->flags |= CLIENT_CALLED_AGAIN;
    dispatch_ticks = ticks_now();
    struct blocking_owner *owner = owner_of(client);
    struct call_start start;
    if (owner)
        owner->begins(owner);
    else
        client_call_starts(client, &start);
    const char *refusal = refuse_again(blocked);
    if (__builtin_expect(refusal != NULL, 0)) {
        blocked->command->rejected++;
        reply_error(&client->reply, refusal);
    } else if (!(client->flags & CLIENT_CLOSING)) { /* an eviction event may exceed its output limit */
        dispatch_call(client, blocked->command, blocked->argc, blocked->argv, blocked->slot);
    }
    client->flags &= ~(uint32_t)CLIENT_CALLED_AGAIN;
    called = outer;
    blocked->runs = false;
    if (client->flags & CLIENT_CLOSING) { /* the wait has ended with the client */
        blocked_free(blocked);
        return;
    }
    if (blocked->waits_on) {
        if (owner) owner->over(owner, false);
        return;
    }
    if (!owner) client_call_ends(client, &start, blocked->argc, blocked->argv, blocked->request_size);
    unblock(blocked);
}

/* Calls the command again, unless that is refused now. What it changes may serve other clients, whose commands are then
 * called before this returns, and its own client if it waits on: not before its call has ended. */
static void call_again(struct blocked *blocked, struct slice ready_key) {
    bool before = serving;
    serving = true;
    call_again_now(blocked, ready_key);
    serving = before;
    if (__builtin_expect(blocking_ready && !serving, 0) && !dispatch_running()) blocking_serve();
}

void blocking_call_again(struct client *client) {
    struct blocked *blocked = client_state(client, &client_listener);
    if (blocked) call_again(blocked, (struct slice){0});
}

/* Calls the commands that wait for a key, each once, in the order in which they began to wait. Clients that begin to
 * wait meanwhile are left for the next round. A call may end any of the waits, and with the last wait the key itself.
 */
static void serve_key(struct db *db, struct slice full) {
    struct blocked_key *key = hashtable_find(keys, full);
    if (!key) return;
    bool woken = key->woken;
    key->woken = false;
    serving_round++;
    list_each_entry(&key->waits, struct blocking_wait, of_key, wait) {
        if (wait->since == serving_round) break; /* so did all waits behind it */
        waits_visited++;
        /* An expired key is deleted here; commands that it cannot serve are not called. */
        struct entry *entry = db_find(db, db_key_name(full), LOOKUP_NOTOUCH | LOOKUP_NOSTATS);
        if (may_serve(wait->blocked, entry, woken)) call_again(wait->blocked, db_key_name(full));
    }
}

void blocking_serve(void) {
    /* Within a group, which is one of a module's timer or thread, the loop serves them later. */
    if (serving || propagate_is_grouped() || clients_paused() != PAUSE_NONE) return;
    serving = true;
    clock_update(); /* a transaction sees one time; the clients that it wakes see the time after it */
    while (ready.len) {
        struct blocked_key *key = container_of(list_first(&ready), struct blocked_key, ready_link);
        list_remove(&ready, &key->ready_link);
        struct slice name = key_name(key);
        char *copy = mem_alloc(name.len); /* the call may free the key */
        memcpy(copy, name.data, name.len);
        serve_key(db_key_db(name), (struct slice){copy, name.len});
        mem_free(copy);
    }
    blocking_ready = false;
    serving = false;
}

/* --- Timeouts --- */

static bool timeout_check(struct call *call, long double milliseconds, int64_t *timeout_ms) {
    long double whole = ceill(milliseconds); /* the fraction of a millisecond below 0 is 0: without limit */
    if (milliseconds > (long double)INT64_MAX || milliseconds != milliseconds) {
        reply_error(call->reply, "ERR timeout is out of range");
    } else if (whole < 0) {
        reply_error(call->reply, "ERR timeout is negative");
    } else {
        int64_t rounded = (int64_t)whole;
        if (rounded > INT64_MAX - clock_ms()) return reply_error(call->reply, "ERR timeout is out of range");
        /* Longer than the timer can count: wait without limit. */
        *timeout_ms = rounded > INT64_MAX / 4000 ? 0 : rounded;
        return true;
    }
    return false;
}

bool call_timeout_seconds(struct call *call, int index, int64_t *timeout_ms) {
    long double seconds;
    if (!parse_long_double(call->argv[index], &seconds))
        return reply_error(call->reply, "ERR timeout is not a float or out of range");
    return timeout_check(call, seconds * 1000, timeout_ms);
}

bool call_timeout_milliseconds(struct call *call, int index, int64_t *timeout_ms) {
    int64_t value;
    if (!parse_int64(call->argv[index], &value))
        return reply_error(call->reply, "ERR timeout is not an integer or out of range");
    return timeout_check(call, value, timeout_ms);
}

/* --- Disconnects --- */

static void client_gone(struct client *client) {
    struct blocked *blocked = client_state(client, &client_listener);
    if (blocked) blocked_end(blocked);
}

static void blocking_init(void) {
    client_listen(&client_listener);
}

const struct feature blocking_feature = {.name = "blocking", .init = blocking_init};
