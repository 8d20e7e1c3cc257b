/* random_commands.h: random commands of all types, executed by the dispatcher on three databases, and what the server
 * does to the data set itself: keys and fields expire, keys are evicted, blocks move, tables are resized, databases
 * are swapped, emptied and replaced, slots are dropped and hidden. For tests of what reads the data set meanwhile. */
#pragma once
#include "commands_fixture.h"
#include "lib/hash/hash_slot.h"
#include "lib/system/random.h"
#include "lib/system/relocate.h"
#include "store/evict.h"
#include "store/relocate_keys.h"
#include "store/stream.h"

enum { DATABASES = 3 };

/* The test says which keyspace it wants: keyspace_new or keyspace_new_per_slot. */
static struct keyspace *(*make)(int databases, const struct store_hooks *hooks);
static const struct store_hooks fixture_hooks = {.expired = key_expired};

/* --- Random commands --- */

/* {s} etc.: a key, usually of that type; {k}: any key; {v} a value, {f} a field or member, {n} a number, {i} an index,
 * {m} milliseconds, {u} a future time, {d} a database, {x} a stream, {id} its id, {l} a list. */
static const char *const commands[] = {"SET {s} {v}",
                                       "SET {s} {v}",
                                       "SET {s} {v} PX {m}",
                                       "SET {s} {v} KEEPTTL",
                                       "SET {s} {v} GET",
                                       "SETNX {s} {v}",
                                       "SET {k} {v}",
                                       "GETSET {s} {v}",
                                       "GETDEL {s}",
                                       "GETEX {s} PX {m}",
                                       "GETEX {s} PERSIST",
                                       "APPEND {s} {v}",
                                       "SETRANGE {s} {n} {v}",
                                       "INCR {s}",
                                       "INCRBY {c} {n}",
                                       "DECR {c}",
                                       "INCRBYFLOAT {c} 1.5",
                                       "SETBIT {s} {n} 1",
                                       "BITFIELD {s} SET u8 {n} 7 INCRBY i5 {n} 1",
                                       "BITOP OR {s} {s} {s}",
                                       "BITOP NOT {s} {s}",
                                       "MSET {s} {v} {s} {v}",
                                       "MSETNX {s} {v} {s} {v}",
                                       "GET {s}",
                                       "STRLEN {s}",
                                       "BITCOUNT {s}",
                                       "LCS {s} {s}",
                                       "PFADD {p} {f} {f} {f}",
                                       "PFADD {p} {v}",
                                       "PFCOUNT {p}",
                                       "PFCOUNT {p}",
                                       "PFCOUNT {p} {p}",
                                       "PFMERGE {p} {p} {p}",
                                       "HSET {h} {f} {v} {f} {v}",
                                       "HSET {h} {f} {v}",
                                       "HSETNX {h} {f} {v}",
                                       "HDEL {h} {f} {f}",
                                       "HINCRBY {h} {f} {n}",
                                       "HINCRBYFLOAT {h} {f} 0.5",
                                       "HPEXPIRE {h} {m} FIELDS 2 {f} {f}",
                                       "HPERSIST {h} FIELDS 1 {f}",
                                       "HGETEX {h} PX {m} FIELDS 1 {f}",
                                       "HSETEX {h} PX {m} FIELDS 1 {f} {v}",
                                       "HGETDEL {h} FIELDS 1 {f}",
                                       "HPEXPIREAT {h} {u} FIELDS 1 {f}",
                                       "HGETALL {h}",
                                       "HLEN {h}",
                                       "HRANDFIELD {h} 3",
                                       "HSCAN {h} 0",
                                       "LPUSH {l} {v} {v}",
                                       "RPUSH {l} {v} {v} {v}",
                                       "LPUSHX {l} {v}",
                                       "RPUSHX {l} {v}",
                                       "LPOP {l}",
                                       "RPOP {l} 2",
                                       "LSET {l} {i} {v}",
                                       "LINSERT {l} BEFORE a {v}",
                                       "LREM {l} 1 a",
                                       "LTRIM {l} {i} -2",
                                       "LMOVE {l} {l} LEFT RIGHT",
                                       "RPOPLPUSH {l} {l}",
                                       "LMPOP 2 {l} {l} RIGHT COUNT 2",
                                       "LRANGE {l} 0 -1",
                                       "SORT {l} ALPHA STORE {l}",
                                       "BLPOP {l} {l} 0.001",
                                       "BLMOVE {l} {l} LEFT LEFT 0.001",
                                       "LPOS {l} a",
                                       "LINDEX {l} {i}",
                                       "SADD {e} {f} {f} {v}",
                                       "SADD {e} {n} {n}",
                                       "SREM {e} {f} {n}",
                                       "SPOP {e}",
                                       "SPOP {e} 3",
                                       "SMOVE {e} {e} {f}",
                                       "SUNIONSTORE {e} {e} {e}",
                                       "SINTERSTORE {e} {e} {e}",
                                       "SDIFFSTORE {e} {e} {e}",
                                       "SMEMBERS {e}",
                                       "SRANDMEMBER {e} 2",
                                       "SSCAN {e} 0",
                                       "SORT {e} BY nosort STORE {l}",
                                       "ZADD {z} {n} {f} {n} {f}",
                                       "ZADD {z} GT CH {n} {v}",
                                       "ZINCRBY {z} {n} {f}",
                                       "ZREM {z} {f} {f}",
                                       "ZPOPMIN {z}",
                                       "ZPOPMAX {z} 2",
                                       "ZMPOP 1 {z} MIN COUNT 2",
                                       "BZPOPMIN {z} 0.001",
                                       "ZREMRANGEBYRANK {z} 0 1",
                                       "ZREMRANGEBYSCORE {z} 0 {n}",
                                       "ZUNIONSTORE {z} 2 {z} {e}",
                                       "ZINTERSTORE {z} 2 {z} {z}",
                                       "ZDIFFSTORE {z} 2 {z} {z}",
                                       "ZRANGESTORE {z} {z} 0 5",
                                       "ZRANGE {z} 0 -1",
                                       "ZSCAN {z} 0",
                                       "GEOADD {z} 13.3 38.1 {f}",
                                       "GEOSEARCHSTORE {z} {z} FROMLONLAT 13 38 BYRADIUS 500 km",
                                       "XADD {x} * {f} {v}",
                                       "XADD {x} * a b c d",
                                       "XADD {x} MAXLEN 5 * {f} {v}",
                                       "XTRIM {x} MAXLEN 3",
                                       "XDEL {x} {id}",
                                       "XGROUP CREATE {x} g 0 MKSTREAM",
                                       "XGROUP CREATECONSUMER {x} g c2",
                                       "XGROUP DELCONSUMER {x} g c2",
                                       "XGROUP DESTROY {x} g",
                                       "XGROUP SETID {x} g 0",
                                       "XREADGROUP GROUP g c COUNT 2 STREAMS {x} >",
                                       "XREADGROUP GROUP g c COUNT 2 STREAMS {x} >",
                                       "XREADGROUP GROUP g c2 COUNT 9 STREAMS {x} 0",
                                       "XREADGROUP GROUP g c3 NOACK COUNT 1 STREAMS {x} >",
                                       "XACK {x} g {id} {id}",
                                       "XCLAIM {x} g c2 0 {id}",
                                       "XCLAIM {x} g c4 0 {id} FORCE JUSTID",
                                       "XAUTOCLAIM {x} g c5 0 0 COUNT 3",
                                       "XSETID {x} 99999999999999-0",
                                       "XLEN {x}",
                                       "XREAD COUNT 2 STREAMS {x} 0",
                                       "XPENDING {x} g",
                                       "XRANGE {x} - +",
                                       "BRPOP {l} {l} 1",
                                       "BRPOPLPUSH {l} {l} 1",
                                       "BLMPOP 1 2 {l} {l} LEFT COUNT 2",
                                       "BZMPOP 1 2 {z} {z} MIN COUNT 2",
                                       "BZPOPMAX {z} {z} 1",
                                       "DECRBY {c} {n}",
                                       "DELIFEQ {s} {v}",
                                       "EXPIRE {k} 1",
                                       "EXPIREAT {k} 1700000002",
                                       "HEXPIRE {h} 1 FIELDS 2 {f} {f}",
                                       "HEXPIREAT {h} 1700000002 FIELDS 1 {f}",
                                       "HMSET {h} {f} {v} {f} {v}",
                                       "MSETEX 2 {s} {v} {s} {v} PX {m}",
                                       "PSETEX {s} {m} {v}",
                                       "SETEX {s} 1 {v}",
                                       "ZREMRANGEBYLEX {z} - +",
                                       "PFDEBUG TODENSE {p}",
                                       "PFDEBUG GETREG {p}",
                                       "GEORADIUS {z} 15 37 2000 km STORE {z}",
                                       "GEORADIUSBYMEMBER {z} {f} 2000 km STOREDIST {z}",
                                       "DEL {k}",
                                       "UNLINK {k} {k}",
                                       "RENAME {k} {k}",
                                       "RENAMENX {k} {k}",
                                       "COPY {k} {k}",
                                       "COPY {k} {k} DB {d} REPLACE",
                                       "MOVE {k} {d}",
                                       "PEXPIRE {k} {m}",
                                       "PEXPIREAT {k} {u}",
                                       "PERSIST {k}",
                                       "PEXPIRE {k} -1",
                                       "TOUCH {k}",
                                       "TYPE {k}",
                                       "OBJECT ENCODING {k}",
                                       "EXISTS {k}",
                                       "RANDOMKEY",
                                       "SCAN 0",
                                       "DUMP {k}",
                                       "PTTL {k}"};
