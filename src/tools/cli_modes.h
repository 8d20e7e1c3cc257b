/* cli_modes.h: modes that look at a server: --stat, --scan, --latency … They return the program's exit code. */
#pragma once
#include "tools/cli.h"

int mode_stat(struct cli *cli);
int mode_scan(struct cli *cli);
int mode_latency(struct cli *cli, bool history);
int mode_latency_dist(struct cli *cli);
int mode_intrinsic_latency(struct cli *cli);
int mode_lru_test(struct cli *cli);
