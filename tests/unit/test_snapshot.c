/* Snapshots against copies made at their start: random commands of all types, executed by the dispatcher, while up to
 * four snapshots are stepped a part at a time. Between them keys and fields expire, keys are evicted, blocks move,
 * tables are resized, databases are swapped, emptied and replaced, slots are dropped and hidden, and snapshots are
 * cancelled. The same for saves without fork, whose file is loaded and compared with a copy. */
#include "commands_fixture.h"
#include "formats/rdb.h"
#include "formats/rdb_file.h"
#include "lib/hash/sha1.h"
#include "lib/structures/hashtable.h"
#include "lib/system/background.h"
#include "lib/system/file.h"
#include "lib/system/log.h"
#include "lib/system/random.h"
#include "lib/system/relocate.h"
#include "persistence/forkless.h"
#include "persistence/persistence.h"
#include "server/process/child.h"
#include "snapshot/data_view.h"
#include "store/evict.h"
#include "store/hash.h"
#include "store/list_type.h"
#include "store/relocate_keys.h"
#include "store/set.h"
#include "store/stream.h"
#include "store/types.h"
#include "store/zset.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { SNAPSHOTS = 4, DATABASES = 3 };

/* --- Copies: for each key its entry as in an RDB file --- */

struct copied {
    size_t key_len, len;
    bool seen;
    char bytes[]; /* the number of the database, the key, the entry */
};
static struct slice copied_key(const void *entry) {
    const struct copied *copied = entry;
    return (struct slice){copied->bytes, copied->key_len};
}
static const struct hashtable_type copies_type = {.key = copied_key, .free_entry = mem_free};

/* Members of tables have no order that lasts: they count as a sum. */
static uint64_t item_sum(struct slice first, struct slice second, int64_t at) {
    unsigned char hash[SHA1_SIZE];
    static char bytes[128 * 1024];
    size_t len = first.len + second.len + sizeof at;
    assert_true(len <= sizeof bytes);
    if (first.len) memcpy(bytes, first.data, first.len);
    if (second.len) memcpy(bytes + first.len, second.data, second.len);
    memcpy(bytes + first.len + second.len, &at, sizeof at);
    sha1_digest((struct slice){bytes, len}, hash);
    uint64_t sum;
    memcpy(&sum, hash, sizeof sum);
    return sum;
}
static void sum_member(void *context, const struct listpack_value *member) {
    char text[LISTPACK_TEXT];
    *(uint64_t *)context += item_sum(listpack_value_text(member, text), SLICE(""), 0);
}
static void write_sum(struct output *out, const struct entry *entry, uint64_t sum) {
    uint64_t head[4] = {entry_type(entry), (uint64_t)entry_expire_at(entry), sum, 0};
    output_write(out, slice_make(head, sizeof head));
}
static void write_entry(struct output *out, const struct entry *entry) {
    enum value_encoding encoding = entry_encoding(entry);
    uint64_t sum = 0;
    if (entry_type(entry) == TYPE_SET && encoding == ENCODING_HASHTABLE) {
        struct set set = set_of(entry);
        struct set_iterator it;
        struct listpack_value member;
        set_iterate(&it, &set);
        while (set_next(&it, &member)) sum_member(&sum, &member);
        set_iterate_end(&it);
        write_sum(out, entry, sum);
    } else if (entry_type(entry) == TYPE_HASH && encoding != ENCODING_LISTPACK) {
        struct hash_iterator it;
        struct hash_item item;
        hash_iterate_all(&it, entry); /* fields that have expired are there until they are deleted */
        while (hash_next(&it, &item)) sum += item_sum(item.field, item.value.bytes, item.expire_at);
        hash_iterate_end(&it);
        write_sum(out, entry, sum);
    } else {
        rdb_write_key(out, entry, 0, RDB_ACCESS_NONE, RDB_VERSION);
    }
}
/* A form that does not depend on the encoding, which may be another one after loading. */
static void write_value(struct output *out, const struct entry *entry) {
    uint64_t sum = 0;
    if (entry_type(entry) == TYPE_SET) {
        struct set set = set_of(entry);
        struct set_iterator it;
        struct listpack_value member;
        set_iterate(&it, &set);
        while (set_next(&it, &member)) sum_member(&sum, &member);
        set_iterate_end(&it);
        write_sum(out, entry, sum);
    } else if (entry_type(entry) == TYPE_HASH) {
        struct hash_iterator it;
        struct hash_item item;
        hash_iterate_all(&it, entry);
        while (hash_next(&it, &item)) sum += item_sum(item.field, item.value.bytes, item.expire_at);
        hash_iterate_end(&it);
        write_sum(out, entry, sum);
    } else if (entry_type(entry) == TYPE_ZSET) {
        struct zset zset = zset_of(entry);
        struct zset_iterator it;
        struct zset_item item;
        char text[LISTPACK_TEXT];
        zset_iterate(&it, &zset, 0, false);
        while (zset_next(&it, &item))
            sum += item_sum(listpack_value_text(&item.member, text), slice_make(&item.score, sizeof item.score), 0);
        write_sum(out, entry, sum);
    } else if (entry_type(entry) == TYPE_LIST) {
        struct list_type_iterator it;
        struct list_type_element element;
        char text[LISTPACK_TEXT];
        write_sum(out, entry, list_type_len(entry));
        list_type_iterate(&it, entry, 0, false);
        while (list_type_next(&it, &element)) {
            unsigned char hash[SHA1_SIZE];
            sha1_digest(listpack_value_text(&element.value, text), hash);
            output_write(out, slice_make(hash, sizeof hash));
        }
        list_type_iterate_end(&it);
    } else {
        rdb_write_key(out, entry, 0, RDB_ACCESS_NONE, RDB_VERSION);
    }
}
static struct copied *copied_as(int db, const struct entry *entry,
                                void (*write)(struct output *out, const struct entry *entry)) {
    struct memory_output bytes;
    memory_output_init(&bytes);
    char number = (char)db;
    output_write(&bytes.out, (struct slice){&number, 1});
    output_write(&bytes.out, entry_key(entry));
    write(&bytes.out, entry);
    struct slice all = memory_output_slice(&bytes);
    struct copied *copied = mem_alloc(sizeof *copied + all.len);
    *copied = (struct copied){.key_len = 1 + entry_key(entry).len, .len = all.len};
    memcpy(copied->bytes, all.data, all.len);
    memory_output_free(&bytes);
    return copied;
}

