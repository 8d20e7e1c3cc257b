/* cli_docs.h: help, completion and hints from the server's COMMAND DOCS. */
#pragma once
#include "tools/cli.h"

struct cli_docs *docs_load(struct cli *cli); /* from COMMAND DOCS; if that fails, from cli_commands.txt */
void docs_free(struct cli_docs *docs);
void docs_help(struct cli *cli, int argc, const struct slice *argv);
/* Writes the arguments that may follow the complete words of a line, as "key value [NX|XX]"; nothing if a word does not
 * match the command's syntax. False: the command is unknown. */
bool docs_hint(struct cli_docs *docs, struct slice line, struct output *hint);
/* The same for a line that is being typed: its last word counts as complete if it matches the syntax. */
void docs_hint_typed(struct cli_docs *docs, struct slice line, struct output *hint);
/* Calls `found` for each command or help topic that starts with the line. After CONFIG GET and CONFIG SET, calls it for
 * each matching option of the server. */
void docs_complete(struct cli *cli, struct slice line, void (*found)(void *context, const char *text), void *context);
