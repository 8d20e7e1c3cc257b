/* redirect.h: which node serves a command. See redirect.c. */
#ifndef CLUSTER_REDIRECT_H
#define CLUSTER_REDIRECT_H
#include <stdbool.h>

struct server_part;
extern const struct server_part redirect_part;
/* Installs the filter. Call it once, when this server is a node of a cluster. */
void redirect_start(void);
void redirect_set(bool on); /* off: this node serves the keys of all slots, until it is set again */
struct command;
struct slice;
/* The slot of the keys and shard channels of a command; negative: it has none, or several. */
int redirect_slot(const struct command *command, int argc, const struct slice *argv);
/* Call it when slots have changed: at the end of the turn it checks the clients that wait for keys. */
void redirect_check_waits(void);
#endif
