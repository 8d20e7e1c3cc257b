/* info.h: the figures of the cluster: CLUSTER INFO and the sections of INFO. */
#pragma once
#include "server/stats/info.h"

void cluster_info_write(struct output *out); /* the lines of CLUSTER INFO; cluster mode only */
extern const struct info_section cluster_sections[];
