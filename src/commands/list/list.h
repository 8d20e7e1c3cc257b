/* list.h: functions shared by list.c and list_blocking.c. */
#pragma once
#include "commands/multi_pop.h"
#include "store/list_type.h"

/* Finds a list for writing; NULL: no such key. False: the key has another type; replied with the error. */
bool find_list_write(struct call *call, struct slice key, struct entry **entry);
/* Reads LEFT or RIGHT. False: replied with an error. */
bool list_end_read(struct call *call, struct slice word, enum list_type_end *end);
/* LMOVE from argv[1] to argv[2]. False: the source is missing, without a reply. */
bool list_move(struct call *call, enum list_type_end from, enum list_type_end to);

extern const struct multi_pop_kind list_multi_pop; /* LMPOP, BLMPOP */
