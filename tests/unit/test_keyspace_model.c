/* Databases against a model: random changes of random keys in two databases, and in two arrays. Tables grow, shrink and
 * are resized meanwhile, except at times, as while a child process runs or at maxmemory. */
#include "keyspace_fixture.h"
#include "lib/structures/hashtable.h"
#include "lib/text/number.h"

enum { MODEL_KEYS = 400 };
struct model {
    bool present;
    char value[2200];
    size_t len;
    int64_t expire; /* -1: none */
};
static struct model model[2][MODEL_KEYS];

static struct slice model_key(int n) {
    static char keys[4][400];
    static int turn;
    char *key = keys[turn++ % 4];
    int len = snprintf(key, 400, "key-%d", n);
    if (n % 10 == 0) memset(key + len, 'k', 300), len += 300;
    return (struct slice){key, (size_t)len};
}
static void model_expire(struct model *m) {
    if (m->present && m->expire >= 0 && clock_ms() > m->expire) m->present = false;
}
static void model_value(struct model *m) {
    static const size_t sizes[] = {0, 1, 8, 16, 40, 60, 200, 1024, 1025, 2000};
    if (random_below(4) == 0) {
        m->len = format_int64(m->value, (int64_t)(random_u64() >> random_below(64)));
    } else {
        m->len = sizes[random_below(10)];
        for (size_t i = 0; i < m->len; i++) m->value[i] = (char)('a' + random_below(26));
    }
}

static void databases_hold_the_model(struct db *dbs[2]) {
    for (int d = 0; d < 2; d++) {
        size_t keys = 0, expires = 0;
        for (int n = 0; n < MODEL_KEYS; n++) {
            struct model *m = &model[d][n];
            model_expire(m);
            struct entry *e = db_find(dbs[d], model_key(n), 0);
            assert_int_equal(e != NULL, m->present);
            if (e) keys++, expires += m->expire >= 0;
        }
        assert_int_equal(db_size(dbs[d]), keys);
        assert_int_equal(db_expires(dbs[d]), expires);
    }
}

/* A random change of a random key, in a database and in the model. */
struct change {
    struct keyspace *keyspace;
    struct db *dbs[2];
    int d; /* the number of the database */
    struct slice key;
    struct model *m;
    struct entry *e; /* the key's entry before the change; afterwards that of *m, NULL: not to be compared */
    int step;
};

static void change_set(struct change *c) {
    bool keep = random_below(2);
    model_value(c->m);
    struct slice value = {c->m->value, c->m->len};
    c->e = db_set_string(c->dbs[c->d], c->key, value, random_below(3) ? NULL : blob_copy(value), keep);
    if (!keep || !c->m->present) c->m->expire = -1;
    c->m->present = true;
}
static void change_delete(struct change *c) {
    assert_int_equal(db_delete(c->dbs[c->d], c->key, random_below(2)), c->m->present);
    c->m->present = false;
    c->e = NULL;
}
static void change_expiry(struct change *c) {
    if (!c->e) return;
    c->m->expire = random_below(3) ? clock_ms() + (int64_t)random_below(3000) : -1;
    c->e = db_set_expire(c->dbs[c->d], c->e, c->m->expire);
}
static void change_replace(struct change *c) {
    if (!c->e) return;
    model_value(c->m);
    c->e = db_set_string(c->dbs[c->d], c->key, (struct slice){c->m->value, c->m->len}, NULL, true);
}
static void change_number(struct change *c) {
    if (!c->e) return;
    c->m->len = format_int64(c->m->value, c->step);
    c->e = db_replace_int64(c->dbs[c->d], c->e, c->step);
}
static void change_edit(struct change *c) {
    struct model *m = c->m;
    size_t len = m->len + random_below(20);
    if (!c->e || len > sizeof(m->value)) return;
    char *bytes;
    memset(m->value + m->len, 0, len - m->len);
    c->e = db_edit_string(c->dbs[c->d], c->e, len, &bytes);
    if (len) bytes[len - 1] = m->value[len - 1] = 'E';
    m->len = len;
}
static void change_rename(struct change *c) {
    int to_d = (int)random_below(2), to = (int)random_below(MODEL_KEYS);
    if (!c->e) return;
    c->e = db_rename(c->dbs[c->d], c->key, c->dbs[to_d], model_key(to));
    struct model moved = *c->m;
    c->m->present = false;
    c->m = &model[to_d][to];
    *c->m = moved;
}
static void change_copy(struct change *c) {
    int to_d = (int)random_below(2), to = (int)random_below(MODEL_KEYS);
    if (!c->e || db_find(c->dbs[to_d], model_key(to), 0)) return;
    c->e = db_copy(c->dbs[c->d], c->e, c->dbs[to_d], model_key(to));
    model[to_d][to] = *c->m;
}
static void change_swap(struct change *c) {
    c->e = NULL;
    if (random_below(300)) return;
    db_swap(c->dbs[0], c->dbs[1]);
    for (int i = 0; i < MODEL_KEYS; i++) {
        struct model saved = model[0][i];
        model[0][i] = model[1][i], model[1][i] = saved;
    }
}
static void change_time(struct change *c) {
    set_ms(clock_ms() + (int64_t)random_below(5));
    if (c->step % 50 == 0) keyspace_expire_cycle(c->keyspace, false, 10);
    c->e = NULL;
}
/* Deletes most keys, so that tables shrink, or all. */
static void change_many(struct change *c) {
    c->e = NULL;
    if (random_below(300)) return;
    bool all = random_below(2);
    if (all) db_flush(c->dbs[c->d], random_below(2));
    for (int n = 0; n < MODEL_KEYS; n++) {
        struct model *m = &model[c->d][n];
        model_expire(m);
        m->present &= !all;
        assert_int_equal(db_find(c->dbs[c->d], model_key(n), 0) != NULL, m->present);
        if (!m->present || random_below(20) == 0) continue;
        assert_true(db_delete(c->dbs[c->d], model_key(n), false));
        m->present = false;
    }
}

