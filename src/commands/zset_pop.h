/* zset_pop.h: what zset.c and zset_blocking.c share. */
#ifndef COMMANDS_ZSET_POP_H
#define COMMANDS_ZSET_POP_H
#include "server/command.h"

/* Replies with key, member and score of the lowest or highest one, and takes it out. False: the key is missing, and nothing is replied. A key of another
 * type: that is replied. */
bool zset_pop_one(struct call *call, struct slice key, bool highest);

/* "numkeys key… MIN|MAX [COUNT count]" from argument `index` on. False: the error is replied. */
struct zset_multi_pop {
    int first_key, key_count;
    bool highest;
    int64_t count;
};
bool zset_multi_pop_read(struct call *call, int index, struct zset_multi_pop *pop);
/* Pops from the first sorted set that is there; repeated elsewhere as a pop from that key. False: there is none, and nothing is replied. */
bool zset_multi_pop(struct call *call, const struct zset_multi_pop *pop);
#endif
