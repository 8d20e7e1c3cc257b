/* rdb_file.h: RDB files: a whole data set as one stream of bytes, read from a source or written to a sink.
 *
 *     magic     9 bytes: "REDIS0011", or "VALKEY080"
 *     records   an opcode, or the type of a value (rdb.h), and its data
 *     0xff      the end
 *     checksum  CRC-64 of all bytes before it, 8 bytes, little-endian; 0: not computed. Since version 5
 *
 *     opcode                  data
 *     0xff  EOF
 *     0xfe  SELECTDB          number of the database, as a length
 *     0xfd  EXPIRETIME        of the next key: seconds since the epoch, 4 bytes, little-endian, signed
 *     0xfc  EXPIRETIME_MS     milliseconds, 8 bytes, little-endian, signed
 *     0xfb  RESIZEDB          keys of the database, and those with an expiry: two lengths
 *     0xfa  AUX               name and value, strings. Unknown names are ignored. "slot-info" precedes the keys of a
 *                             hash slot in files of a cluster: slot, keys, keys that expire, and keys with fields that
 *                             expire, as decimal numbers with commas between them
 *     0xf9  FREQ              LFU counter of the next key, 1 byte
 *     0xf8  IDLE              idle seconds of the next key, a length
 *     0xf7  MODULE_AUX        data of an extension that belong to no key: its id, when (kind and data of an item: 1
 *                             before the keys, 2 after them), items and their end (rdb.h)
 *     0xf6  FUNCTION_PRE_GA   function library of a release candidate of Redis 7.0: refused
 *     0xf5  FUNCTION2         code of a function library, a string
 *     0xf4  SLOT_INFO         hash slot, its keys, and those with an expiry: three lengths. Valkey 8
 *     0xf3  SLOT_IMPORT       a slot migration in progress: name, count, pairs of first and last slot
 *     below                   type of a value, then its key, a string, and the value
 *
 * Valkey 7.2 to 8.1 and Redis 7.2 read version 11. Version 80, of Valkey 9, adds hashes with field expiration. Files
 * are written as version 11 unless a database has such a hash. Versions 12 to 79 belong to other products, whose types
 * and opcodes may have other meanings. */
#pragma once
#include "formats/rdb.h"
#include "formats/sink.h"
#include "formats/source.h"
#include "lib/hash/slot_bitmap.h"
#include "lib/text/output.h"
#include "store/keyspace.h"

enum { RDB_MAGIC_BYTES = 9 };

struct rdb_aux {
    struct slice name, value;
};

/* A slot migration in progress, to this server: the name of the job, and the first and last slots of its ranges. */
struct rdb_slot_import {
    struct slice name; /* RDB_SLOT_IMPORT_NAME bytes */
    size_t count;
    const uint16_t (*ranges)[2];
};

struct rdb_save_params {
    const struct rdb_aux *aux; /* in addition to valkey-ver, redis-bits, ctime, used-mem and aof-base */
    size_t aux_count;
    const struct slice *libraries; /* code of function libraries */
    size_t library_count;
    const struct rdb_slot_import *imports; /* written if the version has them */
    size_t import_count;
    bool without_keys; /* function libraries only (REPLCONF rdb-filter-only) */
    bool aof_base;
    enum rdb_access {
        RDB_ACCESS_NONE,
        RDB_ACCESS_IDLE,
        RDB_ACCESS_FREQUENCY
    } access; /* which access data to write; follows from maxmemory-policy */
    /* Called after each key (rdb-key-save-delay); may be NULL. */
    void (*key_saved)(void);
    int version; /* 0: RDB_VERSION_COMMON, or RDB_VERSION if the data needs it */
};
/* Writes a file, including its checksum, and flushes the sink. sink->checksum selects whether a checksum is computed
 * (rdbchecksum). The databases must not change meanwhile. Returns 0 or a negative errno; -ENOTSUP: the requested
 * version cannot represent a value. */
int rdb_save(struct sink *sink, struct keyspace *keyspace, const struct rdb_save_params *params);
/* Writes a file from entries that are passed one at a time, in any order, for a data set that changes meanwhile
 * (snapshot/data_view.h). What precedes and follows the keys is as of rdb_entries_begin(). Exception: the sizes of
 * "slot-info", which are hints. Main thread. */
struct rdb_entries { /* private */
    struct output *out;
    struct keyspace *keyspace;
    struct memory_output end;  /* extensions' data that follow the keys */
    struct slot_bitmap *slots; /* for each database: "slot-info" was written. NULL: for none */
    enum rdb_access access;
    bool per_slot;
    int db, version;
};
/* params->key_saved is not called. 0 or -ENOMEM; in both cases rdb_entries_free() follows. */
int rdb_entries_begin(struct rdb_entries *entries, struct output *out, struct keyspace *keyspace,
                      const struct rdb_save_params *params);
