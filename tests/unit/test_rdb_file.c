/* RDB files: a saved data set is loaded unchanged, from memory and from a file; corruption at any position is rejected.
 */
#include "unit.h"
#include "formats/rdb.h"
#include "formats/rdb_file.h"
#include "lib/hash/hash_slot.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "store/hash.h"
#include "store/list_type.h"
#include "store/set.h"
#include "store/stream.h"
#include "store/types.h"
#include "store/zset.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { DATABASES = 4 };

static int setup(void **state) {
    encoding_limits = (struct encoding_limits){.hash_listpack_entries = 8,
                                               .hash_listpack_value = 64,
                                               .set_intset_entries = 8,
                                               .set_listpack_entries = 8,
                                               .set_listpack_value = 64,
                                               .zset_listpack_entries = 8,
                                               .zset_listpack_value = 64,
                                               .list_listpack_size = -2,
                                               .stream_node_bytes = 4096,
                                               .stream_node_entries = 100};
    clock_update();
    store_types_register();
    return 0;
}

static int append(struct sink *sink, const void *bytes, size_t len) {
    struct memory_output *file = sink->context;
    output_write(&file->out, slice_make(bytes, len));
    return 0;
}
static const struct sink_ops memory_sink = {.write = append};

static void save(struct keyspace *keyspace, struct memory_output *file, const struct rdb_save_params *params) {
    static const struct rdb_save_params plain;
    struct sink sink;
    memory_output_init(file);
    sink_init(&sink, &memory_sink, file);
    sink.checksum = true;
    assert_int_equal(rdb_save(&sink, keyspace, params ? params : &plain), 0);
    assert_int_equal(sink_offset(&sink), memory_output_slice(file).len);
    sink_free(&sink);
}

static int load(struct keyspace *keyspace, struct slice file, const struct rdb_load_params *params,
                struct rdb_load_result *result) {
    static const struct rdb_load_params plain;
    char *exact = mem_alloc(file.len + 1); /* so that a sanitizer detects reads past the end */
    if (file.len) memcpy(exact, file.data, file.len);
    struct source source;
    source_init_memory(&source, (struct slice){exact, file.len});
    int error = rdb_load(&source, keyspace, params ? params : &plain, result);
    source_free(&source);
    mem_free(exact);
    return error;
}

/* --- A data set of every type, encoding and edge --- */

static struct slice text_of(char *buffer, const char *prefix, size_t number) {
    return (struct slice){buffer, (size_t)snprintf(buffer, 64, "%s%zu", prefix, number)};
}
static char large[300000];

