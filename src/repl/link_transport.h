/* link_transport.h: over which transport and to which port a replica connects to its primary.
 *
 * With `rdma-replication yes` each connect tries RDMA first. Where that fails (no device, no listener, no route), the
 * replica connects over TCP at once, and the next connect tries RDMA again.
 *
 * The replica first assumes that the RDMA port of the primary is the port of REPLICAOF. The replica asks for the real
 * one in the handshake, `REPLCONF rdma-port <its own>`: a primary with an RDMA listener answers "+OK <port>", any other
 * one "+OK" or an error. A replica that learns another port over TCP connects there by RDMA at once. So REPLICAOF,
 * chains and failover name the TCP port only, as clients and Sentinel expect. Each side announces its RDMA port, which
 * replica-announce-rdma-port overrides.
 *
 * With `tls-replication yes` the replica connects by TLS, and never by RDMA, which is not encrypted.
 *
 * Main thread only. */
#ifndef REPL_LINK_TRANSPORT_H
#define REPL_LINK_TRANSPORT_H
#include "lib/text/slice.h"
#include "net/connection.h"
#include "server/config/config.h"
#include <stdbool.h>

extern const struct config_option link_transport_options[];

/* Opens a connection to the primary (role.h) over the transport that is next. */
struct connection *link_connect(const struct connection_events *events, uint32_t timeout_ms);
/* Opens a second connection to the primary, over the transport of `link`; NULL: over TCP, because RDMA has failed. */
struct connection *link_connect_beside(const struct connection *link, const struct connection_events *events,
                                       uint32_t timeout_ms);
/* The connection could not be made; `error` says why. True: connect again at once, over another transport. */
bool link_connect_failed(const struct connection *conn, const char *error);
void link_connected(const struct connection *conn);
/* Whether the handshake asks for the primary's RDMA port. */
bool link_asks_port(void);
/* The answer, a line. True: `conn` should be closed, and a new connect finds the primary by RDMA. */
bool link_learn_port(const struct connection *conn, struct slice answer);
/* The RDMA port at which this server can be reached; 0: it cannot. */
int link_announced_port(void);
/* The transport, why the replica fell back to TCP, and the progress of pulled synchronizations, on both sides. */
struct output;
void link_write_info(struct output *out);
#endif
