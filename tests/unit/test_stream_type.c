/* The stream type: entries against an array, consumer groups, and valid and corrupt payloads. */
#include "unit.h"
#include "formats/rdb_stream.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "store/stream_group.h"
#include "store/types.h"
#include <stdio.h>

static void limits(int64_t bytes, int64_t entries) {
    encoding_limits.stream_node_bytes = bytes;
    encoding_limits.stream_node_entries = entries;
}
static struct stream_id id_of(const char *text) {
    struct stream_id id;
    assert_true(stream_id_parse(slice_of(text), STREAM_ID_EDGES, 0, &id, NULL));
    return id;
}
static void assert_id(struct stream_id id, const char *text) {
    char is[STREAM_ID_TEXT + 1];
    is[stream_id_format(is, id)] = '\0';
    assert_string_equal(is, text);
}
static void add(struct stream *stream, const char *id, const char *field, const char *value) {
    struct slice texts[] = {slice_of(field), slice_of(value)};
    assert_true(stream_append(stream, id_of(id), texts, 1));
}

/* --- Ids --- */

TEST(ids_are_read_as_valkey_reads_them) {
    static const struct {
        const char *text, *is;
        unsigned syntax;
    } cases[] = {
        {"5-1", "5-1", 0},
        {"5", "5-77", 0},
        {"0-0", "0-0", 0},
        {" 5-1", "5-1", 0},
        {"+7-1", "7-1", 0},
        {"08-01", "8-1", 0},
        {"5- 3", "5-3", 0},
        {"18446744073709551615-18446744073709551615", "18446744073709551615-18446744073709551615", 0},
        {"18446744073709551616-1", NULL, 0},
        {"1-18446744073709551616", NULL, 0},
        {"-1", NULL, 0},
        {"1--1", NULL, 0},
        {"5-3 ", NULL, 0},
        {"9-", NULL, 0},
        {"1-2-3", NULL, 0},
        {"", NULL, 0},
        {"-", NULL, 0},
        {"+", NULL, 0},
        {"a", NULL, 0},
        {"-", "0-0", STREAM_ID_EDGES},
        {"+", "18446744073709551615-18446744073709551615", STREAM_ID_EDGES},
        {"5-*", NULL, 0},
        {"*", NULL, STREAM_ID_PARTIAL},
        {"5-**", NULL, STREAM_ID_PARTIAL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stream_id id;
        bool chosen = true;
        bool there = stream_id_parse(slice_of(cases[i].text), cases[i].syntax, 77, &id, &chosen);
        if (there != (cases[i].is != NULL)) fail_msg("'%s' is%s an id", cases[i].text, there ? "" : " not");
        assert_false(chosen);
        if (there) assert_id(id, cases[i].is);
    }
    struct stream_id id;
    bool chosen;
    assert_true(stream_id_parse(SLICE("5-*"), STREAM_ID_PARTIAL, 0, &id, &chosen));
    assert_true(chosen);
    assert_int_equal(id.ms, 5);
    char longest[129];
    memset(longest, '0', sizeof longest);
    assert_true(stream_id_parse(slice_make(longest, 127), 0, 0, &id, NULL));
    assert_false(stream_id_parse(slice_make(longest, 128), 0, 0, &id, NULL));
}

TEST(ids_have_neighbours) {
    struct stream_id id = {1, UINT64_MAX};
    assert_true(stream_id_increment(&id));
    assert_id(id, "2-0");
    assert_true(stream_id_decrement(&id));
    assert_id(id, "1-18446744073709551615");
    id = STREAM_ID_MAX;
    assert_false(stream_id_increment(&id));
    assert_id(id, "0-0");
    assert_false(stream_id_decrement(&id));
    assert_true(stream_id_equal(id, STREAM_ID_MAX));
    char a[STREAM_ID_BYTES], b[STREAM_ID_BYTES];
    stream_id_encode(a, id_of("255-1"));
    stream_id_encode(b, id_of("256-0"));
    assert_true(memcmp(a, b, sizeof a) < 0);
    assert_id(stream_id_decode(a), "255-1");
}

TEST(ids_of_new_entries_are_above_all_others) {
    struct stream *stream = stream_new();
    struct stream_id id;
    assert_true(stream_next_id(stream, STREAM_ID_CHOSEN, 1000, &id));
    assert_id(id, "1000-0");
    id = id_of("0-0");
    assert_false(stream_next_id(stream, STREAM_ID_GIVEN, 0, &id));
    assert_true(stream_next_id(stream, STREAM_ID_MS_GIVEN, 0, &id));
    assert_id(id, "0-1");
    add(stream, "1000-5", "f", "v");
    assert_true(stream_next_id(stream, STREAM_ID_CHOSEN, 1001, &id));
    assert_id(id, "1001-0");
    assert_true(stream_next_id(stream, STREAM_ID_CHOSEN, 900, &id)); /* the clock was set back */
    assert_id(id, "1000-6");
    id.ms = 999;
    assert_false(stream_next_id(stream, STREAM_ID_MS_GIVEN, 0, &id));
    id = id_of("1000-5");
    assert_false(stream_next_id(stream, STREAM_ID_GIVEN, 0, &id));
    stream->last_id = (struct stream_id){1000, UINT64_MAX};
    id.ms = 1000;
    assert_false(stream_next_id(stream, STREAM_ID_MS_GIVEN, 0, &id));
    assert_true(stream_next_id(stream, STREAM_ID_CHOSEN, 1000, &id));
    assert_id(id, "1001-0");
    stream->last_id = STREAM_ID_MAX;
    assert_false(stream_next_id(stream, STREAM_ID_CHOSEN, 1000, &id));
    stream_free(stream);
}

/* --- Against an array --- */

enum { MOST = 3000, PAIRS_MOST = 40 };
static const char *const words[] = {"", "a", "b", "field", "1234", "-7", "99999999999", "text \xff\x01"};
static char long_word[5000];

struct model {
    struct model_entry {
        struct stream_id id;
        size_t pairs;
        struct slice texts[PAIRS_MOST * 2];
    } entries[MOST];
    size_t count;
};

static struct slice some_word(void) {
    if (random_below(30) == 0) return slice_make(long_word, random_below(sizeof long_word));
    return slice_of(words[random_below(sizeof words / sizeof *words)]);
}
static void append_some(struct model *m, struct stream *stream) {
    struct model_entry *e = &m->entries[m->count];
    if (m->count == MOST) return;
    e->id = (struct stream_id){.ms = stream->last_id.ms};
    enum stream_id_form form = random_below(3) ? STREAM_ID_MS_GIVEN : STREAM_ID_CHOSEN;
    if (random_below(3) == 0) e->id.ms += random_below(1000);
    assert_true(stream_next_id(stream, form, (int64_t)(stream->last_id.ms + random_below(2)), &e->id));
    e->pairs = random_below(4) ? 1 : 1 + random_below(random_below(10) ? 3 : PAIRS_MOST);
    for (size_t i = 0; i < e->pairs * 2; i++) e->texts[i] = random_below(2) || i % 2 ? some_word() : SLICE("a");
    assert_true(stream_append(stream, e->id, e->texts, e->pairs));
    m->count++;
}
static void model_remove(struct model *m, size_t at, size_t count) {
    memmove(m->entries + at, m->entries + at + count, (m->count - at - count) * sizeof *m->entries);
    m->count -= count;
}
static void delete_some(struct model *m, struct stream *stream) {
    struct stream_id id = {random_below(stream->last_id.ms + 1), random_below(4)};
    size_t at = m->count ? random_below(m->count) : 0;
    if (m->count && random_below(3)) id = m->entries[at].id;
    for (at = 0; at < m->count && !stream_id_equal(m->entries[at].id, id); at++) {
    }
    struct stream_id deleted = stream->max_deleted_id;
    assert_int_equal(stream_contains(stream, id), at < m->count);
    assert_int_equal(stream_delete(stream, id), at < m->count);
    assert_false(stream_delete(stream, id));
    if (at == m->count) return;
    assert_true(stream_id_equal(stream->max_deleted_id, stream_id_compare(id, deleted) > 0 ? id : deleted));
    model_remove(m, at, 1);
}
static void trim_some(struct model *m, struct stream *stream) {
    struct stream_trim trim = {.by = random_below(2) ? STREAM_TRIM_LENGTH : STREAM_TRIM_ID,
                               .approximate = random_below(2),
                               .length = random_below(m->count + 2)};
    size_t most = m->count > trim.length ? m->count - trim.length : 0;
    if (trim.approximate && random_below(2)) trim.limit = 1 + random_below(200);
    if (trim.by == STREAM_TRIM_ID) {
        trim.min = m->count ? m->entries[random_below(m->count)].id : STREAM_ID_MIN;
        for (most = 0; most < m->count && stream_id_compare(m->entries[most].id, trim.min) < 0; most++) {
        }
    }
    uint64_t removed = stream_trim(stream, &trim);
    assert_true(removed <= most && (!trim.limit || removed <= trim.limit));
    if (!trim.approximate) assert_int_equal(removed, most);
    model_remove(m, 0, removed);
}

static void assert_range(const struct model *m, const struct stream *stream, struct stream_id first,
                         struct stream_id last, bool down, bool read) {
    size_t from = 0, to = m->count;
    while (from < m->count && stream_id_compare(m->entries[from].id, first) < 0) from++;
    while (to && stream_id_compare(m->entries[to - 1].id, last) > 0) to--;
    size_t count = from < to ? to - from : 0, limit = random_below(300);
    assert_int_equal(stream_count(stream, first, last, 0), count);
    assert_int_equal(stream_count(stream, first, last, limit), limit && limit < count ? limit : count);
    struct stream_iterator it;
    struct stream_id id;
    size_t fields;
    stream_iterate(&it, stream, first, last, down);
    while (from < to) {
        const struct model_entry *e = down ? &m->entries[--to] : &m->entries[from++];
        assert_true(stream_next(&it, &id, &fields));
        assert_true(stream_id_equal(id, e->id));
        assert_int_equal(fields, e->pairs);
        size_t wanted = read ? fields : random_below(fields + 1);
        for (size_t i = 0; i < wanted; i++) {
            struct slice field, value;
            stream_field(&it, &field, &value);
            assert_true(slice_equal(field, e->texts[2 * i]) && slice_equal(value, e->texts[2 * i + 1]));
        }
    }
    assert_false(stream_next(&it, &id, &fields));
    assert_false(stream_next(&it, &id, &fields));
    stream_iterate_end(&it);
}
static void assert_same(const struct model *m, const struct stream *stream) {
    struct stream_id id;
    assert_int_equal(stream->length, m->count);
    assert_true(stream->entries_added >= m->count);
    assert_true(stream_id_equal(stream->first_id, m->count ? m->entries[0].id : STREAM_ID_MIN));
    assert_int_equal(stream_last_entry(stream, &id), m->count > 0);
    if (m->count) assert_true(stream_id_equal(id, m->entries[m->count - 1].id));
    if (!m->count) assert_int_equal(stream_node_count(stream), 0);
    for (int down = 0; down < 2; down++) assert_range(m, stream, STREAM_ID_MIN, STREAM_ID_MAX, down, true);
    for (int i = 0; i < 10; i++) {
        struct stream_id ends[2] = {STREAM_ID_MIN, STREAM_ID_MAX};
        for (int e = 0; e < 2; e++)
            if (m->count && random_below(4)) ends[e] = m->entries[random_below(m->count)].id;
        if (random_below(3) == 0) stream_id_increment(&ends[0]);
        if (random_below(3) == 0) stream_id_decrement(&ends[1]);
        assert_range(m, stream, ends[0], ends[1], i % 2, random_below(2));
    }
}

static struct stream *written_and_read(const struct stream *stream, struct memory_output *written) {
    memory_output_init(written);
    rdb_write_stream(&written->out, stream, true);
    struct slice bytes = memory_output_slice(written);
    struct source source;
    struct rdb_reader in;
    source_init_memory(&source, bytes);
    rdb_reader_init(&in, &source);
    struct stream *read = rdb_read_stream(&in, RDB_STREAM_3);
    assert_non_null(read);
    assert_true(source_at_end(&source));
    rdb_reader_free(&in);
    return read;
}
/* Serializes a stream and reads it back; the result can be changed further. */
static struct stream *exchanged(struct stream *stream) {
    struct memory_output once, twice;
    struct stream *read = written_and_read(stream, &once);
    stream_free(written_and_read(read, &twice));
    assert_true(slice_equal(memory_output_slice(&once), memory_output_slice(&twice)));
    memory_output_free(&once);
    memory_output_free(&twice);
    stream_free(stream);
    return read;
}

TEST(random_changes_do_what_an_array_does) {
    struct model *m = mem_alloc(sizeof *m);
    for (size_t i = 0; i < sizeof long_word; i++) long_word[i] = (char)('a' + i % 26);
    for (int round = 0; round < 60; round++) {
        static const int64_t bytes[] = {0, 1, 100, 500, 4096}, entries[] = {0, 1, 5, 100, 200};
        struct stream *stream = stream_new();
        m->count = 0;
        for (int step = 0; step < 12; step++) {
            limits(bytes[random_below(5)], entries[random_below(5)]);
            for (size_t i = random_below(150); i--;) {
                append_some(m, stream);
                if (random_below(8) == 0) delete_some(m, stream);
            }
            if (random_below(3) == 0) trim_some(m, stream);
            if (random_below(8) == 0)
                while (m->count) delete_some(m, stream);
            assert_same(m, stream);
            if (random_below(4) == 0) stream = exchanged(stream);
        }
        assert_same(m, stream);
        stream_free(stream);
    }
    mem_free(m);
}

/* --- Nodes and trimming --- */

static struct stream *numbered(int count) {
    struct stream *stream = stream_new();
    char id[16];
    for (int i = 1; i <= count; i++) {
        snprintf(id, sizeof id, "%d-0", i);
        add(stream, id, "a", id);
    }
    return stream;
}

TEST(nodes_end_where_those_of_valkey_do) {
    limits(0, 3);
    struct stream *stream = numbered(2);
    assert_int_equal(stream_tree_nodes(stream), 2);
    assert_true(stream_delete(stream, id_of("2-0")));
    add(stream, "3-0", "a", "b");
    assert_int_equal(stream_node_count(stream), 1);
    add(stream, "4-0", "a", "b"); /* the deleted entry still occupies a slot */
    assert_int_equal(stream_node_count(stream), 2);
    assert_int_equal(stream_tree_nodes(stream), 6);
    stream_free(stream);
    limits(64, 0);
    stream = stream_new();
    static const size_t counts[] = {1, 1, 2, 2, 3, 3};
    for (int i = 0; i < 6; i++) {
        char id[16];
        snprintf(id, sizeof id, "%d-0", i + 1);
        add(stream, id, "a", "0123456789");
        assert_int_equal(stream_node_count(stream), counts[i]);
    }
    stream_free(stream);
}

TEST(approximate_trimming_removes_whole_nodes) {
    limits(0, 10);
    struct stream *stream = numbered(100);
    struct stream_trim trim = {.by = STREAM_TRIM_LENGTH, .approximate = true, .length = 55, .limit = 25};
    assert_int_equal(stream_trim(stream, &trim), 20);
    trim.limit = 0;
    assert_int_equal(stream_trim(stream, &trim), 20);
    assert_int_equal(stream_trim(stream, &trim), 0);
    assert_id(stream->first_id, "41-0");
    trim = (struct stream_trim){.by = STREAM_TRIM_ID, .approximate = true, .min = id_of("59-0")};
    assert_int_equal(stream_trim(stream, &trim), 10);
    trim.approximate = false;
    assert_int_equal(stream_trim(stream, &trim), 8);
    assert_id(stream->first_id, "59-0");
    assert_true(stream_id_is_zero(stream->max_deleted_id));
    stream_free(stream);
}

TEST(a_node_is_freed_with_its_last_live_entry) {
    limits(0, 0);
    struct stream *stream = numbered(3);
    struct stream_trim trim = {.by = STREAM_TRIM_ID, .min = id_of("3-0")};
    assert_true(stream_delete(stream, id_of("3-0")));
    assert_int_equal(stream_trim(stream, &trim), 2);
    assert_int_equal(stream_node_count(stream), 0);
    add(stream, "4-0", "a", "b");
    assert_id(stream->first_id, "4-0");
    stream_free(stream);
}

TEST(ids_go_back_where_the_last_entries_were_deleted) {
    limits(0, 0);
    struct stream *stream = numbered(5);
    struct stream_id id;
    assert_true(stream_delete(stream, id_of("5-0")));
    assert_true(stream_last_entry(stream, &id));
    assert_id(id, "4-0");
    stream->last_id = id_of("4-0"); /* XSETID */
    add(stream, "4-7", "a", "b");
    add(stream, "5-0", "a", "b");
    assert_true(stream_contains(stream, id_of("4-7")) && stream_contains(stream, id_of("5-0")));
    stream = exchanged(stream);
    assert_int_equal(stream->length, 6);
    stream_free(stream);
}

/* --- Groups --- */

/* The replies of Valkey 9.1 for six entries, some of which were deleted or trimmed: the lag of groups at each id
 * without a known count, then with the count 2, then the counts of both from 0-0 on, after each read. '-': unknown. */
TEST(counts_and_lags_are_valkeys) {
    static const struct {
        const char *deleted;
        uint64_t keep;
        const char *unknown, *known, *counts;
    } cases[] = {
        {"", 9, "65----0-", "44444444", "1/1 2/2 3/3 4/4 5/5 6/6 "},
        {"1", 9, "554---0-", "55444444", "2/2 3/3 4/4 5/5 6/6 "},
        {"2", 9, "------0-", "---44444", "-/- -/- -/- -/- 6/6 "},
        {"3", 9, "------0-", "----4444", "-/- -/- -/- -/- 6/6 "},
        {"12", 9, "4-43--0-", "4-444444", "3/3 4/4 5/5 6/6 "},
        {"6", 9, "------0-", "------04", "-/- -/- -/- -/- -/- "},
        {"16", 9, "------0-", "------04", "-/- -/- -/- -/- "},
        {"123456", 9, "0000000-", "44444444", ""},
        {"", 3, "33332-0-", "44444444", "4/4 5/5 6/6 "},
        {"", 1, "1111110-", "44444444", "6/6 "},
        {"", 0, "0000000-", "44444444", ""},
        {"4", 2, "2---210-", "2---2444", "5/5 6/6 "},
    };
    static const char *const at[] = {"0", "1", "2", "3", "4", "5", "6", "9"};
    limits(0, 2);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stream *stream = numbered(6);
        for (const char *d = cases[i].deleted; *d; d++)
            assert_true(stream_delete(stream, (struct stream_id){(uint64_t)(*d - '0'), 0}));
        struct stream_trim trim = {.by = STREAM_TRIM_LENGTH, .length = cases[i].keep};
        stream_trim(stream, &trim);
        char lags[2][9] = {{0}}, counts[64] = "";
        for (int g = 0; g < 8; g++)
            for (int known = 0; known < 2; known++) {
                struct stream_group group = {.last_id = id_of(at[g]), .entries_read = known ? 2 : STREAM_READ_UNKNOWN};
                int64_t lag;
                lags[known][g] = stream_group_lag(stream, &group, &lag) ? (char)('0' + lag) : '-';
            }
        assert_string_equal(lags[0], cases[i].unknown);
        assert_string_equal(lags[1], cases[i].known);
        struct stream_group groups[2] = {{.entries_read = STREAM_READ_UNKNOWN}, {.entries_read = 2}};
        struct stream_iterator it;
        struct stream_id id;
        size_t fields;
        stream_iterate(&it, stream, STREAM_ID_MIN, STREAM_ID_MAX, false);
        while (stream_next(&it, &id, &fields)) {
            char *c = counts + strlen(counts);
            memcpy(c, "-/- ", 5);
            for (int known = 0; known < 2; known++) {
                stream_group_advance(stream, &groups[known], id);
                if (groups[known].entries_read >= 0) c[known * 2] = (char)('0' + groups[known].entries_read);
            }
        }
        stream_iterate_end(&it);
        assert_string_equal(counts, cases[i].counts);
        stream_free(stream);
    }
}