static void fill(struct db *db) {
    char a[64], b[64];
    static const char *const numbers[] = {
        "0",     "1",      "-1",         "127",         "128",   "-128",       "-129",        "32767",
        "32768", "-32768", "2147483647", "-2147483648", "65536", "2147483648", "-2147483649", "9223372036854775807",
        "01",    "1.5"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        db_set_string(db, text_of(a, "number:", i), slice_of(numbers[i]), NULL, false);
    for (size_t i = 0; i < sizeof large; i++) large[i] = (char)(i * 2654435761u >> 13);
    static const size_t lengths[] = {0, 1, 20, 21, 44, 45, 63, 64, 1024, 1025, 16383, 16384, 65536, 300000};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        db_set_string(db, text_of(a, "random:", i), (struct slice){large, lengths[i]}, NULL, false);
        struct blob *zeros = blob_new(lengths[i], lengths[i]);
        memset(zeros->data, 'z', lengths[i]);
        db_set_string(db, text_of(a, "zeros:", i), blob_slice(zeros), zeros, false);
    }
    db_set_string(db, SLICE(""), SLICE("empty key"), NULL, false);
    db_set_string(db, (struct slice){large, 300}, SLICE("long key"), NULL, false);
    struct entry *e = db_set_string(db, SLICE("expires"), SLICE("later"), NULL, false);
    db_set_expire(db, e, clock_ms() + 1000000);
    e = db_set_string(db, SLICE("expires far"), (struct slice){large, 5000}, NULL, false);
    db_set_expire(db, e, INT64_MAX);
    for (size_t count = 1; count <= 2000; count *= 6) {
        struct entry *list = list_type_create(db, text_of(a, "list:", count));
        struct entry *hash = hash_create(db, text_of(a, "hash:", count));
        struct set texts = set_new(SLICE("x"), 0), ints = set_new(SLICE("1"), 0);
        struct zset zset = zset_new(0, 0);
        double now;
        for (size_t i = 0; i < count; i++) {
            struct slice item = text_of(b, "item:", i * 7919);
            list_type_expect(db, list, 1, item.len);
            list_type_push(db, list, LIST_TYPE_TAIL, item, NULL);
            hash_put(db, hash, item, text_of(a, "", i), NULL);
            set_add(&texts, item);
            set_add(&ints, text_of(a, "", i * 70001));
            zset_put(&zset, i % 3 ? (double)i / 3 : -(double)i, item, 0, &now);
        }
        db_add_value(db, text_of(a, "set:", count), TYPE_SET, texts.encoding, texts.value);
        db_add_value(db, text_of(a, "ints:", count), TYPE_SET, ints.encoding, ints.value);
        db_add_value(db, text_of(a, "zset:", count), TYPE_ZSET, zset.encoding, zset.value);
        struct entry *stream = stream_create(db, text_of(a, "stream:", count));
        for (size_t i = 0; i < count; i++) {
            struct slice texts_of[2] = {SLICE("field"), text_of(a, "value", i)};
            stream_append(stream_of(stream), (struct stream_id){1000 + i, i % 5}, texts_of, 1);
        }
    }
    struct entry *list = list_type_create(db, SLICE("list of large"));
    for (size_t i = 0; i < 5; i++) {
        struct slice item = {large + i, i % 2 ? 3 : 100000};
        list_type_expect(db, list, 1, item.len);
        list_type_push(db, list, LIST_TYPE_TAIL, item, NULL);
    }
    struct entry *hash = hash_create(db, SLICE("hash of large"));
    hash_put(db, hash, (struct slice){large, 300}, (struct slice){large, 100000}, NULL);
    hash_put(db, hash, SLICE("small"), (struct slice){large, 10}, NULL);
    struct zset extremes = zset_new(0, 0);
    double now;
    zset_put(&extremes, 1.0 / 0.0, SLICE("inf"), 0, &now);
    zset_put(&extremes, -1.0 / 0.0, SLICE("-inf"), 0, &now);
    zset_put(&extremes, 4.9e-324, SLICE("least"), 0, &now);
    db_add_value(db, SLICE("zset of extremes"), TYPE_ZSET, extremes.encoding, extremes.value);
}
static void add_expiring_fields(struct db *db) {
    struct entry *hash = hash_create(db, SLICE("hash with times"));
    char a[64];
    for (size_t i = 0; i < 50; i++)
        hash_put_until(db, hash, text_of(a, "field", i), i % 7 ? SLICE("v") : (struct slice){large, 5000}, NULL,
                       i % 3 ? clock_ms() + 100000 + (int64_t)i : HASH_NEVER);
    db_set_expire(db, hash, clock_ms() + 5000000);
}

