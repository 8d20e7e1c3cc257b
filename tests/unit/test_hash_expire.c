/* Field expiration: the store against a model, and the commands: changes, propagation and notifications.
 * tests/integration/hash-fields.tcl tests all forms of replies. */
#include "commands_fixture.h"
#include "lib/system/random.h"
#include "store/hash.h"

/* A cycle has little time, but always deletes at least one field if possible. */
static void expire_all(void) {
    uint64_t before;
    do {
        before = store_stats.expired_fields;
        keyspace_expire_cycle(server.keyspace, false, 10);
    } while (store_stats.expired_fields != before);
}

/* --- The store against a model --- */

enum { FIELDS = 120, LONG = 5 };
struct model {
    bool there[FIELDS];
    int64_t at[FIELDS]; /* HASH_NEVER: no expiry */
    char value[FIELDS][16];
};
static struct model model;

static struct slice field_text(int field, char text[400]) {
    int len = snprintf(text, 400, "field:%d", field);
    if (field < LONG) { /* a name with a length above 255 */
        memset(text + len, 'x', 300);
        len += 300;
    }
    return (struct slice){text, (size_t)len};
}
static int field_number(struct slice name) {
    int number = 0;
    for (size_t i = strlen("field:"); i < name.len && name.data[i] != 'x'; i++)
        number = number * 10 + name.data[i] - '0';
    return number;
}
static bool model_live(int field) {
    return model.there[field] && !(model.at[field] >= 0 && clock_ms() > model.at[field]);
}
static size_t model_count(bool live) {
    size_t count = 0;
    for (int i = 0; i < FIELDS; i++) count += live ? model_live(i) : model.there[i];
    return count;
}
static size_t model_expiring(void) {
    size_t count = 0;
    for (int i = 0; i < FIELDS; i++) count += model.there[i] && model.at[i] >= 0;
    return count;
}

struct seen {
    bool field[FIELDS];
    size_t count;
};
static void seen_item(void *context, const struct hash_item *item) {
    struct seen *seen = context;
    int field = field_number(item->field);
    assert_true(model_live(field));
    assert_int_equal(item->expire_at, model.at[field]);
    assert_true(item->value.bytes.len >= strlen(model.value[field]) &&
                memcmp(item->value.bytes.data, model.value[field], strlen(model.value[field])) == 0);
    if (!seen->field[field]) seen->count++;
    seen->field[field] = true;
}

static void check_walks(const struct entry *e) {
    struct seen seen = {.count = 0};
    struct hash_iterator it;
    struct hash_item item;
    size_t live = model_count(true), all = 0;
    hash_iterate(&it, e);
    while (hash_next(&it, &item)) seen_item(&seen, &item);
    hash_iterate_end(&it);
    assert_int_equal(seen.count, live);
    hash_iterate_all(&it, e);
    while (hash_next(&it, &item)) all++;
    hash_iterate_end(&it);
    assert_int_equal(all, hash_len(e));
    seen = (struct seen){.count = 0};
    uint64_t cursor = 0;
    do cursor = hash_scan(e, cursor, seen_item, &seen);
    while (cursor);
    assert_int_equal(seen.count, live);
    if (!live) return;
    size_t wanted = random_below(live);
    seen = (struct seen){.count = 0};
    hash_sample(e, wanted, seen_item, &seen);
    assert_int_equal(seen.count, wanted); /* all distinct */
    hash_random(e, &item);
    seen_item(&seen, &item);
}

static void check_model(struct db *db, const struct entry *e) {
    char text[400];
    assert_int_equal(e ? hash_len(e) : 0, model_count(false));
    assert_int_equal(db_expiring(db), e && model_expiring() ? 1 : 0);
    if (!e) return;
    assert_int_equal(hash_len_now(e), model_count(true));
    assert_int_equal(entry_encoding(e), model_expiring() ? ENCODING_EXPIRING_HASHTABLE : ENCODING_HASHTABLE);
    for (int i = 0; i < FIELDS; i++) {
        struct slice name = field_text(i, text);
        struct hash_value value;
        assert_int_equal(hash_has(e, name), model_live(i));
        assert_int_equal(hash_get(e, name, &value), model_live(i));
        assert_int_equal(hash_expire_at(e, name), model_live(i) ? model.at[i] : HASH_NO_FIELD);
    }
    check_walks(e);
}

