/* links.h: the links of the cluster bus (bus.h) as those of the machine (protocol/cluster.h).
 *
 * Each link of the machine has one of the bus. Messages that the machine sends while nodes.conf is being written wait
 * until the file is on disk: what a message tells must not be forgotten in a crash. They keep their order. Light
 * messages, which tell nothing about this node, do not wait. */
#ifndef CLUSTER_LINKS_H
#define CLUSTER_LINKS_H
#include "cluster/bus.h"
#include "cluster/protocol/cluster.h"

extern struct bus cluster_bus;

bool links_start(int port);   /* listens; false: logged */
void links_stop(void);        /* closes all of them; what waits for the disk is lost */
void links_reset_stats(void); /* CONFIG RESETSTAT */
void links_configure(void);   /* options may have changed */
void links_tick(void);        /* each second */
bool links_use_tls(void);
int links_port(void);
/* Everything that was saved up to this ticket (file_writer.h) is on disk. */
void links_saved(uint64_t ticket);
size_t links_held(void); /* bytes that wait for the disk */

/* Effects of the machine. */
void links_dial(void *context, struct cluster_link *link);
void links_close(void *context, struct cluster_link *link);
void links_send(void *context, struct cluster_link *link, const struct bus_message *message);
#endif
