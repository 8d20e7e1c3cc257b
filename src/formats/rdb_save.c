/* rdb_save.c: writes RDB files; see rdb_file.h. */
#include "formats/rdb.h"
#include "formats/rdb_file.h"
#include "formats/rdb_opcodes.h"
#include "lib/hash/hash_slot.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/version.h"
#include "lib/text/number.h"
#include <endian.h>
#include <errno.h>
#include <stdio.h>

enum {
    CHECK_KEYS = 1024,
    AHEAD = 8 /* keys whose values are prefetched while others are written */
};

static void write_aux(struct output *out, struct slice name, struct slice value) {
    output_write_byte(out, RDB_OPCODE_AUX);
    rdb_write_string(out, name);
    rdb_write_string(out, value);
}
static void write_aux_number(struct output *out, struct slice name, int64_t value) {
    char text[NUMBER_TEXT_MAX];
    write_aux(out, name, (struct slice){text, format_int64(text, value)});
}

static void write_extensions(struct output *out, const struct rdb_save_params *params, bool after_keys) {
    if (params->without_keys) return;
    list_each(&extension_types, link) {
        const struct extension_type *type = container_of(link, struct extension_type, link);
        if (type->methods->write_aux) type->methods->write_aux(type, after_keys, out);
    }
}

static void write_head(struct output *out, const struct rdb_save_params *params, int version) {
    char magic[RDB_MAGIC_BYTES + 1];
    snprintf(magic, sizeof magic, version >= RDB_VERSION ? "VALKEY%03u" : "REDIS%04u", (unsigned)version % 1000);
    output_write(out, (struct slice){magic, RDB_MAGIC_BYTES});
    write_aux(out, SLICE("valkey-ver"), SLICE(PROJECT_VERSION));
    write_aux_number(out, SLICE("redis-bits"), sizeof(void *) * 8);
    write_aux_number(out, SLICE("ctime"), clock_wall_us() / 1000000);
    write_aux_number(out, SLICE("used-mem"), (int64_t)mem_used());
    for (size_t i = 0; i < params->aux_count; i++) write_aux(out, params->aux[i].name, params->aux[i].value);
    write_aux_number(out, SLICE("aof-base"), params->aof_base);
    for (size_t i = 0; i < params->import_count && version >= RDB_VERSION; i++) {
        const struct rdb_slot_import *import = &params->imports[i];
        output_write_byte(out, RDB_OPCODE_SLOT_IMPORT);
        rdb_write_string(out, import->name);
        rdb_write_length(out, import->count);
        for (size_t j = 0; j < import->count; j++) {
            rdb_write_length(out, import->ranges[j][0]);
            rdb_write_length(out, import->ranges[j][1]);
        }
    }
    write_extensions(out, params, false);
    for (size_t i = 0; i < params->library_count; i++) {
        output_write_byte(out, RDB_OPCODE_FUNCTION2);
        rdb_write_string(out, params->libraries[i]);
    }
}

uint32_t rdb_access_data(const struct entry *entry, enum rdb_access access) {
    return access == RDB_ACCESS_IDLE        ? entry_idle_seconds(entry)
           : access == RDB_ACCESS_FREQUENCY ? entry_frequency(entry)
                                            : 0;
}

enum rdb_type rdb_write_key_head(struct output *out, const struct entry *entry, enum rdb_access access,
                                 uint32_t access_data, int version) {
    int64_t expire_at = entry_expire_at(entry);
    if (expire_at >= 0) {
        output_write_byte(out, RDB_OPCODE_EXPIRETIME_MS);
        rdb_write_time(out, expire_at);
    }
    if (access == RDB_ACCESS_IDLE) {
        output_write_byte(out, RDB_OPCODE_IDLE);
        rdb_write_length(out, access_data);
    } else if (access == RDB_ACCESS_FREQUENCY) {
        output_write_byte(out, RDB_OPCODE_FREQ);
        output_write_byte(out, (uint8_t)access_data);
    }
    enum rdb_type type = rdb_value_type(entry, version);
    output_write_byte(out, (uint8_t)type);
    rdb_write_string(out, entry_key(entry));
    return type;
}

void rdb_write_key(struct output *out, const struct entry *entry, int db, enum rdb_access access, int version) {
    rdb_write_value(out, entry, db, rdb_write_key_head(out, entry, access, rdb_access_data(entry, access), version));
}

/* "slot-info": the slot, and its keys, keys with an expiry, and keys with items that expire. */
static void write_slot_info(struct output *out, struct db *db, unsigned slot) {
    char text[4 * NUMBER_TEXT_MAX];
    struct db_slot_size size = db_slot_size(db, slot);
    int len = snprintf(text, sizeof text, "%u,%zu,%zu,%zu", slot, size.keys, size.expires, size.expiring);
    write_aux(out, SLICE("slot-info"), (struct slice){text, (size_t)len});
}

/* Where a database is written. */
struct db_writer {
    struct sink *sink;
    struct db *db;
    const struct rdb_save_params *params;
    int version;
    uint64_t *keys;
};

