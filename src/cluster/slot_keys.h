/* slot_keys.h: the keys of a slot, in all databases. */
#ifndef CLUSTER_SLOT_KEYS_H
#define CLUSTER_SLOT_KEYS_H
#include <stddef.h>

size_t slot_keys_count(unsigned slot);
/* Deletes the keys now. A primary tells its replicas and its append-only file. */
void slot_keys_delete(unsigned slot);
#endif
