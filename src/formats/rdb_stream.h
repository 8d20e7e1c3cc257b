/* rdb_stream.h: streams in RDB files and DUMP payloads.
 *
 * Lengths and strings are those of rdb.h. An id is its two halves as lengths, or if marked as raw, 16 bytes,
 * big-endian. A time is in milliseconds since the epoch, 8 bytes, little-endian, signed. The first column is the type
 * that adds the field to type 15.
 *
 *              nodes               their number; then for each
 *                                      its master id, 16 bytes as a string
 *                                      its listpack as a string; see store/stream_node.h
 *              length              number of live entries
 *              last id
 *     19       first id            id of the first live entry; 0-0: none
 *     19       max deleted id
 *     19       entries added       type 15: the number of live entries
 *              groups              their number; then for each
 *                                      its name as a string
 *                                      last id
 *     19                               entries read, as a length; 2^64 - 1: unknown. Type 15: derived from the last id
 *                                      pending entries: their number; then for each
 *                                          its id, raw
 *                                          time of delivery
 *                                          deliveries, as a length
 *                                      consumers: their number; then for each
 *                                          its name as a string
 *                                          time when it was last seen
 *     21                                   time when it was last active, -1: never. Types 15, 19: the time when seen
 *                                          pending entries: their number; their ids, raw
 *
 * Nodes, groups, consumers and pending entries are in the order of their bytes. Each pending entry of a group belongs
 * to exactly one of its consumers. */
#pragma once
#include "formats/rdb.h"
#include "store/stream.h"

/* Writes the value without its type byte: as type 21, or as type 19 if `active_times` is false. */
void rdb_write_stream(struct output *out, const struct stream *stream, bool active_times);
/* NULL: the value is corrupt, and the source has failed. Nodes without live entries, which Valkey may write, are
 * dropped. The first id is determined from the entries. */
struct stream *rdb_read_stream(struct rdb_reader *in, enum rdb_type type);