static struct copied *copied_new(int db, const struct entry *entry) {
    return copied_as(db, entry, write_entry);
}

/* --- Snapshots and their copies --- */

static struct snapped {
    struct data_view *snapshot; /* NULL: not running */
    struct hashtable *copies;
    size_t seen;
} snapped[SNAPSHOTS];
static unsigned long long differing; /* entries that were not as at the start; tests that look for them count them */

static void snapped_entry(void *context, int db, const struct entry *entry) {
    struct snapped *s = context;
    struct copied *now = copied_new(db, entry), *then = hashtable_find(s->copies, copied_key(now));
    bool same = then && !then->seen && then->len == now->len && !memcmp(then->bytes, now->bytes, now->len);
    if (!same) {
        differing++;
        print_message("db %d, %.*s: %s\n", db, (int)entry_key(entry).len, entry_key(entry).data,
                      !then        ? "was not there"
                      : then->seen ? "given twice"
                                   : "changed");
    }
    if (then) then->seen = true, s->seen++;
    mem_free(now);
}

static void copy_keys(struct snapped *s, struct db *db, int only, const struct slot_bitmap *slots) {
    struct db_iterator *it = db_iterate(db, only);
    for (struct entry *entry; (entry = db_iterate_next(it));) {
        if (slots && !slot_bitmap_has(slots, hash_slot(entry_key(entry)))) continue;
        bool added = hashtable_add(s->copies, copied_new(db_id(db), entry));
        assert_true(added);
    }
    db_iterate_end(it);
}

