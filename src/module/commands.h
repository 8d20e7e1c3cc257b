/* commands.h: commands of modules. Each is a row like the server's own, which exists while its module is loaded. */
#pragma once
#include "module/module.h"

struct ValkeyModuleCommand {
    struct list_link link; /* in module->commands; of subcommands, too */
    struct module *module;
    struct ValkeyModuleCommand *parent; /* of a subcommand */
    ValkeyModuleCmdFunc function;
    bool finds_keys, finds_channels;      /* "getkeys-api", "getchannels-api" */
    char *name;                           /* its own */
    struct command_spec spec[2];          /* a table of one row */
    struct ValkeyModuleCommandInfo *info; /* copies of what SetCommandInfo got; NULL: it was not called */
};
