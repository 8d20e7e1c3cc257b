/* slot_commands.h: the subcommands of CLUSTER that concern slots, for the table of commands.c. */
#ifndef CLUSTER_SLOT_COMMANDS_H
#define CLUSTER_SLOT_COMMANDS_H
#include "server/command/command.h"

/* Replies the error and returns true outside of cluster mode. Each handler begins with it. */
bool cluster_is_disabled(struct call *call);

/* Replies that the subcommand exists, but not with these arguments. */
void cluster_reply_usage(struct call *call);

/* slot_commands.c */
void cluster_addslots_run(struct call *call);
void cluster_addslotsrange_run(struct call *call);
void cluster_delslots_run(struct call *call);
void cluster_delslotsrange_run(struct call *call);
void cluster_flushslots_run(struct call *call);
void cluster_flushslot_run(struct call *call);
void cluster_countkeysinslot_run(struct call *call);
void cluster_getkeysinslot_run(struct call *call);
/* slot_commands.c: argument `index` is a slot. False: it is not, and that was replied. */
bool cluster_slot_read(struct call *call, int index, unsigned *slot);
/* setslot.c, slot_stats.c */
void cluster_setslot_run(struct call *call);
void cluster_slot_stats_run(struct call *call);
/* cluster_scan.c: CLUSTERSCAN */
void cluster_scan_run(struct call *call);
#endif
