/* target_link.h: the link of an import, and the keys of its slots: effects of the machine. See target_link.c. */
#pragma once
#include "cluster/migration/protocol/migration_machine.h"

struct client;

/* The client that sent ESTABLISH becomes the link of the job. */
void target_attach(struct slot_import *import, struct client *client);
bool target_takes_chunks(void *context, const struct slot_import *import);
void target_hide_keys(void *context, const struct slot_import *import);
void target_show_keys(void *context, const struct slot_import *import);
void target_drop_keys(void *context, const struct slot_import *import);
void target_forget_keys(void *context, const struct slot_import *import);
