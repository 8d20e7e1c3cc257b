/* full_sync_pull.c: connects the full synchronization by RDMA READ (pull/primary.h) with full_sync.c: decides which
 * replicas can fetch a snapshot, when they join one, and what follows when they are done. */
#include "repl/primary/full_sync_pull.h"
#include "formats/rdb.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "repl/primary/full_sync.h"
#include "repl/primary/full_sync_slow.h"
#include "repl/primary/primary.h"
#include "repl/pull/primary.h"
#include "server/server.h"
#include <string.h>

enum { VERSION_9 = 0x090000 };

bool full_sync_pulls(const struct replica *replica) {
    if (!replica->client->conn) return false;
    unsigned needed = pull_needs_seal(replica->client) ? CAPA_RDMA_PULL_SEALED : CAPA_RDMA_PULL;
    return replica->announced.capabilities & needed && !replica->copy.pull_refused && replica->psync &&
           !replica->announced.rdb_only && !replica->announced.rdb_channel && !replica->announced.filter &&
           replica->announced.version >= VERSION_9 && pull_possible(replica->client) && !full_sync_is_slow(replica);
}

static void full_sync_pull_delivered(void *owner) {
    struct replica *replica = owner;
    replica->copy.pull = NULL;
    log_notice("Replica %s has fetched the snapshot. Waiting for REPLCONF ACK from replica to enable streaming",
               replica_name(replica));
    replica_put_online(replica, true);
}

static void full_sync_pull_held_writes(void *owner, int64_t waited_ms) {
    full_sync_slow_note(owner, waited_ms);
}

static void full_sync_pull_failed(void *owner, const char *reason) {
    struct replica *replica = owner;
    replica->copy.pull = NULL;
    log_warning("SYNC failed. Replica %s could not fetch the snapshot: %s", replica_name(replica), reason);
    replica_close(replica);
}

/* Starts the next snapshot for replicas that could not join this one. Deferred to the loop's next turn, because the
 * caller may be iterating over replicas. */
static uint64_t full_sync_pull_start_next(struct event_timer *timer) {
    full_sync_next();
    return 0;
}
static void full_sync_pull_ended(void) {
    static struct event_timer timer;
    event_timer_set(server.loop, &timer, 0, full_sync_pull_start_next);
}

static bool full_sync_pull_awaited(void) {
    list_each_entry(&replicas, const struct replica, link, replica) {
        if (replica->state == REPLICA_WAITS && full_sync_pulls(replica)) return true;
    }
    return false;
}

static const struct pull_events events = {.delivered = full_sync_pull_delivered,
                                          .held_writes = full_sync_pull_held_writes,
                                          .failed = full_sync_pull_failed,
                                          .ended = full_sync_pull_ended,
                                          .awaited = full_sync_pull_awaited};

/* The memory is registered before +FULLRESYNC is sent: after it, an ordinary copy is no longer possible. */
static bool full_sync_pull_take_part(struct replica *replica, const struct repl_stream_reader *position) {
    const char *error;
    replica->copy.pull = pull_join(replica->client, replica, &error);
    if (!replica->copy.pull) {
        log_warning("Replica %s cannot fetch the snapshot by RDMA READ: %s. Sending an ordinary full sync",
                    replica_name(replica), error);
        replica->copy.pull_refused = true;
        return false;
    }
    replica->state = REPLICA_PULL;
    replica->progress_ms = clock_mono_ms();
    if (position) {
        full_sync_announce_like(replica, position);
    } else {
        full_sync_announce(replica);
    }
    pull_begin(replica->copy.pull);
    return true;
}

bool full_sync_pull_start(bool sealed) {
    /* Compressing takes longer than reading the bytes. */
    const struct save_content content = {.version = RDB_VERSION, .uncompressed = true};
    int result = pull_start(&events, &content, sealed);
    bool any = false;
    list_each_entry(&replicas, struct replica, link, replica) {
        if (replica->state != REPLICA_WAITS || !full_sync_pulls(replica)) continue;
        if (pull_needs_seal(replica->client) != sealed) continue; /* the next snapshot is for it */
        if (result < 0)
            replica->copy.pull_refused = true;
        else
            any |= full_sync_pull_take_part(replica, NULL);
    }
    if (result < 0) log_warning("Can't start the snapshot for replicas that fetch it: %s", strerror(-result));
    return any;
}

bool full_sync_pull_join(struct replica *replica) {
    if (!pull_joinable(pull_needs_seal(replica->client))) return false;
    list_each_entry(&replicas, const struct replica, link, other) {
        if (other->copy.pull) return full_sync_pull_take_part(replica, &other->reader);
    }
    return false;
}

void full_sync_pulled(struct replica *replica, int64_t chunks) {
    if (!replica->copy.pull || pull_taken(replica->copy.pull, chunks)) return;
    log_warning("Replica %s acknowledged a chunk that it was not offered. Closing its connection",
                replica_name(replica));
    replica_close(replica);
}
