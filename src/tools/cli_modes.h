/* cli_modes.h: modes that look at a server: --stat, --scan, --latency … They return the program's exit code. */
#ifndef TOOLS_CLI_MODES_H
#define TOOLS_CLI_MODES_H
#include "tools/cli.h"

int mode_stat(struct cli *cli);
int mode_scan(struct cli *cli);
int mode_latency(struct cli *cli, bool history);
int mode_latency_dist(struct cli *cli);
int mode_intrinsic_latency(struct cli *cli);
int mode_lru_test(struct cli *cli);
#endif
