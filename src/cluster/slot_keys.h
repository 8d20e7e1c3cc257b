/* slot_keys.h: the keys of a slot, in all databases. */
#pragma once
#include <stddef.h>

size_t slot_keys_count(unsigned slot);
/* Deletes the keys now. A primary tells its replicas and its append-only file. */
void slot_keys_delete(unsigned slot);
