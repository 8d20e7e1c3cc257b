/* The arena of a full synchronization that replicas fetch: bytes arrive in order and unchanged, the writer waits
 * for released chunks and is woken by them, and the end of a snapshot is known only when it is complete. */
#include "unit.h"
#include <stdlib.h>

#include "lib/hash/crc32c.h"
#include "repl/pull/arena.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>

enum { PATIENCE_MS = 60000, PIECE_MAX = 300000 };

static char byte_at(uint64_t offset) {
    return (char)(offset * 2654435761u >> 13);
}

static bool writer_goes_on(void *context) {
    return true;
}
static uint64_t writer_turn;
static uint64_t writer_keys(void *context) {
    return writer_turn;
}
static const struct pull_writer writer = {.goes_on = writer_goes_on, .keys = writer_keys};

/* The writer's thread: writes `total` bytes in pieces of changing size. */
static struct writing {
    pthread_t thread;
    struct pull_arena *arena;
    uint64_t total;
    bool finishes;
} writing;
static void *write_all(void *context) {
    const struct writing *w = context;
    static char piece[PIECE_MAX];
    struct sink sink;
    pull_arena_sink(w->arena, &sink, &writer);
    for (uint64_t done = 0, turn = 1; done < w->total; turn++) {
        size_t len = (size_t)(turn * 7919 % PIECE_MAX) + 1;
        if (len > w->total - done) len = (size_t)(w->total - done);
        for (size_t i = 0; i < len; i++) piece[i] = byte_at(done + i);
        output_write(&sink.out, (struct slice){piece, len});
        done += len;
        writer_turn = turn;
    }
    int result = sink_flush(&sink);
    sink_free(&sink);
    if (w->finishes && pull_arena_finish(w->arena) < 0) result = -1;
    return (void *)(intptr_t)result;
}
static void start_writer(struct pull_arena *arena, uint64_t total, bool finishes) {
    writing = (struct writing){.arena = arena, .total = total, .finishes = finishes};
    assert_int_equal(pthread_create(&writing.thread, NULL, write_all, &writing), 0);
}
static void wait_writer(void) {
    void *result;
    assert_int_equal(pthread_join(writing.thread, &result), 0);
    assert_null(result);
}
static void wait_event(struct pull_arena *arena) {
    struct pollfd event = {.fd = pull_arena_fd(arena), .events = POLLIN};
    assert_int_equal(poll(&event, 1, PATIENCE_MS), 1);
}
static struct pull_seal *seal; /* NULL: the chunks are not encrypted */

/* Checks chunk `number` and returns the length of its text. */
static uint32_t check_chunk(struct pull_arena *arena, uint64_t number, uint64_t offset) {
    static char text[PULL_CHUNK_SIZE];
    struct pull_chunk chunk;
    assert_true(pull_arena_chunk(arena, number, &chunk));
    assert_int_equal(chunk.checksum, crc32c(0, chunk.bytes, chunk.length));
    memcpy(text, chunk.bytes, chunk.length);
    uint32_t length = chunk.length;
    if (seal) {
        assert_true(pull_seal_open(seal, number, text, length));
        length -= PULL_TAG_SIZE;
    }
    for (uint32_t i = 0; i < length; i++) assert_int_equal(text[i], byte_at(offset + i));
    return length;
}

/* Reads a whole snapshot, each chunk as soon as it is published. */
static void transfer_by(const struct pull_key *key, uint64_t total) {
    uint64_t capacity = PULL_CHUNK_SIZE - (key ? PULL_TAG_SIZE : 0);
    struct pull_arena *arena = pull_arena_new(PULL_SLOTS_MIN * PULL_CHUNK_SIZE, key);
    assert_non_null(arena);
    start_writer(arena, total, true);
    uint64_t offset = 0, number = 0;
    for (;;) {
        bool complete = pull_arena_complete(arena);
        uint64_t published = pull_arena_published(arena);
        for (; number < published; number++) {
            offset += check_chunk(arena, number, offset);
            pull_arena_release(arena, number + 1);
        }
        if (complete) break;
        wait_event(arena);
    }
    assert_int_equal(offset, total);
    assert_int_equal(number, (total + capacity - 1) / capacity);
    wait_writer();
    pull_arena_free(arena);
}
static void transfer(uint64_t total) {
    transfer_by(NULL, total);
}
TEST(a_snapshot_arrives_unchanged_through_fewer_slots_than_chunks) {
    transfer(23 * (uint64_t)PULL_CHUNK_SIZE + 12345);
}
TEST(a_snapshot_may_end_with_a_chunk_or_be_empty) {
    transfer(2 * (uint64_t)PULL_CHUNK_SIZE);
    transfer(1);
    transfer(0);
}

