/* copied_owners.h: puts the owners of the slots, as the primary knows them, into a full copy for a replica.
 *
 * With synchronous replication a replica that joins may become the primary before it hears of the owners of slots on
 * the cluster bus. The stream has the later changes (SYNCSLOTS FINISH and MOVED, SETSLOT), but not the slots that the
 * primary had taken before the copy. A successor without them would leave these slots to the shard that had them, and
 * refuse the job when that shard asks (migration.h): the writes that were acknowledged since would be lost. So the copy
 * names each primary of the cluster with its epoch and its slots, and the replica handles them as claims before it
 * loads a key.
 *
 * A primary that the replica does not know yet cannot own slots here. The replica remembers these slots until it
 * hears of their owners on the bus. A copy names each slot once: the rest after a slot that is named again, or after
 * other damage, is ignored and logged. */
#pragma once
#include "cluster/protocol/slots.h"
#include "formats/rdb_file.h"

size_t copied_owners_write_aux(struct rdb_aux *field); /* returns the number of fields: 0 or 1 */
void copied_owners_begin(void);                        /* a copy begins: forgets what the last copy named */
/* SYNCSLOTS MOVED in the primary's stream names an owner, too. */
void copied_owner_heard(const struct node_id *id, uint64_t epoch, const struct slot_bitmap *slots);
void copied_owners_read_aux(struct slice name, struct slice value);
/* True: the last copy names an owner of this slot that this node does not know, and no later owner is known. */
bool copied_owner_is_unknown(unsigned slot);
