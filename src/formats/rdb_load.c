/* rdb_load.c: reads RDB files and fragments; see rdb_file.h and rdb_fragment.h.
 *
 * Keys are added to their databases through a `struct bulk` (store/bulk.h), which prefetches the buckets of the tables.
 * Tables are expanded to their final size before the first key. RESIZEDB announces it for a database, SLOT_INFO or the
 * AUX field "slot-info" for a hash slot. The announced sizes may be wrong, so they are limited by the number of keys
 * that the rest of the file can hold. If the size of the input is unknown, the table of a database grows in steps
 * towards its announced size as keys arrive. */
#include "formats/rdb.h"
#include "formats/rdb_file.h"
#include "formats/rdb_fragment.h"
#include "formats/rdb_opcodes.h"
#include "lib/hash/crc32c.h"
#include "lib/hash/hash_slot.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "store/before_change.h"
#include "store/bulk.h"
#include <endian.h>
#include <errno.h>
#include <stdio.h>

enum {
    KEY_BYTES_MIN = 3,            /* minimum bytes of a key in a file: type, name, value */
    RESIZE_UNKNOWN_MAX = 1 << 16, /* keys to expand tables for at first if the size of the input is unknown */
    RESIZE_STEP = 8,              /* keys to expand tables for, for each key that has arrived */
    CHECKSUM_SINCE = 5,           /* version */
    SHOWN_MAX = 60                /* bytes of a key or name in a reason */
};

struct load {
    struct source *source;
    struct keyspace *keyspace;
    const struct rdb_load_params *params;
    const struct rdb_fragment_params *fragment; /* NULL: a file is read */
    struct rdb_load_result *result;
    struct rdb_reader in;
    struct bulk bulk;
    struct source_buffer key, value;
    struct db *db;
    uint64_t announced_keys, announced_expires; /* of the database */
    uint64_t expanded, arrived;                 /* expected size of its table; keys since RESIZEDB */
    uint64_t slot_capacity;                     /* keys for which tables of slots may still be expanded */
    /* Attributes of the next key; -1: not given. */
    int64_t expire_at, idle_seconds, frequency;
};

/* --- Before the records --- */

bool rdb_read_magic(struct source *source, int *version) {
    char magic[RDB_MAGIC_BYTES];
    *version = 0;
    if (!source_read(source, magic, sizeof magic)) return false;
    bool redis = memcmp(magic, "REDIS", 5) == 0, valkey = memcmp(magic, "VALKEY", 6) == 0, digits = true;
    for (size_t i = redis ? 5 : 6; i < sizeof magic; i++) {
        digits = digits && magic[i] >= '0' && magic[i] <= '9';
        *version = *version * 10 + (magic[i] - '0');
    }
    if ((!redis && !valkey) || !digits)
        return source_fail(source, -ENOTSUP, "Wrong signature trying to load DB from file: %.*s", RDB_MAGIC_BYTES,
                           magic);
    if (redis ? *version >= 1 && *version <= RDB_VERSION_FOREIGN_MAX : *version >= RDB_VERSION) return true;
    return source_fail(source, -ENOTSUP, "Can't handle RDB format version %d", *version);
}

static bool is_foreign(int version) {
    return version >= RDB_VERSION_FOREIGN_MIN && version <= RDB_VERSION_FOREIGN_MAX;
}
static bool read_version(struct load *load) {
    int *version = &load->result->version;
    if (!rdb_read_magic(load->source, version)) return false;
    if (load->params->relaxed_version || (!is_foreign(*version) && *version <= RDB_VERSION)) return true;
    return source_fail(load->source, -ENOTSUP, "Can't handle RDB format version %d", *version);
}

const char *rdb_reason(const struct source *source) {
    return source->truncated ? "Unexpected EOF reading RDB file" : source->reason;
}

const char *rdb_header_check(const char magic[static RDB_MAGIC_BYTES]) {
    static char reason[64];
    struct source source;
    int version;
    source_init_memory(&source, (struct slice){magic, RDB_MAGIC_BYTES});
    bool ok = rdb_read_magic(&source, &version);
    snprintf(reason, sizeof reason, ok ? "Can't handle RDB format version %d" : "Wrong signature of an RDB file",
             version);
    source_free(&source);
    return ok && rdb_version_accepted(version) ? NULL : reason;
}

