/* list.h: what list.c and list_blocking.c share. */
#ifndef COMMANDS_LIST_H
#define COMMANDS_LIST_H
#include "commands/multi_pop.h"
#include "store/list_type.h"

/* The list to be changed, NULL: missing. False: the key has another type, and that is replied. */
bool find_list_write(struct call *call, struct slice key, struct entry **entry);
/* Replies with the element at that end and takes it out. */
void list_pop_one(struct call *call, struct slice key, struct entry *entry, enum list_type_end end);
/* LEFT or RIGHT. False: the error is replied. */
bool list_end_read(struct call *call, struct slice word, enum list_type_end *end);
/* LMOVE, argv[1] to argv[2]. False: there is nothing to move, and nothing is replied. */
bool list_move(struct call *call, enum list_type_end from, enum list_type_end to);

extern const struct multi_pop_kind list_multi_pop; /* LMPOP, BLMPOP */
#endif
