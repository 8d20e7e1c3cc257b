/* command_names.h: the names of command flags, ACL categories, groups and key flags. */
#pragma once
#include "lib/text/slice.h"
#include <stdint.h>
struct flag_name {
    uint32_t flag;
    const char *name;
}; /* arrays end with name NULL, and are in the order in which replies show them */
extern const struct flag_name command_flag_names[], key_flag_names[];
extern struct flag_name command_category_names[];     /* without @ */
const char *command_group_name(int group);            /* enum command_group: "sorted-set" */
uint32_t command_category_by_name(struct slice name); /* without @, case ignored; 0: unknown name */
/* Adds a category, which a module names: returns its flag, or 0 if there are too many. The name must be new. */
uint32_t command_category_add(const char *name);
void command_category_remove(uint32_t flag);
