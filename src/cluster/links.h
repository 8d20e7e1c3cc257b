/* links.h: connects the links of the state machine (protocol/cluster.h) with those of the cluster bus (bus.h).
 *
 * Each link of the machine has a link of the bus. While nodes.conf is being written, messages that the machine sends
 * wait until the file is on disk, because a node must not forget in a crash what it has told others. They keep their
 * order. Light messages, which have nothing about this node, do not wait. */
#pragma once
#include "cluster/bus.h"
#include "cluster/protocol/cluster.h"

extern struct bus cluster_bus;

bool links_start(int port);   /* listens; returns false after it has logged the error */
void links_stop(void);        /* closes all links; messages that wait for the disk are lost */
void links_reset_stats(void); /* CONFIG RESETSTAT */
void links_configure(void);   /* applies the options, which may have changed */
void links_tick(void);        /* called each second */
bool links_use_tls(void);
int links_port(void);
/* Sends the messages that waited: all changes up to this ticket (file_writer.h) are on disk. */
void links_saved(uint64_t ticket);
size_t links_held(void); /* bytes of the messages that wait for the disk */

/* Effects of the machine. */
void links_dial(void *context, struct cluster_link *link);
void links_close(void *context, struct cluster_link *link);
void links_send(void *context, struct cluster_link *link, const struct bus_message *message);