/* Some values are in blobs: longer than the embedding limit of a field. */
static struct slice random_value(int field, char *text, int round) {
    snprintf(model.value[field], sizeof model.value[field], "v%d.", round);
    size_t len = strlen(model.value[field]);
    memcpy(text, model.value[field], len);
    size_t more = random_below(6) == 0 ? random_below(3000) : random_below(60);
    memset(text + len, '-', more);
    return (struct slice){text, len + more};
}

static void change_something(struct db *db, struct entry *e, int round) {
    static char value[4000];
    char text[400];
    int field = (int)random_below(FIELDS);
    struct slice name = field_text(field, text);
    int64_t at = clock_ms() + (int64_t)random_below(1000);
    if (model.there[field] && model.at[field] >= 0 &&
        model.at[field] <= clock_ms()) { /* as commands do before they set it */
        assert_true(hash_drop_expired(db, e, name));
        model.there[field] = false;
    }
    assert_false(hash_drop_expired(db, e, name));
    bool there = model.there[field];
    switch (random_below(8)) {
    case 0:
        assert_int_equal(hash_delete(db, e, name), there);
        model.there[field] = false;
        break;
    case 1:
        assert_int_equal(hash_put(db, e, name, random_value(field, value, round), NULL), !there);
        model.there[field] = true, model.at[field] = HASH_NEVER;
        break;
    case 2:
        assert_int_equal(hash_put_until(db, e, name, random_value(field, value, round), NULL, HASH_KEEP), !there);
        if (!there) model.at[field] = HASH_NEVER;
        model.there[field] = true;
        break;
    case 3:
        if (there) hash_set_expire(db, e, name, HASH_NEVER), model.at[field] = HASH_NEVER;
        break;
    case 4:
    case 5:
        if (there) hash_set_expire(db, e, name, at), model.at[field] = at;
        break;
    default:
        assert_int_equal(hash_put_until(db, e, name, random_value(field, value, round), NULL, at), !there);
        model.there[field] = true, model.at[field] = at;
    }
}

FIXTURE_TEST(fields_come_change_and_expire) {
    struct db *db = keyspace_db(server.keyspace, 0);
    random_seed(11);
    memset(&model, 0, sizeof model);
    struct entry *e = hash_create(db, SLICE("h"));
    assert_true(hash_put_until(db, e, SLICE("field:119"), SLICE("v"), NULL, clock_ms() + 5));
    model.there[119] = true, model.at[119] = clock_ms() + 5, strcpy(model.value[119], "v");
    int64_t now = NOW;
    for (int round = 0; round < 4000; round++) {
        if (!e) e = hash_create(db, SLICE("h")), hash_expect(db, e, 1000);
        change_something(db, e, round);
        if (hash_len(e) == 0) db_delete(db, SLICE("h"), false), e = NULL;
        if (round % 3 == 0) time_set(now += (int64_t)random_below(40));
        if (round % 5 == 0) check_model(db, e);
        if (round % 40 == 0) {
            expire_all();
            for (int i = 0; i < FIELDS; i++) model.there[i] = model_live(i);
            e = db_find(db, SLICE("h"), LOOKUP_NOTOUCH);
            check_model(db, e);
        }
    }
}

FIXTURE_TEST(many_hashes_expire_in_every_database) {
    char text[64];
    for (int id = 0; id < 3; id++)
        for (int i = 0; i < 500; i++) {
            struct db *db = keyspace_db(server.keyspace, id);
            struct entry *e = hash_create(db, (struct slice){text, (size_t)snprintf(text, sizeof text, "h%d", i)});
            for (int f = 0; f < 3; f++)
                hash_put_until(db, e, (struct slice){text, (size_t)snprintf(text, sizeof text, "f%d", f)}, SLICE("v"),
                               NULL, f == 2 && i % 2 ? HASH_NEVER : NOW + i);
        }
    assert_int_equal(db_expiring(keyspace_db(server.keyspace, 1)), 500);
    time_set(NOW + 100);
    expire_all();
    for (int id = 0; id < 3; id++) {
        struct db *db = keyspace_db(server.keyspace, id);
        assert_int_equal(db_size(db), 450);
        assert_int_equal(db_expiring(db), 400);
    }
    time_set(NOW + 1000);
    expire_all();
    assert_int_equal(db_size(keyspace_db(server.keyspace, 2)), 250);
    assert_int_equal(db_expiring(keyspace_db(server.keyspace, 2)), 0);
}

