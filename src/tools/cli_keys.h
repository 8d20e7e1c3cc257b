/* cli_keys.h: --bigkeys, --memkeys, --hotkeys. */
#ifndef TOOLS_CLI_KEYS_H
#define TOOLS_CLI_KEYS_H
#include "tools/cli.h"

int mode_keys(struct cli *cli, enum cli_mode which); /* returns the program's exit code */
#endif
