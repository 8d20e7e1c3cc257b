/* list.h: functions shared by list.c and list_blocking.c. */
#pragma once
#include "commands/multi_pop.h"
#include "store/list_type.h"

/* Reads LEFT or RIGHT. False: replied with an error. */
bool list_end_read(struct call *call, struct slice word, enum list_type_end *end);
/* LMOVE from argv[1] to argv[2]. False: the source is missing, without a reply. */
bool list_move(struct call *call, enum list_type_end from, enum list_type_end to);

extern const struct multi_pop_kind list_multi_pop; /* LMPOP, BLMPOP */
