/* commands.h: the commands of cluster mode, and the handlers of those that are not in commands.c. */
#pragma once
#include "cluster/subcommand.h"

extern const struct command_spec cluster_commands[];

/* slot_commands.c */
void cluster_addslots_run(struct call *call);
void cluster_addslotsrange_run(struct call *call);
void cluster_delslots_run(struct call *call);
void cluster_delslotsrange_run(struct call *call);
void cluster_flushslots_run(struct call *call);
void cluster_flushslot_run(struct call *call);
void cluster_countkeysinslot_run(struct call *call);
void cluster_getkeysinslot_run(struct call *call);
void cluster_setslot_run(struct call *call); /* setslot.c */
void cluster_scan_run(struct call *call);    /* cluster_scan.c: CLUSTERSCAN */
