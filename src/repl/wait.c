/* wait.c: min-replicas-to-write: a primary refuses writes while too few replicas follow it. */
#include "lib/clock.h"
#include "repl/primary.h"
#include "server/command/dispatch.h"
#include "server/role.h"

static int min_replicas, max_lag;

bool repl_min_replicas_set(void) {
    return min_replicas && max_lag;
}

size_t repl_good_replicas(void) {
    int64_t now = clock_ms();
    size_t count = 0;
    list_each(&replicas, link) {
        const struct replica *replica = replica_of(link);
        count += replica_is_online(replica) && (now - replica->acked_ms) / 1000 <= max_lag;
    }
    return count;
}

static enum filter_answer refuse_write(struct client *client, const struct command *command, int argc,
                                       const struct slice *argv, const char **error) {
    if (client->flags & (CLIENT_PRIMARY | CLIENT_LOADER) || role_is_replica()) return FILTER_PASS;
    if (repl_good_replicas() >= (size_t)min_replicas) return FILTER_PASS;
    *error = "NOREPLICAS Not enough good replicas to write.";
    return FILTER_REFUSE;
}
static struct command_filter filter = {.order = FILTER_REPLICAS, .flags = CMD_WRITE, .ask = refuse_write};

static const char *apply_min_replicas(void) {
    if (repl_min_replicas_set() == list_is_linked(&filter.link)) return NULL;
    if (repl_min_replicas_set())
        dispatch_add_filter(&filter);
    else
        dispatch_remove_filter(&filter);
    return NULL;
}

void repl_wait_start(void) {
    apply_min_replicas();
}

const struct config_option wait_options[] = {
    {.name = "min-replicas-to-write",
     .alias = "min-slaves-to-write",
     .type = CONFIG_INT,
     .value = &min_replicas,
     .initial = "0",
     .min = 0,
     .max = INT32_MAX,
     .apply = apply_min_replicas,
     .help = "Refuse writes while fewer replicas than this follow."},
    {.name = "min-replicas-max-lag",
     .alias = "min-slaves-max-lag",
     .type = CONFIG_INT,
     .value = &max_lag,
     .initial = "10",
     .min = 0,
     .max = INT32_MAX,
     .apply = apply_min_replicas,
     .help = "Seconds since a replica's last acknowledgement after which it does not count; 0: min-replicas-to-write "
             "is off."},
    {.name = NULL},
};