static bool growth_refused;
static bool may_grow(size_t bytes) {
    return !growth_refused;
}
static void change_resizing(struct change *c) {
    static const enum hashtable_resizing policies[] = {HASHTABLE_RESIZE, HASHTABLE_RESIZE_AVOID,
                                                       HASHTABLE_RESIZE_FORBID};
    c->e = NULL;
    if (random_below(20)) return;
    hashtable_set_resizing(policies[random_below(3)]);
    growth_refused = random_below(2);
    if (random_below(4) == 0) keyspace_rehash(c->keyspace, random_below(20));
}
FIXTURE_TEST(databases_behave_like_maps) {
    static void (*const changes[])(struct change *) = {
        change_set,  change_set,    change_delete, change_expiry, change_expiry, change_replace, change_number,
        change_edit, change_rename, change_copy,   change_swap,   change_time,   change_many,    change_resizing};
    struct change c = {.keyspace = *state, .dbs = {keyspace_db(*state, 0), keyspace_db(*state, 1)}};
    memset(model, 0, sizeof(model));
    store_settings.table_may_grow = may_grow;
    growth_refused = false;
    char number[STRING_NUMBER_TEXT];
    for (c.step = 0; c.step < 150000; c.step++) {
        int n = (int)random_below(MODEL_KEYS);
        c.d = (int)random_below(2), c.key = model_key(n), c.m = &model[c.d][n];
        model_expire(c.m);
        size_t action = random_below(sizeof(changes) / sizeof(changes[0]));
        if (changes[action] != change_set) { /* change_set finds an expired key itself */
            c.e = db_find(c.dbs[c.d], c.key, 0);
            assert_int_equal(c.e != NULL, c.m->present);
        }
        changes[action](&c);
        if (!c.e || !c.m->present) continue;
        struct slice value = entry_string(c.e, number);
        assert_int_equal(value.len, c.m->len);
        assert_memory_equal(value.data, c.m->value, c.m->len);
        assert_int_equal(entry_expire_at(c.e), c.m->expire);
        assert_int_equal(entry_string_len(c.e), c.m->len);
    }
    databases_hold_the_model(c.dbs);
    hashtable_set_resizing(HASHTABLE_RESIZE);
}

FIXTURE_TEST(all_memory_comes_back) {
    size_t before = mem_used();
    databases_behave_like_maps(state);
    for (int i = 0; i < 2; i++) db_flush(keyspace_db(*state, i), i);
    assert_int_equal(mem_used(), before);
}

int main(void) {
    return RUN_WITH_BOTH_TABLES();
}
