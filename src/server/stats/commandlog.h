/* commandlog.h: logs commands that were slow or had a large request or reply (COMMANDLOG, SLOWLOG). */
#pragma once
#include "server/command/command.h"
#include <stdint.h>
enum commandlog_kind { COMMANDLOG_SLOW, COMMANDLOG_LARGE_REQUEST, COMMANDLOG_LARGE_REPLY, COMMANDLOG_KINDS };
/* Call commandlog_add from this value on, in ticks or bytes. UINT64_MAX: never. */
extern uint64_t commandlog_thresholds[COMMANDLOG_KINDS];
/* `value`: microseconds or bytes. */
void commandlog_add(enum commandlog_kind kind, const struct command *command, struct client *client, int argc,
                    const struct slice *argv, uint64_t value);
