/* signed_count.h: counts whose sign says something: HRANDFIELD and its kin (negative: with repetitions), LREM and LPOS
 * (negative: from the end). */
#ifndef COMMANDS_SIGNED_COUNT_H
#define COMMANDS_SIGNED_COUNT_H
#include "commands/lookup.h"

/* argv[index], which can be negated; false: the error is replied. */
static inline bool signed_count_read(struct call *call, int index, int64_t *count) {
    if (!argument_int64(call, index, count)) return false;
    if (*count != INT64_MIN) return true;
    reply_error(call->reply,
                "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807");
    return false;
}
#endif