TEST(a_stream_that_was_never_used_has_no_lag) {
    struct stream *stream = stream_new();
    struct stream_group *group = stream_group_create(stream, SLICE("g"), id_of("9-0"), 2);
    int64_t lag;
    assert_true(stream_group_lag(stream, group, &lag));
    assert_int_equal(lag, 0);
    assert_int_equal(stream_entries_up_to(stream, id_of("9-0")), 0);
    stream_free(stream);
}

TEST(a_pending_entry_belongs_to_one_consumer) {
    struct stream *stream = numbered(6);
    assert_null(stream_group_find(stream, SLICE("g")));
    struct stream_group *group = stream_group_create(stream, SLICE("g"), STREAM_ID_MIN, STREAM_READ_UNKNOWN);
    assert_null(stream_group_create(stream, SLICE("g"), STREAM_ID_MIN, 0));
    assert_ptr_equal(stream_group_find(stream, SLICE("g")), group);
    struct stream_consumer *alice = stream_consumer_create(group, SLICE("alice"), 10);
    struct stream_consumer *bob = stream_consumer_create(group, SLICE("bob"), 11);
    assert_null(stream_consumer_create(group, SLICE("bob"), 12));
    assert_ptr_equal(stream_consumer_find(group, SLICE("alice")), alice);
    assert_int_equal(alice->active_ms, -1);
    for (uint64_t i = 1; i <= 4; i++) stream_deliver(group, alice, (struct stream_id){i, 0}, 100);
    struct stream_pending *third = stream_pending_find(group, id_of("3-0"));
    third->deliveries = 7;
    stream_pending_give(third, id_of("3-0"), bob);
    assert_int_equal(third->deliveries, 7);
    assert_int_equal(radix_tree_len(alice->pending), 3);
    assert_int_equal(radix_tree_len(bob->pending), 1);
    assert_ptr_equal(stream_deliver(group, alice, id_of("3-0"), 200), third); /* delivered again */
    assert_true(third->deliveries == 1 && third->delivered_ms == 200 && third->consumer == alice);
    assert_true(stream_acknowledge(group, id_of("3-0")));
    assert_false(stream_acknowledge(group, id_of("3-0")));
    stream_deliver(group, bob, id_of("5-0"), 300);
    assert_int_equal(stream_consumer_delete(group, alice), 3);
    assert_int_equal(radix_tree_len(group->pending), 1);
    assert_null(stream_consumer_find(group, SLICE("alice")));
    assert_true(stream_group_destroy(stream, SLICE("g")));
    assert_false(stream_group_destroy(stream, SLICE("g")));
    assert_int_equal(stream_group_count(stream), 0);
    stream_free(stream);
}

