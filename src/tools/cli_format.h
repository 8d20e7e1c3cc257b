/* cli_format.h: replies as text. */
#pragma once
#include "tools/cli.h"

void format_reply(struct output *out, const struct resp_value *v, const struct cli_options *o, enum cli_output as);
/* In raw format, without the delimiter after the reply. */
void format_raw(struct output *out, const struct resp_value *v, const char *delimiter);
/* "text" in quotes, with escapes as inline commands understand them. */
void format_quoted(struct output *out, struct slice text);
/* A push message. Invalidations have their own format for terminals. */
void format_push(struct output *out, const struct resp_value *v, const struct cli_options *o);
