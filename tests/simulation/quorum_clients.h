/* quorum_clients.h: the clients of the servers of quorum_simulator.h, and the check of what they see.
 *
 *     at a primary    writes, reads, transactions that read and write, blocking reads with a timeout, messages: whoever
 *                     subscribes sees the value that was written
 *     at a replica    reads, which may be old
 *     moves           keys move one by one from the first shard to the second (MIGRATE … REPLACE), and new ones are
 *                     written: the client of a key that is gone gets ASK, and goes there. A new primary of the first
 *                     shard moves whatever it still has
 *
 * A key is a register. Values are numbers, and of two values that are ever seen the larger one is the newer. Checked: a
 * primary answers with no value that is older than one that was seen, or acknowledged, before the request was sent; a
 * blocking read times out only if there was no newer value then. What a replica shows counts as seen.
 *
 * Replies wait as in server/clients/reply_barrier.c; what they wait for, lease.h decides. Each way in which data
 * leave a server is a door: it asks, or, on trial, does not. */
#pragma once
#include "quorum_simulator.h"

/* The rules that are put on trial: the simulation must find what they break. */
enum trial {
    TRIAL_READ = 1,     /* a read does not ask while anything else is uncommitted */
    TRIAL_MARK = 2,     /* a mark begins a lease although nothing can be written to the stream */
    TRIAL_TIMEOUT = 4,  /* a blocking read times out without asking */
    TRIAL_ASK = 8,      /* -ASK leaves at once */
    TRIAL_MESSAGE = 16, /* a message leaves at once */
    TRIAL_MIGRATE = 32, /* MIGRATE hands out what is not committed */
    TRIAL_REPLICA = 64, /* a replica shows what is not committed */
    TRIALS = 7
};
extern const char *const trial_names[TRIALS];
uint32_t clients_value(const struct node *node, unsigned key);
void clients_release(struct node *node);
void clients_turn(struct node *node);
void clients_drop(struct node *node);