static void snapped_start(struct snapped *s, const struct slot_bitmap *slots) {
    s->copies = hashtable_new(&copies_type);
    s->seen = 0;
    for (int i = 0; i < keyspace_databases(server.keyspace); i++) {
        struct db *db = keyspace_db(server.keyspace, i);
        copy_keys(s, db, -1, slots);
        for (unsigned slot = 0; keyspace_hidden_slots() && slot < HASH_SLOTS; slot++)
            if (keyspace_slot_is_hidden(slot)) copy_keys(s, db, (int)slot, slots);
    }
    s->snapshot =
        data_view_start(server.keyspace, slots, &(struct data_view_reader){.entry = snapped_entry, .context = s});
    assert_int_equal(data_view_keys(s->snapshot), hashtable_size(s->copies));
}
static void snapped_end(struct snapped *s) {
    data_view_end(s->snapshot);
    hashtable_free(s->copies);
    s->snapshot = NULL;
}
static void snapped_step(struct snapped *s, uint64_t microseconds) {
    if (data_view_step(s->snapshot, microseconds)) return;
    assert_int_equal(s->seen, hashtable_size(s->copies));
    assert_int_equal(data_view_given(s->snapshot), data_view_keys(s->snapshot));
    assert_false(data_view_step(s->snapshot, 0));
    snapped_end(s);
}

/* --- Saves without fork and their copies --- */

static struct keyspace *(*make)(int databases, const struct store_hooks *hooks);
static const struct store_hooks fixture_hooks = {.expired = key_expired};

static struct hashtable *saved_copies; /* NULL: no save is running */
static enum saved_end { SAVE_NONE, SAVE_DONE, SAVE_FAILED, SAVE_CANCELLED } saved_end;
static unsigned saves_done, saves_cancelled;
static bool saves_too; /* random saves as well */
static char temporary[] = "/tmp/test_snapshot-XXXXXX";

static void each_key(struct keyspace *keyspace, void (*visit)(int db, const struct entry *entry)) {
    for (int i = 0; i < keyspace_databases(keyspace); i++) {
        struct db *db = keyspace_db(keyspace, i);
        for (int slot = -1; slot < (keyspace_hidden_slots() ? HASH_SLOTS : 0); slot++) {
            if (slot >= 0 && !keyspace_slot_is_hidden((unsigned)slot)) continue;
            struct db_iterator *it = db_iterate(db, slot);
            for (const struct entry *entry; (entry = db_iterate_next(it));) visit(i, entry);
            db_iterate_end(it);
        }
    }
}

static void saved_copy(int db, const struct entry *entry) {
    bool added = hashtable_add(saved_copies, copied_as(db, entry, write_value));
    assert_true(added);
}
static int file_begin(struct background_save *save, struct sink *sink) {
    int fd = open("forkless.rdb", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) return -errno;
    sink_init_fd(sink, fd);
    sink->checksum = true;
    return 0;
}
static int file_end(struct background_save *save, struct sink *sink, int error) {
    if (!error) error = sink_flush(sink);
    sink_free(sink);
    close(sink->fd);
    return error;
}
static void saved_done(struct background_save *save, int status, int signal) {
    saved_end = signal ? SAVE_CANCELLED : status ? SAVE_FAILED : SAVE_DONE;
}
static const struct background_save_ops file_ops = {.begin = file_begin, .end = file_end, .done = saved_done};
static struct background_save saving = {.ops = &file_ops, .kind = CHILD_RDB, .log_name = "RDB"};
static void save_start(void) {
    saved_copies = hashtable_new(&copies_type);
    each_key(server.keyspace, saved_copy);
    saved_end = SAVE_NONE;
    assert_int_equal(background_save_start(&saving, SAVE_FORKLESS), 0);
    assert_int_equal(saving.method, SAVE_FORKLESS);
    assert_int_equal(saving.keys_total, hashtable_size(saved_copies));
    assert_int_equal(child_kind(), CHILD_RDB);
    assert_int_equal(child_progress().keys_total, hashtable_size(saved_copies));
}

static size_t saved_same;
static void saved_compare(int db, const struct entry *entry) {
    struct copied *now = copied_as(db, entry, write_value), *then = hashtable_find(saved_copies, copied_key(now));
    if (then && then->len == now->len && !memcmp(then->bytes, now->bytes, now->len)) {
        saved_same++;
    } else {
        differing++;
        print_message("file, db %d, %.*s: %s\n", db, (int)entry_key(entry).len, entry_key(entry).data,
                      then ? "changed" : "was not there");
    }
    mem_free(now);
}

