/* main_channels.c: see main_channels.h. */
#include "repl/primary/main_channels.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "repl/settings.h"
#include "server/role.h"
#include <stdio.h>

struct awaited_channel {
    struct list_link link;
    uint64_t rdb_client_id;
    int64_t offset;
    char name[REPLICA_NAME_MAX]; /* of the replica, for the log */
    struct repl_stream_reader reader;
    int64_t rdb_done_ms; /* when the RDB channel was closed; 0: it is open */
};
int main_channel_grace_s = 60;
static struct list awaited = LIST_INIT(awaited);

static struct awaited_channel *awaited_find(uint64_t rdb_client_id) {
    list_each_entry(&awaited, struct awaited_channel, link, channel)
        if (channel->rdb_client_id == rdb_client_id) return channel;
    return NULL;
}

void main_channel_await(const struct replica *replica) {
    struct awaited_channel *channel = mem_calloc(1, sizeof *channel);
    channel->rdb_client_id = replica->client->id;
    channel->offset = role->position.offset;
    snprintf(channel->name, sizeof channel->name, "%s", replica_name(replica));
    log_debug("Dual channel replication: Add rdb replica %s to waiting psync, with cid %llu, %s repl-backlog %s",
              channel->name, (unsigned long long)channel->rdb_client_id, repl_stream_backlog_len() ? "tracking" : "no",
              repl_stream_backlog_len() ? "tail" : "to track");
    repl_stream_attach_end(&channel->reader);
    log_debug("Dual channel replication: Attach replica rdb client %llu at offset %lld of the replication stream",
              (unsigned long long)channel->rdb_client_id, (long long)channel->offset);
    list_append(&awaited, &channel->link);
}

static void awaited_drop(struct awaited_channel *channel) {
    log_debug("Dual channel replication: Remove psync waiting replica %s with cid %llu", channel->name,
              (unsigned long long)channel->rdb_client_id);
    repl_stream_detach(&channel->reader);
    list_remove(&awaited, &channel->link);
    mem_free(channel);
}

void main_channels_drop(void) {
    list_each(&awaited, link) awaited_drop(container_of(link, struct awaited_channel, link));
}

bool main_channel_is_awaited(uint64_t id) {
    return awaited_find(id) != NULL;
}

size_t main_channels_awaited(void) {
    return awaited.len;
}

bool main_channel_attach(struct replica *replica, int64_t offset) {
    struct awaited_channel *channel = awaited_find(replica->announced.rdb_client_id);
    if (!channel || channel->offset != offset) return false;
    repl_stream_attach_like(&replica->reader, &channel->reader);
    awaited_drop(channel);
    return true;
}

uint64_t main_channel_kept(const struct replica *replica) {
    const struct awaited_channel *channel = replica->announced.rdb_channel ? awaited_find(replica->client->id) : NULL;
    return channel ? repl_stream_reader_lag(&channel->reader) : 0;
}

/* While the RDB channel is open, its client's output limit covers the kept stream: see replica_report(). */
void main_channels_limit(void) {
    const struct client_limit *limit = &client_settings.limits[CLIENT_CLASS_REPLICA];
    list_each_entry(&awaited, struct awaited_channel, link, channel) {
        uint64_t lag = repl_stream_reader_lag(&channel->reader);
        if (!channel->rdb_done_ms || !limit->hard || lag < limit->hard || lag < (uint64_t)repl_settings.backlog_size)
            continue;
        log_warning(
            "Client id=%llu, the RDB channel of replica %s, scheduled to be closed ASAP for overcoming of output "
            "buffer limits.",
            (unsigned long long)channel->rdb_client_id, channel->name);
        client_stats.output_limit_closed++;
        awaited_drop(channel);
    }
}

void main_channels_expire(int64_t now) {
    list_each_entry(&awaited, struct awaited_channel, link, channel) {
        if (!channel->rdb_done_ms || now - channel->rdb_done_ms <= (int64_t)main_channel_grace_s * 1000) continue;
        log_notice("Replica main channel failed to establish PSYNC within the grace period (%lld seconds). Freeing RDB "
                   "client %llu.",
                   (long long)(now - channel->rdb_done_ms) / 1000, (unsigned long long)channel->rdb_client_id);
        awaited_drop(channel);
    }
}

void main_channel_forget(const struct replica *replica) {
    struct awaited_channel *channel = awaited_find(replica->client->id);
    if (channel) awaited_drop(channel);
}

void main_channel_rdb_done(const struct replica *replica) {
    struct awaited_channel *channel = awaited_find(replica->client->id);
    if (!channel) return;
    channel->rdb_done_ms = clock_mono_ms();
    log_verbose("Dual channel replication: Postpone RDB client id=%llu (%s) free for %d seconds",
                (unsigned long long)replica->client->id, channel->name, main_channel_grace_s);
}