/* Compares the values of a key in a form that does not depend on table order. */
static void assert_same_key(struct db *a, struct db *b, const struct entry *entry) {
    struct entry *other = db_find(b, entry_key(entry), LOOKUP_NOTOUCH | LOOKUP_NOEXPIRE);
    if (!other) fail_msg("%.*s is missing", (int)entry_key(entry).len, entry_key(entry).data);
    assert_int_equal(entry_type(entry), entry_type(other));
    assert_int_equal(entry_encoding(entry), entry_encoding(other));
    assert_true(entry_expire_at(entry) == entry_expire_at(other));
    enum value_encoding encoding = entry_encoding(entry);
    if (encoding == ENCODING_HASHTABLE || encoding == ENCODING_EXPIRING_HASHTABLE) {
        if (entry_type(entry) == TYPE_SET) {
            struct set mine = set_of(entry), its = set_of(other);
            struct set_iterator it;
            struct listpack_value member;
            assert_int_equal(set_len(&mine), set_len(&its));
            for (set_iterate(&it, &mine); set_next(&it, &member);) assert_true(set_has_value(&its, &member));
            set_iterate_end(&it);
            return;
        }
        struct hash_iterator it;
        struct hash_item item;
        struct hash_value value;
        assert_int_equal(hash_len(entry), hash_len(other));
        for (hash_iterate_all(&it, entry); hash_next(&it, &item);) {
            assert_true(hash_get(other, item.field, &value) && slice_equal(value.bytes, item.value.bytes));
            assert_true(hash_expire_at(other, item.field) == item.expire_at);
        }
        hash_iterate_end(&it);
        return;
    }
    struct memory_output mine, its;
    memory_output_init(&mine);
    memory_output_init(&its);
    rdb_write_value(&mine.out, entry, 0, rdb_value_type(entry, RDB_VERSION));
    rdb_write_value(&its.out, other, 0, rdb_value_type(other, RDB_VERSION));
    if (!slice_equal(memory_output_slice(&mine), memory_output_slice(&its)))
        fail_msg("%.*s differs", (int)entry_key(entry).len, entry_key(entry).data);
    memory_output_free(&mine);
    memory_output_free(&its);
}
static void assert_same(struct keyspace *a, struct keyspace *b) {
    for (int id = 0; id < DATABASES; id++) {
        struct db *from = keyspace_db(a, id), *to = keyspace_db(b, id);
        assert_int_equal(db_size(from), db_size(to));
        assert_int_equal(db_expires(from), db_expires(to));
        assert_int_equal(db_expiring(from), db_expiring(to));
        struct db_iterator *it = db_iterate(from, -1);
        for (struct entry *entry; (entry = db_iterate_next(it));) assert_same_key(from, to, entry);
        db_iterate_end(it);
    }
}

static void fill_databases(struct keyspace *keyspace, bool expiring_fields) {
    fill(keyspace_db(keyspace, 0));
    db_set_string(keyspace_db(keyspace, 3), SLICE("k"), SLICE("v"), NULL, false);
    if (expiring_fields) add_expiring_fields(keyspace_db(keyspace, 3));
}
static struct keyspace *data_set(bool expiring_fields) {
    struct keyspace *keyspace = keyspace_new(DATABASES, NULL);
    fill_databases(keyspace, expiring_fields);
    return keyspace;
}

/* --- Tests --- */

TEST(a_saved_data_set_is_loaded_unchanged) {
    for (int fields = 0; fields < 2; fields++) {
        struct keyspace *keyspace = data_set(fields), *copy = keyspace_new(DATABASES, NULL);
        struct memory_output file;
        struct rdb_load_result result;
        save(keyspace, &file, NULL);
        const char *magic = fields ? "VALKEY080" : "REDIS0011";
        assert_memory_equal(memory_output_slice(&file).data, magic, RDB_MAGIC_BYTES);
        assert_int_equal(load(copy, memory_output_slice(&file), NULL, &result), 0);
        assert_int_equal(result.version, fields ? 80 : 11);
        assert_int_equal(result.offset, memory_output_slice(&file).len);
        assert_same(keyspace, copy);
        memory_output_free(&file);
        keyspace_free(copy);
        keyspace_free(keyspace);
    }
}

/* Files of a keyspace with a table for each hash slot have the sizes of the slots. Both kinds of keyspaces load both
 * kinds of files. */
TEST(files_with_slots_are_loaded_by_all) {
    for (int from = 0; from < 2; from++)
        for (int to = 0; to < 2; to++)
            for (int fields = 0; fields < 2; fields++) {
                struct keyspace *keyspace = (from ? keyspace_new_per_slot : keyspace_new)(DATABASES, NULL);
                struct keyspace *copy = (to ? keyspace_new_per_slot : keyspace_new)(DATABASES, NULL);
                struct memory_output file;
                struct rdb_load_result result;
                fill_databases(keyspace, fields);
                save(keyspace, &file, NULL);
                struct slice bytes = memory_output_slice(&file);
                assert_int_equal(memmem(bytes.data, bytes.len, "slot-info", 9) != NULL, from);
                assert_int_equal(load(copy, bytes, NULL, &result), 0);
                assert_same(keyspace, copy);
                memory_output_free(&file);
                keyspace_free(copy);
                keyspace_free(keyspace);
            }
}

