/* hash_slot.h: the hash slot of a key.
 *
 * A cluster distributes keys by slot: CRC-16/XMODEM of the key, modulo 16384. If the key contains text between braces,
 * its hash tag, only that text is hashed, so that related keys can share a slot. The tag is not empty and lies between
 * the first `{` and the first `}` after it. Any thread may call these functions. */
#pragma once
#include "lib/text/slice.h"

enum { HASH_SLOTS = 16384, HASH_SLOT_BITS = 14 };

unsigned hash_slot(struct slice key);
/* The slot of all keys that match a glob pattern (lib/text/glob.h), or -1 if they may be in several: the pattern is a
 * literal key, or it has a literal hash tag that no wildcard precedes. */
int hash_slot_of_pattern(struct slice pattern);
