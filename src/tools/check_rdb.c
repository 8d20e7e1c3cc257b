/* check_rdb.c: see check_rdb.h. Reads one value at a time, with the server's code, and frees it. Data of modules are
 * read past. */
#include "tools/check_rdb.h"
#include "formats/rdb.h"
#include "formats/rdb_file.h"
#include "formats/rdb_opcodes.h"
#include "lib/system/clock.h"
#include "store/bulk.h"
#include "store/types.h"
#include "tools/check_rdb_stats.h"
#include <endian.h>
#include <errno.h>

enum { CHECKSUM_SINCE = 5, KEY_SHOWN_MAX = 1024 };
#define WRONG_SIGNATURE "Wrong signature trying to load DB from file"

struct rdb_check {
    struct source *source;
    struct rdb_reader in;
    struct source_buffer key;
    struct db *db; /* for hashes with field expiration */
    struct check_rdb_stats *stats;
    int version;
    const char *doing;
    int type;          /* RDB type of the current value; -1: none */
    struct slice name; /* its key; NULL: not read yet */
    uint64_t database, keys, expires, expired, functions;
    int64_t expire_at;
};

static void say(const struct rdb_check *check, const char *text) {
    printf("[offset %llu] %s\n", (unsigned long long)source_offset(check->source), text);
}

static const char *type_name(int type) {
    static const char *const names[] = {
        [RDB_STRING] = "string",
        [RDB_LIST] = "list-linked",
        [RDB_SET] = "set-hashtable",
        [RDB_ZSET] = "zset-v1",
        [RDB_HASH] = "hash-hashtable",
        [RDB_ZSET_2] = "zset-v2",
        [RDB_MODULE] = "module-pre-release",
        [RDB_MODULE_2] = "module-value",
        [RDB_HASH_ZIPMAP] = "hash-zipmap",
        [RDB_LIST_ZIPLIST] = "list-ziplist",
        [RDB_SET_INTSET] = "set-intset",
        [RDB_ZSET_ZIPLIST] = "zset-ziplist",
        [RDB_HASH_ZIPLIST] = "hash-ziplist",
        [RDB_LIST_QUICKLIST] = "quicklist",
        [RDB_STREAM] = "stream",
        [RDB_HASH_LISTPACK] = "hash-listpack",
        [RDB_ZSET_LISTPACK] = "zset-listpack",
        [RDB_LIST_QUICKLIST_2] = "quicklist-v2",
        [RDB_STREAM_2] = "stream-v2",
        [RDB_SET_LISTPACK] = "set-listpack",
        [RDB_STREAM_3] = "stream-v3",
        [RDB_HASH_EXPIRING] = "hash-volatile-items",
    };
    return type < (int)(sizeof names / sizeof *names) ? names[type] : NULL;
}

static bool foreign(const struct rdb_check *check) {
    return check->version >= RDB_VERSION_FOREIGN_MIN && check->version <= RDB_VERSION_FOREIGN_MAX;
}

/* --- Records --- */

static bool read_head(struct rdb_check *check) {
    char text[64];
    check->doing = "start";
    if (!rdb_read_magic(check->source, &check->version)) return false;
    if (check->version <= RDB_VERSION && !foreign(check)) return true;
    snprintf(text, sizeof text, "%s RDB version %d detected", foreign(check) ? "Foreign" : "Future", check->version);
    say(check, text);
    return true;
}

static bool read_aux(struct rdb_check *check) {
    struct slice name, value;
    check->doing = "read-aux";
    if (!rdb_read_string_kept(&check->in, &check->key, &name) ||
        !rdb_read_string(&check->in, &check->in.second, &value))
        return false;
    printf("[offset %llu] AUX FIELD %.*s = '%.*s'\n", (unsigned long long)source_offset(check->source), (int)name.len,
           name.data, (int)value.len, value.data);
    return true;
}

static bool read_select(struct rdb_check *check) {
    check->doing = "read-len";
    check->database = rdb_read_length(&check->in);
    if (check->source->failed) return false;
    printf("[offset %llu] Selecting DB ID %llu\n", (unsigned long long)source_offset(check->source),
           (unsigned long long)check->database);
    return true;
}