TEST(the_sizes_of_slots_are_those_of_valkey) {
    struct keyspace *keyspace = keyspace_new_per_slot(DATABASES, NULL);
    struct db *db = keyspace_db(keyspace, 0);
    db_set_string(db, SLICE("c"), SLICE("hello"), NULL, false);
    db_set_expire(db, db_set_string(db, SLICE("b"), SLICE("2"), NULL, false), clock_ms() + 100000);
    db_set_string(db, SLICE("{a}x"), SLICE("3"), NULL, false);
    db_set_string(db, SLICE("a"), SLICE("1"), NULL, false);
    struct memory_output file;
    save(keyspace, &file, NULL);
    struct slice bytes = memory_output_slice(&file);
    static const char *const infos[] = {"\xfa\x09slot-info\x0a"
                                        "3300,1,1,0",
                                        "\xfa\x09slot-info\x0a"
                                        "7365,1,0,0",
                                        "\xfa\x09slot-info\x0b"
                                        "15495,2,0,0"};
    const char *at = bytes.data;
    for (int i = 0; i < 3; i++) {
        at = memmem(at, (size_t)(bytes.data + bytes.len - at), infos[i], strlen(infos[i]));
        assert_non_null(at);
    }
    memory_output_free(&file);
    keyspace_free(keyspace);
}

/* Sizes of slots are hints: with any sizes the file is loaded, with memory limited by the length of the file. */
TEST(wrong_sizes_of_slots_do_no_harm) {
    static const char *const texts[] = {
        "",          ",,,",      "1,2,3",   "16384,1,1,1", "1,18446744073709551615,18446744073709551615,0",
        "1,1,1,1,1", "-1,1,1,1", "x,1,1,1", "1,2,3,",      "0,18446744073709551616,1,1"};
    struct memory_output file;
    memory_output_init(&file);
    output_write(&file.out, SLICE("REDIS0011"));
    for (int slot = 0; slot < HASH_SLOTS; slot += 16)
        for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
            output_write(&file.out, SLICE("\xfa\x09slot-info"));
            rdb_write_string(&file.out, slice_of(texts[i]));
            char text[64];
            snprintf(text, sizeof text, "%d,100000000,100000000,0", slot);
            output_write(&file.out, SLICE("\xfa\x09slot-info"));
            rdb_write_string(&file.out, slice_of(text));
        }
    output_write(&file.out,
                 SLICE("\xf4\x01\x80\x7f\xff\xff\xff\x80\x7f\xff\xff\xff")); /* SLOT_INFO: slot 1, 2^31 - 1 keys */
    output_write(&file.out, SLICE("\x00\x01"
                                  "k\x01"
                                  "v\xff"
                                  "\0\0\0\0\0\0\0\0"));
    struct keyspace *copy = keyspace_new_per_slot(DATABASES, NULL);
    struct rdb_load_result result;
    size_t before = mem_used();
    assert_int_equal(load(copy, memory_output_slice(&file), NULL, &result), 0);
    assert_int_equal(db_size(keyspace_db(copy, 0)), 1);
    assert_true(mem_used() - before < 64 * memory_output_slice(&file).len);
    memory_output_free(&file);
    keyspace_free(copy);
}

static FILE *temporary(void) {
    FILE *file = tmpfile();
    assert_non_null(file);
    return file;
}