TEST(an_iteration_of_pending_entries_continues_after_a_change) {
    struct stream *stream = stream_new();
    struct stream_group *group = stream_group_create(stream, SLICE("g"), STREAM_ID_MIN, 0);
    struct stream_consumer *consumer = stream_consumer_create(group, SLICE("c"), 0);
    for (uint64_t i = 1; i <= 600; i++) stream_deliver(group, consumer, (struct stream_id){i, i}, 0);
    struct stream_pending_iterator it;
    uint64_t expected = 10;
    stream_pending_iterate(&it, group->pending, (struct stream_id){10, 0});
    for (struct stream_pending *pending; (pending = stream_pending_next(&it)); expected++) {
        assert_int_equal(it.id.ms, expected);
        assert_ptr_equal(pending->consumer, consumer);
        if (expected % 3) continue;
        assert_true(stream_acknowledge(group, it.id));
        stream_pending_resume(&it);
    }
    stream_pending_iterate_end(&it);
    assert_int_equal(expected, 601);
    assert_int_equal(radix_tree_len(consumer->pending), 600 - 197);
    stream_free(stream);
}

/* A stream with nodes of several kinds, deleted entries, groups, and consumers with and without pending entries. */
static struct stream *rich(void) {
    limits(0, 4);
    struct stream *stream = numbered(10);
    struct slice texts[] = {SLICE("a"), SLICE("x"), SLICE("other"), SLICE("12")};
    assert_true(stream_append(stream, id_of("11-0"), texts, 2));
    assert_true(stream_delete(stream, id_of("6-0")));
    struct stream_trim trim = {.by = STREAM_TRIM_LENGTH, .length = 8};
    stream_trim(stream, &trim);
    struct stream_group *group = stream_group_create(stream, SLICE("group"), id_of("7-0"), 7);
    struct stream_consumer *consumer = stream_consumer_create(group, SLICE("some"), 1000);
    stream_consumer_create(group, SLICE("none"), 2000);
    consumer->active_ms = 3000;
    stream_deliver(group, consumer, id_of("5-0"), 1234)->deliveries = 300;
    stream_deliver(group, consumer, id_of("7-0"), 1235);
    stream_group_create(stream, SLICE("1"), id_of("1-0"), STREAM_READ_UNKNOWN);
    return stream;
}

