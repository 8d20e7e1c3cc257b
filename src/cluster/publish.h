/* publish.h: messages between nodes, and shard channels whose slot leaves. See publish.c. */
#pragma once
#include "lib/text/slice.h"
#include <stdbool.h>
#include <stddef.h>

struct server_part;
extern const struct server_part publish_part;
void publish_start(void); /* once, when this server is a node of a cluster */
/* Sends a message that a client has published to the other nodes. */
void publish_send(struct slice channel, struct slice message, bool shard, size_t receivers);
/* See struct cluster_hooks. */
struct cluster_module_message;
bool publish_module(struct slice node, const struct cluster_module_message *message);
