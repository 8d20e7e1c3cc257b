/* replica_slots.h: which slots of its primary a replica may serve.
 *
 * The bus tells a replica that its primary has taken a slot, but the keys come by the stream of replication, which may
 * be slower. A reader would get nil for a key that has existed all the time, perhaps from a replica that has shown it
 * before. So with synchronous replication a replica serves a slot that comes from another shard after it has applied
 * the stream up to an offset that its primary announced after it took the slot. The same holds for all slots of a shard
 * that it joins, and after its start. Until then readers are redirected to the primary. */
#pragma once
#include <stdbool.h>

bool replica_slot_is_behind(unsigned slot);
void replica_slots_start(void); /* once, when this server is a node of a cluster */
