/* options.h: the rows of the options in settings.h. */
#ifndef REPL_OPTIONS_H
#define REPL_OPTIONS_H
#include "server/config/config.h"

extern const struct config_option repl_options[], replica_options[], pull_options[];
#endif
