/* copied_owners.h: the owners of the slots, as the primary knows them, in a full copy for a replica.
 *
 * With synchronous replication a replica that joins may become the primary although the cluster bus has not reached it.
 * What happens later it learns from the stream (SYNCSLOTS FINISH and MOVED, SETSLOT), but what the primary had taken
 * before is in the data only. Without the owners it would leave these slots to the shard that had them, and tell that
 * shard that nobody took them (migration/outcome.h): the writes that were acknowledged since would be lost. So the copy
 * names each primary of the cluster with its epoch and its slots, and the replica hears the claims before it loads a
 * key.
 *
 * A primary that the replica does not know yet cannot own slots here. These slots are remembered until the bus says
 * more of their owners. A copy names each slot once: what follows a slot that is named again, or other damage, is
 * ignored and logged. */
#ifndef CLUSTER_COPIED_OWNERS_H
#define CLUSTER_COPIED_OWNERS_H
#include "cluster/protocol/slots.h"
#include "formats/rdb_file.h"

size_t copied_owners_write_aux(struct rdb_aux *field); /* 0 or 1 */
void copied_owners_begin(void);
/* The primary's stream names an owner, too: SYNCSLOTS MOVED. */
void copied_owner_heard(const struct node_id *id, uint64_t epoch, const struct slot_bitmap *slots);
void copied_owners_read_aux(struct slice name, struct slice value);
/* The last copy names an owner of this slot that this node does not know, and it has heard of no later one. */
bool copied_owner_is_unknown(unsigned slot);
#endif
