/* config.h: options of modules: what loading them needs. See config.c. */
#pragma once
#include "module/module.h"

void module_configs_start(void);         /* before the configuration is read */
void module_configs_check_waiting(void); /* all modules of the file are loaded: ends the server if a line is left */
/* A module is about to be loaded, with these names and values of MODULE LOADEX. */
void module_configs_begin(int options, const struct slice *pairs);
/* It is loaded. False: it must be unloaded again, and the log says why. */
bool module_configs_end(const struct module *module, int options);
/* The load with names and values has ended, in whatever way. */
void module_configs_forget(void);
