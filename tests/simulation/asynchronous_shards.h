/* asynchronous_shards.h: shards of sync_cluster.h without synchronous replication, beside those with it.
 *
 * A server of such a shard answers its clients at once, and sends its log to replicas, which continue it or copy it as
 * a whole. The cluster alone elects the primary: an elected replica leads at once, with the data that it has. So
 * a failover, or a crash of the primary, may lose acknowledged writes, and two primaries may serve for a while. Checked
 * is what such shards promise nevertheless:
 *
 *     - the server that owns the slots (of those that claim them, the one with the largest epoch) has everything that
 *       it and its predecessors have acknowledged, until the shard fails over or its primary crashes. A migration of a
 *       slot, also from or to a shard with synchronous replication, loses nothing then, and leaves no keys behind
 *     - a slot has one owner in the end: cluster_simulator.h and migration_simulator.h
 *     - when the faults are over, and nobody writes, all replicas have the data of their primary
 *
 * What the shards with synchronous replication promise holds without a change. */
#pragma once
#include "sync_cluster.h"

extern struct asynchronous {
    bool on, quiet; /* quiet: nobody writes to them */
    bool trial;     /* the source of a migration does not hold writes; the simulation must find what that loses */
    unsigned losses, reads;
    const struct node *leaders[SHARDS]; /* as far as writes were acknowledged or read */
} asynchronous;
bool asynchronous_has_shard(unsigned shard);
const struct node *asynchronous_owner_now(unsigned slot);
void asynchronous_loses(unsigned shard);
bool asynchronous_owns(const struct node *node, unsigned slot);
void asynchronous_disconnect_replicas(const struct node *node);
void asynchronous_leads(struct node *node);
void asynchronous_turn(struct node *node);
const char *asynchronous_difference(void);