static void save_check_file(void) {
    struct memory_output file;
    struct source source;
    struct rdb_load_result result = {0};
    memory_output_init(&file);
    assert_int_equal(file_read("forkless.rdb", 1 << 30, &file.out), 0);
    source_init_memory(&source, memory_output_slice(&file));
    struct keyspace *loaded = make(16, &fixture_hooks);
    int error = rdb_load(&source, loaded, &(struct rdb_load_params){0}, &result);
    if (error) fail_msg("the file cannot be loaded: %s", result.reason);
    saved_same = 0;
    each_key(loaded, saved_compare);
    assert_int_equal(saved_same + differing, hashtable_size(saved_copies));
    for (int i = 0; i < keyspace_databases(loaded); i++) db_flush(keyspace_db(loaded, i), false);
    keyspace_free(loaded);
    source_free(&source);
    memory_output_free(&file);
}
static void save_ended(void) {
    assert_int_equal(child_kind(), CHILD_NONE);
    assert_false(forkless_running());
    hashtable_free(saved_copies);
    saved_copies = NULL;
}

static void save_step(void) {
    if (forkless_step()) return;
    assert_int_equal(saved_end, SAVE_DONE);
    save_check_file();
    save_ended();
    saves_done++;
}
static void save_cancel(bool waits) {
    if (waits)
        child_kill_wait();
    else
        for (child_kill(); forkless_running();) forkless_step();
    /* It may have come too late: the file is complete then. */
    if (saved_end == SAVE_DONE)
        save_check_file();
    else
        assert_int_equal(saved_end, SAVE_CANCELLED);
    save_ended();
    saves_cancelled++;
}

static void saves_do_something(void) {
    if (!saved_copies) {
        if (random_below(20) == 0) save_start();
    } else if (random_below(1500) == 0) {
        save_cancel(random_below(2));
    } else {
        save_step();
    }
}

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

static void random_slots(struct slot_bitmap *slots) {
    memset(slots, 0, sizeof *slots);
    for (int i = 0; i < 8; i++) {
        unsigned first = (unsigned)random_below(HASH_SLOTS - 1000);
        slot_bitmap_set_range(slots, first, first + (unsigned)random_below(1000));
    }
}

static void snapshots_do_something(void) {
    struct snapped *s = &snapped[random_below(SNAPSHOTS)];
    if (!s->snapshot) {
        struct slot_bitmap slots;
        bool some = db_is_per_slot(client->db) && random_below(2);
        if (some) random_slots(&slots);
        if (random_below(20) == 0) snapped_start(s, some ? &slots : NULL);
        return;
    }
    if (random_below(400) == 0)
        snapped_end(s);
    else
        snapped_step(s, random_below(60) ? 0 : 50);
}

/* --- Tests --- */

