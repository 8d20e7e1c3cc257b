/* cli_hints.h: --test_hint and --test_hint_file. */
#pragma once
#include "tools/cli.h"

/* --test_hint: prints the hint of a line. --test_hint_file: reads pairs of a quoted line and its expected hint from a
 * file, and returns the number of wrong hints, the program's exit code. */
int hint_print(struct cli *cli, const char *line);
int hints_check(struct cli *cli, const char *path);
