/* errorstats.h: counts error replies by error code ("ERR", "WRONGTYPE" …), for INFO errorstats. */
#pragma once
#include "lib/text/slice.h"
#include "resp/reply.h"
#include <stdint.h>
void errorstats_count(struct reply *reply, struct slice text); /* a reply's error_hook */
/* The same for an error whose code a script has chosen. If there are too many codes, these count under one name. */
void errorstats_count_invented(struct reply *reply, struct slice text);
uint64_t errorstats_total(void);
void errorstats_reset(void);
void errorstats_each(void (*visit)(struct slice code, uint64_t count, void *context),
                     void *context); /* in order of code */