static int snapshot_setup(void **state) {
    fixture_setup(state);
    keyspace_free(server.keyspace);
    server.keyspace = make(16, &fixture_hooks);
    client->db = keyspace_db(server.keyspace, 0);
    client->flags |= CLIENT_DENY_BLOCKING;
    relocate_set_all(true);
    differing = 0;
    return 0;
}
static int snapshot_teardown(void **state) {
    for (int i = 0; i < SNAPSHOTS; i++)
        if (snapped[i].snapshot) snapped_end(&snapped[i]);
    if (saved_copies) save_cancel(true);
    saves_too = false;
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

static void drive(unsigned seed, int rounds, bool whole_too) {
    random_seed(seed);
    keys_per_type = 10 + (int)random_below(120);
    fill(500 + (int)random_below(2000));
    for (int i = 0; i < rounds && !differing; i++) {
        snapshots_do_something();
        if (saves_too) saves_do_something();
        execute(commands[random_below(sizeof commands / sizeof *commands)]);
        if (random_below(10) == 0) server_does_something(whole_too);
    }
    for (int i = 0; i < SNAPSHOTS; i++)
        while (snapped[i].snapshot) snapped_step(&snapped[i], 1000);
    while (saved_copies) save_step();
    if (differing) fail_msg("seed %u", seed);
}

static unsigned seeds(void) {
    const char *text = getenv("SNAPSHOT_SEEDS");
    return text ? (unsigned)atoi(text) : 6;
}
static void a_snapshot_has_the_keys_of_its_start(void **state) {
    for (unsigned seed = 1; seed <= seeds(); seed++) {
        drive(seed, 6000, false);
        execute("FLUSHALL");
    }
}
static void so_it_has_when_databases_are_emptied_swapped_and_replaced(void **state) {
    for (unsigned seed = 1001; seed <= 1000 + seeds(); seed++) drive(seed, 6000, true);
}

static void a_file_has_the_keys_of_its_start(void **state) {
    saves_done = saves_cancelled = 0;
    for (unsigned seed = 2001; seed <= 2000 + seeds(); seed++) {
        saves_too = true;
        drive(seed, 4000, seed % 2);
        execute("FLUSHALL");
    }
    assert_true(saves_done > seeds());
    assert_true(seeds() < 6 || saves_cancelled > 0);
}

/* Collections of all sizes are read by the thread, and most of them are tables. */
static void lend_all(bool on) {
    static struct encoding_limits usual;
    if (on) usual = encoding_limits;
    forkless_lend_min = on ? 1 : FORKLESS_LEND_MIN;
    forkless_lend_min_changed = on ? 1 : FORKLESS_LEND_MIN_CHANGED;
    if (!on) {
        encoding_limits = usual;
        return;
    }
    encoding_limits.hash_listpack_entries = encoding_limits.set_listpack_entries = 2;
    encoding_limits.zset_listpack_entries = encoding_limits.set_intset_entries = 2;
    encoding_limits.list_listpack_size = 3;
    encoding_limits.stream_node_entries = 3;
}
static void a_file_has_what_commands_change_while_a_thread_reads_it(void **state) {
    uint64_t lent = forkless_stats().lent;
    lend_all(true);
    saves_done = 0;
    for (unsigned seed = 3001; seed <= 3000 + seeds(); seed++) {
        saves_too = true;
        drive(seed, 4000, seed % 2);
        execute("FLUSHALL");
    }
    lend_all(false);
    assert_true(saves_done > seeds());
    assert_true(forkless_stats().lent > lent + 100);
}

/* A reference that the file holds is not what a command changes. */
static void a_large_string_may_change_before_it_is_written(void **state) {
    enum { LEN = 100000 };
    char *value = mem_alloc(LEN);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < LEN; i++) value[i] = (char)('a' + (i * (round + 1)) % 26);
        run_words(3, (struct slice[]){SLICE("SET"), SLICE("s1"), {value, LEN}});
        run_words(3, (struct slice[]){SLICE("RPUSH"), SLICE("l1"), {value, LEN}});
        run_words(4, (struct slice[]){SLICE("HSET"), SLICE("h1"), SLICE("f"), {value, LEN}});
        save_start();
        run("SETRANGE s1 500 changed");
        save_step();
        run("APPEND s1 more");
        run("LSET l1 0 other");
        run("HDEL h1 f");
        run("SETRANGE s1 0 again");
        run("GETDEL s1");
        while (saved_copies) save_step();
        assert_int_equal(differing, 0);
        run("FLUSHALL");
    }
    mem_free(value);
}

/* --- What an owner of a save asks for --- */

static void keys_set(int count) {
    for (int i = 0; i < count; i++) {
        char line[64];
        snprintf(line, sizeof line, "SET s%d value-%d", i, i);
        run(line);
    }
}

static off_t saved_size(void) {
    struct stat status;
    assert_int_equal(stat("forkless.rdb", &status), 0);
    return status.st_size;
}
static void save_all(void) {
    saved_end = SAVE_NONE;
    assert_int_equal(background_save_start(&saving, SAVE_FORKLESS), 0);
    while (forkless_step()) continue;
    assert_int_equal(saved_end, SAVE_DONE);
}

static void a_save_is_compressed_unless_its_owner_does_not_want_that(void **state) {
    enum { LEN = 3000 };
    char value[LEN];
    memset(value, 'a', LEN);
    for (int i = 0; i < 20; i++) {
        char key[8];
        size_t len = (size_t)snprintf(key, sizeof key, "s%d", i);
        run_words(3, (struct slice[]){SLICE("SET"), {key, len}, {value, i % 2 ? LEN : LEN / 10}});
        run_words(4, (struct slice[]){SLICE("HSET"), SLICE("h1"), {key, len}, {value, LEN / 30}});
    }
    save_all();
    assert_true(saved_size() < 10 * LEN);
    saving.content.uncompressed = true;
    save_start();
    while (saved_copies) save_step();
    assert_true(saved_size() > 11 * LEN);
    assert_int_equal(differing, 0);
    saving.content.uncompressed = false;
}

