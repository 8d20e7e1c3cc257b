/* repl.c: the feature: its tables and parts, and the hooks that the server and the lower parts of replication call. */
#include "repl/repl.h"
#include "repl/settings.h"
#include "repl/history.h"
#include "repl/link_transport.h"
#include "repl/primary/failover.h"
#include "repl/primary/primary.h"
#include "repl/primary/replicas.h"
#include "repl/primary/wait.h"
#include "repl/quorum/quorum.h"
#include "repl/replica/link.h"
#include "server/repl_hooks.h"
#include "server/uncounted_memory.h"

static void repl_data_replaced(void) {
    repl_history_new();
    repl_disconnect_replicas("the data set was replaced");
}

static void repl_init(void) {
    static const struct repl_hooks hooks = {.write_aux = repl_history_write_aux,
                                            .read_aux = repl_history_read_aux,
                                            .data_replaced = repl_data_replaced,
                                            .write_replicas = repl_write_role,
                                            .report_memory = repl_report_memory};
    static struct uncounted_memory memory = {.bytes = repl_uncounted_memory};
    repl_hooks = &hooks;
    repl_role_hooks = &replica_role_hooks;
    uncounted_memory_add(&memory);
}

const struct feature repl_feature = {
    .name = "replication",
    .options =
        OPTIONS(replica_options, repl_options, wait_options, link_transport_options, pull_options, quorum_options),
    .commands = COMMANDS(replicaof_commands, handshake_commands, wait_commands, failover_commands),
    .init = repl_init,
    .debug = DEBUG_SUBCOMMANDS(repl_debug_subcommands),
    .sections = SECTIONS(repl_sections),
    /* The order matters: wait_part writes GETACK to the stream before primary_part sends it, and serves blocked clients
     * before failover_part changes the role. quorum_part marks the end of the stream before it is sent. */
    .parts = PARTS(&replica_part, &replica_expiry_part, &wait_part, &failover_part, &quorum_part, &primary_part,
                   &redirect_clients_part),
};
