/* info.h: sections of INFO that modules write. */
#pragma once
#include "module/module.h"

/* Writes the sections with these names, or of modules with these names; all if `count` is -1. `separate`: something
 * precedes them. */
void module_info_write(struct output *out, int count, const struct slice *names, bool separate);
void module_info_write_crash(struct output *out); /* what modules say of themselves in a crash report */
