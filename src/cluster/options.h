/* options.h: the options cluster-*, and what DEBUG changes in the protocol. Main thread only. */
#pragma once
#include "cluster/settings.h"
#include "server/config/config.h"
#include "server/debug/debug.h"

/* The settings of the machine: the options, the ports on which the server listens, DEBUG. Texts point to values of
 * options. */
const struct cluster_settings *cluster_options_settings(void);
/* Call it when options, ports or DEBUG may have changed: it informs the machine and the bus. */
void cluster_reconfigure(void);
/* This replica starts no failover, whatever the option says. cluster_reconfigure() applies it. */
void cluster_options_forbid_failover(bool forbidden);
/* The port of the bus: of cluster-port, or derived from the port of clients. False: there is none, which was logged. */
bool cluster_options_bus_port(int *port);

extern const struct config_option cluster_option_table[];
extern const struct debug_subcommand cluster_debug_subcommands[]; /* debug.c */
