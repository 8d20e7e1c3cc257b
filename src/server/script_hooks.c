/* script_hooks.c: see script_hooks.h. */
#include "server/script_hooks.h"

const struct script_hooks *script_hooks;

void script_usage_read(struct script_usage *usage) {
    *usage = (struct script_usage){0};
    if (script_hooks) script_hooks->usage(usage);
}
