/* cli_keys.h: --bigkeys, --memkeys, --hotkeys. */
#pragma once
#include "tools/cli.h"

int mode_keys(struct cli *cli, enum cli_mode which); /* returns the program's exit code */
