/* cli_repl.h: the prompt and its own commands; the command of --eval. */
#pragma once
#include "tools/cli.h"

int cli_repl(struct cli *cli);
/* Builds the command EVAL from the script file of --eval and the arguments. Free *argv with cli_eval_free(). Exits if
 * the file cannot be read. */
int cli_eval_arguments(const struct cli_options *o, struct slice **argv);
void cli_eval_free(struct slice *argv);