/* --- Records --- */

/* Upper bound of the keys that the rest of the file can hold. */
static uint64_t keys_left(const struct load *load) {
    uint64_t left = source_left(load->source);
    return left == UINT64_MAX ? RESIZE_UNKNOWN_MAX : left / KEY_BYTES_MIN;
}

static void expand_slot(struct load *load, uint64_t slot, uint64_t keys, uint64_t expires) {
    if (slot >= HASH_SLOTS) return;
    if (keys > load->slot_capacity) keys = load->slot_capacity;
    if (expires > keys) expires = keys;
    load->slot_capacity -= keys;
    db_expand_slot(load->db, (unsigned)slot, (size_t)keys, (size_t)expires);
}

/* A text in another form is ignored like an unknown name, because it is only a hint. */
static void read_slot_info(struct load *load, struct slice text) {
    uint64_t numbers[4];
    for (int i = 0; i < 4; i++) {
        const char *comma = i < 3 && text.len ? memchr(text.data, ',', text.len) : text.data + text.len;
        if (!comma || !parse_uint64((struct slice){text.data, (size_t)(comma - text.data)}, &numbers[i])) return;
        if (i < 3) text = (struct slice){comma + 1, text.len - (size_t)(comma + 1 - text.data)};
    }
    expand_slot(load, numbers[0], numbers[1], numbers[2]);
}

static bool read_aux(struct load *load) {
    struct slice name, value;
    uint64_t number;
    if (!rdb_read_string_kept(&load->in, &load->key, &name) || !rdb_read_string(&load->in, &load->value, &value))
        return false;
    struct rdb_load_result *result = load->result;
    bool counts = parse_uint64(value, &number);
    if (counts && slice_equal(name, SLICE("used-mem"))) result->used_memory = number;
    if (counts && slice_equal(name, SLICE("aof-base"))) result->aof_base = number != 0;
    if (slice_equal(name, SLICE("slot-info"))) read_slot_info(load, value);
    if (!load->params->aux || load->params->aux(load->params->context, load->source, name, value)) {
        load->in.skip_expired = load->params->skip_expired;
        return true;
    }
    return source_fail(load->source, -EINVAL, "a field of the header is refused");
}

static bool read_library(struct load *load) {
    struct slice code;
    if (!rdb_read_string_kept(&load->in, &load->value, &code)) return false;
    load->result->libraries++;
    if (!load->params->library || load->params->library(load->params->context, load->source, code)) return true;
    return source_fail(load->source, -EINVAL, "a function library is refused");
}

static bool read_select(struct load *load) {
    uint64_t id = rdb_read_length(&load->in);
    if (load->source->failed) return false;
    if (id >= (uint64_t)keyspace_databases(load->keyspace))
        return source_fail(load->source, -EINVAL,
                           "database %llu in the file, but this server is configured for %d databases",
                           (unsigned long long)id, keyspace_databases(load->keyspace));
    load->db = keyspace_db(load->keyspace, (int)id);
    load->announced_keys = load->expanded = 0;
    return true;
}

static void expand_db(struct load *load, uint64_t most) {
    uint64_t keys = load->announced_keys < most ? load->announced_keys : most;
    uint64_t expires = load->announced_expires < keys ? load->announced_expires : keys;
    db_expand(load->db, (size_t)keys, (size_t)expires);
    load->expanded = keys;
}

static bool read_resize(struct load *load) {
    load->announced_keys = rdb_read_length(&load->in);
    load->announced_expires = rdb_read_length(&load->in);
    if (load->source->failed) return false;
    load->arrived = 0;
    expand_db(load, keys_left(load));
    return true;
}

static bool read_slot_sizes(struct load *load) {
    uint64_t slot = rdb_read_length(&load->in), keys = rdb_read_length(&load->in), expires = rdb_read_length(&load->in);
    if (load->source->failed) return false;
    expand_slot(load, slot, keys, expires);
    return true;
}

static bool read_expire_seconds(struct load *load) {
    uint32_t seconds;
    if (!source_read(load->source, &seconds, sizeof seconds)) return false;
    load->expire_at = (int64_t)(int32_t)le32toh(seconds) * 1000;
    return true;
}

