/* expire_time.h: expiry times in commands: EX, PX, EXAT, PXAT, KEEPTTL and PERSIST among the options of SET, GETEX,
 * MSETEX and HSETEX; the conditions of EXPIRE and HEXPIRE; and the check for times in the past. */
#pragma once
#include "server/command/command.h"

enum expire_kind {
    EXPIRE_NONE = 0,
    EXPIRE_EX = 1 << 0,
    EXPIRE_PX = 1 << 1,
    EXPIRE_EXAT = 1 << 2,
    EXPIRE_PXAT = 1 << 3,
    EXPIRE_KEEPTTL = 1 << 4,
    EXPIRE_PERSIST = 1 << 5,
    EXPIRE_TIMES = EXPIRE_EX | EXPIRE_PX | EXPIRE_EXAT | EXPIRE_PXAT
};
struct expire_option {
    enum expire_kind kind;
    int index; /* index of the number in argv */
};

/* Reads argv[*index] if it is one of the `allowed` options, and moves *index to the option's last argument. False: it
 * is another argument, it excludes an earlier option, or its number is missing: all are syntax errors. */
bool expire_option_read(const struct call *call, int *index, struct expire_option *option, unsigned allowed);
/* Sets *at to the time in ms since the epoch for a kind in EXPIRE_TIMES; -1 for other kinds. False: replied with an
 * error. */
bool expire_option_time(struct call *call, const struct expire_option *option, int64_t *at);
/* The same, but accepts 0 as a time in the past. */
bool expire_option_time_or_zero(struct call *call, const struct expire_option *option, int64_t *at);
/* Propagates the call with its arguments and the option as PXAT. Options begin at argv[first]. One that is given twice
 * is propagated once: EX and PXAT together would be a syntax error on the replicas. */
void expire_option_propagate(struct call *call, int first, const struct expire_option *option, int64_t at);

enum expire_condition { CONDITION_NX = 1, CONDITION_XX = 2, CONDITION_GT = 4, CONDITION_LT = 8, EXPIRE_CONDITIONS = 4 };
/* Reads the conditions argv[first] to argv[end - 1]. False: replied with an error. */
bool expire_conditions_read(struct call *call, int first, int end, unsigned *wanted);
bool expire_conditions_met(unsigned wanted, int64_t now_at, int64_t at); /* no expiry (-1) counts as infinite */

/* Variants of commands whose arguments or replies are times; otherwise in milliseconds, since the epoch. */
enum { EXPIRE_SECONDS = 1, EXPIRE_RELATIVE = 2 };
/* Converts a relative or absolute time in seconds or ms to ms since the epoch. False: overflow. */
bool expire_time_make(int64_t value, bool seconds, bool relative, int64_t *at);
int64_t expire_time_shown(int64_t at, bool seconds, bool relative); /* the inverse */
bool reply_invalid_expire(struct call *call);
/* True: a key with this expiry is deleted immediately. Always false on a replica and while loading, where only the
 * primary's commands delete keys. */
bool expire_time_is_past(const struct call *call, int64_t at);
/* Deletes a key whose new expiry is in the past, and propagates the deletion. Counts as one change and one expired
 * key. */
void expire_now(struct call *call, struct slice key);
