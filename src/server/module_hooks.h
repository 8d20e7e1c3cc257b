/* module_hooks.h: what the server asks of loaded modules, which are a higher layer (src/module). */
#ifndef SERVER_MODULE_HOOKS_H
#define SERVER_MODULE_HOOKS_H
#include "resp/reply.h"

/* Writes the array of modules in the replies of MODULE LIST and HELLO. NULL: there are none. */
extern void (*modules_reply)(struct reply *reply);
#endif