/* Now and then, and not in all tests. */
static const char *const whole[] = {"FLUSHDB",       "FLUSHDB ASYNC", "FLUSHDB SYNC", "FLUSHALL ASYNC",
                                    "SWAPDB 0 1",    "SWAPDB 1 2",    "SWAPDB 2 0",   "SWAPDB 0 1",
                                    "SWAPDB {d} 15", "DBSIZE",        "SWAPDB 1 2"};

static int keys_per_type = 60;

static size_t word(char *to, size_t size, char kind) {
    static const char kinds[] = "sschleezzxplzh";
    uint64_t n = random_below((uint64_t)keys_per_type);
    switch (kind) {
    case 'k': kind = kinds[random_below(sizeof kinds - 1)]; break;
    case 'v': {
        static const size_t sizes[] = {1, 3, 20, 70, 300, 1100, 2500};
        if (random_below(3) == 0) return (size_t)snprintf(to, size, "%d", (int)random_below(100000));
        size_t len = sizes[random_below(random_below(4) ? 4 : 7)];
        memset(to, 'a' + (int)random_below(4), len);
        return len;
    }
    case 'f': return (size_t)snprintf(to, size, "field-%d", (int)random_below(30));
    case 'n': return (size_t)snprintf(to, size, "%d", (int)random_below(200));
    case 'i': return (size_t)snprintf(to, size, "%d", (int)random_below(6));
    case 'm': return (size_t)snprintf(to, size, "%d", 1 + (int)random_below(3000));
    case 'u': return (size_t)snprintf(to, size, "%lld", (long long)(clock_ms() + 1 + (int64_t)random_below(3000)));
    case 'd': return (size_t)snprintf(to, size, "%d", (int)random_below(DATABASES));
    }
    if (random_below(40) == 0) kind = kinds[random_below(sizeof kinds - 1)];
    if (n % 10 == 0) return (size_t)snprintf(to, size, "%c%lu:%0300d", kind, (unsigned long)n, 7);
    return (size_t)snprintf(to, size, "%c%lu", kind, (unsigned long)n);
}