TEST(copies_share_nothing) {
    static const struct store_hooks nobody;
    store_types_register();
    struct keyspace *keyspace = keyspace_new(1, &nobody);
    struct db *db = keyspace_db(keyspace, 0);
    struct entry *entry = db_add_value(db, SLICE("s"), TYPE_STREAM, ENCODING_STREAM, rich());
    struct entry *copy = db_copy(db, entry, db, SLICE("copy"));
    struct memory_output once, twice;
    memory_output_init(&once);
    memory_output_init(&twice);
    dump_write(&once.out, entry, 0);
    dump_write(&twice.out, copy, 0);
    assert_true(slice_equal(memory_output_slice(&once), memory_output_slice(&twice)));
    db_delete(db, SLICE("s"), false);
    struct stream *stream = stream_of(copy);
    add(stream, "12-0", "a", "b");
    assert_true(stream_acknowledge(stream_group_find(stream, SLICE("group")), id_of("5-0")));
    assert_string_equal(value_encoding_name(entry_encoding(copy)), "stream");
    assert_string_equal(value_type_name(entry_type(copy)), "stream");
    size_t small = entry_memory(copy, 0, 5);
    limits(4096, 100);
    char value[100] = {0};
    memset(value, 'v', sizeof value - 1);
    for (uint64_t i = 20; i < 1020; i++) {
        struct slice texts[] = {SLICE("a"), slice_of(value)};
        assert_true(stream_append(stream, (struct stream_id){i, 0}, texts, 1));
    }
    assert_in_range(entry_memory(copy, 0, SIZE_MAX) - small, 100000, 140000);
    assert_in_range(entry_memory(copy, 0, 10) - small, 50000, 140000); /* the first nodes are small */
    memory_output_free(&once);
    memory_output_free(&twice);
    keyspace_free(keyspace);
}

