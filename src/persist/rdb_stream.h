/* rdb_stream.h: streams as RDB files and DUMP hold them.
 *
 * Lengths and strings are those of rdb.h. An id is its two halves as lengths, unless it says raw: then 16 bytes,
 * big-endian. A time is 8 bytes, little-endian, milliseconds since the epoch, signed. Types 19 and 21 are what the
 * middle column says they add to 15.
 *
 *              nodes               how many; then for each
 *                                      its master id, 16 bytes as a string
 *                                      its listpack as a string; see store/stream_node.h
 *              length              living entries in all of them
 *              last id
 *     19       first id            of the first living entry; 0-0: there is none
 *     19       max deleted id
 *     19       entries added       15: as many as live
 *              groups              how many; then for each
 *                                      its name as a string
 *                                      last id
 *     19                               entries read, as a length; 2^64 - 1: unknown. 15: what can be told from the last
 * id pending entries: how many; then for each its id, raw time of delivery deliveries, as a length consumers: how many;
 * then for each its name as a string time when it was seen 21                                   time when it was
 * active, -1: never. 15, 19: when it was seen pending entries: how many; their ids, raw
 *
 * Nodes, groups, consumers and pending entries come in the order of their bytes. Each pending entry of a group belongs
 * to exactly one of its consumers. */
#ifndef PERSIST_RDB_STREAM_H
#define PERSIST_RDB_STREAM_H
#include "persist/rdb.h"
#include "store/stream.h"

/* As type 21, or without the times at which consumers were active as type 19. */
void rdb_write_stream(struct output *out, const struct stream *stream,
                      bool active_times); /* as type 21, without the byte that says so */
/* NULL: damaged, and reading fails from there on. A node without a living entry, which Valkey may leave behind, is
 * dropped, and the first id is looked up, not read. */
struct stream *rdb_read_stream(struct rdb_reader *in, enum rdb_type type);
#endif