static bool read_slot_import(struct load *load) {
    struct slice name;
    if (!rdb_read_string(&load->in, &load->value, &name)) return false;
    if (name.len != RDB_SLOT_IMPORT_NAME)
        return source_fail(load->source, -EINVAL, "Invalid slot import job name length in RDB");
    uint64_t count = rdb_read_length(&load->in);
    if (!load->source->failed && count > HASH_SLOTS)
        return source_fail(load->source, -EINVAL, "Invalid number of slot ranges in RDB");
    uint16_t(*ranges)[2] = mem_calloc(count + 1, sizeof(*ranges));
    for (uint64_t i = 0; i < count && !load->source->failed; i++) {
        uint64_t first = rdb_read_length(&load->in), last = rdb_read_length(&load->in);
        if (!load->source->failed && (first > last || last >= HASH_SLOTS))
            source_fail(load->source, -EINVAL, "Invalid slot range in RDB");
        ranges[i][0] = (uint16_t)first;
        ranges[i][1] = (uint16_t)last;
    }
    struct rdb_slot_import import = {.name = name, .count = (size_t)count, .ranges = (const uint16_t(*)[2])ranges};
    bool good = !load->source->failed;
    if (good && load->params->slot_import && !load->params->slot_import(load->params->context, load->source, &import))
        good = source_fail(load->source, -EINVAL, "a slot import is refused");
    mem_free(ranges);
    return good;
}

static bool read_extension_aux(struct load *load) {
    char name[EXTENSION_NAME + 1];
    uint64_t id = rdb_read_length(&load->in), kind = rdb_read_length(&load->in), when = rdb_read_length(&load->in);
    if (load->source->failed) return false;
    if (kind != RDB_ITEM_UNSIGNED) return source_fail(load->source, -EINVAL, "bad when_opcode");
    rdb_extension_name(id, name);
    const struct extension_type *type = extension_find(id);
    if (!type)
        return source_fail(load->source, -ENOTSUP,
                           "The RDB file contains AUX module data I can't load: no matching module '%s'", name);
    if (!type->methods->read_aux)
        return source_fail(
            load->source, -ENOTSUP,
            "The RDB file contains module AUX data, but the module '%s' doesn't seem to support that field.", name);
    int version = (int)(id & ((1 << EXTENSION_VERSION_BITS) - 1));
    if (!type->methods->read_aux(type, &load->in, version, when))
        return source_fail(load->source, -EINVAL,
                           "The RDB file contains module AUX data for the module type '%s', that the responsible "
                           "module is not able to load. Check for modules log above for additional clues.",
                           name);
    uint64_t end = rdb_read_length(&load->in);
    if (!load->source->failed && end != RDB_ITEM_END)
        return source_fail(load->source, -EINVAL,
                           "The RDB file contains module AUX data for the module '%s' that is not terminated by the "
                           "proper module value EOF marker",
                           name);
    return !load->source->failed;
}

/* --- Keys --- */

static bool fail_duplicate(struct load *load, struct slice key) {
    int shown = key.len > SHOWN_MAX ? SHOWN_MAX : (int)key.len;
    return source_fail(load->source, -EEXIST, "RDB has duplicated key '%.*s' in DB %d", shown, key.data,
                       db_id(load->db));
}
static bool flush(struct load *load) {
    return bulk_flush(&load->bulk) || fail_duplicate(load, entry_key(load->bulk.duplicate));
}

/* A hash with field expiration is added to the database while it is read, so its key must be deleted first. */
static bool prepare_key(struct load *load, struct slice key) {
    enum { AS_IT_IS = LOOKUP_NOTOUCH | LOOKUP_NOSTATS | LOOKUP_NOEXPIRE };
    if (!flush(load)) return false;
    if (!db_find(load->db, key, AS_IT_IS)) return true;
    if (load->params->duplicates == RDB_DUPLICATE_REFUSED) return fail_duplicate(load, key);
    db_delete(load->db, key, false);
    return true;
}

