/* Zero-copy sends of values: the arena that holds them, and changes of a value while it is being sent.
 *
 * If the machine has no RDMA device, the program restarts itself under utils/softrdma/softrdma. */
#ifdef USE_RDMA
#pragma GCC diagnostic ignored "-Wunused-function" /* only the ends of the suite are used */
#include "lib/system/background.h"
#include "net/rdma/rdma.h"
#include "net/rdma/lifetime.h"
#include "net/rdma/send.h"
#include "net/value_arena.h"
#include "rdma_device_arranged.h"
#include "transport_suite.h"
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sys/wait.h>

enum { MIN = 4096 };

static int use_rdma(void **state) {
    suite = (struct suite){.transport = &transport_rdma};
    const char *ip = getenv("RDMA_IP");
    snprintf(suite.host, sizeof suite.host, "%s", ip ? ip : "127.0.0.1");
    rdma_settings.rx_size = 64 * 1024;
    rdma_settings.zero_copy_min = MIN;
    return 0;
}

static struct value_arena_stats arena_now(void) {
    struct value_arena_stats stats;
    value_arena_read_stats(&stats);
    return stats;
}

/* --- The arena --- */

#define VALUE_TEST(name) TEST_WITH(name, suite_setup, suite_teardown)

VALUE_TEST(blocks_are_large_enough_apart_and_not_much_larger) {
    enum { COUNT = 400 };
    struct {
        unsigned char *at;
        size_t size;
    } blocks[COUNT];
    size_t before = mem_used(), used = arena_now().used, sum = 0;
    for (int i = 0; i < COUNT; i++) {
        size_t usable, size = i < 140   ? 1 + (size_t)i * 517
                              : i < 380 ? 1 + random_below(300000)
                                        : 1 + random_below(9 << 20);
        blocks[i].size = size;
        assert_non_null(blocks[i].at = value_arena_take(size, &usable));
        assert_in_range(usable, size, size < 1024 ? 1024 : size + size / 8 + 8192);
        assert_int_equal(value_arena_block_size(blocks[i].at), usable);
        memset(blocks[i].at, i & 255, usable);
        sum += usable;
    }
    assert_int_equal(arena_now().used - used, sum);
    assert_in_range(mem_used() - before, sum, sum + 2000000);
    for (int i = 0; i < COUNT; i++)
        for (size_t k = 0; k<blocks[i].size; k += blocks[i].size> 5000 ? 97 : 1)
            assert_int_equal(blocks[i].at[k], i & 255);
    for (int i = COUNT; i-- > 0;) value_arena_give(blocks[i ^ 1].at);
    assert_int_equal(arena_now().used, used);
    value_arena_trim();
    assert_int_equal(arena_now().used, used);
    assert_in_range(arena_now().regions, 0, 3);
}

VALUE_TEST(random_allocations_do_not_accumulate_blocks) {
    enum { PLACES = 300 };
    char *places[PLACES] = {0};
    size_t sizes[PLACES], live = 0, most = 0, mapped = 0, before = arena_now().used;
    for (int i = 0; i < 60000; i++) {
        size_t k = random_below(PLACES), usable;
        if (places[k]) {
            assert_int_equal(places[k][0], (char)k);
            assert_int_equal(places[k][sizes[k] - 1], (char)k);
            value_arena_give(places[k]);
            live -= sizes[k];
        }
        sizes[k] = 1000 + random_below(random_below(20) ? 60000 : 2000000);
        assert_non_null(places[k] = value_arena_take(sizes[k], &usable));
        places[k][0] = places[k][sizes[k] - 1] = (char)k;
        live += sizes[k];
        if (live > most) most = live;
        if (arena_now().mapped > mapped) mapped = arena_now().mapped;
    }
    assert_in_range(mapped, most, most * 2 + (16 << 20));
    for (int k = 0; k < PLACES; k++)
        if (places[k]) value_arena_give(places[k]);
    assert_int_equal(arena_now().used, before);
}

VALUE_TEST(an_empty_region_stays_while_it_is_held) {
    size_t usable;
    void *small = value_arena_take(5000, &usable), *large = value_arena_take(40 << 20, &usable);
    const struct value_region *region = value_arena_region(large);
    assert_non_null(region);
    assert_ptr_equal(value_arena_region((char *)large + (39 << 20)), region);
    value_arena_hold(region);
    size_t mapped = arena_now().mapped;
    value_arena_give(large);
    value_arena_give(small);
    size_t left = arena_now().mapped;
    assert_in_range(left, 40 << 20, mapped);
    value_arena_release(region);
    value_arena_trim();
    assert_null(value_arena_region(large));
    assert_null(value_arena_region(&usable));
}

