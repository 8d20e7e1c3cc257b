/* wire.h: messages of the pulled full synchronization, on the connection of the replica.
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
 *   length      1 to the chunk size; the bytes at `address` that `key` (an rkey) lets the replica read
 *   checksum    CRC-32C of the chunk's bytes
 * The primary announces as many chunks as its memory holds, without waiting for acknowledgements of earlier ones.
 * REPLCONF PULLED acknowledges all chunks before its number and gets no reply. An empty line is a keepalive. A line
 * that begins with '-' ends the synchronization and gives the reason.
 *
 * On a connection with TLS the capability is "rdma-pull-sealed", and the chunks are encrypted (pull/seal.h): the header
 * is "$PULL:<chunk size> <keys> <key>", the key 64 hexadecimal digits; the text of a chunk is 16 bytes shorter than
 * its length; the checksum and the bytes of +END are those of the encrypted chunks. Without TLS there is no key.
 *
 * A replica declares the capability only on an RDMA connection that allows READ (rdma_read_depth()). A primary uses
 * these messages only with such a replica. A primary that does not know the capability ignores it. */
#pragma once

#define PULL_CAPABILITY        "rdma-pull"
#define PULL_CAPABILITY_SEALED "rdma-pull-sealed"
#define PULL_HEADER            "$PULL:"
#define PULL_CHUNK             "+CHUNK "
#define PULL_END               "+END "

enum {
    PULL_WIRE_CHUNK_MIN = 4 * 1024,
    PULL_WIRE_CHUNK_MAX = 8 * 1024 * 1024,
    PULL_LINE_MAX = 256, /* bytes of a line, line end included */
};