FIXTURE_TEST(a_large_hash_expires_whole) {
    struct db *db = keyspace_db(server.keyspace, 0);
    struct entry *e = hash_create(db, SLICE("h"));
    char text[64];
    uint64_t before = store_stats.expired_fields;
    for (int i = 0; i < 20000; i++)
        hash_put_until(db, e, (struct slice){text, (size_t)snprintf(text, sizeof text, "f%d", i)}, SLICE("v"), NULL,
                       NOW + 20000 - i);
    time_set(NOW + 30000);
    expire_all();
    assert_int_equal(db_size(db), 0);
    assert_int_equal(store_stats.expired_fields - before, 20000);
    assert_int_equal(db_expiring(db), 0);
}

/* The heap of a database follows its entries when they move or are replaced. */
FIXTURE_TEST(hashes_move_are_replaced_and_flushed) {
    run("HSETEX h PXAT 1700000000500 FIELDS 2 a 1 b 2");
    run("HSET h c 3");
    replies("COPY h copy", ":1\r\n");
    replies("HPEXPIRETIME copy FIELDS 3 a b c", "*3\r\n:1700000000500\r\n:1700000000500\r\n:-1\r\n");
    replies("RENAME h moved", OK);
    replies("MOVE moved 3", ":1\r\n");
    struct db *zero = keyspace_db(server.keyspace, 0), *three = keyspace_db(server.keyspace, 3);
    assert_int_equal(db_expiring(zero), 1);
    assert_int_equal(db_expiring(three), 1);
    replies("SWAPDB 0 3", OK);
    replies("PEXPIRE moved 100000", ":1\r\n"); /* the entry moves */
    replies("PERSIST moved", ":1\r\n");
    replies("RENAME moved h", OK);
    time_set(NOW + 501);
    replies("HGETALL h", "*2\r\n$1\r\nc\r\n$1\r\n3\r\n");
    replies("HLEN h", ":3\r\n");
    expire_all();
    replies("HLEN h", ":1\r\n");
    assert_int_equal(db_expiring(zero), 0);
    run("HPEXPIRE h 100 FIELDS 1 c");
    assert_int_equal(db_expiring(zero), 1);
    replies("SET h string", OK);
    assert_int_equal(db_expiring(zero), 0);
    run("HSETEX h2 PX 100 FIELDS 1 a 1");
    replies("RENAME h h2", OK);
    assert_int_equal(db_expiring(zero), 0);
    run("HSETEX h3 PX 100 FIELDS 1 a 1");
    run("HSETEX h4 PX 100 FIELDS 1 a 1");
    replies("DEL h3", ":1\r\n");
    assert_int_equal(db_expiring(zero), 1);
    replies("FLUSHALL SYNC", OK);
    assert_int_equal(db_expiring(zero), 0);
    time_set(NOW + 10000);
    expire_all();
    replies("DBSIZE", ":0\r\n");
}

FIXTURE_TEST(fields_without_expiry_cost_nothing) {
    skip_if_block_sizes_vary();
    struct db *db = keyspace_db(server.keyspace, 0);
    struct entry *e = hash_create(db, SLICE("h"));
    char text[64];
    hash_expect(db, e, 1000);
    for (int i = 0; i < 1000; i++)
        hash_put(db, e, (struct slice){text, (size_t)snprintf(text, sizeof text, "field:%04d", i)}, SLICE("value"),
                 NULL);
    size_t plain = mem_used(), counted = entry_memory(e, 0, 1000);
    hash_set_expire(db, e, SLICE("field:0000"), NOW + 100);
    assert_in_range(mem_used(), plain + 1, plain + 300); /* one field, its heap, the heap of the database */
    assert_in_range(entry_memory(e, 0, 1000), counted + 1, counted + 300);
    hash_set_expire(db, e, SLICE("field:0000"), HASH_NEVER);
    assert_in_range(mem_used(), plain, plain + 32); /* the last of these keeps some spare memory */
    assert_int_equal(entry_memory(e, 0, 1000), counted);
    replies("OBJECT ENCODING h", "$9\r\nhashtable\r\n");
}

/* --- The commands --- */