/* Values that are overwritten again and again need no new memory each time. */
VALUE_TEST(empty_regions_stay_for_a_while) {
    enum { BLOCKS = 40, SIZE = 1 << 20, KEPT = 8 << 20 };
    void *blocks[BLOCKS];
    size_t usable, mapped = 0;
    value_arena_trim();
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) assert_non_null(blocks[i] = value_arena_take(SIZE, &usable));
        if (round) assert_int_equal(arena_now().mapped, mapped);
        mapped = arena_now().mapped;
        for (int i = 0; i < BLOCKS; i++) value_arena_give(blocks[i]);
        assert_int_equal(arena_now().mapped, mapped);
    }
    uint64_t now_ms = clock_mono() / 1000 + 10000;
    for (int i = 0; i < 3 + BLOCKS; i++) value_arena_age(now_ms += 2000);
    assert_in_range(arena_now().mapped, 0, mapped - BLOCKS * SIZE + KEPT);
}

VALUE_TEST(at_the_limit_empty_regions_make_space_for_others) {
    size_t usable;
    void *blocks[40], *large;
    for (int i = 0; i < 40; i++) assert_non_null(blocks[i] = value_arena_take(1 << 20, &usable));
    for (int i = 0; i < 40; i++) value_arena_give(blocks[i]);
    value_arena_set_limit(arena_now().mapped);
    assert_non_null(large = value_arena_take(24 << 20, &usable));
    value_arena_set_limit(SIZE_MAX);
    value_arena_give(large);
    value_arena_trim();
}

VALUE_TEST(beyond_the_limit_blobs_come_from_ordinary_memory) {
    value_arena_set_limit(arena_now().mapped);
    size_t usable;
    assert_null(value_arena_take(100 << 20, &usable));
    struct blob *blob = blob_new(100 << 20, 0);
    assert_false(blob->large);
    blob_release(blob);
    value_arena_set_limit(SIZE_MAX);
    blob = blob_new(10000, 0);
    assert_true(blob->large);
    blob_release(blob);
}

/* Used memory without the descriptions of regions: how many empty regions remain depends on earlier tests and on
 * time. */
static size_t used_without_overhead(void) {
    return mem_used() - arena_now().overhead;
}

VALUE_TEST(a_blob_that_grows_keeps_its_bytes) {
    blob_release(blob_new(MIN + 1, 0)); /* from now on the thread has a cache */
    size_t before = used_without_overhead();
    struct blob *blob = blob_copy(SLICE("abc"));
    assert_false(blob->large);
    for (size_t len = 3; len < 3000000; len = len * 5 / 4 + 7) {
        blob = blob_grow(blob, len + 7);
        assert_in_range(blob->capacity, len + 7, SIZE_MAX);
        for (size_t i = 0; i < 7; i++, blob->len++) blob->data[blob->len] = (char)blob->len;
        assert_memory_equal(blob->data, "abc", 3);
        assert_in_range(blob_memory(blob), blob->capacity, blob->capacity + 100);
    }
    assert_true(blob->large);
    blob_release(blob);
    assert_int_equal(used_without_overhead(), before);
    value_arena_trim();
    assert_int_equal(used_without_overhead(), before);
}

/* A region of 8 MiB may be the only one that remains, in place of several smaller ones. */
VALUE_TEST(the_overhead_is_that_of_the_regions_that_stay) {
    size_t usable, before = used_without_overhead(), overhead = arena_now().overhead;
    void *large = value_arena_take(80 << 20, &usable), *small = value_arena_take(1 << 20, &usable);
    assert_in_range(arena_now().overhead, overhead + (80 << 20) / 8192 * 8, overhead + (80 << 20) / 8192 * 8 + 20000);
    assert_int_equal(used_without_overhead(), before + (81 << 20));
    value_arena_give(large);
    value_arena_give(small);
    value_arena_trim();
    assert_int_equal(used_without_overhead(), before);
    assert_in_range(arena_now().overhead, 0, overhead + 20000);
}

