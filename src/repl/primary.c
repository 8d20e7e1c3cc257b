/* primary.c: the replicas of this server. See repl.h. */
#include "repl/repl.h"
#include "repl/repl_settings.h"
#include "repl/repl_stream.h"

struct repl_settings repl_settings = {.backlog_size = 10 * 1024 * 1024};

void repl_disconnect_replicas(const char *reason) {
    (void)reason;
}

size_t repl_replicas_online(void) {
    return 0;
}