static bool read_key(struct load *load, uint8_t type) {
    struct slice key;
    bool attached;
    if (!rdb_read_string_kept(&load->in, &load->key, &key)) return false;
    unsigned slot = load->fragment ? hash_slot(key) : 0;
    if (load->fragment && !load->fragment->slot_belongs(load->fragment->context, slot))
        return source_fail(load->source, -EINVAL, "a key that does not belong here");
    before_key_changes(load->db, key); /* the value is built, and may be reported, before the key is added */
    if (type == RDB_HASH_EXPIRING && !prepare_key(load, key)) return false;
    struct entry *entry = rdb_read_entry(&load->in, type, load->db, key, load->expire_at, &attached);
    if (load->source->failed) return false;
    if (!entry) {
        if (load->in.all_expired) {
            load->result->expired_hashes++;
        } else {
            load->result->empty++;
            if (load->params->key_empty) load->params->key_empty(load->params->context, key);
        }
    } else if (load->params->skip_expired && load->expire_at >= 0 && load->expire_at < clock_data_ms()) {
        load->result->expired++;
        if (attached)
            db_delete(load->db, key, false);
        else
            entry_discard(entry);
    } else {
        entry_set_access(entry, load->idle_seconds, load->frequency);
        if (load->fragment && load->fragment->key_read)
            load->fragment->key_read(load->fragment->context, load->db, entry);
        if (load->fragment) key_slot_announce(entry_key(entry), slot); /* it is not computed again */
        bool added = attached || bulk_add(&load->bulk, load->db, entry);
        if (load->fragment) key_slot_withdraw();
        if (!added) return fail_duplicate(load, entry_key(load->bulk.duplicate));
        if (load->params->key_added) {
            if (!flush(load)) return false;
            load->params->key_added(load->params->context, load->db, key);
        }
        load->slot_capacity += RESIZE_STEP;
        if (++load->arrived == load->expanded && load->expanded < load->announced_keys)
            expand_db(load, load->expanded * RESIZE_STEP);
        load->result->keys++;
        load->result->expires += load->expire_at >= 0;
    }
    load->expire_at = load->idle_seconds = load->frequency = -1;
    if (load->params->key_loaded) load->params->key_loaded(load->params->context);
    return true;
}

/* --- The whole value --- */

static bool read_record(struct load *load, uint8_t code) {
    struct rdb_reader *in = &load->in;
    uint8_t frequency;
    /* In Redis these numbers have, or may get, other meanings. */
    if (load->result->version <= RDB_VERSION_FOREIGN_MAX && code > RDB_STREAM_3 && code < RDB_OPCODE_SLOT_IMPORT)
        return source_fail(load->source, -ENOTSUP, "Can't handle foreign type or opcode %u in RDB with version %d",
                           code, load->result->version);
    switch (code) {
    case RDB_OPCODE_EXPIRETIME: return read_expire_seconds(load);
    case RDB_OPCODE_EXPIRETIME_MS: load->expire_at = rdb_read_time(in); break;
    case RDB_OPCODE_FREQ:
        if (source_byte(load->source, &frequency)) load->frequency = frequency;
        break;
    case RDB_OPCODE_IDLE: load->idle_seconds = (int64_t)(rdb_read_length(in) & INT64_MAX); break;
    case RDB_OPCODE_SELECTDB: return read_select(load);
    case RDB_OPCODE_RESIZEDB: return read_resize(load);
    case RDB_OPCODE_AUX: return read_aux(load);
    case RDB_OPCODE_FUNCTION2: return read_library(load);
    case RDB_OPCODE_SLOT_INFO: return read_slot_sizes(load);
    case RDB_OPCODE_SLOT_IMPORT: return read_slot_import(load);
    case RDB_OPCODE_MODULE_AUX: return read_extension_aux(load);
    case RDB_OPCODE_FUNCTION_PRE_GA:
        return source_fail(load->source, -ENOTSUP, "Pre-release function format not supported.");
    default: return read_key(load, code);
    }
    return !load->source->failed;
}

static bool read_end(struct load *load) {
    uint64_t sum = source_checksum(load->source), stored;
    if (load->source->failed || !flush(load)) return false;
    if (load->result->version < CHECKSUM_SINCE) return true;
    if (!source_read(load->source, &stored, sizeof stored)) return false;
    stored = le64toh(stored);
    load->result->unchecked = stored == 0 && !load->params->ignore_checksum;
    if (stored == 0 || stored == sum || load->params->ignore_checksum) return true;
    return source_fail(load->source, -EILSEQ, "RDB CRC error: Wrong RDB checksum expected: (%llx) but got (%llx)",
                       (unsigned long long)sum, (unsigned long long)stored);
}

