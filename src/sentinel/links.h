/* links.h: the connections of a Sentinel: requests to bytes, replies to answers.
 *
 * Each link has a resp_client for commands and, to a server, one for its subscription. With `sentinel rdma yes` a link
 * whose server refuses TCP tries RDMA at the same port, and TCP again when that fails. */
#pragma once
#include "sentinel/protocol/sentinel.h"

void sentinel_links_dial(void *context, struct sentinel_link *link, enum link_kind kind);
void sentinel_links_close(void *context, struct sentinel_link *link, enum link_kind kind);
bool sentinel_links_send(void *context, struct sentinel_link *link, const struct instance *to,
                         const struct sentinel_request *request);
bool sentinel_links_own_address(void *context, const struct sentinel_link *link, char host[static SENTINEL_HOST_MAX],
                                int *port);
const char *sentinel_links_transport(const struct sentinel_link *link); /* of its commands; "" if it is not open */
extern const char sentinel_hello_channel[];