/* --- Payloads --- */

/* The payload as Valkey 8.0 writes it (after the type byte, with rdbcompression off), and as Redis 7.0 does, whose
 * consumers have no active-time, after these commands:
 *
 *     XADD k 1-1 a 1 b 2
 *     XADD k 1-2 a 3 b 4
 *     XADD k 3-0 c x
 *     XDEL k 1-2
 *     XGROUP CREATE k g 0
 *     XREADGROUP GROUP g c COUNT 1 STREAMS k >
 *     XCLAIM k g c 0 1-1 TIME 1700000000000 JUSTID */
#define NODES                                                                                                          \
    "\x01\x10\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\x3e\x3e\0\0\0\x19\0\2\1\1\1\2\1\x81"                                     \
    "a\2\x81"                                                                                                          \
    "b\2\0\1\2\1\0\1\0\1\1\1\2\1\5\1\3\1\0\1\1\1\3\1\4\1\5\1\0\1\2\1\xdf\xff\2\1\1\x81"                                \
    "c\2\x81"                                                                                                          \
    "x\2\6\1\xff"
#define COUNTS     "\2\3\0\1\1\1\2\3"
#define GROUP_HEAD "\1g\1\1\x81\xff\xff\xff\xff\xff\xff\xff\xff"
#define PENDING    "\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1\x00\x68\xe5\xcf\x8b\1\0\0\1"
#define SEEN       "\xc8\x0b\x5e\xff\xa1\1\0\0"
#define OWNED      "\1\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1"
#define CONSUMER   "\1c" SEEN SEEN OWNED
#define GOLDEN     NODES COUNTS "\1" GROUP_HEAD PENDING "\1" CONSUMER
#define GOLDEN_19  NODES COUNTS "\1" GROUP_HEAD PENDING "\1\1c" SEEN OWNED
#define GOLDEN_15  NODES "\2\3\0\1\1g\1\1" PENDING "\1\1c" SEEN OWNED

