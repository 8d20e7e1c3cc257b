/* module_hooks.h: what the server asks of loaded modules, which are a higher layer (src/module). */
#pragma once
#include "resp/reply.h"
#include <stdbool.h>

/* Writes the array of modules in the replies of MODULE LIST and HELLO. NULL: there are none. */
extern void (*modules_reply)(struct reply *reply);
/* Why a replica must store the copy of its primary in a file before it loads it: the modules of this server cannot load
 * what may break off, or not beside the old data (`swap`). NULL: it may load the copy as it arrives. */
extern const char *(*modules_refuse_direct_load)(bool swap);