/* Uses descriptors, so that values cross buffer boundaries at every offset. */
TEST(files_are_written_and_read_in_pieces) {
    struct keyspace *keyspace = data_set(true), *copy = keyspace_new(DATABASES, NULL);
    FILE *file = temporary();
    struct rdb_load_result result;
    struct sink sink;
    struct source source;
    struct rdb_save_params save_params = {0};
    struct rdb_load_params load_params = {0};
    sink_init_fd(&sink, fileno(file));
    sink.checksum = true;
    sink.sync_interval = 64 * 1024;
    assert_int_equal(rdb_save(&sink, keyspace, &save_params), 0);
    sink_free(&sink);
    lseek(fileno(file), 0, SEEK_SET);
    source_init_fd(&source, fileno(file));
    assert_int_equal(rdb_load(&source, copy, &load_params, &result), 0);
    assert_true(source_at_end(&source));
    source_free(&source);
    assert_same(keyspace, copy);
    fclose(file);
    keyspace_free(copy);
    keyspace_free(keyspace);
}

/* A source that returns a few bytes at a time and has no known size. */
static ssize_t trickle(struct source *source, void *to, size_t len) {
    struct slice *rest = source->context;
    size_t piece = 1 + (rest->len * 7) % 3000;
    if (piece > len) piece = len;
    if (piece > rest->len) piece = rest->len;
    memcpy(to, rest->data, piece);
    rest->data += piece, rest->len -= piece;
    return (ssize_t)piece;
}
TEST(input_of_unknown_size_is_read_as_it_arrives) {
    static const struct source_ops ops = {.read = trickle};
    struct keyspace *keyspace = data_set(true), *copy = keyspace_new(DATABASES, NULL);
    struct memory_output file;
    struct rdb_load_result result;
    struct rdb_load_params params = {0};
    struct source source;
    save(keyspace, &file, NULL);
    output_write(&file.out, SLICE("what follows"));
    struct slice rest = memory_output_slice(&file);
    source_init(&source, &ops, &rest, UINT64_MAX);
    assert_int_equal(rdb_load(&source, copy, &params, &result), 0);
    char follows[12];
    assert_true(source_read(&source, follows, sizeof follows));
    assert_memory_equal(follows, "what follows", sizeof follows);
    assert_true(source_at_end(&source));
    assert_same(keyspace, copy);
    source_free(&source);
    memory_output_free(&file);
    keyspace_free(copy);
    keyspace_free(keyspace);
}

/* Shows pieces of many sizes. The next call invalidates a piece. */
struct pieces {
    struct slice rest;
    char *shown;
    size_t shown_len, turn;
};
static size_t next_piece(struct pieces *pieces, size_t most) {
    static const size_t sizes[] = {1, 3, 9000, 70, 5000, 300000, 2, 65536};
    if (pieces->shown) memset(pieces->shown, 'x', pieces->shown_len);
    free(pieces->shown);
    pieces->shown = NULL;
    size_t len = sizes[pieces->turn++ % 8];
    if (len > most) len = most;
    return len < pieces->rest.len ? len : pieces->rest.len;
}
static ssize_t read_piece(struct source *source, void *to, size_t len) {
    struct pieces *pieces = source->context;
    size_t got = next_piece(pieces, len);
    memcpy(to, pieces->rest.data, got);
    pieces->rest.data += got, pieces->rest.len -= got;
    return (ssize_t)got;
}
static ssize_t show_piece(struct source *source, const char **bytes) {
    struct pieces *pieces = source->context;
    size_t got = next_piece(pieces, SIZE_MAX);
    pieces->shown = malloc(got + 1);
    assert_non_null(pieces->shown);
    memcpy(pieces->shown, pieces->rest.data, pieces->shown_len = got);
    pieces->rest.data += got, pieces->rest.len -= got;
    *bytes = pieces->shown;
    return (ssize_t)got;
}
TEST(input_that_shows_its_pieces_is_read_where_it_lies) {
    static const struct source_ops ops = {.read = read_piece, .show = show_piece};
    struct keyspace *keyspace = data_set(true), *copy = keyspace_new(DATABASES, NULL);
    struct memory_output file;
    struct rdb_load_result result;
    struct rdb_load_params params = {0};
    struct source source;
    save(keyspace, &file, NULL);
    output_write(&file.out, SLICE("what follows"));
    struct pieces pieces = {.rest = memory_output_slice(&file)};
    source_init(&source, &ops, &pieces, UINT64_MAX);
    assert_int_equal(rdb_load(&source, copy, &params, &result), 0);
    char follows[12];
    assert_true(source_read(&source, follows, sizeof follows));
    assert_memory_equal(follows, "what follows", sizeof follows);
    assert_true(source_at_end(&source));
    assert_same(keyspace, copy);
    source_free(&source);
    free(pieces.shown);
    memory_output_free(&file);
    keyspace_free(copy);
    keyspace_free(keyspace);
}

