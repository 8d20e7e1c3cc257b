/* nodes_conf.h: nodes.conf on disk: the file is locked while the server runs, read at start, and replaced when the
 * machine says so.
 *
 * A thread writes it (file_writer.h). The loop goes on, and messages wait (links.h). If the file cannot be written,
 * cluster-config-save-behavior decides: the server ends, or goes on and says so. The path is that of the start: CONFIG
 * SET dir does not move the file. */
#pragma once
#include "cluster/protocol/configuration.h"

/* Locks the file and reads it; without a file makes a new node. Exits, with a line in the log, where the file is in use
 * or cannot be understood. `saved`: everything that was submitted up to this ticket is on disk, or could not be
 * written. */
struct cluster *nodes_conf_start(const struct cluster_settings *settings, const struct cluster_effects *effects,
                                 void (*saved)(uint64_t ticket), int64_t now_ms);
/* Submits the present state. With `durable` it is unsafe until it is on disk. */
void nodes_conf_save(const struct cluster *cluster, bool durable);
/* The last ticket that must be on disk before a message may leave; 0: none is under way. */
uint64_t nodes_conf_unsafe_ticket(void);
/* Saves and waits. 0, or -errno: the file is not on disk. */
int nodes_conf_save_now(const struct cluster *cluster);
/* The same for a command: a failure does not end the server, unless messages wait for the file. */
int nodes_conf_save_on_request(const struct cluster *cluster);
void nodes_conf_stop(void); /* ends the thread and releases the lock */