static void a_save_without_keys_has_none(void **state) {
    keys_set(1000);
    saving.content.without_keys = true;
    saved_copies = hashtable_new(&copies_type);
    save_all();
    assert_int_equal(saving.keys_total, 0);
    save_check_file();
    save_ended();
    assert_int_equal(differing, 0);
    saving.content.without_keys = false;
}

static int cannot_begin(struct background_save *save, struct sink *sink) {
    return -EROFS;
}
static int must_not_end(struct background_save *save, struct sink *sink, int error) {
    fail();
    return error;
}
static void a_save_that_cannot_begin_fails(void **state) {
    static const struct background_save_ops ops = {.begin = cannot_begin, .end = must_not_end, .done = saved_done};
    keys_set(1000);
    saving.ops = &ops;
    saved_end = SAVE_NONE;
    assert_int_equal(background_save_start(&saving, SAVE_FORKLESS), 0);
    assert_int_equal(background_save_start(&saving, SAVE_FORKLESS), -EBUSY);
    while (forkless_step()) continue;
    assert_int_equal(saved_end, SAVE_FAILED);
    assert_int_equal(child_kind(), CHILD_NONE);
    saving.ops = &file_ops;
}

/* A reader that takes nothing more. */
static _Atomic bool reader_waits, reader_gone;
static int ended_with;
static int write_waits(struct sink *sink, const void *bytes, size_t len) {
    reader_waits = true;
    while (!reader_gone) usleep(100);
    assert_false(background_save_goes_on(&saving));
    return -EPIPE;
}
static int begin_stream(struct background_save *save, struct sink *sink) {
    static const struct sink_ops ops = {.write = write_waits};
    sink_init(sink, &ops, NULL);
    return 0;
}
static int end_stream(struct background_save *save, struct sink *sink, int error) {
    sink_free(sink);
    return ended_with = error;
}
static void stop_stream(struct background_save *save) {
    reader_gone = true;
}
static void a_save_whose_reader_waits_can_be_ended(void **state) {
    static const struct background_save_ops ops = {
        .begin = begin_stream, .end = end_stream, .stop = stop_stream, .done = saved_done};
    keys_set(30000);
    saving.ops = &ops;
    for (int round = 0; round < 4; round++) {
        reader_waits = reader_gone = false;
        saved_end = SAVE_NONE;
        assert_int_equal(background_save_start(&saving, SAVE_FORKLESS), 0);
        while (!reader_waits) assert_true(forkless_step());
        for (int i = 0; i < (round & 1 ? 10000 : 0); i++) assert_true(forkless_step());
        if (round & 2)
            child_kill_wait();
        else
            for (child_kill(); forkless_step();) continue;
        assert_int_equal(saved_end, SAVE_CANCELLED);
        assert_int_equal(ended_with, -EPIPE);
        assert_int_equal(child_kind(), CHILD_NONE);
    }
    saving.ops = &file_ops;
}

/* A file whose writes wait until the gate opens. */
static _Atomic bool gate_open;
static int write_at_gate(struct sink *sink, const void *bytes, size_t len) {
    while (!gate_open && background_save_goes_on(&saving)) usleep(100);
    ssize_t written = write(sink->fd, bytes, len);
    return written == (ssize_t)len ? 0 : -EIO;
}
static int begin_at_gate(struct background_save *save, struct sink *sink) {
    static const struct sink_ops ops = {.write = write_at_gate};
    int fd = open("forkless.rdb", O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) return -errno;
    sink_init(sink, &ops, NULL);
    sink->fd = fd;
    return 0;
}
static const struct background_save_ops gate_ops = {.begin = begin_at_gate, .end = file_end, .done = saved_done};

/* More than the reader buffers. */
enum { LENT_FIELDS = 8000, LENT_VALUE = 1000 };
static void large_hash(void) {
    char field[16], value[LENT_VALUE];
    memset(value, 'v', sizeof value);
    for (int i = 0; i < LENT_FIELDS; i++) {
        size_t len = (size_t)snprintf(field, sizeof field, "f%d", i);
        run_words(4, (struct slice[]){SLICE("HSET"), SLICE("h1"), {field, len}, {value, sizeof value}});
    }
}

