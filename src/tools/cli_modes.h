/* cli_modes.h: the modes of valkey-cli, which return the program's exit code. */
#pragma once
#include "tools/cli.h"

/* cli_modes.c */
int mode_stat(struct cli *cli);
int mode_scan(struct cli *cli);
int mode_latency(struct cli *cli, bool history);
int mode_latency_dist(struct cli *cli);
int mode_intrinsic_latency(struct cli *cli);
int mode_lru_test(struct cli *cli);
int mode_keys(struct cli *cli, enum cli_mode which); /* cli_keys.c: --bigkeys, --memkeys, --hotkeys */

/* cli_transfer.c */
int mode_pipe(struct cli *cli);
int mode_rdb(struct cli *cli, bool functions_only);
int mode_replica(struct cli *cli);
/* Sends SYNC or PSYNC and shows the commands that follow. Does not return. */
int replica_follow(struct cli *cli, int argc, const struct slice *argv);

/* cli_hints.c. --test_hint: prints the hint of a line. --test_hint_file: reads pairs of a quoted line and its expected
 * hint from a file, and returns the number of wrong hints. */
int hint_print(struct cli *cli, const char *line);
int hints_check(struct cli *cli, const char *path);