static void *give_all(void *blobs) {
    for (struct blob **blob = blobs; *blob; blob++) blob_release(*blob);
    return NULL;
}
VALUE_TEST(another_thread_may_free_a_block) {
    size_t used = arena_now().used;
    for (int round = 0; round < 20; round++) {
        struct blob *blobs[101] = {0};
        for (int i = 0; i < 100; i++) blobs[i] = blob_new(4096 + random_below(200000), 0);
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, give_all, blobs), 0);
        for (int i = 0; i < 100; i++) blob_release(blob_new(4096 + random_below(200000), 0));
        pthread_join(thread, NULL);
    }
    assert_int_equal(arena_now().used, used);
}

/* --- Sending --- */

/* A blob with the next bytes of the client's stream. */
static struct blob *next_blob(size_t len) {
    struct blob *blob = blob_new(len, len);
    for (size_t i = 0; i < len; i++) blob->data[i] = stream_byte(client.send_seed, client.sent++);
    return blob;
}
static void send_small(size_t len) {
    char bytes[64];
    for (size_t i = 0; i < len; i++) bytes[i] = stream_byte(client.send_seed, client.sent++);
    output_write(&client.conn->out, slice_make(bytes, len));
}
static void send_blob(size_t len) {
    struct blob *blob = next_blob(len);
    output_write_blob(&client.conn->out, blob);
    blob_release(blob);
}
/* All sends have completed, and the arena is back to its earlier use. */
#define turn_until_given_back(used) turn_until(arena_now().used == (used))

VALUE_TEST(values_of_sizes_around_every_threshold_arrive) {
    open_both();
    size_t used = arena_now().used;
    static const size_t around[] = {1024, MIN, 8192, 16384, 65536, 131072, 1 << 20};
    for (size_t i = 0; i < sizeof around / sizeof *around; i++) {
        for (int by = -40; by <= 40; by += 1 + (int)random_below(4)) {
            send_small(random_below(40));
            send_blob(around[i] + (size_t)by);
            send_small(random_below(3));
            conn_flush(client.conn);
            if (random_below(3) == 0) turn_until(server.consumed == client.sent);
        }
    }
    turn_until(server.consumed == client.sent);
    assert_false(server.corrupt);
    turn_until_given_back(used);
}

VALUE_TEST(values_from_the_threshold_on_are_not_copied) {
    open_both();
    uint64_t bytes = rdma_stats()->zero_copy_bytes;
    send_blob(MIN - 100);
    conn_flush(client.conn);
    turn_until(server.consumed == client.sent);
    assert_int_equal(rdma_stats()->zero_copy_bytes, bytes);
    send_blob(MIN + 1);
    conn_flush(client.conn);
    turn_until(server.consumed == client.sent);
    assert_int_equal(rdma_stats()->zero_copy_bytes, bytes + MIN + 1);
    rdma_settings.zero_copy_min = 0;
    rdma_settings_changed();
    send_blob(100000);
    conn_flush(client.conn);
    turn_until(server.consumed == client.sent);
    assert_int_equal(rdma_stats()->zero_copy_bytes, bytes + MIN + 1);
    rdma_settings.zero_copy_min = MIN;
    rdma_settings_changed();
    assert_false(server.corrupt);
}

/* While a value is being sent, the owner of the key releases it, and other values allocate memory. */
VALUE_TEST(a_value_released_while_its_send_waits_arrives_whole) {
    open_both();
    size_t used = arena_now().used;
    conn_set_reading(server.conn, false);
    for (int i = 0; i < 40; i++) {
        send_small(5);
        send_blob(9000 + (size_t)i * 7001);
        if (i % 3 == 0) conn_flush(client.conn);
        struct blob *other = blob_new(9000 + (size_t)i * 7001, 0);
        memset(other->data, 'x', other->len);
        blob_release(other);
    }
    conn_flush(client.conn);
    for (int i = 0; i < 5; i++) event_loop_turn(loop, 1000);
    assert_in_range(conn_pending(client.conn), 1000000, SIZE_MAX);
    conn_set_reading(server.conn, true);
    turn_until(server.consumed == client.sent);
    assert_false(server.corrupt);
    turn_until_given_back(used);
}

/* Short headers share chunks of 16 KiB, before and after they move out of registered memory, and every chunk counts as
 * memory of the connection. */