FIXTURE_TEST(times_are_propagated_as_absolute) {
    run("HSET h a 1 b 2 c 3");
    does("HEXPIRE h 10 FIELDS 3 a none b", "*3\r\n:1\r\n:-2\r\n:1\r\n", 2,
         "HPEXPIREAT h 1700000010000 FIELDS 3 a none b\n", "hexpire(h) ");
    does("HPEXPIRE h 5 LT FIELDS 2 a c", "*2\r\n:1\r\n:1\r\n", 2, "HPEXPIREAT h 1700000000005 LT FIELDS 2 a c\n",
         "hexpire(h) ");
    does("HEXPIREAT h 1700000020 GT FIELDS 2 a b", "*2\r\n:1\r\n:1\r\n", 2,
         "HPEXPIREAT h 1700000020000 GT FIELDS 2 a b\n", "hexpire(h) ");
    does("HPEXPIREAT h 1700000020000 NX FIELDS 1 a", "*1\r\n:0\r\n", 0, "", "");
    does("HPEXPIREAT h 1700000030000 XX FIELDS 1 a", "*1\r\n:1\r\n", 1, "HPEXPIREAT h 1700000030000 XX FIELDS 1 a\n",
         "hexpire(h) ");
    does("HPERSIST h FIELDS 3 a b none", "*3\r\n:1\r\n:1\r\n:-2\r\n", 2, "HPERSIST h FIELDS 3 a b none\n",
         "hpersist(h) ");
    does("HPERSIST h FIELDS 1 a", "*1\r\n:-1\r\n", 0, "", "");
    does("HEXPIRE none 10 FIELDS 2 a b", "*2\r\n:-2\r\n:-2\r\n", 0, "", "");
    unchanged("HEXPIRE h -1 FIELDS 1 a", "-ERR invalid expire time in 'hexpire' command\r\n");
    unchanged("HEXPIRE h 9223372036854775807 FIELDS 1 a", "-ERR invalid expire time in 'hexpire' command\r\n");
}
FIXTURE_TEST(a_time_in_the_past_deletes_the_key) {
    run("HSET h a 1 b 2 c 3");
    does("HEXPIRE h 0 FIELDS 2 a none", "*2\r\n:2\r\n:-2\r\n", 1, "HDEL h a\n", "hexpired(h) ");
    does("HPEXPIREAT h 1700000000000 FIELDS 2 b b", "*2\r\n:2\r\n:-2\r\n", 1, "HDEL h b\n", "hexpired(h) ");
    does("HGETEX h EXAT 1 FIELDS 2 c none", "*2\r\n$1\r\n3\r\n$-1\r\n", 1, "HDEL h c\n", "hexpired(h) del(h) ");
    replies("EXISTS h", ":0\r\n");
    does("HSETEX h PX 0 FIELDS 2 a 1 b 2", ":1\r\n", 0, "", "new(h) hset(h) hexpire(h) hexpired(h) del(h) ");
    run("HSET h a 1 b 2 c 3");
    does("HSETEX h EXAT 1 FIELDS 3 a 5 none 5 b 5", ":1\r\n", 2, "HDEL h a b\n", "hset(h) hexpire(h) hexpired(h) ");
    does("HSETEX h EX 0 FIELDS 1 c 5", ":1\r\n", 1, "HDEL h c\n", "hset(h) hexpire(h) hexpired(h) del(h) ");
}
FIXTURE_TEST(hgetex_and_hgetdel) {
    run("HSET h a 1 b 2 c 3");
    does("HGETEX h FIELDS 2 a none", "*2\r\n$1\r\n1\r\n$-1\r\n", 0, "", "");
    does("HGETEX h EX 10 FIELDS 2 a none", "*2\r\n$1\r\n1\r\n$-1\r\n", 1, "HPEXPIREAT h 1700000010000 FIELDS 1 a\n",
         "hexpire(h) ");
    does("HGETEX h PERSIST FIELDS 2 a b", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n", 1, "HPERSIST h FIELDS 1 a\n", "hpersist(h) ");
    does("HGETEX none PERSIST FIELDS 1 a", "*1\r\n$-1\r\n", 0, "", "keymiss(none) ");
    does("HGETDEL h FIELDS 3 a none a", "*3\r\n$1\r\n1\r\n$-1\r\n$-1\r\n", 1, "HGETDEL h FIELDS 3 a none a\n",
         "hdel(h) ");
    does("HGETDEL h FIELDS 1 none", "*1\r\n$-1\r\n", 0, "", "");
    does("HGETDEL h FIELDS 3 b c c", "*3\r\n$1\r\n2\r\n$1\r\n3\r\n$-1\r\n", 2, "HGETDEL h FIELDS 3 b c c\n",
         "hdel(h) del(h) ");
    does("HGETDEL h FIELDS 1 a", "*1\r\n$-1\r\n", 0, "", "");
}
FIXTURE_TEST(hsetex_sets_under_conditions) {
    does("HSETEX h XX FIELDS 1 a 1", ":0\r\n", 0, "", "");
    does("HSETEX h FXX FIELDS 1 a 1", ":0\r\n", 0, "", "");
    does("HSETEX h NX FNX EX 10 FIELDS 2 a 1 b 2", ":1\r\n", 2, "HSETEX h PXAT 1700000010000 FIELDS 2 a 1 b 2\n",
         "new(h) hset(h) hexpire(h) ");
    does("HSETEX h NX FIELDS 1 c 1", ":0\r\n", 0, "", "");
    does("HSETEX h FNX FIELDS 2 c 1 a 1", ":0\r\n", 0, "", "");
    does("HSETEX h FXX FIELDS 2 c 1 a 1", ":0\r\n", 0, "", "");
    does("HSETEX h XX FXX KEEPTTL FIELDS 1 a 5", ":1\r\n", 1, "HSETEX h KEEPTTL FIELDS 1 a 5\n", "hset(h) ");
    replies("HPTTL h FIELDS 2 a b", "*2\r\n:10000\r\n:10000\r\n");
    does("HSETEX h FIELDS 1 a 6", ":1\r\n", 1, "HSETEX h FIELDS 1 a 6\n", "hset(h) ");
    replies("HPTTL h FIELDS 2 a b", "*2\r\n:-1\r\n:10000\r\n");
    does("HSETEX h PXAT 1700000000001 FIELDS 1 a 6", ":1\r\n", 1, "HSETEX h PXAT 1700000000001 FIELDS 1 a 6\n",
         "hset(h) hexpire(h) ");
    unchanged("HSETEX h EX -1 FIELDS 1 a 1", "-ERR invalid expire time in 'hsetex' command\r\n");
}
FIXTURE_TEST(setting_a_field_drops_its_expiry_and_incrementing_keeps_it) {
    run("HSETEX h PX 1000 FIELDS 3 a 1 b 1 c 1");
    does("HSET h a 2", ":0\r\n", 1, "HSET h a 2\n", "hset(h) ");
    does("HINCRBY h b 2", ":3\r\n", 1, "HSETEX h PXAT 1700000001000 FIELDS 1 b 3\n", "hincrby(h) ");
    does("HINCRBYFLOAT h c 0.5", "$3\r\n1.5\r\n", 1, "HSETEX h PXAT 1700000001000 FIELDS 1 c 1.5\n",
         "hincrbyfloat(h) ");
    does("HINCRBYFLOAT h a 0.5", "$3\r\n2.5\r\n", 1, "HSET h a 2.5\n", "hincrbyfloat(h) ");
    replies("HPTTL h FIELDS 3 a b c", "*3\r\n:-1\r\n:1000\r\n:1000\r\n");
}
/* Commands that set an expired field delete it first; others leave it unchanged. */
FIXTURE_TEST(setting_deletes_what_has_expired) {
    run("HSETEX h PX 10 FIELDS 5 a 1 b 2 c 3 d 4 e 5");
    run("HSET h stays 1");
    time_set(NOW + 11);
    does("HINCRBY h a 7", ":7\r\n", 1, "HSET h a 7\n", "hexpired(h) hincrby(h) ");
    does("HSETNX h b 7", ":1\r\n", 1, "HSET h b 7\n", "hexpired(h) hset(h) ");
    does("HSET h c 7", ":1\r\n", 1, "HSET h c 7\n", "hexpired(h) hset(h) ");
    does("HDEL h d", ":0\r\n", 0, "", "");
    does("HSETEX h KEEPTTL FIELDS 1 e 7", ":1\r\n", 1, "HDEL h e\nHSETEX h KEEPTTL FIELDS 1 e 7\n",
         "hexpired(h) hset(h) ");
    replies("HLEN h", ":6\r\n");
    run("DEL h");
    run("HSETEX h PX 10 FIELDS 1 a 1");
    time_set(NOW + 30);
    does("HGETDEL h FIELDS 1 a", "*1\r\n$-1\r\n", 0, "", "");
    replies("EXISTS h", ":1\r\n");
    run("HSETEX h PX 10 FIELDS 2 a 1 b 1");
    time_set(NOW + 50);
    does("HSETNX h a 2", ":1\r\n", 1, "HSET h a 2\n", "hexpired(h) hset(h) ");
}
FIXTURE_TEST(reads_skip_expired_fields) {
    run("HSETEX h PX 10 FIELDS 2 a 1 b 2");
    run("HSET h c 3");
    time_set(NOW + 10); /* not yet */
    replies("HMGET h a c", "*2\r\n$1\r\n1\r\n$1\r\n3\r\n");
    time_set(NOW + 11);
    does("HMGET h a c", "*2\r\n$-1\r\n$1\r\n3\r\n", 0, "", "");
    replies("HGET h a", NIL);
    replies("HEXISTS h b", ":0\r\n");
    replies("HSTRLEN h b", ":0\r\n");
    replies("HGETALL h", "*2\r\n$1\r\nc\r\n$1\r\n3\r\n");
    replies("HKEYS h", "*1\r\n$1\r\nc\r\n");
    replies("HVALS h", "*1\r\n$1\r\n3\r\n");
    replies("HRANDFIELD h", "$1\r\nc\r\n");
    replies("HRANDFIELD h 5", "*1\r\n$1\r\nc\r\n");
    replies("HRANDFIELD h -2", "*2\r\n$1\r\nc\r\n$1\r\nc\r\n");
    replies("HSCAN h 0 COUNT 100", "*2\r\n$1\r\n0\r\n*2\r\n$1\r\nc\r\n$1\r\n3\r\n");
    replies("HTTL h FIELDS 2 a c", "*2\r\n:-2\r\n:-1\r\n");
    replies("HLEN h", ":3\r\n"); /* as DBSIZE counts expired keys */
    run("HDEL h c");
    replies("HGETALL h", "*0\r\n");
    replies("HRANDFIELD h", NIL);
    replies("HRANDFIELD h 3", "*0\r\n");
    replies("EXISTS h", ":1\r\n");
}
FIXTURE_TEST(the_cycle_deletes_and_notifies) {
    run("HSETEX h PX 10 FIELDS 2 a 1 b 2");
    run("HSET h c 3");
    run("HSETEX whole PX 10 FIELDS 1 a 1");
    run("PING");
    time_set(NOW + 11);
    expire_all();
    const char *events = heard(&events_memory), *lines = heard(&propagated_memory);
    assert_non_null(strstr(events, "hexpired(h) "));
    assert_null(strstr(events, "del(h)"));
    assert_non_null(strstr(events, "hexpired(whole) del(whole) "));
    assert_true(strstr(lines, "HDEL h a b\n") || strstr(lines, "HDEL h b a\n"));
    assert_non_null(strstr(lines, "HDEL whole a\n"));
    replies("HGETALL h", "*2\r\n$1\r\nc\r\n$1\r\n3\r\n");
    replies("DBSIZE", ":1\r\n");
    /* As configured, nothing is deleted, but expired fields are not visible. */
    run("HSETEX h PX 10 FIELDS 1 a 1");
    time_set(NOW + 50);
    store_settings.active_expire = false;
    expire_all();
    replies("HLEN h", ":2\r\n");
    replies("HGET h a", NIL);
    store_settings.active_expire = true;
}
/* On a replica expired fields are hidden until the primary deletes them; the primary's commands see them. */
FIXTURE_TEST(a_replica_waits_for_its_primary) {
    run("HSETEX h PX 10 FIELDS 2 a 1 b 2");
    time_set(NOW + 11);
    store_settings.keep_expired = true;
    expire_all();
    replies("HGETALL h", "*0\r\n");
    replies("HLEN h", ":2\r\n");
    store_settings.show_expired = true;
    replies("HMGET h a b", "*2\r\n$1\r\n1\r\n$1\r\n2\r\n");
    does("HPEXPIREAT h 1700000000005 FIELDS 1 a", "*1\r\n:1\r\n", 1, "HPEXPIREAT h 1700000000005 FIELDS 1 a\n",
         "hexpire(h) ");
    replies("HSETEX h KEEPTTL FIELDS 1 b 3", ":1\r\n");
    replies("HPEXPIRETIME h FIELDS 1 b", "*1\r\n:1700000000010\r\n");
    store_settings.show_expired = false;
    replies("HDEL h a b", ":0\r\n");
    replies("EXISTS h", ":1\r\n");
    store_settings.keep_expired = false;
}
