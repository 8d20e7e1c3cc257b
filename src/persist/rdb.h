/* rdb.h: the encoding of values in RDB files, DUMP payloads and the full synchronisation of replicas.
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
 * A string is a length and as many bytes, or one of the encoded forms.
 *
 * A value is a byte, its type, and
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
 *     11  set          an intset, as a string; see lib/intset.h
 *     12  sorted set   a ziplist of members and scores, as a string
 *     13  hash         a ziplist of fields and values, as a string
 *     14  list         count of nodes, then ziplists as strings
 *     15  stream       see rdb_stream.h, also for 19 and 21, which hold more
 *     16  hash         a listpack of fields and values, as a string; see lib/listpack.h
 *     17  sorted set   a listpack of members and scores, ascending, as a string
 *     18  list         count of nodes, then for each 1 and an element as a string, or 2 and a listpack as a string
 *     20  set          a listpack, as a string
 *     22  hash         count, then for each field: field and value as strings, and the time at which the field
 *                      expires: ms since the epoch, 8 bytes, little-endian, two's complement; -1: never.
 *                      Since version 80; a hash of which no field expires is written as 4 or 16
 *
 * 1, 3, 9, 10 and 12 to 14 are read only: older servers wrote them. 6 and 7 are values of modules, which this server
 * does not have. Every length and byte that is read is checked. */
#ifndef PERSIST_RDB_H
#define PERSIST_RDB_H
#include "lib/listpack.h"
#include "lib/output.h"
#include "persist/source.h"
#include "store/keyspace.h"

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
/* Format versions. Redis 7.0 reads at most 10, Valkey 8 and Redis 7.2 write 11, Valkey 9 writes 80; those between are
 * other products'. */
enum {
    RDB_VERSION = 80,
    RDB_VERSION_COMMON = 11,
    RDB_VERSION_OLD = 10,
    RDB_VERSION_FOREIGN_MIN = 12,
    RDB_VERSION_FOREIGN_MAX = 79
};

struct rdb_settings {
    bool compression;   /* compress strings of more than 20 bytes where that makes them shorter: rdbcompression */
    bool skip_checksum; /* accept payloads with a wrong checksum: DEBUG SET-SKIP-CHECKSUM-VALIDATION */
};
extern struct rdb_settings rdb_settings;

/* --- Writing --- */
void rdb_write_length(struct output *out, uint64_t length);
void rdb_write_string(struct output *out, struct slice text);
void rdb_write_blob(struct output *out, struct blob *blob); /* as a string, without a copy where the output can */
void rdb_write_int64(struct output *out, int64_t value);    /* as a string */
void rdb_write_compressed(struct output *out, struct slice packed, size_t length); /* LZF of a string so long */
void rdb_write_time(struct output *out, int64_t ms);
/* As a file of the version has it: RDB_VERSION_OLD, or at least rdb_value_version(). Version 10 has all values that 11
 * has, some in another form. */
enum rdb_type rdb_value_type(const struct entry *entry, int version);
void rdb_write_value(struct output *out, const struct entry *entry, int version); /* without its type */
int rdb_value_version(const struct entry *entry); /* the least version of the format that has it */

/* --- Reading: failures are those of the source --- */
struct rdb_reader {
    struct source *source;
    bool skip_expired;                          /* drop fields of hashes that have expired */
    bool all_expired;                           /* set with `empty` when nothing is left of a hash for that reason */
    bool empty;                                 /* set when a value is refused only because it has no elements */
    struct source_buffer first, second, packed; /* memory for strings */
};
void rdb_reader_init(struct rdb_reader *in, struct source *source);
void rdb_reader_free(struct rdb_reader *in);

uint64_t rdb_read_length(struct rdb_reader *in);    /* 0 after a failure */
double rdb_read_double(struct rdb_reader *in);      /* 8 bytes, little-endian */
double rdb_read_double_text(struct rdb_reader *in); /* as in 3 above */
int64_t rdb_read_time(struct rdb_reader *in);       /* ms: 8 bytes, little-endian */
/* A string. It lies in the window of the source, or in the buffer; valid until more is read. */
bool rdb_read_string(struct rdb_reader *in, struct source_buffer *buffer, struct slice *text);
/* The same; it always lies in the buffer, and survives further reading. */
bool rdb_read_string_kept(struct rdb_reader *in, struct source_buffer *buffer, struct slice *text);
/* The same as rdb_read_string(); an encoded integer stays one. */
bool rdb_read_item(struct rdb_reader *in, struct source_buffer *buffer, struct listpack_value *item);
/* A string in memory of its own (mem_free()). NULL: failed. */
uint8_t *rdb_read_block(struct rdb_reader *in, size_t *len);
/* A string that is worth a blob, in one (*text shows it, too). NULL: it is short, and as rdb_read_string() reads it, or
 * reading failed. */
enum { RDB_BLOB_MIN = 4096 };
struct blob *rdb_read_blob(struct rdb_reader *in, struct source_buffer *buffer, struct slice *text);
struct entry *rdb_read_string_entry(struct rdb_reader *in, struct slice key, int64_t expire_at); /* type 0 */
bool rdb_skip_string(struct rdb_reader *in);

/* Reads a value of a type into an entry that belongs to no database (store/bulk.h), except for a hash whose fields
 * expire, which is added to `db`, where its key must be missing: *attached tells. NULL: failed, or in->empty.
 * The store may choose another encoding than the one it was written in. */
struct entry *rdb_read_entry(struct rdb_reader *in, uint8_t type, struct db *db, struct slice key, int64_t expire_at,
                             bool *attached);
/* Reads a type and a value and adds it under a key that must be missing. NULL: failed or empty; the key is missing
 * then. */
struct entry *rdb_read_value(struct rdb_reader *in, struct db *db, struct slice key);

/* The name of a module's type, from its id: 9 characters of 6 bits each in the upper bits. */
enum { RDB_MODULE_NAME = 9 };
void rdb_module_name(uint64_t id, char name[static RDB_MODULE_NAME + 1]);

/* --- DUMP payload: type, value, version (2 bytes, little-endian), CRC-64 of all that (8 bytes, little-endian) --- */
void dump_write(struct output *out, const struct entry *entry);
/* Checks version and checksum. True: the source shows type and value, in the payload's memory. */
bool dump_open(struct slice payload, struct source *source);
#endif