VALUE_TEST(headers_between_values_share_chunks_and_every_chunk_is_counted) {
    enum { COUNT = 400, HEADER = 10 };
    open_both();
    size_t used = arena_now().used, output;
    conn_set_reading(server.conn, false);
    for (int i = 0; i < COUNT; i++) {
        send_small(HEADER);
        send_blob(MIN);
    }
    conn_flush(client.conn);
    while (!rdma_of(client.conn)->send.stalled) event_loop_turn(loop, 1000);
    rdma_send_unregister(rdma_of(client.conn));
    transport_rdma.memory(client.conn, NULL, &output);
    size_t chunks = rdma_of(client.conn)->send.chunks, most = COUNT * HEADER / RDMA_CHUNK_SIZE + 4;
    assert_in_range(chunks, 1, most);
    assert_in_range(output, conn_pending(client.conn) - COUNT * HEADER,
                    conn_pending(client.conn) + 2 * RDMA_CHUNK_SIZE * most);
    conn_set_reading(server.conn, true);
    while (server.consumed < client.sent) {
        event_loop_turn(loop, 1000);
        if (rdma_of(client.conn)->send.chunks > chunks) chunks = rdma_of(client.conn)->send.chunks;
    }
    assert_in_range(chunks, 1, most);
    assert_false(server.corrupt);
    turn_until_given_back(used);
    turn_until(rdma_of(client.conn)->send.chunks == 0);
    transport_rdma.memory(client.conn, NULL, &output);
    assert_int_equal(output, 0);
}

VALUE_TEST(a_value_counts_as_shared_until_its_send_completes) {
    open_both();
    conn_set_reading(server.conn, false);
    struct blob *blob = next_blob(300000);
    output_write_blob(&client.conn->out, blob);
    conn_flush(client.conn);
    for (int i = 0; i < 5; i++) event_loop_turn(loop, 1000);
    assert_true(blob_is_shared(blob));
    conn_set_reading(server.conn, true);
    turn_until(server.consumed == client.sent);
    turn_until(!blob_is_shared(blob));
    blob_release(blob);
    assert_false(server.corrupt);
}

VALUE_TEST(failed_connections_release_their_values) {
    for (int how = 0; how < 3; how++) {
        memset(&client, 0, sizeof client);
        memset(&server, 0, sizeof server);
        open_both();
        size_t used = arena_now().used;
        conn_set_reading(server.conn, false);
        for (int i = 0; i < 10; i++) send_blob(100000);
        conn_flush(client.conn);
        event_loop_turn(loop, 1000);
        assert_in_range(arena_now().used, used + 100000, SIZE_MAX);
        struct end *first = how == 0 ? &server : &client;
        if (how == 2) {
            rdma_connection_failed(rdma_of(client.conn), EIO, "as if the device had failed");
        } else {
            conn_close(first->conn);
            first->conn = NULL;
        }
        turn_until_given_back(used);
        if (client.conn) conn_close(client.conn);
        if (server.conn) conn_close(server.conn);
        client.conn = server.conn = NULL;
    }
}

VALUE_TEST(beyond_the_limit_values_are_copied) {
    open_both();
    uint64_t before = rdma_settings.max_registered, sends = rdma_stats()->zero_copies;
    struct blob *fresh = blob_new(80 << 20, 0); /* in a region that is not registered */
    struct blob *value = NULL;
    rdma_settings.max_registered = rdma_registered() + 1024 * 1024;
    value = fresh;
    for (size_t i = 0; i < value->len; i++) value->data[i] = stream_byte(client.send_seed, client.sent++);
    output_write_blob(&client.conn->out, value);
    blob_release(value);
    conn_flush(client.conn);
    turn_until(server.consumed == client.sent);
    assert_false(server.corrupt);
    assert_int_equal(rdma_stats()->zero_copies, sends);
    rdma_settings.max_registered = before;
}

VALUE_TEST(regions_are_unregistered_when_nothing_is_left_in_them) {
    open_both();
    send_blob(5000);
    for (int i = 0; i < 4; i++) send_blob(40 << 20);
    conn_flush(client.conn);
    turn_until(server.consumed == client.sent);
    assert_in_range(rdma_stats()->registered[RDMA_MEMORY_VALUES], 40 << 20, SIZE_MAX);
    turn_until(rdma_stats()->value_regions <= 2);
    assert_false(server.corrupt);
}

