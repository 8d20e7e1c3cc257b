/* module_hooks.c: see module_hooks.h. */
#include "server/module_hooks.h"

void (*modules_reply)(struct reply *reply);
const char *(*modules_refuse_direct_load)(bool swap);
