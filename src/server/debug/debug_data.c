/* debug_data.c: DEBUG on keys, values and the protocol. The digest is described in debug.h. */
#include "formats/rdb.h"
#include "lib/structures/hashtable.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "server/notify.h"
#include "server/command/command.h"
#include "server/debug/debug.h"
#include "server/role.h"
#include "server/server.h"
#include "store/extension.h"
#include "store/keyspace.h"
#include <stdio.h>
#include <string.h>

static const struct debug_value_ops *value_ops[VALUE_TYPES];
void debug_register_value(enum value_type type, const struct debug_value_ops *ops) {
    value_ops[type] = ops;
}

/* --- DIGEST --- */

void digest_xor(struct digest *digest, struct slice bytes) {
    unsigned char hash[SHA1_SIZE];
    sha1_digest(bytes, hash);
    for (int i = 0; i < SHA1_SIZE; i++) digest->bytes[i] ^= hash[i];
}
void digest_mix(struct digest *digest, struct slice bytes) {
    digest_xor(digest, bytes);
    sha1_digest(slice_make(digest->bytes, SHA1_SIZE), digest->bytes);
}
static void digest_mix_number(struct digest *digest, uint32_t number) {
    unsigned char bytes[4] = {(unsigned char)(number >> 24), (unsigned char)(number >> 16),
                              (unsigned char)(number >> 8), (unsigned char)number};
    digest_mix(digest, slice_make(bytes, 4));
}
enum { EXTENSION_NUMBER = 5, STREAM_NUMBER = 6 }; /* the numbers of the types in Valkey */
static void digest_extension(struct digest *digest, const struct entry *entry, int db) {
    const struct extension_value *structure = extension_of(entry);
    struct extension_place place = {db, entry_key(entry)};
    const struct extension_methods *methods = structure->type->methods;
    if (methods->digest) methods->digest(structure->type, &place, structure->value, digest);
}
static void digest_entry(struct digest *digest, const struct entry *entry, int db) {
    enum value_type type = entry_type(entry);
    digest_mix_number(digest, type == TYPE_STREAM      ? STREAM_NUMBER
                              : type == TYPE_EXTENSION ? EXTENSION_NUMBER
                                                       : (uint32_t)type);
    if (type == TYPE_STRING) {
        char text[STRING_NUMBER_TEXT];
        digest_mix(digest, entry_string(entry, text));
    } else if (type == TYPE_EXTENSION) {
        digest_extension(digest, entry, db);
    } else if (value_ops[type]) {
        value_ops[type]->digest(entry, digest);
    }
    if (entry_expire_at(entry) >= 0) digest_xor(digest, SLICE("!!expire!!"));
}
static void reply_digest(struct call *call, const struct digest *digest) {
    char text[2 * SHA1_SIZE + 1];
    for (int i = 0; i < SHA1_SIZE; i++) snprintf(text + 2 * i, 3, "%02x", digest->bytes[i]);
    reply_status(call->reply, text);
}
static void run_digest(struct call *call) {
    struct digest whole = {{0}};
    for (int id = 0; id < keyspace_databases(server.keyspace); id++) {
        struct db *db = keyspace_db(server.keyspace, id);
        if (!db_size(db)) continue;
        digest_mix_number(&whole, (uint32_t)id);
        struct db_iterator *it = db_iterate(db, -1);
        for (struct entry *entry; (entry = db_iterate_next(it));) {
            struct digest digest = {{0}};
            digest_mix(&digest, entry_key(entry));
            digest_entry(&digest, entry, id);
            digest_xor(&whole, slice_make(digest.bytes, SHA1_SIZE));
        }
        db_iterate_end(it);
    }
    reply_digest(call, &whole);
}
static struct entry *find_entry(struct call *call, struct slice key) {
    return db_find(call->db, key, LOOKUP_NOTOUCH | LOOKUP_NOSTATS | LOOKUP_NOEXPIRE);
}
static void run_digest_value(struct call *call) {
    reply_array(call->reply, (size_t)call->argc - 2);
    for (int i = 2; i < call->argc; i++) {
        struct digest digest = {{0}};
        struct entry *entry = find_entry(call, call->argv[i]);
        if (entry) digest_entry(&digest, entry, db_id(call->db));
        reply_digest(call, &digest);
    }
}

/* --- OBJECT, HTSTATS, POPULATE --- */