/* Another event loop takes the place of another thread: it has its own device context. */
VALUE_TEST(a_region_that_two_device_contexts_register_counts_once) {
    struct event_loop *other = event_loop_new();
    struct end far = {.closed = 0};
    open_both();
    struct connection *first = server.conn;
    struct connect_options options = {
        .host = suite.host, .port = suite.port, .timeout_ms = 30000, .events = &end_events, .owner = &far};
    far.conn = conn_connect(&transport_rdma, other, &options);
    for (uint64_t end = clock_monotonic_us() + 60000000; !conn_is_open(far.conn) || server.conn == first;) {
        event_loop_turn(loop, 0);
        event_loop_turn(other, 0);
        assert_true(clock_monotonic_us() < end);
    }
    struct rdma_device *devices[2] = {rdma_of(client.conn)->qp.device, rdma_of(far.conn)->qp.device};
    assert_ptr_not_equal(devices[0], devices[1]);
    struct blob *blob = blob_new(40 << 20, 0); /* in its own region */
    size_t size = value_arena_region(blob->data)->size;
    struct rdma_stats before = *rdma_stats();
    uint64_t registered = rdma_registered();
    for (int i = 0; i < 2; i++) {
        uint32_t key;
        assert_true(rdma_values_key(&devices[i]->values, blob->data, &key));
        assert_int_equal(rdma_stats()->value_regions, before.value_regions + (uint64_t)i + 1);
        assert_int_equal(rdma_stats()->registered[RDMA_MEMORY_VALUES], before.registered[RDMA_MEMORY_VALUES] + size);
        assert_int_equal(rdma_stats()->registered_bytes, before.registered_bytes + size);
        assert_int_equal(rdma_registered(), registered + size);
    }
    conn_close(far.conn);
    event_loop_turn(other, 0);
    event_loop_free(other); /* its registration ends, the other remains */
    assert_int_equal(rdma_stats()->value_regions, before.value_regions + 1);
    assert_int_equal(rdma_stats()->registered[RDMA_MEMORY_VALUES], before.registered[RDMA_MEMORY_VALUES] + size);
    blob_release(blob);
    turn_until(rdma_stats()->registered[RDMA_MEMORY_VALUES] <= before.registered[RDMA_MEMORY_VALUES]);
    turn_until(server.conn == NULL);
    server.conn = first;
}

VALUE_TEST(a_forked_child_reads_values_as_they_were) {
    open_both();
    struct blob *blob = next_blob(200000);
    output_write_blob(&client.conn->out, blob);
    conn_flush(client.conn);
    turn_until(server.consumed == client.sent);
    int release[2];
    char byte = 0;
    assert_int_equal(pipe(release), 0);
    value_arena_defer_free(true);
    pid_t pid = fork();
    if (pid == 0) {
        rdma_after_fork_child();
        int bad = read(release[0], &byte, 1) != 1;
        for (size_t i = 0; i < blob->len; i++) bad |= blob->data[i] != stream_byte(client.send_seed, i);
        blob_release(blob);
        blob_release(blob_new(100000, 0));
        _exit(bad);
    }
    /* The value may be replaced and sent again, but its bytes are not overwritten. */
    blob_release(blob);
    blob = next_blob(200000);
    output_write_blob(&client.conn->out, blob);
    conn_flush(client.conn);
    turn_until(server.consumed == client.sent);
    assert_int_equal(write(release[1], &byte, 1), 1);
    int status;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
    value_arena_defer_free(false);
    blob_release(blob);
    close(release[0]);
    close(release[1]);
}