/* Writes `count` keys: all that are visible, or those of a slot. */
static int write_keys(const struct db_writer *writer, int only_slot, size_t count) {
    const struct rdb_save_params *params = writer->params;
    struct output *out = &writer->sink->out;
    struct db *db = writer->db;
    int error = 0, slot = -1;
    struct entry *ahead[AHEAD] = {NULL};
    struct db_iterator *it = db_iterate(db, only_slot);
    for (size_t at = 0, left = count + AHEAD; left && !error; at = (at + 1) % AHEAD, left--) {
        struct entry *entry = ahead[at];
        if ((ahead[at] = db_iterate_next(it))) entry_prefetch_value(ahead[at]);
        if (!entry) continue; /* the ring is not full yet */
        if (writer->version < RDB_VERSION && rdb_value_version(entry) == RDB_VERSION) {
            error = -ENOTSUP;
            break;
        }
        if (db_is_per_slot(db) && (int)hash_slot(entry_key(entry)) != slot) {
            slot = (int)hash_slot(entry_key(entry));
            write_slot_info(out, db, (unsigned)slot);
        }
        rdb_write_key(out, entry, db_id(db), params->access, writer->version);
        if (params->key_saved) params->key_saved();
        if (++*writer->keys % CHECK_KEYS) continue;
        error = sink_error(writer->sink);
    }
    db_iterate_end(it);
    return error;
}

static void write_select(struct output *out, int db) {
    output_write_byte(out, RDB_OPCODE_SELECTDB);
    rdb_write_length(out, (uint64_t)db);
}
/* False: the database is empty. */
static bool write_db_head(struct output *out, struct db *db) {
    struct db_slot_size hidden = db_hidden_size(db);
    if (!db_size(db) && !hidden.keys) return false;
    write_select(out, db_id(db));
    output_write_byte(out, RDB_OPCODE_RESIZEDB);
    rdb_write_length(out, db_size(db) + hidden.keys);
    rdb_write_length(out, db_expires(db) + hidden.expires);
    return true;
}

static int write_db(const struct db_writer *writer) {
    struct db *db = writer->db;
    struct db_slot_size hidden = db_hidden_size(db);
    if (!write_db_head(&writer->sink->out, db)) return 0;
    int error = write_keys(writer, -1, db_size(db));
    for (unsigned slot = 0; hidden.keys && slot < HASH_SLOTS && !error; slot++)
        if (keyspace_slot_is_hidden(slot)) error = write_keys(writer, (int)slot, db_slot_size(db, slot).keys);
    return error;
}

static int least_version(struct keyspace *keyspace, const struct rdb_save_params *params) {
    if (params->import_count || keyspace_hidden_slots()) return RDB_VERSION;
    for (int id = 0; id < keyspace_databases(keyspace); id++)
        if (db_expiring(keyspace_db(keyspace, id))) return RDB_VERSION;
    return RDB_VERSION_COMMON;
}

/* --- An entry at a time --- */

int rdb_entries_begin(struct rdb_entries *entries, struct output *out, struct keyspace *keyspace,
                      const struct rdb_save_params *params) {
    int version = params->version ? params->version : least_version(keyspace, params);
    *entries = (struct rdb_entries){.out = out,
                                    .keyspace = keyspace,
                                    .per_slot = db_is_per_slot(keyspace_db(keyspace, 0)),
                                    .db = -1,
                                    .version = version};
    entries->access = params->access;
    write_head(out, params, version);
    for (int id = 0; id < keyspace_databases(keyspace) && !params->without_keys; id++)
        write_db_head(out, keyspace_db(keyspace, id));
    memory_output_init_try(&entries->end);
    write_extensions(&entries->end.out, params, true);
    return entries->end.out.failed ? -ENOMEM : 0;
}

/* Keys of one slot come in one piece, except those that are about to change. */
static void announce_slot(struct rdb_entries *entries, int id, unsigned slot) {
    struct db *db = keyspace_db(entries->keyspace, id);
    if (!entries->slots)
        entries->slots = mem_calloc((size_t)keyspace_databases(entries->keyspace), sizeof *entries->slots);
    if (slot_bitmap_has(&entries->slots[id], slot)) return;
    slot_bitmap_set(&entries->slots[id], slot);
    write_slot_info(entries->out, db, slot);
}

int rdb_entries_place(struct rdb_entries *entries, int db, const struct entry *entry) {
    if (entries->version < RDB_VERSION && rdb_value_version(entry) == RDB_VERSION) return -ENOTSUP;
    if (db != entries->db) write_select(entries->out, db);
    entries->db = db;
    if (entries->per_slot) announce_slot(entries, db, hash_slot(entry_key(entry)));
    return 0;
}

int rdb_entries_add(struct rdb_entries *entries, int db, const struct entry *entry) {
    int error = rdb_entries_place(entries, db, entry);
    if (!error) rdb_write_key(entries->out, entry, db, entries->access, entries->version);
    return error;
}

void rdb_entries_end(struct rdb_entries *entries) {
    output_write(entries->out, memory_output_slice(&entries->end));
    output_write_byte(entries->out, RDB_OPCODE_EOF);
}
void rdb_entries_free(struct rdb_entries *entries) {
    memory_output_free(&entries->end);
    mem_free(entries->slots);
}

int rdb_write_checksum(struct sink *sink) {
    uint64_t sum = htole64(sink->checksum ? sink_checksum(sink) : 0);
    output_write(&sink->out, slice_make(&sum, sizeof sum));
    return sink_flush(sink);
}

/* --- All of it --- */

int rdb_save(struct sink *sink, struct keyspace *keyspace, const struct rdb_save_params *params) {
    int version = params->version ? params->version : least_version(keyspace, params), error = 0;
    uint64_t keys = 0;
    write_head(&sink->out, params, version);
    for (int id = 0; id < keyspace_databases(keyspace) && !error; id++) {
        struct db_writer writer = {sink, keyspace_db(keyspace, id), params, version, &keys};
        if (!params->without_keys) error = write_db(&writer);
    }
    if (error) return error;
    write_extensions(&sink->out, params, true);
    output_write_byte(&sink->out, RDB_OPCODE_EOF);
    return rdb_write_checksum(sink);
}
