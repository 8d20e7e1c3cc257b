/* rdb.h: the encoding of values in RDB files, DUMP payloads and the full synchronization of replicas.
 *
 * Length, or the form of an encoded string; high bits first:
 *
 *     00xxxxxx                      length 0..63
 *     01xxxxxx xxxxxxxx             14 bits
 *     10000000 and 4 bytes          32 bits
 *     10000001 and 8 bytes          64 bits
 *     11000000 and 1 byte           a string: an integer of 8 bits, two's complement
 *     11000001 and 2 bytes          16 bits, little-endian
 *     11000010 and 4 bytes          32 bits, little-endian
 *     11000011                      a string compressed by LZF: its packed length, its length, the packed bytes
 *
 * A string is a length followed by that number of bytes, or one of the encoded forms.
 *
 * A value is its type, one byte, followed by
 *
 *      0  string       a string
 *      1  list         count, elements as strings
 *      2  set          count, members as strings
 *      3  sorted set   count, then member as a string and score as text: its length (1 byte) and the text;
 *                      lengths of 253, 254, 255 without text are nan, inf, -inf
 *      4  hash         count, then field and value as strings
 *      5  sorted set   count, then member as a string and score as a double, 8 bytes, little-endian
 *      9  hash         a zipmap, as a string; see rdb_legacy.h
 *     10  list         a ziplist, as a string; see rdb_legacy.h
 *     11  set          an intset, as a string; see lib/structures/intset.h
 *     12  sorted set   a ziplist of members and scores, as a string
 *     13  hash         a ziplist of fields and values, as a string
 *     14  list         count of nodes, then ziplists as strings
 *     15  stream       see rdb_stream.h, also for 19 and 21, which hold more
 *     16  hash         a listpack of fields and values, as a string; see lib/structures/listpack.h
 *     17  sorted set   a listpack of members and scores, ascending, as a string
 *     18  list         count of nodes, then for each 1 and an element as a string, or 2 and a listpack as a string
 *     20  set          a listpack, as a string
 *     22  hash         count, then for each field: field and value as strings, and the time at which the field
 *                      expires: ms since the epoch, 8 bytes, little-endian, two's complement; -1: never.
 *                      Since version 80; a hash of which no field expires is written as 4 or 16
 *
 *      7  extension    the id of a type that a module has registered (store/extension.h), then items and their end
 *
 * Types 1, 3, 9, 10 and 12 to 14 come from older servers and are only read. Type 6 is a value of a module in a form of
 * before Redis 4.0, which is refused. The reader checks every length and byte.
 *
 * The id of an extension is a length of 64 bits: 9 characters of 6 bits each, then 10 bits for the version of its
 * encoding. Each item is its kind, a length, and the data: */
#pragma once
#include "formats/source.h"
#include "lib/text/output.h"
#include "store/extension.h"

enum rdb_item {
    RDB_ITEM_END,      /* no data; no item follows */
    RDB_ITEM_SIGNED,   /* a length: 64 bits, two's complement */
    RDB_ITEM_UNSIGNED, /* a length */
    RDB_ITEM_FLOAT,    /* 4 bytes, little-endian */
    RDB_ITEM_DOUBLE,   /* 8 bytes, little-endian */
    RDB_ITEM_STRING    /* a string */
};
enum rdb_type {
    RDB_STRING = 0,
    RDB_LIST = 1,
    RDB_SET = 2,
    RDB_ZSET = 3,
    RDB_HASH = 4,
    RDB_ZSET_2 = 5,
    RDB_MODULE = 6,
    RDB_MODULE_2 = 7,
    RDB_HASH_ZIPMAP = 9,
    RDB_LIST_ZIPLIST = 10,
    RDB_SET_INTSET = 11,
    RDB_ZSET_ZIPLIST = 12,
    RDB_HASH_ZIPLIST = 13,
    RDB_LIST_QUICKLIST = 14,
    RDB_HASH_LISTPACK = 16,
    RDB_ZSET_LISTPACK = 17,
    RDB_LIST_QUICKLIST_2 = 18,
    RDB_SET_LISTPACK = 20,
    RDB_STREAM = 15,
    RDB_STREAM_2 = 19,
    RDB_STREAM_3 = 21,
    RDB_HASH_EXPIRING = 22
};
/* Format versions. Redis 7.0 reads at most 10, Valkey 8 and Redis 7.2 write 11, Valkey 9 writes 80; versions between
 * them belong to other products. */
enum {
    RDB_VERSION = 80,
    RDB_VERSION_COMMON = 11,
    RDB_VERSION_OLD = 10,
    RDB_VERSION_FOREIGN_MIN = 12,
    RDB_VERSION_FOREIGN_MAX = 79
};

enum rdb_version_check { RDB_VERSION_STRICT, RDB_VERSION_RELAXED };
struct rdb_settings {
    bool compression;   /* rdbcompression: compress strings of more than 20 bytes if that makes them shorter */
    bool skip_checksum; /* accept payloads with a wrong checksum: DEBUG SET-SKIP-CHECKSUM-VALIDATION */
    int version_check;  /* enum rdb_version_check; relaxed: also try versions of other products and later versions */
};
extern struct rdb_settings rdb_settings;
extern uint64_t rdb_sanitizations; /* listpacks, intsets and their older forms of values that were checked */