/* An id of a stream of the command, which has the key in argv[1]. */
static size_t some_id(char *to, size_t size, struct slice key) {
    struct entry *entry = db_find(client->db, key, LOOKUP_NOTOUCH | LOOKUP_NOSTATS | LOOKUP_NOEXPIRE);
    struct stream_id id = {0, 1};
    if (entry && entry_type(entry) == TYPE_STREAM) id = stream_of(entry)->last_id;
    return (size_t)snprintf(to, size, "%llu-%llu", (unsigned long long)id.ms - random_below(3) % (id.ms + 1),
                            (unsigned long long)id.seq);
}

static void execute(const char *command) {
    enum { WORDS = 16, LONGEST = 4000 };
    static char texts[WORDS][LONGEST];
    struct slice argv[WORDS];
    int argc = 0;
    if (random_below(8) == 0) client->db = keyspace_db(server.keyspace, (int)random_below(DATABASES));
    for (const char *at = command; *at; argc++) {
        size_t len = strcspn(at, " ");
        assert_true(argc < WORDS);
        char *text = texts[argc];
        if (at[0] == '{' && len == 4)
            argv[argc] = (struct slice){text, some_id(text, LONGEST, argv[1])};
        else if (at[0] == '{')
            argv[argc] = (struct slice){text, word(text, LONGEST, at[1])};
        else
            argv[argc] = (struct slice){at, len};
        at += len + (at[len] == ' ');
    }
    const char *reply = run_words(argc, argv);
    /* The commands are understood. */
    if (strncmp(reply, "-ERR unknown", 12) == 0 || strncmp(reply, "-ERR syntax", 11) == 0 ||
        strncmp(reply, "-ERR wrong number", 17) == 0)
        fail_msg("%s: %s", command, reply);
}

