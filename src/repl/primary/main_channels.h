/* main_channels.h: main channels of dual-channel replicas that have not connected yet. The stream is kept for each of
 * them, from the offset of the snapshot on that its RDB channel receives. Main thread only. */
#pragma once
#include "repl/primary/replicas.h"

/* Seconds for which the stream is kept for a main channel after the RDB channel has ended. */
extern int main_channel_grace_s;

/* `replica` is an RDB channel, whose snapshot begins: keeps the stream from role->position on. */
void main_channel_await(const struct replica *replica);
bool main_channel_is_awaited(uint64_t rdb_client_id);
/* `replica` is a main channel: attaches its reader at `offset`. False: nothing is kept for it. */
bool main_channel_attach(struct replica *replica, int64_t offset);
/* `replica` is an RDB channel (others have no effect). rdb_done: it has received its copy, and ends. */
void main_channel_rdb_done(const struct replica *replica);
void main_channel_forget(const struct replica *replica);
uint64_t main_channel_kept(const struct replica *replica); /* bytes of the stream that are kept for it; 0: none */

size_t main_channels_awaited(void); /* replicas_waiting_psync */
void main_channels_drop(void);      /* gives up all of them and the stream kept for them */
/* Gives up those for which the kept stream exceeds client-output-buffer-limit replica. */
void main_channels_limit(void);
void main_channels_expire(int64_t now_ms); /* gives up those whose grace period is over */
