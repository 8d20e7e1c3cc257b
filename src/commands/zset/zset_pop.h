/* zset_pop.h: functions shared by zset.c and zset_blocking.c. */
#pragma once
#include "commands/multi_pop.h"

/* Replies with key, member and score of the lowest or highest member, and removes it. False: the key is missing,
 * without a reply. A key of another type is an error, which is replied. */
bool zset_pop_one(struct call *call, struct slice key, bool highest);

extern const struct multi_pop_kind zset_multi_pop; /* ZMPOP, BZMPOP */
