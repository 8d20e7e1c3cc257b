/* signed_count.h: counts with a meaningful sign: HRANDFIELD and similar commands (negative: with repetition), LREM and
 * LPOS (negative: from the end). */
#pragma once
#include "commands/lookup.h"
#include "server/clients/client.h"

/* Reads argv[index]; rejects INT64_MIN, which cannot be negated. False: replied with an error. */
static inline bool signed_count_read(struct call *call, int index, int64_t *count) {
    if (!argument_int64(call, index, count)) return false;
    if (*count != INT64_MIN) return true;
    reply_error(call->reply,
                "ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807");
    return false;
}
/* True: a long reply continues after element `at`. False: its memory has run out, or the client was closed, perhaps
 * because the reply exceeded its output buffer limit. */
static inline bool reply_continues(const struct call *call, int64_t at) {
    enum { BETWEEN_CHECKS = 256 };
    if (call->client->flags & CLIENT_CLOSING) return false;
    if (at % BETWEEN_CHECKS) return true;
    return !call->reply->out->failed && (!call->client->conn || client_check_replies(call->client));
}
