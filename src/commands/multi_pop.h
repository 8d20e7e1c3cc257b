/* multi_pop.h: pops from the first of several keys that is not empty: LMPOP, ZMPOP, BLMPOP and BZMPOP with the
 * arguments "numkeys key… WHERE [COUNT count]"; BLPOP, BRPOP, BZPOPMIN and BZPOPMAX with "key… timeout". The commands
 * are propagated as a pop from that key. */
#pragma once
#include "server/command/command.h"

struct multi_pop_kind {
    enum value_type type;
    const char *ends[2];          /* the two values of WHERE, in lower case */
    const char *propagated_as[2]; /* the commands that pop `count` elements from either end of one key */
    /* Replies with an array of up to `count` elements from that end (0, 1: as above), removes them and notifies;
     * returns their number. */
    size_t (*pop)(struct call *call, struct slice key, struct entry *entry, int end, size_t count);
    /* Replies with an array of the key and one element, and does the same. */
    void (*pop_one)(struct call *call, struct slice key, struct entry *entry, int end);
};
void multi_pop(
    struct call *call,
    const struct multi_pop_kind *kind); /* from argument 1 on; replies with a null array if all keys are missing */
void multi_pop_wait(struct call *call, const struct multi_pop_kind *kind); /* argument 1 is the timeout */
void pop_wait(struct call *call, const struct multi_pop_kind *kind);       /* from the end that is call_variant() */
