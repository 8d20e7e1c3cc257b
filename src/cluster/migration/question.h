/* question.h: the question for the outcome of a grant: effects of the machine. See question.c. */
#pragma once
#include "cluster/migration/protocol/migration_machine.h"

bool question_can_ask(void *context, const struct cluster_node *node);
void question_ask(void *context, struct slot_export *export, const struct cluster_node *leader,
                  const struct slot_message *question);
void question_hang_up(void *context, struct slot_export *export);
