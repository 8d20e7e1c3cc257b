/* pull_wire.h: messages of the pulled full synchronization, on the connection of the replica.
 *
 *     replica                                     primary
 *     REPLCONF capa rdma-pull             ->
 *                                         <-      +OK
 *     PSYNC ? -1                          ->
 *                                         <-      +FULLRESYNC <id> <offset>
 *                                         <-      $PULL:<chunk size> <keys>
 *                                         <-      +CHUNK <n> <address> <length> <key> <checksum> <keys>
 *     (RDMA READ of chunk n)              ->
 *     REPLCONF PULLED <n + 1>             ->      ... for each chunk, many at a time
 *                                         <-      +END <chunks> <bytes>
 *     REPLCONF PULLED <chunks>            ->      the primary revokes the key
 *                                         <-      the stream from the offset on
 *
 * All numbers are decimal. The chunks, one after the other, are an RDB file without a checksum of its own.
 *   chunk size  bytes of each chunk but the last, 4 KiB to 8 MiB
 *   keys        of the data set; in +CHUNK, those saved when the chunk was filled: for displaying progress
 *   n           0, 1, 2, ...
 *   length      1 to the chunk size
 *   checksum    CRC-32C of the chunk's bytes
 * The primary announces chunks before earlier ones are acknowledged, as many as its memory holds. An acknowledgement
 * covers all chunks before its number and may come for several at once; it is not answered. An empty
 * line means that the primary is alive. A line that begins with '-' ends the synchronization with a reason.
 *
 * A primary offers this only to a replica on an RDMA connection that declared the capability; a replica declares it
 * only on a connection that can read (rdma_read_depth()). Primaries without it ignore the capability. */
#ifndef REPL_PULL_WIRE_H
#define REPL_PULL_WIRE_H

#define PULL_CAPABILITY "rdma-pull"
#define PULL_HEADER     "$PULL:"
#define PULL_CHUNK      "+CHUNK "
#define PULL_END        "+END "

enum {
    PULL_WIRE_CHUNK_MIN = 4 * 1024,
    PULL_WIRE_CHUNK_MAX = 8 * 1024 * 1024,
    PULL_LINE_MAX = 256, /* bytes of a line, line end included */
};
#endif
