/* cli_repl.h: the prompt and its own commands; the command of --eval; the prompt of the script debugger. */
#pragma once
#include "tools/cli.h"

int cli_repl(struct cli *cli);
/* Builds the command EVAL from the script file of --eval and the arguments. Free *argv with cli_eval_free(). Exits if
 * the file cannot be read. */
int cli_eval_arguments(const struct cli_options *o, struct slice **argv);
void cli_eval_free(struct slice *argv);

/* cli_debug.c: --ldb. Starts a debugging session on a new connection and shows where the script has stopped. Returns -1
 * with a message if it could not start. */
int debug_start(struct cli *cli);
/* Handles a line of the prompt during a session. Returns false if the program should exit. */
bool debug_line(struct cli *cli, int argc, const struct slice *argv);
/* Handles the debugger's command `eval`, whose argument is the rest of the line, including quotes. False: the line is
 * another command. */
bool debug_eval(struct cli *cli, const char *line);
