/* signed_count.h: counts with a meaningful sign: HRANDFIELD and similar commands (negative: with repetition), LREM and
 * LPOS (negative: from the end). */
#ifndef COMMANDS_SIGNED_COUNT_H
#define COMMANDS_SIGNED_COUNT_H
#include "commands/lookup.h"

/* Reads argv[index], which must have an inverse; false: replied with an error. */
static inline bool signed_count_read(struct call *call, int index, int64_t *count) {
    if (!argument_int64(call, index, count)) return false;
    if (*count != INT64_MIN) return true;
    reply_error(call->reply,
                "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807");
    return false;
}
#endif
