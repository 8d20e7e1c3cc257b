/* options.h: the options cluster-*, as this directory reads them. CONFIG SET changes them at any time. Main thread. */
#ifndef CLUSTER_OPTIONS_H
#define CLUSTER_OPTIONS_H
#include "cluster/protocol/configuration.h"
#include "server/config/config.h"

enum save_behavior { SAVE_SYNC /* a file that cannot be written ends the server */, SAVE_BEST_EFFORT };
enum endpoint_type { ENDPOINT_IP, ENDPOINT_HOSTNAME, ENDPOINT_UNKNOWN };

struct cluster_options {
    char *config_file;
    int save_behavior;      /* enum save_behavior */
    int preferred_endpoint; /* enum endpoint_type */
    int databases;
    int64_t link_limit; /* bytes */
    bool reads_when_down, shard_messages_when_down, slot_stats;
    uint64_t version; /* counts changes of options by CONFIG SET: what clients are told may change with them */
};
extern struct cluster_options cluster_options;

/* What the machine is to use now: the options, the ports on which the server listens, DEBUG. Texts point to values of
 * options. True if `*settings` has changed. */
bool cluster_options_settings(struct cluster_settings *settings);
/* The port of the bus: of cluster-port, or derived from the port of clients. False: there is none, which was logged. */
bool cluster_options_bus_port(int *port);

extern const struct config_option cluster_option_table[];
#endif
