/* views.h: the cluster as clients see it: CLUSTER NODES, SLOTS, SHARDS, REPLICAS, LINKS.
 *
 * Client libraries ask for NODES, SLOTS or SHARDS when they connect and after each redirection, so all clients ask at
 * once when something has changed. These three are kept as the bytes of the reply, one for each kind of answer
 * (endpoint.h) and protocol version. They are made again when `view_version` of the machine or an option has changed.
 * Times and offsets change all the time without a new version: their places are known, and a reply begins with an
 * update of those that differ.
 *
 * All functions are for cluster mode only. Main thread. */
#pragma once
#include "cluster/endpoint.h"
#include "resp/reply.h"
#include "server/stats/info.h"

void views_nodes(struct reply *reply, struct endpoint_view view);
void views_slots(struct reply *reply, struct endpoint_view view);
void views_shards(struct reply *reply, struct endpoint_view view);
void views_replicas(struct reply *reply, const struct cluster_node *primary, struct endpoint_view view);
void views_links(struct reply *reply);

/* info.c */
void cluster_info_write(struct output *out); /* the lines of CLUSTER INFO; cluster mode only */
extern const struct info_section cluster_sections[];
