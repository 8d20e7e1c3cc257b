/* node_private.h: what the files of this directory use of this_node.c. */
#pragma once
#include "cluster/this_node.h"

/* Events of the loop bracket their calls of the machine with these. The loop may turn within a command or a load; then
 * what the machine decides about the data and the role waits for the end of it (effects.c). */
void cluster_event_begin(void);
void cluster_event_end(void);
bool cluster_in_event(void);

void cluster_slot_moved(unsigned slot, const struct cluster_node *from, const struct cluster_node *to);
void cluster_state_changed(bool ok);
void cluster_role_changed(void);