/* `db`: the number of its database. 0, or -ENOTSUP: the requested version cannot represent the value. */
int rdb_entries_add(struct rdb_entries *entries, int db, const struct entry *entry);
/* Only what precedes the entry in the file: the caller writes it elsewhere, and appends it before it adds another. */
int rdb_entries_place(struct rdb_entries *entries, int db, const struct entry *entry);
void rdb_entries_end(struct rdb_entries *entries); /* writes what follows the keys, but for the checksum */
void rdb_entries_free(struct rdb_entries *entries);
/* Ends a file with the checksum of what was written, or without if sink->checksum is not set, and flushes the sink. Any
 * thread. 0 or a negative errno. */
int rdb_write_checksum(struct sink *sink);
/* The access data of an entry, as of now: 0 for RDB_ACCESS_NONE. Main thread. */
uint32_t rdb_access_data(const struct entry *entry, enum rdb_access access);
/* Writes the records of one key, but for the value. Returns its type, for rdb_write_value(). */
enum rdb_type rdb_write_key_head(struct output *out, const struct entry *entry, enum rdb_access access,
                                 uint32_t access_data, int version);
/* Writes the records of one key. `db`: the number of its database. */
void rdb_write_key(struct output *out, const struct entry *entry, int db, enum rdb_access access, int version);

struct rdb_load_params {
    bool relaxed_version; /* rdb-version-check relaxed: also try versions of other products and later versions */
    bool ignore_checksum; /* rdbchecksum no, or DEBUG SET-SKIP-CHECKSUM-VALIDATION */
    bool skip_expired; /* drop expired keys and fields: set on a primary, but not on a replica or for the base of an AOF
                        */
    enum rdb_duplicate_key {
        RDB_DUPLICATE_REFUSED,  /* a key that already exists, or is in the file twice, is an error */
        RDB_DUPLICATE_REPLACES, /* DEBUG RELOAD NOFLUSH MERGE, replication that keeps data */
    } duplicates;
    /* Each callback may be NULL. False: the load fails; the callback sets the reason with source_fail(). `aux` may
     * change skip_expired. */
    bool (*aux)(void *context, struct source *source, struct slice name, struct slice value);
    bool (*library)(void *context, struct source *source, struct slice code); /* NULL: libraries are dropped */
    bool (*slot_import)(void *context, struct source *source, const struct rdb_slot_import *import);
    void (*key_added)(void *context, struct db *db, struct slice key); /* each key is in its database then */
    void (*key_loaded)(void *context);                                 /* after each key (key-load-delay) */
    void (*key_empty)(void *context, struct slice key);                /* it is dropped, because it has no elements */
    void *context;
};
struct rdb_load_result {
    int version;
    uint64_t keys;           /* added */
    uint64_t expired;        /* dropped because they had expired */
    uint64_t empty;          /* dropped because they had no elements: a defect of older servers */
    uint64_t expired_hashes; /* dropped because all of their fields had expired */
    uint64_t expires;        /* added keys with an expiry */
    uint64_t libraries;
    uint64_t offset;                /* bytes read; after a failure, its offset */
    uint64_t used_memory;           /* AUX used-mem */
    bool aof_base;                  /* AUX aof-base */
    bool unchecked;                 /* rdbchecksum is on, but the file has no checksum */
    char reason[SOURCE_REASON_MAX]; /* of a failure */
};
/* Adds the content of a file to the databases. Afterwards the source is positioned after the checksum, where more may
 * follow (an AOF with a preamble). Returns 0 or a negative errno: -EINVAL malformed or truncated, -ENOTSUP a version,
 * type or opcode of another product, -EILSEQ a wrong checksum, -ECANCELED by the source's progress function, -ENOMEM.
 * After a failure the databases contain the keys read before it. */
int rdb_load(struct source *source, struct keyspace *keyspace, const struct rdb_load_params *params,
             struct rdb_load_result *result);
/* Reads the magic. True: the version exists, in Valkey or in another product (see rdb_load_params.relaxed_version). */
bool rdb_read_magic(struct source *source, int *version);
/* Returns the reason why a file with this magic cannot be loaded: it is not an RDB file, or its version is not
 * accepted. NULL: it can be loaded. */
const char *rdb_header_check(const char magic[static RDB_MAGIC_BYTES]);
/* True: a file with these first bytes is an RDB file. For AOFs, which may begin with one. */
static inline bool rdb_is_magic(const char *bytes, size_t len) {
    return (len >= 5 && memcmp(bytes, "REDIS", 5) == 0) || (len >= 6 && memcmp(bytes, "VALKEY", 6) == 0);
}