/* While a child reads, blocks that were in use at the fork keep their bytes; other blocks are reused. */
VALUE_TEST(blocks_in_use_at_a_fork_keep_their_bytes_until_the_child_has_ended) {
    enum { COUNT = 300, LARGE = 200000 };
    struct blob *blobs[COUNT];
    for (int i = 0; i < COUNT; i++) {
        size_t len = i % 10 ? 5000 + (size_t)i * 50 : LARGE;
        blobs[i] = blob_new(len, 0);
        assert_true(blobs[i]->large);
        memset(blobs[i]->data, i & 127, len);
    }
    int release[2];
    char byte = 0;
    assert_int_equal(pipe(release), 0);
    value_arena_defer_free(true);
    pid_t pid = fork();
    if (pid == 0) {
        close(release[1]);
        rdma_after_fork_child();
        bool bad = read(release[0], &byte, 1) != 1;
        for (int i = 0; i < COUNT; i++)
            for (size_t k = 0; k < blobs[i]->len; k++) bad |= blobs[i]->data[k] != (i & 127);
        blob_release(blob_hold(blobs[0])); /* without an effect on the parent */
        for (int i = 1; i < COUNT; i++) blob_release(blobs[i]);
        struct blob *own = blob_new(50000, 0);
        memset(own->data, 'x', own->len);
        bad |= own->large;
        _exit(bad);
    }
    size_t deferred = arena_now().deferred, used = arena_now().used;
    for (int i = 0; i < COUNT; i++) {
        assert_true(blob_is_shared(blobs[i])); /* so that no command writes to it in place */
        if (i % 2) continue;
        blob_release(blobs[i]);
    }
    assert_int_equal(arena_now().deferred - deferred, COUNT / 2);
    /* New values do not overwrite these blocks; they reuse the other ones. */
    size_t mapped = 0;
    for (int round = 0; round < 50; round++) {
        for (int i = 0; i < COUNT; i += 2) {
            blobs[i] = blob_new(i % 10 ? 5000 + (size_t)i * 50 : LARGE, 0);
            assert_false(blobs[i]->large && blob_is_shared(blobs[i]));
            memset(blobs[i]->data, 'n', blobs[i]->len);
        }
        if (round == 0) mapped = arena_now().mapped;
        for (int i = 0; i < COUNT; i += 2) blob_release(blobs[i]);
    }
    assert_in_range(arena_now().mapped, 0, mapped);
    assert_int_equal(arena_now().deferred - deferred, COUNT / 2);
    assert_int_equal(write(release[1], &byte, 1), 1);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    value_arena_defer_free(false);
    assert_int_equal(arena_now().deferred, 0);
    assert_false(blob_is_shared(blobs[1]));
    for (int i = 1; i < COUNT; i += 2) blob_release(blobs[i]);
    assert_in_range(arena_now().used, 0, used);
    close(release[0]);
    close(release[1]);
}

/* A second child protects the blocks that were taken since the first fork, and all stay protected until both ended. */
VALUE_TEST(blocks_are_protected_until_the_last_of_several_children_has_ended) {
    size_t deferred = arena_now().deferred;
    struct blob *old = blob_new(5000, 0);
    value_arena_defer_free(true);
    struct blob *between[2] = {blob_new(5000, 0), blob_new(200000, 0)};
    assert_true(blob_is_shared(old));
    for (int i = 0; i < 2; i++) assert_false(blob_is_shared(between[i]));
    value_arena_defer_free(true);
    struct blob *late = blob_new(5000, 0);
    assert_false(blob_is_shared(late));
    assert_true(blob_is_shared(old));
    for (int i = 0; i < 2; i++) assert_true(blob_is_shared(between[i]));
    value_arena_defer_free(false);
    assert_true(blob_is_shared(old));
    for (int i = 0; i < 2; i++) {
        assert_true(blob_is_shared(between[i]));
        blob_release(between[i]);
    }
    assert_int_equal(arena_now().deferred - deferred, 2);
    value_arena_defer_free(false);
    assert_int_equal(arena_now().deferred, deferred);
    assert_false(blob_is_shared(old));
    value_arena_defer_free(false); /* without a child: changes nothing */
    blob_release(old);
    blob_release(late);
}

/* A thread that allocates and frees small blocks in turn does not take the lock of the arena. */
VALUE_TEST(a_thread_that_reuses_its_blocks_takes_no_lock) {
    struct blob *kept = blob_new(8000, 0);
    blob_release(blob_new(8000, 0));
    size_t locked = arena_now().locked;
    for (int i = 0; i < 10000; i++) {
        struct blob *blob = blob_new(8000, 0);
        assert_true(blob->large);
        blob_release(kept);
        kept = blob;
    }
    assert_int_equal(arena_now().locked, locked);
    blob_release(kept);
}

/* The same with other threads, for all sizes that a thread caches. The threads wait at the barrier when each has its
 * blocks, when the main thread has read the count, when they are done, and when the main thread has read the count
 * again. */