/* Runs a command while the thread reads the hash, and can go on only if the main thread waits for it. */
static void while_lent(const char *command, const char *reply) {
    run("FLUSHALL SYNC");
    run("SET s1 v");
    large_hash();
    gate_open = false;
    saving.ops = &gate_ops;
    saving.content.uncompressed = true;
    save_start();
    for (int i = 0; i < 1000; i++) assert_true(forkless_step());
    assert_string_equal(run(command), reply);
    assert_true(forkless_step());
    gate_open = true;
    while (saved_copies) save_step();
    assert_int_equal(differing, 0);
    saving.content.uncompressed = false;
    saving.ops = &file_ops;
}
static void a_lent_value_changes_after_it_was_read(void **state) {
    while_lent("HSET h1 f7999 new", ":0\r\n");
    while_lent("HDEL h1 f1 f2", ":2\r\n");
    while_lent("HINCRBY h1 n 1", ":1\r\n");
    while_lent("HPEXPIRE h1 1 FIELDS 1 f1", "*1\r\n:1\r\n");
}
static void a_lent_value_is_deleted_and_replaced_at_once(void **state) {
    while_lent("DEL h1", ":1\r\n");
    while_lent("UNLINK h1", ":1\r\n");
    while_lent("SET h1 text", "+OK\r\n");
    while_lent("RENAME h1 h2", "+OK\r\n");
    while_lent("RENAME s1 h1", "+OK\r\n");
    while_lent("EXPIRE h1 100", ":1\r\n");
    while_lent("PEXPIRE h1 -1", ":1\r\n");
    while_lent("COPY s1 h1 REPLACE", ":1\r\n");
    while_lent("SUNIONSTORE h1 none", ":0\r\n");
    while_lent("MOVE h1 1", ":1\r\n");
    while_lent("FLUSHALL SYNC", "+OK\r\n");
    while_lent("SWAPDB 0 1", "+OK\r\n");
}
static void a_save_that_lends_can_be_ended(void **state) {
    for (int round = 0; round < 4; round++) {
        run("FLUSHALL SYNC");
        large_hash();
        gate_open = false;
        saving.ops = &gate_ops;
        saving.content.uncompressed = true;
        save_start();
        for (int i = 0; i < 1000; i++) assert_true(forkless_step());
        if (round & 1) run("DEL h1");
        save_cancel(round & 2);
        assert_string_equal(run("HSET h1 f1 v2"), round & 1 ? ":1\r\n" : ":0\r\n");
    }
    saving.content.uncompressed = false;
    saving.ops = &file_ops;
    assert_int_equal(differing, 0);
}

/* Each command that changes a value, when no part was given yet. */
static void each_command_gives_what_it_changes_first(void **state) {
    for (size_t n = 0; n < sizeof commands / sizeof *commands; n++) {
        random_seed((unsigned)n + 1);
        keys_per_type = 8;
        execute("FLUSHALL SYNC");
        fill(600);
        if (n % 2) time_set(clock_ms() + 500); /* keys and fields have expired, but are there */
        for (int repeat = 0; repeat < 12; repeat++) {
            snapped_start(&snapped[0], NULL);
            execute(commands[n]);
            while (snapped[0].snapshot) snapped_step(&snapped[0], 1000);
            if (differing) fail_msg("%s", commands[n]);
        }
        save_start();
        execute(commands[n]);
        while (saved_copies) save_step();
        if (differing) fail_msg("a file, %s", commands[n]);
    }
}

/* The same number of parts, whatever the table does meanwhile. */
static void a_table_may_grow_and_shrink_meanwhile(void **state) {
    keys_set(1000);
    snapped_start(&snapped[0], NULL);
    snapped_start(&snapped[1], NULL);
    for (int i = 0; i < 20; i++) snapped_step(&snapped[0], 0);
    for (int i = 1000; i < 40000; i++) {
        char line[64];
        snprintf(line, sizeof line, "SET n%d v", i);
        run(line);
    }
    snapped_step(&snapped[0], 0);
    for (int i = 1000; i < 40000; i++) {
        char line[64];
        snprintf(line, sizeof line, "DEL n%d", i);
        run(line);
    }
    while (keyspace_rehash(server.keyspace, 1000)) continue;
    while (snapped[0].snapshot) snapped_step(&snapped[0], 0);
    while (snapped[1].snapshot) snapped_step(&snapped[1], 0);
    assert_int_equal(differing, 0);
}

