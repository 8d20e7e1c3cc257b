/* stream_error.c: see stream_error.h. */
#include "repl/stream_error.h"
#include "lib/system/log.h"
#include <string.h>

void repl_log_error(const char *what, struct slice text, const struct command *command) {
    enum { SHOWN_MAX = 256 };
    bool general = text.len > 4 && memcmp(text.data, "ERR ", 4) == 0;
    if (general) text = (struct slice){text.data + 4, text.len - 4};
    log_warning("== CRITICAL == %s: '%s%.*s' after processing the command '%s'", what, general ? "" : "-",
                text.len < SHOWN_MAX ? (int)text.len : SHOWN_MAX, text.data,
                command ? command->full_name : "<unknown>");
}