#ifdef USE_TLS
TEST(an_encrypted_snapshot_arrives_unchanged) {
    struct pull_key key;
    assert_true(pull_key_new(&key));
    seal = pull_seal_new(&key);
    assert_non_null(seal);
    transfer_by(&key, 9 * (uint64_t)PULL_CHUNK_SIZE + 12345);
    transfer_by(&key, 2 * (uint64_t)(PULL_CHUNK_SIZE - PULL_TAG_SIZE));
    transfer_by(&key, 1);
    transfer_by(&key, 0);
    pull_seal_free(seal);
    seal = NULL;
}

/* The chunks, as they lie in the memory that peers can read. */
TEST(an_encrypted_snapshot_has_no_clear_text_in_shared_memory) {
    enum { LEN = 3 * PULL_CHUNK_SIZE / 2, PIECE = 16 };
    struct pull_key key;
    char piece[PIECE];
    assert_true(pull_key_new(&key));
    struct pull_arena *arena = pull_arena_new(PULL_SLOTS_MIN * PULL_CHUNK_SIZE, &key);
    assert_non_null(arena);
    start_writer(arena, LEN, false);
    wait_writer(); /* the second chunk is not full and not published */
    assert_int_equal(pull_arena_published(arena), 1);
    size_t size;
    const char *memory = pull_arena_memory(arena, &size);
    for (uint64_t at = 0; at < LEN - PIECE; at += 100000) {
        for (size_t i = 0; i < PIECE; i++) piece[i] = byte_at(at + i);
        assert_null(memmem(memory, size, piece, PIECE));
    }
    for (size_t i = PULL_CHUNK_SIZE; i < size; i++) assert_int_equal(memory[i], 0);
    pull_arena_free(arena);
}

TEST(a_changed_chunk_or_another_one_does_not_open) {
    enum { LEN = 100 };
    struct pull_key key, other;
    char text[LEN], sealed[LEN + PULL_TAG_SIZE], copy[sizeof sealed];
    for (int i = 0; i < LEN; i++) text[i] = byte_at((uint64_t)i);
    assert_true(pull_key_new(&key) && pull_key_new(&other));
    assert_memory_not_equal(&key, &other, sizeof key);
    struct pull_seal *writer_seal = pull_seal_new(&key), *reader = pull_seal_new(&key),
                     *foreign = pull_seal_new(&other);
    for (uint64_t number = 0; number < 300; number += 299) {
        assert_true(pull_seal_close(writer_seal, number, text, LEN, sealed));
        for (size_t i = 0; i < sizeof sealed; i++) {
            memcpy(copy, sealed, sizeof copy);
            copy[i] ^= 1;
            assert_false(pull_seal_open(reader, number, copy, sizeof copy));
        }
        for (size_t len = 0; len < sizeof sealed; len++) {
            memcpy(copy, sealed, sizeof copy);
            assert_false(pull_seal_open(reader, number, copy, len));
        }
        memcpy(copy, sealed, sizeof copy);
        assert_false(pull_seal_open(reader, number + 1, copy, sizeof copy));
        memcpy(copy, sealed, sizeof copy);
        assert_false(pull_seal_open(foreign, number, copy, sizeof copy));
        memcpy(copy, sealed, sizeof copy);
        assert_true(pull_seal_open(reader, number, copy, sizeof copy));
        assert_memory_equal(copy, text, LEN);
    }
    pull_seal_free(writer_seal);
    pull_seal_free(reader);
    pull_seal_free(foreign);
}
#endif