enum { REUSING_THREADS = 3 };
static pthread_barrier_t reusing;
static void reuse_blocks(int rounds) {
    static const size_t sizes[] = {2048, 5000, 16384, 40000, 65536};
    for (int round = 0; round < rounds; round++) {
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            size_t usable;
            void *blocks[2] = {value_arena_take(sizes[i], &usable), value_arena_take(sizes[i], &usable)};
            for (int k = 0; k < 2; k++)
                if (blocks[k]) value_arena_give(blocks[k]);
        }
    }
}
static void *reuse_in_thread(void *unused) {
    reuse_blocks(1);
    pthread_barrier_wait(&reusing);
    pthread_barrier_wait(&reusing);
    reuse_blocks(1000);
    pthread_barrier_wait(&reusing);
    pthread_barrier_wait(&reusing);
    return unused;
}
VALUE_TEST(threads_that_reuse_blocks_of_2_to_64_kib_take_no_lock) {
    pthread_t threads[REUSING_THREADS];
    assert_int_equal(pthread_barrier_init(&reusing, NULL, REUSING_THREADS + 1), 0);
    for (int i = 0; i < REUSING_THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, reuse_in_thread, NULL), 0);
    pthread_barrier_wait(&reusing);
    size_t begin = arena_now().locked;
    pthread_barrier_wait(&reusing);
    pthread_barrier_wait(&reusing);
    size_t end = arena_now().locked;
    pthread_barrier_wait(&reusing);
    for (int i = 0; i < REUSING_THREADS; i++) pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&reusing);
    assert_int_equal(end, begin);
    assert_in_range(begin, 1, SIZE_MAX); /* the first blocks of a thread come from the arena */
}

/* Sends a value until it goes without a copy. */
static void send_until_registered(void) {
    struct blob *blob = blob_new(40 << 20, 0); /* in its own region */
    memset(blob->data, 'r', blob->len);
    uint64_t sends = rdma_stats()->zero_copies, total = 0;
    for (uint64_t end = clock_monotonic_us() + 60000000; rdma_stats()->zero_copies == sends;) {
        struct blob *part = blob_hold(blob);
        output_write_blob(&server.conn->out, part);
        blob_release(part);
        conn_flush(server.conn);
        total += blob->len;
        turn_until(client.conn->bytes_in == total);
        assert_true(clock_monotonic_us() < end);
    }
    blob_release(blob);
}

/* The background thread registers; until it has, values are copied. */
VALUE_TEST(regions_are_registered_in_the_background) {
    assert_int_equal(background_start(NULL), 0);
    open_both();
    send_until_registered();
    background_stop();
}

static void wait_for_end(void *arg) {
    char byte;
    assert_int_equal(read(((int *)arg)[0], &byte, 1), 1);
}
VALUE_TEST(a_registration_does_not_wait_for_objects_that_are_being_freed) {
    int end[2];
    assert_int_equal(pipe(end), 0);
    assert_int_equal(background_start(NULL), 0);
    open_both();
    background_submit(BACKGROUND_LAZY_FREE, wait_for_end, end);
    send_until_registered();
    assert_in_range(background_pending(BACKGROUND_LAZY_FREE), 1, SIZE_MAX); /* on a slow machine also the arena's */
    assert_int_equal(write(end[1], "", 1), 1);
    background_stop();
    close(end[0]);
    close(end[1]);
}

/* Each takes milliseconds, and other clients wait meanwhile. */
VALUE_TEST(empty_regions_go_one_at_a_time) {
    enum { COUNT = 4 };
    struct blob *blobs[COUNT];
    uint32_t key;
    open_both();
    struct rdma_values *values = &rdma_of(client.conn)->qp.device->values;
    for (int i = 0; i < COUNT; i++) {
        blobs[i] = blob_new(40 << 20, 0); /* in its own region */
        assert_true(rdma_values_key(values, blobs[i]->data, &key));
    }
    for (int i = 0; i < COUNT; i++) blob_release(blobs[i]);
    value_arena_trim(); /* from now on they are surplus */
    uint64_t regions = rdma_stats()->value_regions;
    for (uint64_t i = 1; i < COUNT; i++) {
        assert_true(rdma_values_tidy(values, 0));
        assert_int_equal(rdma_stats()->value_regions, regions - i);
    }
    while (rdma_values_tidy(values, 0)) continue;
    assert_in_range(rdma_stats()->value_regions, 0, regions - COUNT);
}

int main(int argc, char **argv) {
    if (!rdma_device_arranged(argv[0])) return 1;
    if (ibv_is_fork_initialized() != IBV_FORK_UNNEEDED) return 0; /* not used on such a kernel */
    return RUN_TESTS_WITH(use_rdma, NULL);
}
#endif