bool rdb_version_accepted(int version);

/* --- Writing --- */
void rdb_write_length(struct output *out, uint64_t length);
void rdb_write_string(struct output *out, struct slice text);
void rdb_write_blob(struct output *out, struct blob *blob); /* as a string, if possible without a copy */
/* Writes a string compressed, whatever the settings. False: that would not be shorter; nothing was written. Any thread.
 */
bool rdb_write_packed(struct output *out, struct slice text);
/* Writes a string uncompressed. `blob` has its bytes; or NULL. */
void rdb_write_plain(struct output *out, struct slice text, struct blob *blob);
void rdb_write_int64(struct output *out, int64_t value);                           /* as a string */
void rdb_write_compressed(struct output *out, struct slice packed, size_t length); /* uncompressed length */
void rdb_write_time(struct output *out, int64_t ms);
/* The type of the value in a file of the version, which is RDB_VERSION_OLD or at least rdb_value_version(). Version 10
 * has all values of version 11, some with another type. */
enum rdb_type rdb_value_type(const struct entry *entry, int version);
/* Writes a value without its type, which is that of rdb_value_type(). `db`: the number of its database. */
void rdb_write_value(struct output *out, const struct entry *entry, int db, enum rdb_type type);
/* Begins the data of an extension that belong to no key. Items and RDB_ITEM_END follow. */
void rdb_write_extension_aux(struct output *out, uint64_t id, bool after_keys);
int rdb_value_version(const struct entry *entry); /* the lowest format version that can represent the value */

/* --- Reading: failures are those of the source --- */
struct rdb_reader {
    struct source *source;
    bool skip_expired; /* drop fields of hashes that have expired */
    bool all_expired;  /* set with `empty` if all fields of a hash were dropped for that reason */
    bool empty;        /* set if a value is rejected only because it has no elements */
    struct source_buffer first, second, packed; /* memory for strings */
};
void rdb_reader_init(struct rdb_reader *in, struct source *source);
void rdb_reader_free(struct rdb_reader *in);

uint64_t rdb_read_length(struct rdb_reader *in);    /* 0 after a failure */
double rdb_read_double(struct rdb_reader *in);      /* 8 bytes, little-endian */
double rdb_read_double_text(struct rdb_reader *in); /* as in type 3 above */
int64_t rdb_read_time(struct rdb_reader *in);       /* ms: 8 bytes, little-endian */
/* Reads a string, in the window of the source or in the buffer. Valid until the next read. */
bool rdb_read_string(struct rdb_reader *in, struct source_buffer *buffer, struct slice *text);
/* Reads a string into the buffer, so that it stays valid during further reads. */
bool rdb_read_string_kept(struct rdb_reader *in, struct source_buffer *buffer, struct slice *text);
/* Reads a string into a new allocation (mem_free()). NULL: failed. */
uint8_t *rdb_read_block(struct rdb_reader *in, size_t *len);
/* Reads a string of at least RDB_BLOB_MIN bytes into a blob, and sets *text to its bytes. NULL: the string is shorter
 * and was read as by rdb_read_string(), or reading failed. */
enum { RDB_BLOB_MIN = 4096 };
struct blob *rdb_read_blob(struct rdb_reader *in, struct source_buffer *buffer, struct slice *text);
struct entry *rdb_read_string_entry(struct rdb_reader *in, struct slice key, int64_t expire_at); /* type 0 */
bool rdb_skip_string(struct rdb_reader *in);
bool rdb_skip_items(struct rdb_reader *in); /* of an extension, with their end */

/* Reads a value of a type into an entry outside any database (store/bulk.h). Exception: a hash with field expiration is
 * added to `db`, where its key must not exist, and *attached becomes true. NULL: failed, or in->empty. The encoding may
 * differ from the one in the input. */
struct entry *rdb_read_entry(struct rdb_reader *in, uint8_t type, struct db *db, struct slice key, int64_t expire_at,
                             bool *attached);
/* The reason of a failure, for the log. */
const char *rdb_reason(const struct source *source);
struct entry *rdb_read_value(struct rdb_reader *in, struct db *db, struct slice key);

/* Decodes the name of an extension from its id. */
void rdb_extension_name(uint64_t id, char name[static EXTENSION_NAME + 1]);
/* The id for a name and a version of the encoding; 0: not a valid name or version. */
uint64_t rdb_extension_id(const char *name, int version);

/* --- DUMP payload: type, value, version (2 bytes, little-endian), CRC-64 of all that (8 bytes, little-endian) --- */
void dump_write(struct output *out, const struct entry *entry, int db);
/* Checks version and checksum. True: the source reads type and value from the payload's memory. `accepted`: another
 * server has checked them, perhaps with other options, so that this one must read the value as well. */
bool dump_open(struct slice payload, bool accepted, struct source *source);