TEST(the_writer_waits_while_no_chunk_is_released) {
    struct pull_arena *arena = pull_arena_new(PULL_SLOTS_MIN * PULL_CHUNK_SIZE, NULL);
    assert_non_null(arena);
    uint64_t total = (PULL_SLOTS_MIN + 1) * (uint64_t)PULL_CHUNK_SIZE;
    start_writer(arena, total, true);
    while (pull_arena_published(arena) < PULL_SLOTS_MIN) wait_event(arena);
    /* All slots are filled, and no more can be published; the first chunks stay as they are. */
    assert_int_equal(pull_arena_published(arena), PULL_SLOTS_MIN);
    assert_false(pull_arena_complete(arena));
    uint64_t offset = 0;
    for (uint64_t number = 0; number < PULL_SLOTS_MIN; number++) offset += check_chunk(arena, number, offset);
    pull_arena_release(arena, 1);
    while (!pull_arena_complete(arena)) wait_event(arena), (void)pull_arena_published(arena);
    assert_int_equal(pull_arena_published(arena), PULL_SLOTS_MIN + 1);
    offset += check_chunk(arena, PULL_SLOTS_MIN, offset);
    assert_int_equal(offset, total);
    wait_writer();
    pull_arena_free(arena);
}

/* A thread, which is stopped while it waits for a slot, and one that waits only afterwards. */
static void *write_too_much(void *context) {
    static char piece[PIECE_MAX];
    struct pull_arena *arena = context;
    struct sink sink;
    pull_arena_sink(arena, &sink, &writer);
    while (!sink_error(&sink)) output_write(&sink.out, (struct slice){piece, sizeof piece});
    int error = sink_error(&sink);
    sink_free(&sink);
    return (void *)(intptr_t)error;
}
TEST(a_thread_that_waits_for_a_slot_ends_when_it_is_stopped) {
    for (int stops_first = 0; stops_first < 2; stops_first++) {
        pthread_t thread;
        void *error;
        struct pull_arena *arena = pull_arena_new(PULL_SLOTS_MIN * PULL_CHUNK_SIZE, NULL);
        assert_non_null(arena);
        if (stops_first) pull_arena_stop(arena);
        assert_int_equal(pthread_create(&thread, NULL, write_too_much, arena), 0);
        while (!stops_first && pull_arena_published(arena) < PULL_SLOTS_MIN) wait_event(arena);
        if (!stops_first) pull_arena_stop(arena);
        assert_int_equal(pthread_join(thread, &error), 0);
        assert_int_equal((intptr_t)error, -ECANCELED);
        assert_int_equal(pull_arena_published(arena), PULL_SLOTS_MIN);
        assert_false(pull_arena_complete(arena));
        pull_arena_free(arena);
    }
}

static bool writer_gives_up(void *context) {
    return false;
}
TEST(a_writer_that_need_not_go_on_stops_waiting) {
    static const struct pull_writer impatient = {.goes_on = writer_gives_up, .keys = writer_keys};
    struct pull_arena *arena = pull_arena_new(PULL_SLOTS_MIN * PULL_CHUNK_SIZE, NULL);
    assert_non_null(arena);
    size_t size;
    for (int i = 0; i < PULL_SLOTS_MIN; i++) {
        assert_non_null(pull_arena_begin(arena, &impatient, &size));
        assert_int_equal(pull_arena_publish(arena, size), 0);
    }
    assert_null(pull_arena_begin(arena, &impatient, &size));
    pull_arena_free(arena);
}

TEST(a_snapshot_without_its_end_is_not_complete) {
    struct pull_arena *arena = pull_arena_new(PULL_SLOTS_MIN * PULL_CHUNK_SIZE, NULL);
    assert_non_null(arena);
    start_writer(arena, PULL_CHUNK_SIZE + 1, false);
    wait_writer();
    assert_int_equal(pull_arena_published(arena), 1);
    assert_false(pull_arena_complete(arena));
    pull_arena_free(arena);
}

TEST(the_memory_asked_for_bounds_the_chunks) {
    static const struct {
        size_t memory;
        uint64_t slots;
    } cases[] = {{0, PULL_SLOTS_MIN}, {9 * PULL_CHUNK_SIZE + 5, 9}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct pull_arena *arena = pull_arena_new(cases[i].memory, NULL);
        assert_non_null(arena);
        size_t size;
        assert_non_null(pull_arena_memory(arena, &size));
        assert_int_equal(pull_arena_slots(arena), cases[i].slots);
        assert_int_equal(size, cases[i].slots * PULL_CHUNK_SIZE);
        pull_arena_free(arena);
    }
    pull_arena_free(NULL);
}
