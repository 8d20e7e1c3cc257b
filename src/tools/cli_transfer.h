/* cli_transfer.h: --pipe, --rdb, --replica. */
#pragma once
#include "tools/cli.h"

int mode_pipe(struct cli *cli);
int mode_rdb(struct cli *cli, bool functions_only);
int mode_replica(struct cli *cli);
/* Sends SYNC or PSYNC and shows the commands that follow. Does not return. */
int replica_follow(struct cli *cli, int argc, const struct slice *argv);
