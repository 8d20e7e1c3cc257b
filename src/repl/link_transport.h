/* link_transport.h: over which transport and to which port a replica connects to its primary.
 *
 * With `rdma-replication yes` each connect tries RDMA first. If that fails (no device, no listener, no route), the
 * replica immediately connects over TCP, and the next connect tries RDMA again.
 *
 * The replica first assumes that the primary's RDMA port is the port of REPLICAOF, or in a cluster the one that the
 * primary has told on the bus. In the handshake it asks for the
 * real one by `REPLCONF rdma-port <its own>`. A primary with an RDMA listener replies "+OK <port>", any other primary
 * "+OK" or an error. If a replica connected over TCP learns another port, it immediately connects there by RDMA. So
 * REPLICAOF, chained replicas and failover use TCP ports only, as clients and Sentinel expect.
 * replica-announce-rdma-port overrides the port that a server announces.
 *
 * With `tls-replication yes` the replica connects by TLS, over RDMA (tls-rdma at the primary) or TCP, and never in
 * clear text. A link with TLS does not pull the full synchronization (pull/wire.h): one-sided reads are not encrypted,
 * and the connection refuses them. It uses the ordinary one, inside TLS.
 *
 * Main thread only. */
#pragma once
#include "lib/text/slice.h"
#include "net/connection.h"
#include "server/config/config.h"
#include <stdbool.h>

extern const struct config_option link_transport_options[];

/* Opens a connection to the primary (role.h) over RDMA, TLS or TCP, as described above. */
struct connection *link_connect(const struct connection_events *events, uint32_t timeout_ms);
/* Opens a second connection to the primary, over the transport of `link`. NULL: over TCP, because RDMA failed. */
struct connection *link_connect_beside(const struct connection *link, const struct connection_events *events,
                                       uint32_t timeout_ms);
/* The RDMA transport of connections between servers; NULL: rdma-replication is off, or RDMA is not built in. */
const struct transport *link_rdma_transport(void);
/* For logs: what connections between servers use where RDMA fails. */
const char *link_without_rdma(void);
bool link_is_rdma(const struct connection *conn); /* with TLS or without */
/* The connect failed with `error`. True: the caller connects again immediately; another transport is next. */
bool link_connect_failed(const struct connection *conn, const char *error);
void link_connected(const struct connection *conn);
/* Whether the handshake asks for the primary's RDMA port. */
bool link_asks_port(void);
/* `answer`: the reply to REPLCONF rdma-port. True: the caller closes `conn` and connects again, now by RDMA. */
bool link_learn_port(const struct connection *conn, struct slice answer);
/* The RDMA port that this server announces to replicas and primaries; 0: it has none. */
int link_announced_port(void);
/* AUTH with primaryuser and primaryauth. Returns the number of arguments; 0: primaryauth is not set. */
int link_auth(struct slice argv[static 3]);
void link_send_auth(struct connection *conn);
/* INFO: the link's transport, why it fell back to TCP, and the progress of pulled synchronizations. */
struct output;
void link_write_info(struct output *out);
