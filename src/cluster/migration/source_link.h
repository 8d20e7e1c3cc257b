/* source_link.h: the link of an export: effects of the machine. See source_link.c. */
#pragma once
#include "cluster/migration/protocol/migration_machine.h"

void source_dial(void *context, struct slot_export *export, const struct cluster_node *target);
void source_accepted(void *context, struct slot_export *export);
