/* multi_pop.h: LMPOP, ZMPOP, BLMPOP, BZMPOP: "numkeys key… WHERE [COUNT count]", pops from the first key that has
 * something. Repeated elsewhere as a pop from that key. */
#ifndef COMMANDS_MULTI_POP_H
#define COMMANDS_MULTI_POP_H
#include "server/command/command.h"

struct multi_pop_kind {
    enum value_type type;
    const char *ends[2];   /* the two words of WHERE, in lower case */
    const char *repeat[2]; /* the commands that pop `count` from either end of one key */
    /* Replies with an array of up to `count` elements from that end (0, 1: as above), takes them out and tells; returns
     * how many. */
    size_t (*pop)(struct call *call, struct slice key, struct entry *entry, int end, size_t count);
};
void multi_pop(struct call *call,
               const struct multi_pop_kind *kind); /* from argument 1 on; a null array where there is nothing */
void multi_pop_wait(struct call *call, const struct multi_pop_kind *kind); /* argument 1 is the time to wait */
#endif