static struct stream *read_all(struct slice bytes, enum rdb_type type) {
    char *exact = mem_alloc(bytes.len + 1); /* so that a sanitizer detects reads past the end */
    memcpy(exact, bytes.data, bytes.len);
    struct source source;
    struct rdb_reader in;
    source_init_memory(&source, (struct slice){exact, bytes.len});
    rdb_reader_init(&in, &source);
    struct stream *stream = rdb_read_stream(&in, type);
    assert_int_equal(stream == NULL, source.failed);
    if (stream && !source_at_end(&source)) {
        stream_free(stream);
        stream = NULL;
    }
    rdb_reader_free(&in);
    mem_free(exact);
    return stream;
}
#define READ(bytes, type) read_all((struct slice){(bytes), sizeof(bytes) - 1}, (type))
#define REFUSED(bytes)    assert_null(READ(bytes, RDB_STREAM_3))

TEST(payloads_are_the_bytes_that_valkey_writes) {
    limits(4096, 100);
    struct stream *stream = stream_new();
    struct slice first[] = {SLICE("a"), SLICE("1"), SLICE("b"), SLICE("2")};
    struct slice second[] = {SLICE("a"), SLICE("3"), SLICE("b"), SLICE("4")};
    assert_true(stream_append(stream, id_of("1-1"), first, 2) && stream_append(stream, id_of("1-2"), second, 2));
    add(stream, "3-0", "c", "x");
    assert_true(stream_delete(stream, id_of("1-2")));
    struct stream_group *group = stream_group_create(stream, SLICE("g"), STREAM_ID_MIN, STREAM_READ_UNKNOWN);
    struct stream_consumer *consumer = stream_consumer_create(group, SLICE("c"), 0x1a1ff5e0bc8);
    consumer->active_ms = 0x1a1ff5e0bc8;
    stream_group_advance(stream, group, id_of("1-1"));
    stream_deliver(group, consumer, id_of("1-1"), 1700000000000);
    struct memory_output out;
    memory_output_init(&out);
    bool compression = rdb_settings.compression;
    rdb_settings.compression = false;
    rdb_write_stream(&out.out, stream, true);
    assert_int_equal(memory_output_slice(&out).len, sizeof GOLDEN - 1);
    assert_memory_equal(memory_output_slice(&out).data, GOLDEN, sizeof GOLDEN - 1);
    rdb_settings.compression = compression;
    memory_output_free(&out);
    stream_free(stream);
}

