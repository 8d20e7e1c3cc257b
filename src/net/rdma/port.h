/* port.h: the device and port that the process uses, for display in the log, in INFO and in banners. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct rdma_cm_id;

/* The port that listeners and connections use. Before there are any, the first active port of the machine. NULL: none.
 * The result is valid until the thread calls this again. */
struct rdma_port {
    char device[64];
    unsigned number;
    bool active;
    char gid[46]; /* "" if it has none */
    uint32_t mtu; /* bytes of a packet */
};
const struct rdma_port *rdma_port_used(void);
const char *rdma_device_name(void); /* the device of rdma_port_used(), for banners */

void rdma_port_note(struct rdma_cm_id *id); /* records the port as the one in use, unless one is recorded */
void rdma_port_forget(void);                /* the recorded port may be gone: the next one replaces it */
enum { RDMA_NAME_MAX = 300 };
/* "softrdma0, GID ::ffff:127.0.0.1", or less if the identifier is bound to no device. */
const char *rdma_device_text(const struct rdma_cm_id *id, char text[static RDMA_NAME_MAX]);
