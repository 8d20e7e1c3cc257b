/* cluster.h: nodes of the cluster, and messages that modules send each other on its bus. */
#pragma once

void module_cluster_start(void);
void messages_before_wait(void); /* delivers those that could not be delivered within a call or a load */
