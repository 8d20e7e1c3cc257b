/* cluster_feature.h: cluster mode, for main.c. this_node.h lists the files. */
#ifndef CLUSTER_CLUSTER_FEATURE_H
#define CLUSTER_CLUSTER_FEATURE_H

struct feature;
extern const struct feature cluster_feature;
#endif
