/* stream_error.h: error replies to commands of the stream: the data of primary and replica may differ after one. */
#pragma once
#include "lib/text/slice.h"
#include "server/command/command.h"

/* Logs an error reply to a command of the primary or of a replica. `text` has no '-'. `command` NULL: unknown. */
void repl_log_error(const char *what, struct slice text, const struct command *command);