static void tables_of_flushed_keys_are_freed_with_the_last_snapshot(void **state) {
    run("SET s1 first");
    size_t empty = mem_used();
    keys_set(5000);
    size_t full = mem_used();
    snapped_start(&snapped[0], NULL);
    snapped_start(&snapped[1], NULL);
    run("FLUSHALL SYNC");
    run("SET s1 again");
    assert_int_equal(db_size(client->db), 1);
    snapped_end(&snapped[0]);
    assert_true(mem_used() > full);
    while (snapped[1].snapshot) snapped_step(&snapped[1], 0);
    assert_true(mem_used() < empty + (full - empty) / 4);
    assert_int_equal(differing, 0);
}

static void a_snapshot_of_nothing_ends_at_once(void **state) {
    snapped_start(&snapped[0], NULL);
    run("SET s1 new");
    snapped_step(&snapped[0], 0);
    assert_null(snapped[0].snapshot);
    assert_int_equal(differing, 0);
}

#define snapshot_test(name) cmocka_unit_test_setup_teardown(name, snapshot_setup, snapshot_teardown)
static int with_threads(void **state) {
    return background_start(NULL);
}
static int without_threads(void **state) {
    background_stop();
    return 0;
}

int main(void) {
    const struct CMUnitTest tests[] = {snapshot_test(a_snapshot_of_nothing_ends_at_once),
                                       snapshot_test(a_table_may_grow_and_shrink_meanwhile),
                                       snapshot_test(tables_of_flushed_keys_are_freed_with_the_last_snapshot),
                                       snapshot_test(each_command_gives_what_it_changes_first),
                                       snapshot_test(a_snapshot_has_the_keys_of_its_start),
                                       snapshot_test(so_it_has_when_databases_are_emptied_swapped_and_replaced)};
    const struct CMUnitTest saves[] = {snapshot_test(a_large_string_may_change_before_it_is_written),
                                       snapshot_test(a_save_is_compressed_unless_its_owner_does_not_want_that),
                                       snapshot_test(a_save_without_keys_has_none),
                                       snapshot_test(a_save_that_cannot_begin_fails),
                                       snapshot_test(a_file_has_the_keys_of_its_start),
                                       snapshot_test(a_file_has_what_commands_change_while_a_thread_reads_it)};
    const struct CMUnitTest loans[] = {snapshot_test(a_lent_value_changes_after_it_was_read),
                                       snapshot_test(a_lent_value_is_deleted_and_replaced_at_once),
                                       snapshot_test(a_save_that_lends_can_be_ended)};
    const struct CMUnitTest streams[] = {snapshot_test(a_save_whose_reader_waits_can_be_ended)};
    if (!mkdtemp(temporary) || chdir(temporary) != 0) return 1;
    log_level = LOG_LEVEL_NOTHING;
    persistence_settings.forkless_enabled = true;
    persistence_settings.forkless_buffer_limit = INT64_MAX; /* there is no event loop that could wait */
    make = keyspace_new;
    int failures = cmocka_run_group_tests_name("one table", tests, NULL, NULL);
    failures += cmocka_run_group_tests_name("saves, one table", saves, NULL, NULL);
    failures += cmocka_run_group_tests_name("saves by a thread, one table", saves, with_threads, without_threads);
    failures += cmocka_run_group_tests_name("streams", streams, with_threads, without_threads);
    failures += cmocka_run_group_tests_name("loans", loans, with_threads, without_threads);
    make = keyspace_new_per_slot;
    failures += cmocka_run_group_tests_name("a table for each slot", tests, NULL, NULL);
    failures += cmocka_run_group_tests_name("saves by a thread", saves, with_threads, without_threads);
    failures += cmocka_run_group_tests_name("saves", saves, NULL, NULL);
    unlink("forkless.rdb");
    if (chdir("/") != 0 || rmdir(temporary) != 0) return 1;
    return failures;
}