/* Over a connection, the announced size of a database expands its table only as keys arrive. */
TEST(announced_sizes_are_believed_as_keys_arrive) {
    enum { KEYS = 200000 };
    static const struct source_ops ops = {.read = trickle};
    for (int all = 0; all < 2; all++) {
        struct keyspace *copy = keyspace_new(DATABASES, NULL);
        struct memory_output file;
        struct rdb_load_result result;
        struct rdb_load_params params = {.ignore_checksum = true};
        struct source source;
        memory_output_init(&file);
        output_write(&file.out, SLICE("REDIS0011\xfb"));
        rdb_write_length(&file.out, all ? KEYS : 1 << 30);
        rdb_write_length(&file.out, all ? KEYS / 10 : 1 << 30);
        for (int i = 0; i < (all ? KEYS : 1); i++) {
            char key[20];
            output_write(&file.out, (struct slice){"\0", 1});
            rdb_write_string(&file.out, (struct slice){key, (size_t)snprintf(key, sizeof key, "key:%d", i)});
            rdb_write_string(&file.out, SLICE("v"));
        }
        output_write(&file.out, (struct slice){"\xff\0\0\0\0\0\0\0\0", 9});
        struct slice rest = memory_output_slice(&file);
        size_t before = mem_used();
        source_init(&source, &ops, &rest, UINT64_MAX);
        assert_int_equal(rdb_load(&source, copy, &params, &result), 0);
        source_free(&source);
        struct db *db = keyspace_db(copy, 0);
        assert_int_equal(db_size(db), all ? KEYS : 1);
        if (!all) assert_true(mem_used() - before < 16 * 1024 * 1024);
        memory_output_free(&file);
        keyspace_free(copy);
    }
}

static struct keyspace *small_set(void) {
    struct keyspace *keyspace = keyspace_new(DATABASES, NULL);
    struct db *db = keyspace_db(keyspace, 1);
    char a[64];
    db_set_expire(db, db_set_string(db, SLICE("s"), SLICE("text"), NULL, false), clock_ms() + 1000000);
    struct entry *list = list_type_create(db, SLICE("l")), *hash = hash_create(db, SLICE("h"));
    for (size_t i = 0; i < 3; i++) list_type_push(db, list, LIST_TYPE_TAIL, text_of(a, "e", i), NULL);
    for (size_t i = 0; i < 12; i++) hash_put(db, hash, text_of(a, "f", i), SLICE("v"), NULL);
    hash_put_until(db, hash, SLICE("x"), SLICE("v"), NULL, clock_ms() + 500000);
    return keyspace;
}

TEST(a_truncated_file_is_rejected_at_its_end) {
    struct keyspace *keyspace = small_set();
    struct memory_output file;
    struct rdb_load_result result;
    save(keyspace, &file, NULL);
    struct slice whole = memory_output_slice(&file);
    for (size_t len = 0; len < whole.len; len++) {
        struct keyspace *copy = keyspace_new(DATABASES, NULL);
        assert_int_equal(load(copy, (struct slice){whole.data, len}, NULL, &result), -EINVAL);
        assert_true(result.offset <= len && result.reason[0]);
        keyspace_free(copy);
    }
    memory_output_free(&file);
    keyspace_free(keyspace);
}

