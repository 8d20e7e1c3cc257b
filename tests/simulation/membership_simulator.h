/* membership_simulator.h: an administrator of sync_cluster.h that changes the members of shards, with commands.
 *
 *     CLUSTER RESET        soft and hard, of a replica, or of a server that is in no shard. The administrator lets the
 *                          other nodes forget an id that is gone, and brings the server back: MEET, and REPLICATE
 *
 * A server that leaves its group is lost for it, so a shard is disturbed in this way only while it could do without the
 * server. Checked: a server that serves the slots of a shard is in its group. */
#pragma once
#include "sync_cluster.h"

enum { GONE_MAX = 64 };
extern struct membership {
    bool on;
    struct node_id gone[GONE_MAX]; /* ids that no server has any more */
    unsigned gone_count;
    unsigned resets, joins;
} membership;
void membership_begin(void);
bool membership_elects_without(unsigned shard, const struct node *without);
bool membership_may_lose_data(const struct node *node);
void membership_change(struct node *node);
void membership_step(void);
