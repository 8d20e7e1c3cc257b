/* Relocation: random commands on values of all types between the steps of walks in which every block moves.
 * AddressSanitizer reports the next command that follows a pointer to an old block. */
#include "commands_fixture.h"
#include "lib/system/random.h"
#include "store/relocate_keys.h"
#include "store/types.h"

enum { KEYS = 8, ITEMS = 300 };

static struct relocate_walk walk;

static void run_formatted(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void run_formatted(const char *format, ...) {
    char line[4096];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    run(line);
}

static const char *some_text(void) {
    static char text[2001];
    /* Up to 2000 bytes, so that some values are blobs; mostly short ones. */
    size_t len = random_below(10) ? random_below(20) : random_below(2000);
    memset(text, 'a' + (char)random_below(26), len);
    text[len] = 0;
    return text;
}

static void random_command(void) {
    int key = (int)random_below(KEYS), item = (int)random_below(ITEMS);
    switch (random_below(26)) {
    case 0: run_formatted("SET s%d \"%s\"", key, some_text()); break;
    case 1: run_formatted("SET s%d \"%s\" EX 100000", key, some_text()); break;
    case 2: run_formatted("APPEND s%d x", key); break;
    case 3: run_formatted("HSET h%d f%d \"%s\"", key, item, some_text()); break;
    case 4: run_formatted("HDEL h%d f%d", key, item); break;
    case 5: run_formatted("HEXPIRE h%d 100000 FIELDS 1 f%d", key, item); break;
    case 6: run_formatted("HPERSIST h%d FIELDS 1 f%d", key, item); break;
    case 7: run_formatted("SADD t%d m%d", key, item); break;
    case 8: run_formatted("SREM t%d m%d", key, item); break;
    case 9: run_formatted("SADD n%d %d", key, item); break;
    case 10: run_formatted("ZADD z%d %d m%d", key, (int)random_below(20), item); break;
    case 11: run_formatted("ZREM z%d m%d", key, item); break;
    case 12: run_formatted("ZINCRBY z%d 3 m%d", key, item); break;
    case 13: run_formatted("RPUSH l%d \"%s\"", key, some_text()); break;
    case 14: run_formatted("LPUSH l%d \"%s\"", key, some_text()); break;
    case 15: run_formatted("RPOP l%d", key); break;
    case 16: run_formatted("LSET l%d %d \"%s\"", key, (int)random_below(50), some_text()); break;
    case 17: run_formatted("XADD x%d * f \"%s\"", key, some_text()); break;
    case 18: run_formatted("XTRIM x%d MAXLEN %d", key, item); break;
    case 19: run_formatted("DEL %c%d", "shtnzlx"[random_below(7)], key); break;
    case 20: run_formatted("EXPIRE %c%d %d", "shtnzlx"[random_below(7)], key, item + 1000); break;
    case 21: run_formatted("PERSIST %c%d", "shtnzlx"[random_below(7)], key); break;
    case 22: run_formatted("RENAME s%d s%d", key, (int)random_below(KEYS)); break;
    case 23: run_formatted("COPY z%d z%d REPLACE", key, (int)random_below(KEYS)); break;
    case 24: run_formatted("MOVE h%d 1", key); break;
    case 25: time_set(clock_ms() + (int64_t)random_below(3) * 1000); break;
    }
}

static void dump_reply(struct memory_output *out, const char *line) {
    run(line);
    output_write(&out->out, memory_output_slice(&reply_memory));
}

/* All values and their expiry. Serialized values can be compared only if their elements have an order. */
static char *dump_all(void) {
    static const char types[] = "shtnzlx";
    struct memory_output out;
    char line[64];
    memory_output_init(&out);
    for (int i = 0; i < (int)(sizeof types - 1) * KEYS; i++) {
        char type = types[i / KEYS];
        int key = i % KEYS;
        snprintf(line, sizeof line, "PEXPIRETIME %c%d", type, key);
        dump_reply(&out, line);
        if (type != 'h' && type != 't' && type != 'n') {
            snprintf(line, sizeof line, "DUMP %c%d", type, key);
            dump_reply(&out, line);
            continue;
        }
        snprintf(line, sizeof line, "%s %c%d", type == 'h' ? "HLEN" : "SCARD", type, key);
        dump_reply(&out, line);
        for (int item = 0; item < ITEMS; item++) {
            if (type != 'h') {
                snprintf(line, sizeof line, "SISMEMBER %c%d %s%d", type, key, type == 't' ? "m" : "", item);
                dump_reply(&out, line);
                continue;
            }
            snprintf(line, sizeof line, "HGET h%d f%d", key, item);
            dump_reply(&out, line);
            snprintf(line, sizeof line, "HPEXPIRETIME h%d FIELDS 1 f%d", key, item);
            dump_reply(&out, line);
        }
    }
    struct slice all = memory_output_slice(&out);
    char *text = mem_alloc(all.len + sizeof all.len);
    memcpy(text, &all.len, sizeof all.len);
    memcpy(text + sizeof all.len, all.data, all.len);
    memory_output_free(&out);
    return text;
}
static bool same_dump(const char *a, const char *b) {
    size_t len;
    memcpy(&len, a, sizeof len);
    return memcmp(a, b, sizeof len) == 0 && memcmp(a + sizeof len, b + sizeof len, len) == 0;
}

static void whole_walk(void) {
    relocate_walk_end(&walk);
    while (relocate_walk_step(&walk, server.keyspace)) {
    }
}

static void check_orders(void) {
    /* Checks ranks and both directions of sorted sets and lists, which a wrong link would break. */
    for (int key = 0; key < KEYS; key++) {
        run_formatted("ZRANGE z%d 0 -1", key);
        struct slice forward = memory_output_slice(&reply_memory);
        char *kept = mem_strndup(forward.data, forward.len);
        size_t len = forward.len;
        run_formatted("ZRANGEBYSCORE z%d -inf +inf", key);
        assert_true(memory_output_slice(&reply_memory).len == len);
        assert_memory_equal(kept, memory_output_slice(&reply_memory).data, len);
        run_formatted("ZREVRANGE z%d 0 -1", key);
        assert_true(memory_output_slice(&reply_memory).len == len);
        mem_free(kept);
        run_formatted("LRANGE l%d -20 -1", key);
    }
}

static void work(unsigned rounds) {
    relocate_set_all(true);
    for (unsigned round = 0; round < rounds; round++) {
        for (int i = 0; i < 200; i++) {
            random_command();
            walk.blocks.limit = 1 + random_below(20);
            relocate_walk_step(&walk, server.keyspace);
        }
        if (round % 10) continue;
        char *before = dump_all();
        uint64_t moved = walk.blocks.moved, stayed = walk.blocks.stayed;
        whole_walk();
        assert_true(walk.blocks.moved > moved);
        assert_true(walk.blocks.stayed == stayed); /* nothing is shared here */
        char *after = dump_all();
        assert_true(same_dump(before, after));
        mem_free(before);
        mem_free(after);
        check_orders();
        keyspace_expire_cycle(server.keyspace, false, 10);
    }
    relocate_walk_end(&walk);
    relocate_set_all(false);
}

FIXTURE_TEST(values_of_all_types_stay_the_same) {
    work(200);
}
FIXTURE_TEST(values_stay_the_same_in_tables_of_slots) {
    keyspace_free(server.keyspace);
    server.keyspace = keyspace_new_per_slot(
        16, &(struct store_hooks){.expired = key_expired, .fields_expired = store_events.fields_expired});
    client->db = keyspace_db(server.keyspace, 0);
    work(100);
}

/* Elements of a long list are removed while it moves: before, after and at the position of the walk. Each remaining
 * node moves once. */
FIXTURE_TEST(every_node_of_a_long_list_moves_once) {
    enum { NODES = 1000 };
    int fill = encoding_limits.list_listpack_size;
    run("FLUSHALL");
    encoding_limits.list_listpack_size = 1;
    for (int i = 0; i < NODES; i++) run_formatted("RPUSH long %d", i);
    relocate_set_all(true);
    relocate_walk_end(&walk);
    walk.blocks = (struct relocation){.limit = 2}; /* a node and its listpack */
    uint64_t visited = 0;
    int first = 0, removed = 0, removed_unvisited = 0;
    for (;;) {
        bool inside = walk.large_count > 0;
        uint64_t moved = walk.blocks.moved;
        if (!relocate_walk_step(&walk, server.keyspace)) break;
        if (inside)
            visited += (walk.blocks.moved - moved) / 2;
        else if (walk.large_count) /* the first step at the list also moved the key */
            visited++;
        if (!walk.large_count || visited % 2) continue;
        run_formatted("LREM long 1 %d", first++);
        run("RPOP long");
        removed += 2;
        removed_unvisited++;
        if (visited != 100) continue;
        for (int i = first; i < first + 150; i++) run_formatted("LREM long 1 %d", i);
        first += 150;
        removed += 150;
        removed_unvisited += first - 100;
    }
    relocate_set_all(false);
    assert_int_equal(walk.blocks.stayed, 0);
    assert_int_equal(visited, NODES - removed_unvisited);
    char length[32];
    snprintf(length, sizeof length, ":%d\r\n", NODES - removed);
    run("LLEN long");
    assert_true(slice_equal(memory_output_slice(&reply_memory), slice_of(length)));
    encoding_limits.list_listpack_size = fill;
    run("FLUSHALL");
}

FIXTURE_TEST(a_shared_blob_stays) {
    struct relocation r = {.limit = 1};
    struct blob *blob = blob_new(5000, 5000), *held = blob_hold(blob), *pointer = blob;
    relocate_set_all(true);
    blob_relocate(&r, &pointer);
    assert_ptr_equal(pointer, blob);
    assert_int_equal(r.stayed, 1);
    blob_release(held);
    memset(blob->data, 'x', 5000);
    blob_relocate(&r, &pointer);
    assert_ptr_not_equal(pointer, blob);
    assert_int_equal(r.moved, 1);
    assert_true(pointer->len == 5000 && pointer->data[4999] == 'x');
    blob_release(pointer);
    relocate_set_all(false);
}

FIXTURE_TEST(used_memory_stays_the_same) {
    skip_if_block_sizes_vary();
    for (int i = 0; i < 1000; i++) run_formatted("SET key%d \"%s\"", i, some_text());
    size_t before = mem_used();
    relocate_set_all(true);
    walk.blocks.limit = 100;
    whole_walk();
    relocate_set_all(false);
    assert_int_equal(mem_used(), before);
}

/* Slabs in which one block in 20 is used become free. */
FIXTURE_TEST(sparse_slabs_become_free) {
    enum { BLOCKS = 50000, SIZE = 48, APART = 20 };
    if (!relocate_is_supported()) skip();
    static void *blocks[BLOCKS];
    struct mem_stats before, after;
    struct relocation r = {.limit = 1};
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = mem_alloc(SIZE);
        memset(blocks[i], i % 256, SIZE);
    }
    for (int i = 0; i < BLOCKS; i++) {
        if (i % APART == 0) continue;
        mem_free(blocks[i]);
        blocks[i] = NULL;
    }
    mem_read_stats(&before);
    for (int i = 0; i < BLOCKS; i += APART) relocate_block(&r, &blocks[i]);
    mem_read_stats(&after);
    assert_true(r.moved > BLOCKS / APART / 2);
    assert_true(before.active - before.allocated > 2 * (after.active - after.allocated));
    for (int i = 0; i < BLOCKS; i += APART) {
        for (int k = 0; k < SIZE; k++) assert_int_equal(((unsigned char *)blocks[i])[k], i % 256);
        mem_free(blocks[i]);
    }
}
