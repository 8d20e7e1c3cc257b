/* options.h: the rows of the options in settings.h. */
#pragma once
#include "server/config/config.h"

extern const struct config_option repl_options[], replica_options[], pull_options[];