static bool read_all(struct load *load) {
    uint8_t code;
    if (!read_version(load)) return false;
    while (source_byte(load->source, &code)) {
        if (code == RDB_OPCODE_EOF) return read_end(load);
        if (!read_record(load, code)) return false;
    }
    return false;
}

static int load_end(struct load *load, bool good) {
    struct source *source = load->source;
    if (!good) bulk_flush(&load->bulk);
    bulk_free(&load->bulk);
    rdb_reader_free(&load->in);
    source_buffer_free(&load->key);
    source_buffer_free(&load->value);
    load->result->offset = source_offset(source);
    if (good) return 0;
    snprintf(load->result->reason, sizeof load->result->reason, "%s", rdb_reason(source));
    return source->error ? source->error : -EINVAL;
}

int rdb_load(struct source *source, struct keyspace *keyspace, const struct rdb_load_params *params,
             struct rdb_load_result *result) {
    struct load load = {.source = source, .keyspace = keyspace, .params = params, .result = result};
    *result = (struct rdb_load_result){0};
    load.expire_at = load.idle_seconds = load.frequency = -1;
    load.db = keyspace_db(keyspace, 0);
    load.slot_capacity = keys_left(&load);
    rdb_reader_init(&load.in, source);
    load.in.skip_expired = params->skip_expired;
    bulk_init(&load.bulk, params->duplicates == RDB_DUPLICATE_REPLACES);
    if (!params->ignore_checksum) source_start_checksum(source);
    source_use_helper(source);
    bool good = read_all(&load);
    source_settle(source);
    return load_end(&load, good);
}

/* --- Fragments --- */

static bool read_fragment_record(struct load *load, uint8_t code) {
    switch (code) {
    case RDB_OPCODE_EXPIRETIME_MS: load->expire_at = rdb_read_time(&load->in); break;
    case RDB_OPCODE_SELECTDB: return read_select(load);
    case RDB_OPCODE_SLOT_INFO: return read_slot_sizes(load);
    default:
        if (code <= RDB_HASH_EXPIRING && code != RDB_MODULE_2) return read_key(load, code);
        return source_fail(load->source, -EINVAL, "record %u does not belong in a fragment", code);
    }
    return !load->source->failed;
}

static bool read_fragment(struct load *load, struct slice bytes) {
    uint32_t sum;
    uint8_t code;
    if (bytes.len <= sizeof sum || bytes.len > RDB_FRAGMENT_MAX)
        return source_fail(load->source, -EINVAL, "a fragment of %zu bytes", bytes.len);
    memcpy(&sum, bytes.data + bytes.len - sizeof sum, sizeof sum);
    if (le32toh(sum) != crc32c(0, bytes.data, bytes.len - sizeof sum))
        return source_fail(load->source, -EILSEQ, "a fragment with a wrong checksum");
    while (source_byte(load->source, &code)) {
        if (code != RDB_OPCODE_EOF) {
            if (!read_fragment_record(load, code)) return false;
            continue;
        }
        if (!source_at_end(load->source))
            return source_fail(load->source, -EINVAL, "bytes after the end of a fragment");
        return flush(load);
    }
    return false;
}

int rdb_fragment_load(struct slice bytes, struct keyspace *keyspace, const struct rdb_fragment_params *params,
                      struct rdb_load_result *result) {
    static const struct rdb_load_params all = {.duplicates = RDB_DUPLICATE_REFUSED};
    struct source source;
    struct load load = {.source = &source, .keyspace = keyspace, .params = &all, .fragment = params, .result = result};
    *result = (struct rdb_load_result){.version = RDB_VERSION};
    load.expire_at = load.idle_seconds = load.frequency = -1;
    load.db = keyspace_db(keyspace, 0);
    size_t records = bytes.len > sizeof(uint32_t) ? bytes.len - sizeof(uint32_t) : 0;
    source_init_memory(&source, slice_make(bytes.data, records));
    load.slot_capacity = keys_left(&load);
    rdb_reader_init(&load.in, &source);
    bulk_init(&load.bulk, false);
    int error = load_end(&load, read_fragment(&load, bytes));
    source_free(&source);
    return error;
}
