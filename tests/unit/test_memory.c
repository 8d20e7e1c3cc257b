/* Counting of allocations across threads; blobs; outputs; lists. */
#include "unit.h"
#include "lib/structures/linked_list.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "lib/text/blob.h"
#include "lib/text/output.h"
#include <pthread.h>
#include <stdio.h>

TEST(every_byte_is_counted_and_given_back) {
    void *blocks[100];
    size_t start = mem_used(), sum = 0, usable;
    for (size_t i = 0; i < 100; i++) {
        blocks[i] = i % 3 ? mem_alloc(i * i * 7) : mem_calloc(i, 13);
        sum += mem_size(blocks[i]);
        assert_true(mem_size(blocks[i]) >= (i % 3 ? i * i * 7 : i * 13));
    }
    assert_int_equal(mem_used() - start, sum);
    for (size_t i = 0; i < 100; i++) {
        blocks[i] = mem_realloc_usable(blocks[i], 1 + i * 100, &usable);
        assert_true(usable >= 1 + i * 100);
        memset(blocks[i], 1, usable);
    }
    for (size_t i = 0; i < 100; i++) mem_free(blocks[i]);
    mem_free(NULL);
    char *copy = mem_strdup("text"), *part = mem_strndup("text", 2);
    assert_string_equal(copy, "text");
    assert_string_equal(part, "te");
    mem_free(copy);
    assert_null(mem_realloc(part, 0));
    assert_int_equal(mem_size(NULL), 0);
    assert_int_equal(mem_used(), start);
}

TEST(absurd_sizes_are_refused_by_the_trying_functions) {
    size_t start = mem_used();
    void *block = mem_alloc(10);
    size_t sizes[] = {SIZE_MAX, SIZE_MAX - 4096, SIZE_MAX / 2, SIZE_MAX / 4, (size_t)1 << 60, (size_t)1 << 50};
    for (size_t i = 0; i < 6; i++) {
        assert_null(mem_try_alloc(sizes[i]));
        assert_null(mem_try_realloc(block, sizes[i]));
        assert_null(mem_try_calloc(1, sizes[i]));
        assert_null(blob_try_new(sizes[i]));
    }
    assert_null(mem_try_calloc(SIZE_MAX / 2, 4));
    assert_null(mem_try_calloc((size_t)1 << 33, (size_t)1 << 33));
    block = mem_try_realloc(block, 100);
    assert_non_null(block);
    mem_free(block);
    block = mem_try_realloc(NULL, 100);
    assert_non_null(block);
    mem_free(block);
    assert_int_equal(mem_used(), start);
}

enum { THREADS = 4, SHARED = 2000 };
static void *shared_blocks[THREADS][SHARED];
static void *fill(void *arg) {
    void **blocks = arg;
    for (int i = 0; i < SHARED; i++) blocks[i] = mem_alloc(1 + (size_t)random_below(500));
    return NULL;
}
static void *drain(void *arg) {
    void **blocks = arg;
    for (int i = 0; i < SHARED; i++) mem_free(blocks[i]);
    return NULL;
}
TEST(blocks_may_be_freed_by_other_threads_and_threads_may_end) {
    pthread_t threads[THREADS];
    size_t start = mem_used();
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, fill, shared_blocks[i]);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        assert_true(mem_used() > start + THREADS * SHARED * 100);
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, drain, shared_blocks[(i + 1) % THREADS]);
        for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
        assert_int_equal(mem_used(), start);
    }
}

TEST(figures_of_allocator_and_kernel_are_there) {
    struct mem_stats stats;
    mem_purge();
    mem_read_stats(&stats);
    assert_true(stats.rss > 100000);
    assert_true(stats.total_system > stats.rss);
#ifdef USE_JEMALLOC
    assert_true(stats.allocated > 0 && stats.active >= stats.allocated && stats.resident > 0);
    assert_int_equal(strncmp(mem_allocator(), "jemalloc-", 9), 0);
#else
    assert_string_equal(mem_allocator(), "libc");
#endif
}

TEST(a_blob_is_freed_with_its_last_reference) {
    size_t start = mem_used();
    struct blob *blob = blob_copy(SLICE("hello"));
    assert_true(slice_equal(blob_slice(blob), SLICE("hello")));
    assert_false(blob_is_shared(blob));
    assert_ptr_equal(blob_hold(blob), blob);
    assert_true(blob_is_shared(blob));
    blob_release(blob);
    assert_false(blob_is_shared(blob));
    blob->data[blob->capacity] = '\0'; /* the spare byte */
    blob_release(blob);
    assert_int_equal(mem_used(), start);
}

