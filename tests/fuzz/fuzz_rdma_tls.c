/* TLS over RDMA (net/rdma/tls.c): fuzz_tls.c with its peer, its edits and its conditions, over a carrier of this
 * program. The carrier is a TCP connection in place of one over RDMA, whose peer writes to the announced memory while
 * its bytes are read: as soon as bytes are consumed, they change. If the layer read any byte of a record again, for
 * instance to authenticate or decrypt it in place, an unchanged stream would not arrive. */
#include "net/rdma/rdma.h"
#include "net/rdma/tls.h"
#include "net/socket.h"
#include "net/tcp.h"
#include <string.h>

static struct connection *carrier_connect(struct event_loop *to, const struct connect_options *options) {
    return tcp_connect(&transport_rdma, to, options);
}
static struct listener *carrier_listen(struct event_loop *at, const struct listen_options *options, char *error,
                                       size_t error_size) {
    return tcp_listen(&transport_rdma, at, options, error, error_size);
}
static bool carrier_join(struct event_loop *to) {
    return true;
}
/* The peer writes to what it knows the key of. */
static void carrier_consume(struct connection *conn, size_t len) {
    memset((char *)(uintptr_t)conn->in, 0xaa, len);
    socket_consume(conn, len);
}

const struct transport transport_rdma = {
    .name = "rdma",
    .io = &socket_io_plain,
    .connect = carrier_connect,
    .listen = carrier_listen,
    .join = carrier_join,
    .consume = carrier_consume,
    .set_reading = socket_set_reading,
    .flush = socket_flush,
    .pending = socket_pending,
    .close = socket_close,
    .address = tcp_address,
    .fd = socket_fd,
    .is_local = tcp_is_local,
    .error_text = socket_error_text,
    .memory = socket_memory,
    .trim = socket_trim_input,
    .shared = socket_shared,
};

#define FUZZED_TRANSPORT transport_rdma_tls
#include "fuzz_tls.c"