TEST(older_forms_are_read) {
    static const struct {
        struct slice bytes;
        enum rdb_type type;
        int64_t added, read;
        const char *deleted;
    } cases[] = {
        {{GOLDEN, sizeof GOLDEN - 1}, RDB_STREAM_3, 3, STREAM_READ_UNKNOWN, "1-2"},
        {{GOLDEN_19, sizeof GOLDEN_19 - 1}, RDB_STREAM_2, 3, STREAM_READ_UNKNOWN, "1-2"},
        {{GOLDEN_15, sizeof GOLDEN_15 - 1}, RDB_STREAM, 2, 1, "0-0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct stream *stream = read_all(cases[i].bytes, cases[i].type);
        assert_non_null(stream);
        assert_int_equal(stream->length, 2);
        assert_int_equal(stream->entries_added, cases[i].added);
        assert_id(stream->last_id, "3-0");
        assert_id(stream->first_id, "1-1");
        assert_id(stream->max_deleted_id, cases[i].deleted);
        const struct stream_group *group = stream_group_find(stream, SLICE("g"));
        const struct stream_consumer *consumer = stream_consumer_find(group, SLICE("c"));
        const struct stream_pending *pending = stream_pending_find(group, id_of("1-1"));
        assert_int_equal(group->entries_read, cases[i].read);
        assert_true(consumer->seen_ms == 0x1a1ff5e0bc8 && consumer->active_ms == consumer->seen_ms);
        assert_true(pending->consumer == consumer && pending->delivered_ms == 1700000000000 &&
                    pending->deliveries == 1);
        stream_free(stream);
    }
}

TEST(groups_that_contradict_themselves_are_refused) {
    REFUSED(NODES COUNTS "\2" GROUP_HEAD PENDING "\1" CONSUMER GROUP_HEAD PENDING "\1" CONSUMER); /* a name twice */
    REFUSED(NODES COUNTS "\1" GROUP_HEAD "\0\2\1c" SEEN SEEN "\0\1c" SEEN SEEN "\0");
    REFUSED(NODES COUNTS "\1" GROUP_HEAD PENDING "\1\1c" SEEN SEEN "\0");              /* without an owner */
    REFUSED(NODES COUNTS "\1" GROUP_HEAD PENDING "\2" CONSUMER "\1d" SEEN SEEN OWNED); /* owned by two */
    REFUSED(NODES COUNTS "\1" GROUP_HEAD "\0\1" CONSUMER);                             /* owned, not pending */
    REFUSED(NODES COUNTS "\1" GROUP_HEAD "\2\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1" SEEN "\1"
                         "\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\1" SEEN "\1\1" CONSUMER); /* pending twice */
    REFUSED(NODES COUNTS "\1\1g\1\1\x81\xff\xff\xff\xff\xff\xff\xff\xfe" PENDING
                         "\1" CONSUMER); /* entries_read is -2 */
    struct stream *stream = READ(NODES COUNTS "\2" GROUP_HEAD PENDING "\1" CONSUMER "\1h\1\1\0\0\0", RDB_STREAM_3);
    assert_int_equal(stream_group_count(stream), 2);
    stream_free(stream);
}

/* Writes a stream with inconsistent data. */
static void assert_refused(const struct stream *stream, const char *what) {
    struct memory_output out;
    memory_output_init(&out);
    rdb_write_stream(&out.out, stream, true);
    struct stream *read = read_all(memory_output_slice(&out), RDB_STREAM_3);
    if (read) fail_msg("%s is accepted", what);
    memory_output_free(&out);
}
static void move_node(struct stream *stream, const char *from, const char *to) {
    char key[STREAM_ID_BYTES];
    void *lp;
    stream_id_encode(key, id_of(from));
    assert_true(radix_tree_remove(stream->nodes, slice_make(key, sizeof key), &lp));
    stream_id_encode(key, id_of(to));
    assert_true(radix_tree_set(stream->nodes, slice_make(key, sizeof key), lp, NULL));
}
TEST(counts_and_ids_that_do_not_agree_are_refused) {
    struct stream *stream = rich(); /* nodes 1-0 (4-0 lives), 5-0, 9-0 */
    struct stream was = *stream;
    stream_free(exchanged(rich()));
    for (int i = 0; i < 6; i++) {
        static const char *const what[] = {"a length too large",       "a length too small",
                                           "a last id below the last", "fewer added than live",
                                           "a negative number added",  "an empty stream with entries"};
        if (i == 0) stream->length++;
        if (i == 1) stream->length--;
        if (i == 2) stream->last_id = id_of("10-9");
        if (i == 3) stream->entries_added = stream->length - 1;
        if (i == 4) stream->entries_added = UINT64_MAX;
        if (i == 5) stream->length = 0;
        assert_refused(stream, what[i]);
        *stream = was;
    }
    static const char *const moves[][2] = {
        {"9-0", "4-0"}, {"9-0", "8-0"}, {"1-0", "0-0"}, {"5-0", "12-0"}, {"9-0", "18446744073709551615-0"}};
    for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
        move_node(stream, moves[i][0], moves[i][1]);
        assert_refused(stream, moves[i][1]);
        move_node(stream, moves[i][1], moves[i][0]);
    }
    stream_free(exchanged(stream));
}

