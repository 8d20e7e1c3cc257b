/* repl_settings.h: the options of replication that the primary's side reads. Units as in valkey.conf. */
#ifndef REPL_REPL_SETTINGS_H
#define REPL_REPL_SETTINGS_H
#include <stdbool.h>
#include <stdint.h>

struct repl_settings {
    int64_t backlog_size, backlog_ttl;
    int ping_period, timeout;
    bool diskless_sync, dual_channel, disable_nodelay;
    int diskless_delay, diskless_max_replicas;
};
extern struct repl_settings repl_settings;
#endif
