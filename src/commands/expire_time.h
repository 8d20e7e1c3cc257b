/* expire_time.h: times of expiry as commands give them: EX, PX, EXAT, PXAT, KEEPTTL and PERSIST among the options of
 * SET, GETEX, MSETEX, HSETEX; the conditions of EXPIRE and HEXPIRE; and whether a time is over already. */
#ifndef COMMANDS_EXPIRE_TIME_H
#define COMMANDS_EXPIRE_TIME_H
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
    int index; /* in argv: of the number */
};

/* Looks whether argv[*index] is one of the `allowed` options. Moves *index to the option's last argument. False: it is
 * not, or it excludes one that was read before, or its number is missing: in each case a syntax error. */
bool expire_option_read(const struct call *call, int *index, struct expire_option *option, unsigned allowed);
/* The time in ms since the epoch, for a kind in EXPIRE_TIMES, into *at; -1 for other kinds. False: the error is
 * replied. */
bool expire_option_time(struct call *call, const struct expire_option *option, int64_t *at);
/* The same where 0 is as good a number, for a time that is over. */
bool expire_option_time_or_zero(struct call *call, const struct expire_option *option, int64_t *at);
/* What is to be repeated in place of the call: its arguments, the option being PXAT. */
void expire_option_propagate(struct call *call, const struct expire_option *option, int64_t at);

enum expire_condition { CONDITION_NX = 1, CONDITION_XX = 2, CONDITION_GT = 4, CONDITION_LT = 8, EXPIRE_CONDITIONS = 4 };
/* argv[first] to before argv[end]. False: the error is replied. */
bool expire_conditions_read(struct call *call, int first, int end, unsigned *wanted);
bool expire_conditions_met(unsigned wanted, int64_t now_at,
                           int64_t at); /* no expiry, -1, counts as one that never comes */

/* A relative or absolute time in seconds or ms to ms since the epoch; false where it does not fit. */
bool expire_time_make(int64_t value, bool seconds, bool relative, int64_t *at);
int64_t expire_time_shown(int64_t at, bool seconds, bool relative); /* the way back */
void reply_invalid_expire(struct call *call);
/* Is the key to be deleted at once instead of being given that time? Never on a replica or while loading: there only
 * the primary's word deletes. */
bool expire_time_is_past(int64_t at);
/* Expires a key whose new time is past, and propagates that. Counts as one change and as an expired key. */
void expire_now(struct call *call, struct slice key);
#endif
