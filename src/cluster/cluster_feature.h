/* cluster_feature.h: cluster mode, for main.c. this_node.h lists the files. */
#pragma once

struct feature;
extern const struct feature cluster_feature;