TEST(a_blob_grows_without_losing_bytes) {
    struct blob *blob = blob_copy(SLICE("abc"));
    size_t moves = 0, capacity = blob->capacity;
    for (size_t len = 3; len < 3000000; len += 1000) {
        blob = blob_grow(blob, len + 1);
        assert_true(blob->capacity > len);
        blob->data[len] = 'x';
        blob->len = len + 1;
        moves += blob->capacity != capacity;
        capacity = blob->capacity;
    }
    assert_memory_equal(blob->data, "abcx", 4);
    assert_in_range(moves, 5, 40);
    blob_release(blob);
    blob = blob_try_new(1000);
    assert_int_equal(blob->len, 1000);
    assert_true(blob->capacity >= 1000);
    blob_release(blob);
}

TEST(memory_output_keeps_everything_in_order) {
    struct memory_output m;
    memory_output_init(&m);
    assert_int_equal(memory_output_slice(&m).len, 0);
    output_write(&m.out, (struct slice){NULL, 0});
    size_t total = 0;
    static char expected[200000];
    random_seed(5);
    for (int i = 0; i < 200; i++) {
        char piece[1500];
        size_t len = random_below(sizeof(piece));
        memset(piece, 'a' + i % 26, len);
        memcpy(expected + total, piece, len);
        if (i % 2) {
            output_write(&m.out, (struct slice){piece, len});
        } else {
            memcpy(output_reserve(&m.out, len), piece, len);
            output_commit(&m.out, len);
        }
        total += len;
    }
    assert_int_equal(memory_output_slice(&m).len, total);
    assert_memory_equal(memory_output_slice(&m).data, expected, total);
    size_t capacity = m.capacity;
    memory_output_clear(&m);
    assert_int_equal(memory_output_slice(&m).len, 0);
    assert_int_equal(m.capacity, capacity);
    struct blob *blob = blob_new(100000, 100000);
    memset(blob->data, 'z', 100000);
    output_write_blob(&m.out, blob);
    assert_int_equal(memory_output_slice(&m).len, 100000);
    assert_false(blob_is_shared(blob));
    blob_release(blob);
    memory_output_free(&m);
}

static struct blob *taken;
static void take(struct output *out, struct blob *blob) {
    taken = blob;
}
static void no_space(struct output *out, size_t len) {
    fail();
}
TEST(large_blobs_are_shared_and_small_ones_copied) {
    static const struct output_ops ops = {.make_space = no_space, .share = take, .share_min = OUTPUT_SHARE_MIN};
    char buffer[100];
    struct output out = {.pos = buffer, .end = buffer + sizeof(buffer), .ops = &ops};
    struct blob *small = blob_copy(SLICE("small")), *large = blob_new(OUTPUT_SHARE_MIN, OUTPUT_SHARE_MIN);
    output_write_blob(&out, small);
    assert_null(taken);
    assert_memory_equal(buffer, "small", 5);
    output_write_blob(&out, large);
    assert_ptr_equal(taken, large);
    assert_true(blob_is_shared(large));
    blob_release(taken);
    blob_release(large);
    blob_release(small);
}

TEST(null_output_takes_anything) {
    struct null_output n;
    null_output_init(&n);
    struct blob *blob = blob_new(100000, 100000);
    memset(blob->data, 0, 100000);
    for (int i = 0; i < 10; i++) {
        output_write(&n.out, blob_slice(blob));
        output_reserve(&n.out, OUTPUT_RESERVE_MAX);
        output_commit(&n.out, OUTPUT_RESERVE_MAX);
        output_write_blob(&n.out, blob);
    }
    assert_false(blob_is_shared(blob));
    blob_release(blob);
}

struct element {
    int number;
    struct list_link link;
};
TEST(list_keeps_order_and_lets_elements_leave) {
    struct list list;
    struct element elements[10] = {0};
    list_init(&list);
    assert_null(list_first(&list));
    for (int i = 0; i < 10; i++) {
        elements[i].number = i;
        if (i < 5)
            list_append(&list, &elements[i].link);
        else
            list_prepend(&list, &elements[i].link);
    }
    static const int order[] = {9, 8, 7, 6, 5, 0, 1, 2, 3, 4};
    int at = 0;
    list_each(&list, link) {
        struct element *e = container_of(link, struct element, link);
        assert_int_equal(e->number, order[at++]);
        if (e->number % 2) list_remove(&list, link); /* during the iteration */
    }
    assert_int_equal(at, 10);
    assert_int_equal(list.len, 5);
    assert_false(list_is_linked(&elements[1].link));
    assert_true(list_is_linked(&elements[2].link));
    assert_ptr_equal(list_next(&list, &elements[8].link), &elements[6].link);
    assert_null(list_next(&list, &elements[4].link));
    list_insert_before(&list, &elements[4].link, &elements[1].link);
    assert_ptr_equal(list_next(&list, &elements[2].link), &elements[1].link);
}
