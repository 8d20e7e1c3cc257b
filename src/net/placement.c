/* placement.c: see placement.h. */
#include "net/placement.h"
#include <errno.h>
#include <string.h>

/* The name is the same in the half of a connection that is on another thread. */
bool conn_places(const struct connection *conn) {
    return strcmp(conn_transport_name(conn), "rdma") == 0;
}

void output_place(struct output *out, struct placement *placement) {
    if (out->ops->place)
        out->ops->place(out, placement);
    else
        placement->ended(placement, -ECANCELED);
}