/* Puts the unchecked bytes of one node into a payload. */
static struct stream *read_node(const uint8_t *lp, const char *length) {
    struct memory_output out;
    memory_output_init(&out);
    output_write(&out.out, (struct slice){NODES, 18});
    rdb_write_string(&out.out, slice_make(lp, listpack_bytes(lp)));
    output_write(&out.out, slice_of(length));
    output_write(&out.out, (struct slice){&COUNTS[1], sizeof COUNTS - 2});
    output_write(&out.out, SLICE("\0"));
    struct stream *stream = read_all(memory_output_slice(&out), RDB_STREAM_3);
    memory_output_free(&out);
    return stream;
}
TEST(every_element_of_a_node_is_checked) {
    const uint8_t *golden = (const uint8_t *)&NODES[19];
    size_t elements = listpack_count(golden);
    /* COUNT DELETED FIELDS a b 0 | flags ms seq 1 2 5 | flags ms seq 3 4 5 | flags ms seq 1 c x 6 */
    static const char kinds[] =
        "nnnttnnnnttnnDDttnnnnnttn"; /* n: a number that matters, t: text, D: part of a deleted entry's id */
    assert_int_equal(elements, sizeof kinds - 1);
    struct stream *stream = read_node(golden, "\2");
    assert_non_null(stream);
    stream_free(stream);
    static const int64_t numbers[] = {INT64_MIN, -1, 0, 1, 2, 3, 4, 5, 6, 7, 127, 4000000000, INT64_MAX};
    for (size_t i = 0; i < elements; i++) {
        for (size_t n = 0; n <= sizeof numbers / sizeof *numbers; n++) {
            bool text = n == sizeof numbers / sizeof *numbers;
            struct listpack_value value = text ? listpack_text_value(SLICE("text")) : listpack_number_value(numbers[n]);
            uint8_t *lp = listpack_copy(golden), *at = listpack_seek(lp, (int64_t)i);
            int64_t now;
            bool same = !text && listpack_number(at, &now) && now == numbers[n];
            lp = listpack_replace(lp, &at, value);
            stream = read_node(lp, "\2");
            bool may_pass = same || kinds[i] == 't' || (kinds[i] == 'D' && !text) || i == 19 ||
                            i == 20; /* last_id may have another value */
            if (stream && !may_pass) fail_msg("element %zu as number %zu is accepted", i, n);
            if (!stream && (same || kinds[i] == 't')) fail_msg("element %zu as number %zu is refused", i, n);
            if (stream) stream_free(exchanged(stream));
            listpack_free(lp);
        }
        for (size_t more = 0; more < 2; more++) { /* one too few, one too many */
            uint8_t *lp = listpack_copy(golden), *at = listpack_seek(lp, (int64_t)i);
            lp = more ? listpack_insert(lp, &at, listpack_number_value(1)) : listpack_delete(lp, &at, 1);
            assert_null(read_node(lp, "\2"));
            listpack_free(lp);
        }
    }
    assert_null(read_node((const uint8_t *)"\7\0\0\0\0\0\xff", "\0"));
}

TEST(nodes_without_live_entries_are_freed) {
    /* The stream of Valkey after: XADD t 1-0 a 1, XADD t 2-0 a 2, XDEL t 2-0, XTRIM t MINID 2-0. */
    uint8_t *lp = listpack_new(0);
    static const int64_t numbers[] = {0, 2, 1, 97, 0, 3, 0, 0, 1, 4, 3, 1, -1, 2, 4};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) lp = listpack_append_number(lp, numbers[i]);
    struct stream *stream = read_node(lp, "");
    assert_null(stream);
    struct memory_output out;
    memory_output_init(&out);
    output_write(&out.out, (struct slice){NODES, 18});
    rdb_write_string(&out.out, slice_make(lp, listpack_bytes(lp)));
    output_write(&out.out, SLICE("\0\2\0\0\0\2\0\2\0"));
    stream = read_all(memory_output_slice(&out), RDB_STREAM_3);
    assert_non_null(stream);
    assert_int_equal(stream_node_count(stream), 0);
    assert_true(stream->length == 0 && stream->entries_added == 2);
    stream_free(stream);
    memory_output_free(&out);
    listpack_free(lp);
}

TEST(corruption_anywhere_is_rejected_or_harmless) {
    static const char golden[] = GOLDEN;
    size_t len = sizeof golden - 1;
    for (size_t cut = 0; cut < len; cut++) assert_null(read_all((struct slice){golden, cut}, RDB_STREAM_3));
    char bytes[sizeof golden];
    for (size_t i = 0; i < len; i++)
        for (int change = 1; change < 256; change++) {
            memcpy(bytes, golden, sizeof golden);
            bytes[i] = (char)(bytes[i] ^ change);
            struct stream *stream = read_all((struct slice){bytes, len}, RDB_STREAM_3);
            if (!stream) continue;
            struct stream_trim trim = {.by = STREAM_TRIM_LENGTH, .length = 1};
            stream = exchanged(stream);
            if (!stream_id_equal(stream->last_id, STREAM_ID_MAX)) {
                struct stream_id id = stream->last_id;
                stream_id_increment(&id);
                struct slice texts[] = {SLICE("c"), SLICE("y")};
                assert_true(stream_append(stream, id, texts, 1) && stream_contains(stream, id));
            }
            stream_trim(stream, &trim);
            assert_int_equal(stream->length, 1);
            stream_free(exchanged(stream));
        }
}