static bool read_expire(struct rdb_check *check, bool seconds) {
    uint32_t value;
    check->doing = "read-expire";
    if (!seconds) {
        check->expire_at = rdb_read_time(&check->in);
    } else if (source_read(check->source, &value, sizeof value)) {
        check->expire_at = (int64_t)(int32_t)le32toh(value) * 1000;
    }
    return !check->source->failed;
}

static bool read_function(struct rdb_check *check) {
    check->doing = "read-functions";
    if (!rdb_skip_string(&check->in)) return false;
    check->functions++;
    return true;
}

static bool skip_lengths(struct rdb_check *check, uint64_t count) {
    for (; count && !check->source->failed; count--) rdb_read_length(&check->in);
    return !check->source->failed;
}
static bool skip_slot_import(struct rdb_check *check) {
    struct slice name;
    if (!rdb_read_string(&check->in, &check->in.second, &name)) return false;
    if (name.len != RDB_SLOT_IMPORT_NAME)
        return source_fail(check->source, -EINVAL, "Invalid slot import job name length in RDB");
    uint64_t ranges = rdb_read_length(&check->in);
    return skip_lengths(check, ranges > UINT64_MAX / 2 ? UINT64_MAX : 2 * ranges);
}

static bool skip_module_aux(struct rdb_check *check) {
    char name[EXTENSION_NAME + 1], text[64];
    check->doing = "read-module-aux";
    uint64_t id = rdb_read_length(&check->in), code = rdb_read_length(&check->in);
    rdb_read_length(&check->in); /* before or after the keys */
    if (check->source->failed) return false;
    if (code != RDB_ITEM_UNSIGNED) return source_fail(check->source, -EINVAL, "bad when_opcode");
    rdb_extension_name(id, name);
    snprintf(text, sizeof text, "MODULE AUX for: %s", name);
    say(check, text);
    return rdb_skip_items(&check->in);
}

static bool skip_module_value(struct rdb_check *check, bool expires, bool expired) {
    uint64_t began = source_offset(check->source);
    rdb_read_length(&check->in); /* the module and the version of its encoding */
    if (!rdb_skip_items(&check->in)) return false;
    if (check->stats)
        check_rdb_stats_add_module(check->stats, check->database, check->name.len, source_offset(check->source) - began,
                                   expires, expired);
    return true;
}

static bool read_value(struct rdb_check *check, uint8_t type, bool expires, bool expired) {
    bool attached;
    struct entry *entry = rdb_read_entry(&check->in, type, check->db, check->name, -1, &attached);
    if (check->source->failed) return false;
    if (!entry) return source_fail(check->source, -EINVAL, "A value without elements");
    if (check->stats) check_rdb_stats_add(check->stats, check->database, entry, expires, expired);
    if (attached)
        db_delete(check->db, check->name, false);
    else
        entry_discard(entry);
    return true;
}

static bool read_key(struct rdb_check *check, uint8_t type) {
    struct slice name;
    if (!type_name(type) || (foreign(check) && type > RDB_STREAM_3)) {
        if (foreign(check) || check->version > RDB_VERSION)
            return source_fail(check->source, -EINVAL, "Unknown object type %u in RDB file with %s version %d", type,
                               foreign(check) ? "foreign" : "future", check->version);
        return source_fail(check->source, -EINVAL, "Invalid object type: %u", type);
    }
    check->type = type;
    check->doing = "read-key";
    if (!rdb_read_string_kept(&check->in, &check->key, &name)) return false;
    check->name = name;
    check->keys++;
    check->doing = "read-object-value";
    if (type == RDB_MODULE) return source_fail(check->source, -ENOTSUP, "Pre-release module format not supported");
    bool expires = check->expire_at >= 0, expired = expires && check->expire_at < clock_ms();
    bool is_module = type == RDB_MODULE_2;
    if (!(is_module ? skip_module_value(check, expires, expired) : read_value(check, type, expires, expired)))
        return false;
    check->expires += expires;
    check->expired += expired;
    check->expire_at = check->type = -1;
    check->name = (struct slice){NULL, 0};
    return true;
}

