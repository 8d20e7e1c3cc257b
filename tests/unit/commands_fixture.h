/* commands_fixture.h: for tests of commands/: a keyspace, a client without a connection, and listeners that record
 * propagation and notifications.
 *
 * A test writes a command as on a command line and compares the bytes of the reply. Time is frozen at NOW until a test
 * changes it. */
#pragma once
#include "unit.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands/commands.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "resp/request.h"
#include "server/clients/client.h"
#include "server/command/propagate.h"
#include "server/notify.h"
#include "server/register_features.h"
#include "server/server.h"
#include "server/store_events.h"

#define NOW         INT64_C(1700000000000)
#define WRONGTYPE   "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
#define NOT_INTEGER "-ERR value is not an integer or out of range\r\n"
#define SYNTAX      "-ERR syntax error\r\n"
#define NIL         "$-1\r\n"
#define OK          "+OK\r\n"

/* For tests that compare mem_used() exactly. The size of glibc's blocks does not depend on the requested size alone: a
 * block includes the rest of a free chunk that is too small to be split off. jemalloc has size classes, and blocks of
 * the sanitizers' allocators have the requested size. */
static inline void skip_if_block_sizes_vary(void) {
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    if (strcmp(mem_allocator(), "libc") == 0) {
        print_message("glibc's block sizes vary: exact comparisons of used memory need jemalloc\n");
        skip();
    }
#endif
}

static struct client *client;
static struct memory_output reply_memory, propagated_memory, events_memory;
static uint64_t dirty_before;

static void say(struct memory_output *memory, struct slice text) {
    output_write(&memory->out, text);
}
static const char *heard(struct memory_output *memory) {
    *output_reserve(&memory->out, 1) = '\0';
    return memory->data;
}

/* Records one line per command, with "db:" in front if the database is not 0. */
static void propagation_heard(struct propagation_listener *self, const struct propagation *propagation) {
    char text[32];
    int db = propagation->db, argc = propagation->argc;
    const struct slice *argv = propagation->argv;
    if (db) say(&propagated_memory, (struct slice){text, (size_t)snprintf(text, sizeof text, "%d:", db)});
    for (int i = 0; i < argc; i++) {
        if (i) say(&propagated_memory, SLICE(" "));
        say(&propagated_memory, argv[i]);
    }
    say(&propagated_memory, SLICE("\n"));
}

/* Records "event(key) ", with "db:" in front if the database is not 0. */
static void event_heard(struct notify_listener *self, struct db *db, enum notify_class class, const char *event,
                        struct slice key) {
    char text[32];
    if (db_id(db)) say(&events_memory, (struct slice){text, (size_t)snprintf(text, sizeof text, "%d:", db_id(db))});
    say(&events_memory, slice_of(event));
    say(&events_memory, SLICE("("));
    say(&events_memory, key);
    say(&events_memory, SLICE(") "));
}

static struct propagation_listener listener = {.command = propagation_heard};
static struct notify_listener event_listener = {.classes = ~0u, .event = event_heard};

static void key_expired(struct db *db, struct slice key) {
    notify(db, NOTIFY_EXPIRED, "expired", key);
}

static void time_set(int64_t ms) {
    clock_cache.data_ms = clock_cache.wall_ms = ms;
    clock_cache.wall_us = ms * 1000;
}

/* So that leak checkers see nothing. */
static void fixture_end(void) {
    memory_output_free(&reply_memory);
    memory_output_free(&propagated_memory);
    memory_output_free(&events_memory);
}

static int fixture_setup(void **state) {
    static bool registered;
    if (!registered) {
        static const struct feature *const features[] = {&data_feature, NULL};
        features_register(features);
        memory_output_init(&reply_memory);
        memory_output_init(&propagated_memory);
        memory_output_init(&events_memory);
        atexit(fixture_end);
        registered = true;
    }
    if (!clock_cache.frozen) clock_freeze();
    time_set(NOW);
    server.keyspace =
        keyspace_new(16, &(struct store_hooks){.expired = key_expired, .fields_expired = store_events.fields_expired});
    client = client_new(NULL);
    client->reply.out = &reply_memory.out;
    propagate_listen(&listener);
    notify_listen(&event_listener);
    return 0;
}

static int fixture_teardown(void **state) {
    propagate_unlisten(&listener);
    notify_unlisten(&event_listener);
    client_free(client);
    keyspace_free(server.keyspace);
    server.keyspace = NULL;
    return 0;
}

/* Returns the reply's bytes, valid until the next call. */
static const char *run_words(int argc, const struct slice *argv) {
    memory_output_clear(&reply_memory);
    memory_output_clear(&propagated_memory);
    memory_output_clear(&events_memory);
    client->reply.out = &reply_memory.out;
    dirty_before = server.dirty;
    client_execute(client, argc, argv);
    return heard(&reply_memory);
}
static const char *run(const char *line) {
    struct slice *words;
    int count = words_split(slice_of(line), &words);
    assert_true(count > 0);
    const char *reply = run_words(count, words);
    words_free(words, count);
    return reply;
}

/* After a run: its changes, propagation and notifications. */
static inline void assert_dirty(uint64_t changes) {
    assert_int_equal(server.dirty - dirty_before, changes);
}
static inline void assert_propagated(const char *lines) {
    assert_string_equal(heard(&propagated_memory), lines);
}
static inline void assert_events(const char *events) {
    assert_string_equal(heard(&events_memory), events);
}
#define replies(line, bytes) assert_string_equal(run(line), bytes)
/* All of them in one call. */
#define does(line, bytes, changes, lines, events)                                                                      \
    do {                                                                                                               \
        replies(line, bytes);                                                                                          \
        assert_dirty(changes);                                                                                         \
        assert_propagated(lines);                                                                                      \
        assert_events(events);                                                                                         \
    } while (0)
#define unchanged(line, bytes) does(line, bytes, 0, "", "")

#define FIXTURE_TEST(name) TEST_WITH(name, fixture_setup, fixture_teardown)
