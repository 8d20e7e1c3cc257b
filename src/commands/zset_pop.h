/* zset_pop.h: what zset.c and zset_blocking.c share. */
#ifndef COMMANDS_ZSET_POP_H
#define COMMANDS_ZSET_POP_H
#include "commands/multi_pop.h"

/* Replies with key, member and score of the lowest or highest one, and takes it out. False: the key is missing, and
 * nothing is replied. A key of another type: that is replied. */
bool zset_pop_one(struct call *call, struct slice key, bool highest);

extern const struct multi_pop_kind zset_multi_pop; /* ZMPOP, BZMPOP */
#endif