static bool read_record(struct rdb_check *check, uint8_t code) {
    switch (code) {
    case RDB_OPCODE_EXPIRETIME: return read_expire(check, true);
    case RDB_OPCODE_EXPIRETIME_MS: return read_expire(check, false);
    case RDB_OPCODE_FREQ: return source_skip(check->source, 1);
    case RDB_OPCODE_IDLE: return skip_lengths(check, 1);
    case RDB_OPCODE_SELECTDB: return read_select(check);
    case RDB_OPCODE_RESIZEDB: check->doing = "read-len"; return skip_lengths(check, 2);
    case RDB_OPCODE_AUX: return read_aux(check);
    case RDB_OPCODE_FUNCTION2: return read_function(check);
    case RDB_OPCODE_SLOT_INFO: return skip_lengths(check, 3);
    case RDB_OPCODE_SLOT_IMPORT: return skip_slot_import(check);
    case RDB_OPCODE_MODULE_AUX: return skip_module_aux(check);
    case RDB_OPCODE_FUNCTION_PRE_GA:
        return source_fail(check->source, -ENOTSUP, "Pre-release function format not supported %d", check->version);
    default: return read_key(check, code);
    }
}

static bool read_checksum(struct rdb_check *check) {
    check->doing = "check-sum";
    if (check->version < CHECKSUM_SINCE) return true;
    uint64_t sum = source_checksum(check->source), stored;
    if (!source_read(check->source, &stored, sizeof stored)) return false;
    stored = le64toh(stored);
    if (stored == 0)
        say(check, "RDB file was saved with checksum disabled: no check performed.");
    else if (stored == sum)
        say(check, "Checksum OK");
    else
        return source_fail(check->source, -EILSEQ, "RDB CRC error");
    return true;
}

static bool read_all(struct rdb_check *check) {
    uint8_t code;
    if (!read_head(check)) return false;
    for (;;) {
        check->doing = "read-type";
        if (!source_byte(check->source, &code)) return false;
        if (code == RDB_OPCODE_EOF) return read_checksum(check);
        if (!read_record(check, code)) return false;
    }
}

/* --- Output --- */

static void show_counts(const struct rdb_check *check) {
    printf("[info] %llu keys read\n", (unsigned long long)check->keys);
    printf("[info] %llu expires\n", (unsigned long long)check->expires);
    printf("[info] %llu already expired\n", (unsigned long long)check->expired);
    printf("[info] %llu functions\n", (unsigned long long)check->functions);
}

static void show_end(const struct rdb_check *check, int status) {
    printf("[offset %llu] Check RDB returned error code %d (0 means success)\n",
           (unsigned long long)source_offset(check->source), status);
}

static void show_failure(const struct rdb_check *check) {
    printf("--- RDB ERROR DETECTED ---\n");
    const char *reason = rdb_reason(check->source);
    if (strncmp(reason, WRONG_SIGNATURE, strlen(WRONG_SIGNATURE)) == 0)
        say(check, WRONG_SIGNATURE); /* only the server shows the bytes */
    else
        say(check, reason);
    printf("[additional info] While doing: %s\n", check->doing);
    if (check->name.data)
        printf("[additional info] Reading key '%.*s'\n",
               check->name.len < KEY_SHOWN_MAX ? (int)check->name.len : KEY_SHOWN_MAX, check->name.data);
    if (check->type >= 0) printf("[additional info] Reading type %d (%s)\n", check->type, type_name(check->type));
    show_counts(check);
}

static void show_success(const struct rdb_check *check) {
    show_end(check, 0);
    say(check, foreign(check) || check->version > RDB_VERSION
                   ? "\\o/ RDB looks OK, but loading requires config 'rdb-version-check relaxed'"
                   : "\\o/ RDB looks OK! \\o/");
    show_counts(check);
}

bool check_rdb(struct source *source, const char *name, const struct check_rdb_options *options) {
    struct rdb_check check = {.source = source, .type = -1, .expire_at = -1};
    clock_update();
    store_types_register();
    struct keyspace *keyspace = keyspace_new(1, NULL);
    check.db = keyspace_db(keyspace, 0);
    rdb_reader_init(&check.in, source);
    if (options->stats) check.stats = check_rdb_stats_new();
    printf("[offset 0] Checking RDB file %s\n", name);
    source_start_checksum(source);
    bool good = read_all(&check);
    if (good)
        show_success(&check);
    else
        show_failure(&check);
    if (check.stats) {
        check_rdb_stats_print(check.stats, options->format, options->output);
        check_rdb_stats_free(check.stats);
    }
    if (!good) show_end(&check, 1);
    source_buffer_free(&check.key);
    rdb_reader_free(&check.in);
    keyspace_free(keyspace);
    return good;
}
