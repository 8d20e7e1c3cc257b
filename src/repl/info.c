/* info.c: INFO replication, the replicas in ROLE, and what replication adds to INFO memory and stats. */
#include "repl/repl.h"
#include "lib/system/clock.h"
#include "repl/history.h"
#include "repl/link_transport.h"
#include "repl/primary/failover.h"
#include "repl/primary/full_sync_slow.h"
#include "repl/primary/full_sync_stream.h"
#include "repl/primary/main_channels.h"
#include "repl/primary/replicas.h"
#include "repl/primary/wait.h"
#include "repl/quorum/quorum.h"
#include "repl/settings.h"
#include "server/role.h"
#include "server/role_commands.h"
#include "server/stats/memory_report.h"
#include <stdio.h>

static void write_replica(struct output *out, int number, const struct replica *replica) {
    struct slice address = replica_address(replica);
    char rdma_port[32] = "";
    if (replica->announced.rdma_port)
        snprintf(rdma_port, sizeof rdma_port, ",rdma_port=%d", replica->announced.rdma_port);
    long long lag = replica->state == REPLICA_ONLINE ? (long long)(clock_mono_ms() - replica->acked_ms) / 1000 : 0;
    info_line(out, "slave%d:ip=%.*s,port=%d,state=%s,offset=%lld,lag=%lld,type=%s,transport=%s%s", number,
              (int)address.len, address.data, replica->announced.port, replica_state_name(replica),
              (long long)replica->acked, lag, replica_type_name(replica), conn_transport_name(replica->client->conn),
              rdma_port);
}

static void write_replicas(struct output *out) {
    int number = 0;
    info_line(out, "connected_slaves:%zu", replicas.len);
    if (repl_min_replicas_set()) info_line(out, "min_slaves_good_slaves:%zu", repl_good_replicas());
    list_each_entry(&replicas, const struct replica, link, replica)
        if (replica->client->conn) write_replica(out, number++, replica);
}

static void write_replication(struct output *out) {
    bool active = repl_stream_has_backlog();
    role_write_info(out);
    link_write_info(out);
    write_replicas(out);
    quorum_write_info(out);
    info_line(out, "replicas_waiting_psync:%zu", main_channels_awaited());
    info_line(out, "master_failover_state:%s", repl_failover_state());
    info_line(out, "master_replid:%s\r\nmaster_replid2:%s", role->position.id, repl_history->second_id);
    info_line(out, "master_repl_offset:%lld", (long long)role->position.offset);
    info_line(out, "second_repl_offset:%lld",
              repl_history->second_offset < 0 ? -1LL : (long long)repl_history->second_offset + 1);
    info_line(out, "repl_backlog_active:%d", active);
    info_line(out, "repl_backlog_size:%lld", (long long)repl_settings.backlog_size);
    info_line(out, "repl_backlog_first_byte_offset:%lld", active ? (long long)repl_stream_backlog_start() + 1 : 0LL);
    info_line(out, "repl_backlog_histlen:%lld", active ? (long long)repl_stream_backlog_len() : 0LL);
    info_line(out, "full_sync_dropped_slow:%llu", (unsigned long long)full_sync_dropped_slow);
}

const struct info_section repl_sections[] = {
    {.name = "replication", .title = "Replication", .order = 60, .write = write_replication},
    {.name = NULL},
};

void repl_write_role(struct reply *reply) {
    reply_array(reply, replicas_online());
    list_each_entry(&replicas, const struct replica, link, replica) {
        if (!replica_is_online(replica)) continue;
        reply_array(reply, 3);
        reply_bulk(reply, replica_address(replica));
        reply_bulk_integer(reply, replica->announced.port);
        reply_bulk_integer(reply, replica->acked);
    }
}

void repl_report_memory(struct memory_report *report) {
    struct repl_stream_memory memory = repl_stream_memory();
    if (!replicas.len) { /* the backlog is about to free the excess: repl_stream_trim() */
        memory.backlog = memory.blocks;
        memory.replicas = 0;
    }
    report->replication_backlog = memory.backlog;
    report->replication_buffers = memory.blocks + role_sync.buffer;
    report->clients_replicas += memory.replicas;
    report->received_ahead = role_sync.buffer;
}

/* Replication buffers do not count towards maxmemory: they grow because replicas are slow, and each eviction would add
 * a DEL to them. */
size_t repl_uncounted_memory(void) {
    size_t bytes = repl_stream_memory().replicas + full_sync_stream_memory();
    list_each(&replicas, link) {
        const struct connection *conn = replica_of(link)->client->conn;
        size_t input = 0, output = 0;
        if (conn) conn_memory(conn, &input, &output);
        bytes += output;
    }
    return bytes;
}