/* Bytes of a value in an RDB file, without the type byte. */
static size_t serialized_length(const struct entry *entry, int db) {
    struct memory_output bytes = MEMORY_OUTPUT_INIT;
    rdb_write_value(&bytes.out, entry, db, rdb_value_type(entry, RDB_VERSION));
    size_t len = memory_output_slice(&bytes).len;
    memory_output_free(&bytes);
    return len;
}
static void run_object(struct call *call) {
    struct entry *entry = find_entry(call, call->argv[2]);
    if (!entry) {
        reply_no_such_key(call->reply);
        return;
    }
    char text[600], serialized[48] = "", access[96], more[200] = "";
    const struct debug_value_ops *ops = value_ops[entry_type(entry)];
    bool fast = call->argc == 4 && slice_is(call->argv[3], "fast");
    if (!fast)
        snprintf(serialized, sizeof serialized, " serializedlength:%zu", serialized_length(entry, db_id(call->db)));
    if (ops && ops->describe) ops->describe(entry, fast, more, sizeof more);
    uint32_t idle = entry_idle_seconds(entry), clock = ((uint32_t)(clock_ms() / 1000) - idle) & 0xffffff;
    if (store_settings.lfu)
        snprintf(access, sizeof access, "lfu_freq:%u lfu_access_time_minutes:%u", entry_frequency(entry), clock >> 8);
    else
        snprintf(access, sizeof access, "lru:%u lru_seconds_idle:%u", clock, idle);
    snprintf(text, sizeof text, "Value at:%p refcount:1 encoding:%s%s %s%s", (void *)entry,
             value_encoding_name(entry_encoding(entry)), serialized, access, more);
    reply_status(call->reply, text);
}
static void run_sdslen(struct call *call) {
    struct entry *entry = find_entry(call, call->argv[2]);
    if (!entry) {
        reply_no_such_key(call->reply);
        return;
    }
    if (entry_type(entry) != TYPE_STRING || entry_encoding(entry) == ENCODING_INT) {
        reply_error(call->reply, "ERR Not an sds encoded string.");
        return;
    }
    struct blob *blob = entry_blob(entry); /* otherwise the value is embedded in the key's allocation */
    char text[240];
    snprintf(text, sizeof text,
             "key_sds_len:%zu key_sds_avail:0 obj_alloc:%zu val_sds_len:%zu val_sds_avail:%zu val_alloc:%zu",
             entry_key(entry).len, mem_size(entry), entry_string_len(entry), blob ? blob->capacity - blob->len : 0,
             blob ? blob_memory(blob) : 0);
    reply_status(call->reply, text);
}
enum { DESCRIPTION_MAX = 64 * 1024 };
static void describe_tables(struct memory_output *text, const char *title, const struct hashtable_stats stats[2],
                            bool full) {
    char *description = mem_alloc(DESCRIPTION_MAX);
    size_t len = hashtable_describe(stats, description, DESCRIPTION_MAX, full);
    output_write(&text->out, slice_of(title));
    output_write(&text->out, (struct slice){description, len});
    mem_free(description);
}
static void run_htstats(struct call *call) {
    int64_t id;
    if (!parse_int64(call->argv[2], &id) || id > INT32_MAX || id < INT32_MIN) {
        reply_not_integer(call->reply);
        return;
    }
    struct db *db = id < 0 ? NULL : keyspace_db(server.keyspace, (int)id);
    if (!db) {
        reply_error(call->reply, "ERR Out of range database");
        return;
    }
    bool full = call->argc == 4 && slice_is(call->argv[3], "full");
    struct memory_output text = MEMORY_OUTPUT_INIT;
    struct hashtable_stats keys[2] = {{0}}, expires[2] = {{0}};
    db_keys_stats(db, keys);
    db_expires_stats(db, expires);
    describe_tables(&text, "[Dictionary HT]\n", keys, full);
    describe_tables(&text, "[Expires HT]\n", expires, full);
    reply_verbatim(call->reply, "txt", memory_output_slice(&text));
    memory_output_free(&text);
}
static void run_htstats_key(struct call *call) {
    struct entry *entry = find_entry(call, call->argv[2]);
    if (!entry) {
        reply_no_such_key(call->reply);
        return;
    }
    const struct debug_value_ops *ops = value_ops[entry_type(entry)];
    struct hashtable *table = ops && ops->table ? ops->table(entry) : NULL;
    if (!table) {
        reply_error(call->reply, "ERR The value stored at the specified key is not represented using an hash table");
        return;
    }
    struct hashtable_stats stats[2] = {{0}};
    struct memory_output text = MEMORY_OUTPUT_INIT;
    hashtable_stats_add(table, stats);
    describe_tables(&text, "", stats, call->argc == 4 && slice_is(call->argv[3], "full"));
    reply_verbatim(call->reply, "txt", memory_output_slice(&text));
    memory_output_free(&text);
}
/* A positive number, as POPULATE accepts it. */
static bool take_count(struct call *call, int index, int64_t *count) {
    if (parse_int64(call->argv[index], count) && *count >= 0) return true;
    return reply_error(call->reply, "ERR value is out of range, must be positive");
}
static void run_populate(struct call *call) {
    if (debug_refused_by_load(call)) return;
    int64_t count, size = -1;
    if (!take_count(call, 2, &count) || (call->argc > 4 && !take_count(call, 4, &size))) return;
    struct slice prefix = call->argc > 3 ? call->argv[3] : SLICE("key");
    size_t capacity = (size > 64 ? (size_t)size : 64);
    char *key = mem_alloc(prefix.len + 32), *value = mem_try_alloc(capacity);
    if (!value) {
        mem_free(key);
        reply_error(call->reply, "ERR value is out of range, must be positive");
        return;
    }
    db_expand(call->db, (size_t)count < 100000000 ? db_size(call->db) + (size_t)count : 0, 0);
    memcpy(key, prefix.data, prefix.len);
    key[prefix.len] = ':';
    for (int64_t i = 0; i < count; i++) {
        struct slice name = {key, prefix.len + 1 + format_int64(key + prefix.len + 1, i)};
        if (db_find(call->db, name, LOOKUP_NOTOUCH | LOOKUP_NOSTATS | LOOKUP_WRITE | LOOKUP_REPLACES)) continue;
        int len = snprintf(value, 64, "value:%lld", (long long)i);
        if (size > len) memset(value + len, 0, (size_t)(size - len));
        db_set_string(call->db, name, (struct slice){value, size > 0 ? (size_t)size : (size_t)len}, NULL, false);
        notify(call->db, NOTIFY_NEW, "new", name);
    }
    if (count) role_note_local_change();
    mem_free(key);
    mem_free(value);
    reply_ok(call->reply);
}