TEST(every_changed_byte_is_noticed) {
    struct keyspace *keyspace = small_set();
    struct memory_output file;
    struct rdb_load_result result;
    save(keyspace, &file, NULL);
    struct slice whole = memory_output_slice(&file);
    char *bytes = mem_alloc(whole.len);
    for (size_t i = 0; i < whole.len; i++) {
        for (int bit = 0; bit < 8; bit++) {
            struct keyspace *copy = keyspace_new(DATABASES, NULL);
            struct rdb_load_params ignoring = {.ignore_checksum = true};
            memcpy(bytes, whole.data, whole.len);
            bytes[i] = (char)(bytes[i] ^ 1 << bit);
            assert_int_not_equal(load(copy, (struct slice){bytes, whole.len}, NULL, &result), 0);
            assert_true(result.reason[0]);
            keyspace_free(copy);
            copy = keyspace_new(DATABASES, NULL); /* also works without a checksum */
            load(copy, (struct slice){bytes, whole.len}, &ignoring, &result);
            keyspace_free(copy);
        }
    }
    mem_free(bytes);
    memory_output_free(&file);
    keyspace_free(keyspace);
}

TEST(duplicates_are_refused_or_replace) {
    struct keyspace *keyspace = small_set();
    struct memory_output file;
    struct rdb_load_result result;
    struct rdb_load_params replacing = {.duplicates = RDB_DUPLICATE_REPLACES};
    save(keyspace, &file, NULL);
    assert_int_equal(load(keyspace, memory_output_slice(&file), NULL, &result), -EEXIST);
    assert_non_null(strstr(result.reason, "duplicated key"));
    assert_int_equal(load(keyspace, memory_output_slice(&file), &replacing, &result), 0);
    assert_int_equal(result.keys, 3);
    assert_int_equal(db_size(keyspace_db(keyspace, 1)), 3);
    assert_int_equal(db_expires(keyspace_db(keyspace, 1)), 1);
    memory_output_free(&file);
    keyspace_free(keyspace);
}

TEST(expired_keys_are_dropped_by_a_primary) {
    struct keyspace *keyspace = small_set();
    struct memory_output file;
    struct rdb_load_result result;
    struct db *db = keyspace_db(keyspace, 1);
    db_set_expire(db, db_find(db, SLICE("s"), 0), 1);
    db_set_expire(db, db_find(db, SLICE("h"), 0), 1);
    save(keyspace, &file, NULL);
    for (int primary = 0; primary < 2; primary++) {
        struct keyspace *copy = keyspace_new(DATABASES, NULL);
        struct rdb_load_params params = {.skip_expired = primary};
        assert_int_equal(load(copy, memory_output_slice(&file), &params, &result), 0);
        assert_int_equal(result.expired, primary ? 2 : 0);
        assert_int_equal(db_size(keyspace_db(copy, 1)), primary ? 1 : 3);
        assert_int_equal(db_expiring(keyspace_db(copy, 1)), primary ? 0 : 1);
        keyspace_free(copy);
    }
    memory_output_free(&file);
    keyspace_free(keyspace);
}

