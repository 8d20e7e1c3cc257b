/* blob.h: direct placement: the BLOB commands. A value moves between the store and memory that the client has
 * registered with its own device, by one-sided RDMA operations that this server starts.
 *
 *     BLOB.GET key rkey address length [...]           WRITEs from the value, then the reply [length, CRC-32C]
 *     BLOB.SET key length rkey address length [...]    READs into a new value, then SET
 *     BLOB.GET key, BLOB.SET key value, BLOB.INFO key [LEN|CRC|TIER], BLOB.HELLO address: on any connection
 *
 * Values are plain strings: every other command works on them. The commands have two sets of names, of two generations
 * of the module that introduced them, with the same arguments and different error texts. docs/direct-placement.md is
 * the manual for users, section 2.5 of docs/rdma-protocol.md that for authors of clients.
 *
 * GET.  The value's blob is the source. The transfer is an item of the client's output (net/placement.h), in front of
 * the reply: the reply barrier holds both, and the queue pair delivers both in order. So the server neither waits nor
 * copies. If the checksum is not known yet, the transfer begins, and the client waits for the rest of the reply. The
 * blob is held until the device is done with it: an overwrite gives the key another blob, an edit in place (APPEND)
 * copies first.
 *
 * SET.  The client waits, like one in BLPOP, while the device reads into a new blob, which nothing else refers to. Then
 * the command is called again: who may execute it, and whether the state of the server permits it, is decided then, as
 * it was before the transfer. Meanwhile the transfers of further SETs in the client's pipeline begin. Of two transfers
 * for one key the one that was asked for later wins, even if it ends first.
 *
 * The parts: `arguments.h`: ranges of memory in requests, and what a connection must be; `transfer.h`: transfers in
 * progress, their limits and statistics; `checksum.h`: CRC-32C beside values; `again.h`: calls a command again;
 * `ahead.h`: further SETs of a pipeline; blob_get.c, blob_set.c, blob_commands.c: the commands. */
#pragma once
#include "server/command/command.h"

extern int64_t blob_max_object_size; /* option blob-max-object-size */

/* The handlers. `rdma` and `tcp`: the names of the newer generation, which has one for each form. */
void blob_get_run(struct call *call);
void blob_rdma_get_run(struct call *call);
void blob_tcp_get_run(struct call *call);
void blob_set_run(struct call *call);
void blob_rdma_set_run(struct call *call);
void blob_tcp_set_run(struct call *call);
void blob_info_run(struct call *call);

struct feature;
extern const struct feature blob_feature;
