/* cli_line.h: line editing, history, hints. */
#pragma once
#include "tools/cli.h"

struct line_editor *line_editor_new(struct cli *cli);
void line_editor_free(struct line_editor *editor);
/* Returns a line without its line end, valid until the next call; NULL: end of input. */
const char *line_read(struct line_editor *editor, const char *prompt);
/* Whether another line was already read from standard input. */
bool line_is_waiting(const struct line_editor *editor);
void line_remember(struct line_editor *editor, const char *line); /* adds it to the history */