/* --- What the server does itself --- */

static size_t excess(void *context) {
    size_t *left = context;
    return *left ? (*left)-- : 0;
}
static void evict_some(void) {
    size_t left = 1 + random_below(3);
    struct eviction eviction = {.kind = random_below(2) ? EVICT_RANDOM : EVICT_LRU,
                                .volatile_only = random_below(2),
                                .samples = 5,
                                .excess = excess,
                                .context = &left};
    keyspace_evict(server.keyspace, &eviction);
}

static struct relocate_walk walk;
static void relocate_some(void) {
    walk.blocks.limit = 1 + random_below(10);
    for (int i = 0; i < 50; i++) relocate_walk_step(&walk, server.keyspace);
}

static void replace_data_set(void) {
    struct keyspace *with = keyspace_new_like(server.keyspace);
    for (int i = 0; i < 50; i++) {
        char key[32];
        int len = snprintf(key, sizeof key, "s%d", i);
        db_set_string(keyspace_db(with, i % DATABASES), (struct slice){key, (size_t)len}, SLICE("new"), NULL, false);
    }
    keyspace_replace(server.keyspace, with);
    for (int id = 0; id < keyspace_databases(with); id++) db_flush(keyspace_db(with, id), true);
    keyspace_free(with);
}

static void server_does_something(bool whole_too) {
    unsigned slot = (unsigned)random_below(HASH_SLOTS);
    bool per_slot = db_is_per_slot(client->db);
    switch (random_below(12)) {
    case 0: time_set(clock_ms() + (int64_t)random_below(400)); break;
    case 1: keyspace_expire_cycle(server.keyspace, false, 10); break;
    case 2: evict_some(); break;
    case 3: relocate_some(); break;
    case 4: keyspace_rehash(server.keyspace, 100); break;
    case 5: hashtable_set_resizing((enum hashtable_resizing)random_below(3)); break;
    case 6: db_expand(client->db, random_below(3000), random_below(2000)); break;
    case 7:
        if (whole_too) execute(whole[random_below(sizeof whole / sizeof *whole)]);
        break;
    case 8:
        if (whole_too && random_below(8) == 0) replace_data_set();
        break;
    case 9:
    case 10:
        if (!per_slot) break;
        { /* the slot of a key that is likely there */
            char key[32];
            slot = hash_slot((struct slice){key, (size_t)snprintf(key, sizeof key, "%c%d", "slhezx"[random_below(6)],
                                                                  (int)random_below((uint64_t)keys_per_type))});
        }
        if (random_below(3))
            keyspace_drop_slot(server.keyspace, slot, random_below(2));
        else if (keyspace_hidden_slots() < 5)
            keyspace_hide_slot(server.keyspace, slot);
        break;
    case 11:
        for (slot = 0; keyspace_hidden_slots() && slot < HASH_SLOTS; slot++)
            if (keyspace_slot_is_hidden(slot)) keyspace_show_slot(server.keyspace, slot);
        break;
    }
}

/* --- Tests --- */

static int random_commands_setup(void **state) {
    fixture_setup(state);
    keyspace_free(server.keyspace);
    server.keyspace = make(16, &fixture_hooks);
    client->db = keyspace_db(server.keyspace, 0);
    client->flags |= CLIENT_DENY_BLOCKING;
    relocate_set_all(true);
    return 0;
}
static int random_commands_teardown(void **state) {
    for (unsigned slot = 0; keyspace_hidden_slots() && slot < HASH_SLOTS; slot++)
        if (keyspace_slot_is_hidden(slot)) keyspace_show_slot(server.keyspace, slot);
    hashtable_set_resizing(HASHTABLE_RESIZE);
    relocate_walk_end(&walk);
    relocate_set_all(false);
    return fixture_teardown(state);
}

static void fill(int commands_count) {
    for (int i = 0; i < commands_count; i++) execute(commands[random_below(sizeof commands / sizeof *commands)]);
}
static void keys_set(int count) {
    for (int i = 0; i < count; i++) {
        char line[64];
        snprintf(line, sizeof line, "SET s%d value-%d", i, i);
        run(line);
    }
}
