/* rdb.h: how values are written down: the encoding of RDB files, of DUMP payloads and of snapshots for replicas.
 *
 * Length, or that a string is encoded; high bits first:
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
 * A value is a byte that says which, and
 *
 *      0  string             a string
 *      1  list               count, elements as strings
 *      2  set                count, members as strings
 *      3  sorted set         count, then member as a string and score as text: its length (1 byte) and the text;
 * lengths of 253, 254, 255 without text are nan, inf, -inf 4  hash               count, then field and value as strings
 *      5  sorted set         count, then member as a string and score as a double, 8 bytes, little-endian
 *      9  hash               a zipmap, as a string; see rdb_legacy.h
 *     10  list               a ziplist, as a string; see rdb_legacy.h
 *     11  set                an intset, as a string; see lib/intset.h
 *     12  sorted set         a ziplist of members and scores, as a string
 *     13  hash               a ziplist of fields and values, as a string
 *     14  list               count of nodes, then ziplists as strings
 *     15  stream             see rdb_stream.h; 19 and 21 tell more of the same
 *     16  hash               a listpack of fields and values, as a string; see lib/listpack.h
 *     17  sorted set         a listpack of members and scores, ascending, as a string
 *     18  list               count of nodes, then for each 1 and an element as a string, or 2 and a listpack as a
 * string 20  set                a listpack, as a string 22  hash               count, then field and value as strings
 * and when the field expires: ms since the epoch, 8 bytes, little-endian, two's complement; -1: never. Since version
 * 80; a hash none of whose fields expires is written as 4 or 16
 *
 * 1, 3, 9, 10 and 12 to 14 are read only: what older servers wrote. Every length and byte that is read is checked: what
 * is read comes from anybody. */
#ifndef PERSIST_RDB_H
#define PERSIST_RDB_H
#include "lib/output.h"
#include "store/keyspace.h"

enum rdb_type {
    RDB_STRING = 0,
    RDB_LIST = 1,
    RDB_SET = 2,
    RDB_ZSET = 3,
    RDB_HASH = 4,
    RDB_ZSET_2 = 5,
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
/* Format versions. Valkey 8 and Redis 7.2 write 11, Valkey 9 80; those between are other products' and mean something
 * else. */
enum { RDB_VERSION = 80, RDB_VERSION_COMMON = 11, RDB_VERSION_FOREIGN_MIN = 12, RDB_VERSION_FOREIGN_MAX = 79 };

struct rdb_settings {
    bool compression;   /* strings of more than 20 bytes that it makes shorter */
    bool skip_checksum; /* payloads with a wrong one are read: DEBUG SET-SKIP-CHECKSUM-VALIDATION */
};
extern struct rdb_settings rdb_settings;

/* Writing. */
void rdb_write_length(struct output *out, uint64_t length);
void rdb_write_string(struct output *out, struct slice text);
void rdb_write_time(struct output *out, int64_t ms);
void rdb_write_value(struct output *out, const struct entry *entry); /* with the byte that says which */
int rdb_value_version(const struct entry *entry);                    /* the least version of the format that has it */

/* Reading. After a failure everything fails. */
struct rdb_reader {
    const char *at, *end;
    bool failed;
};
uint64_t rdb_read_length(struct rdb_reader *in);
double rdb_read_double(struct rdb_reader *in);                    /* 8 bytes, little-endian */
double rdb_read_double_text(struct rdb_reader *in);               /* as in 3 above */
void rdb_read_bytes(struct rdb_reader *in, void *to, size_t len); /* as they are; zeros after a failure */
int64_t rdb_read_time(struct rdb_reader *in);                     /* ms: 8 bytes, little-endian */
/* A string: where it lies, or, where it had to be made, in *made, to be freed with mem_free() (else NULL). */
struct slice rdb_read_string(struct rdb_reader *in, char **made);
/* Reads a value and adds it under a key that must be missing. NULL: damaged, unknown or empty; the key is missing then.
 * The store may choose another encoding than the one it was written in. */
struct entry *rdb_read_value(struct rdb_reader *in, struct db *db, struct slice key);

/* DUMP payload: the value, the version (2 bytes, little-endian), and the CRC-64 of all that (8 bytes, little-endian).
 */
void dump_write(struct output *out, const struct entry *entry);
/* Are version and checksum right? Sets the reader to the value. */
bool dump_open(struct slice payload, struct rdb_reader *in);
#endif
