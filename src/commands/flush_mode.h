/* flush_mode.h: the argument ASYNC or SYNC of FLUSHDB, FLUSHALL, SCRIPT FLUSH and FUNCTION FLUSH. */
#pragma once
#include "server/command/command.h"
#include "store/keyspace.h"

/* Reads the mode, argv[index], the last argument; without it lazyfree-lazy-user-flush decides. False: it is neither, or
 * more arguments follow. */
static inline bool flush_mode_read(const struct call *call, int index, bool *in_background) {
    *in_background = store_settings.lazy_user_flush;
    if (call->argc == index) return true;
    *in_background = slice_is(call->argv[index], "async");
    return call->argc == index + 1 && (*in_background || slice_is(call->argv[index], "sync"));
}