struct seen {
    char text[400];
};
static bool saw_aux(void *context, struct source *source, struct slice name, struct slice value) {
    struct seen *seen = context;
    if (slice_equal(name, SLICE("ctime")) || slice_equal(name, SLICE("used-mem")) ||
        slice_equal(name, SLICE("valkey-ver")))
        return true;
    size_t len = strlen(seen->text);
    snprintf(seen->text + len, sizeof seen->text - len, "%.*s=%.*s ", (int)name.len, name.data, (int)value.len,
             value.data);
    return true;
}
static bool saw_library(void *context, struct source *source, struct slice code) {
    struct seen *seen = context;
    if (slice_equal(code, SLICE("bad"))) return source_fail(source, -EINVAL, "no such engine");
    size_t len = strlen(seen->text);
    snprintf(seen->text + len, sizeof seen->text - len, "[%.*s] ", (int)code.len, code.data);
    return true;
}
TEST(header_fields_and_libraries_are_handed_over) {
    struct keyspace *keyspace = keyspace_new(DATABASES, NULL);
    struct rdb_aux aux[] = {{SLICE("repl-offset"), SLICE("123")}, {SLICE("repl-id"), SLICE("abc")}};
    struct slice libraries[] = {SLICE("#!lua name=a\n"), SLICE("#!lua name=b\n"), SLICE("bad")};
    struct rdb_save_params params = {
        .aux = aux, .aux_count = 2, .libraries = libraries, .library_count = 2, .aof_base = true};
    struct memory_output file;
    struct rdb_load_result result;
    struct seen seen = {""};
    struct rdb_load_params load_params = {.aux = saw_aux, .library = saw_library, .context = &seen};
    save(keyspace, &file, &params);
    assert_int_equal(load(keyspace, memory_output_slice(&file), &load_params, &result), 0);
    assert_string_equal(seen.text, "redis-bits=64 repl-offset=123 repl-id=abc aof-base=1 [#!lua name=a\n] "
                                   "[#!lua name=b\n] ");
    assert_true(result.aof_base && result.used_memory && result.libraries == 2);
    memory_output_free(&file);
    params.library_count = 3;
    save(keyspace, &file, &params);
    assert_int_equal(load(keyspace, memory_output_slice(&file), &load_params, &result), -EINVAL);
    assert_string_equal(result.reason, "no such engine");
    memory_output_free(&file);
    keyspace_free(keyspace);
}

TEST(versions_are_checked) {
    static const struct {
        const char *magic;
        bool strict, relaxed;
    } cases[] = {{"REDIS0001", true, true},   {"REDIS0011", true, true},   {"REDIS0000", false, false},
                 {"REDIS0012", false, true},  {"REDIS0079", false, true},  {"VALKEY080", true, true},
                 {"VALKEY081", false, true},  {"VALKEY011", false, false}, {"REDISabcd", false, false},
                 {"MEMCACHE0", false, false}, {"VALKEY08x", false, false}};
    struct keyspace *keyspace = keyspace_new(DATABASES, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int relaxed = 0; relaxed < 2; relaxed++) {
            char file[18] = {0};
            struct rdb_load_result result;
            struct rdb_load_params params = {.relaxed_version = relaxed};
            memcpy(file, cases[i].magic, 9);
            file[9] = (char)0xff;
            bool good = load(keyspace, (struct slice){file, sizeof file}, &params, &result) == 0;
            if (good != (relaxed ? cases[i].relaxed : cases[i].strict))
                fail_msg("%s, relaxed %d: %d (%s)", cases[i].magic, relaxed, good, result.reason);
        }
    }
    keyspace_free(keyspace);
}

static int full(struct sink *sink, const void *bytes, size_t len) {
    return -ENOSPC;
}
TEST(a_full_disk_ends_a_save) {
    static const struct sink_ops ops = {.write = full};
    struct keyspace *keyspace = data_set(false);
    struct rdb_save_params params = {0};
    struct sink sink;
    sink_init(&sink, &ops, NULL);
    assert_int_equal(rdb_save(&sink, keyspace, &params), -ENOSPC);
    sink_free(&sink);
    keyspace_free(keyspace);
}

static int calls_left;
static bool stop(struct source *source) {
    return --calls_left > 0;
}
TEST(loading_can_be_cancelled) {
    struct keyspace *keyspace = data_set(false), *copy = keyspace_new(DATABASES, NULL);
    static const struct source_ops ops = {.read = trickle};
    struct memory_output file;
    struct rdb_load_result result;
    struct rdb_load_params params = {0};
    struct source source;
    calls_left = 5;
    save(keyspace, &file, NULL);
    struct slice rest = memory_output_slice(&file);
    source_init(&source, &ops, &rest, rest.len);
    source.progress = stop;
    source.progress_interval = 1000;
    assert_int_equal(rdb_load(&source, copy, &params, &result), -ECANCELED);
    assert_int_equal(calls_left, 0);
    source_free(&source);
    memory_output_free(&file);
    keyspace_free(copy);
    keyspace_free(keyspace);
}

int main(void) {
    return RUN_TESTS_WITH(setup, NULL);
}