/* --- PROTOCOL --- */

static void reply_sample(struct call *call, const char *kind) {
    struct reply *r = call->reply;
    if (!strcmp(kind, "string"))
        reply_bulk_text(r, "Hello World");
    else if (!strcmp(kind, "integer"))
        reply_integer(r, 12345);
    else if (!strcmp(kind, "double"))
        reply_double(r, 3.141);
    else if (!strcmp(kind, "null"))
        reply_null(r);
    else if (!strcmp(kind, "verbatim"))
        reply_verbatim(r, "txt", SLICE("This is a verbatim\nstring"));
    else if (!strcmp(kind, "true") || !strcmp(kind, "false"))
        reply_boolean(r, *kind == 't');
    else if (!strcmp(kind, "bignum"))
        reply_big_number(r, SLICE("1234567999999999999999999999999999999"));
    else if (!strcmp(kind, "array") || !strcmp(kind, "set") || !strcmp(kind, "map")) {
        if (*kind == 'a')
            reply_array(r, 3);
        else if (*kind == 's')
            reply_set(r, 3);
        else
            reply_map(r, 3);
        for (int i = 0; i < 3; i++) {
            reply_integer(r, i);
            if (*kind == 'm') reply_boolean(r, i == 1);
        }
    }
}
static void run_protocol(struct call *call) {
    static const char *const kinds[] = {"string", "integer", "double",   "bignum", "null", "array",
                                        "set",    "map",     "verbatim", "true",   "false"};
    struct reply *r = call->reply;
    struct slice asked = call->argv[2];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (slice_is(asked, kinds[i])) {
            reply_sample(call, kinds[i]);
            return;
        }
    if (slice_is(asked, "attrib")) {
        if (r->protocol > 2) { /* RESP2 has no attributes */
            reply_attribute(r, 1);
            reply_bulk_text(r, "key-popularity");
            reply_array(r, 2);
            reply_field_integer(r, "key:123", 90);
        }
        reply_bulk_text(r, "Some real reply following the attribute");
    } else if (slice_is(asked, "push")) {
        if (r->protocol < 3) {
            reply_error(r, "ERR RESP2 is not supported by this command");
            return;
        }
        reply_bulk_text(r, "Some real reply following the push reply");
        reply_push(r, 2);
        reply_field_integer(r, "server-cpu-usage", 42);
    } else {
        reply_error(r, "ERR Wrong protocol type name. Please use one of the following: "
                       "string|integer|double|bignum|null|array|set|map|attrib|push|verbatim|true|false");
    }
}

const struct debug_subcommand debug_data_subcommands[] = {
    {"digest", 0, 0, run_digest, WORDS("DIGEST", "    Output a hex signature representing the current DB content.")},
    {"digest-value", 0, -1, run_digest_value,
     WORDS("DIGEST-VALUE <key> [<key> ...]", "    Output a hex signature of the values of all the specified keys.")},
    {"htstats", 1, 2, run_htstats,
     WORDS("HTSTATS <dbid> [full]", "    Return hash table statistics of the specified database.")},
    {"htstats-key", 1, 2, run_htstats_key,
     WORDS("HTSTATS-KEY <key> [full]", "    Like HTSTATS but for the hash table stored at <key>'s value.")},
    {"object", 1, 2, run_object,
     WORDS("OBJECT <key> [fast]", "    Show low level info about `key` and associated value.",
           "    Some fields of the default behavior may be time consuming to fetch,",
           "    and `fast` can be passed to avoid fetching them.")},
    {"sdslen", 1, 1, run_sdslen,
     WORDS("SDSLEN <key>", "    Show low level SDS string info representing `key` and value.")},
    {"populate", 1, 3, run_populate,
     WORDS("POPULATE <count> [<prefix>] [<size>]",
           "    Create <count> string keys named key:<num>. If <prefix> is specified then",
           "    it is used instead of the 'key' prefix. These are not propagated to",
           "    replicas. Cluster slots are not respected so keys not belonging to the",
           "    current node can be created in cluster mode.")},
    {"protocol", 1, 1, run_protocol,
     WORDS("PROTOCOL <type>", "    Reply with a test value of the specified type. <type> can be: string,",
           "    integer, double, bignum, null, array, set, map, attrib, push, verbatim,", "    true, false.")},
    {NULL, 0, 0, NULL, NULL}};
