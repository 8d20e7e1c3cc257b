/* port.c: see port.h.
 *
 * The port in use is that of the first listener or connection that is bound to a device; before there is one, the first
 * active port of the machine. A GID of RoCE contains the IP address it belongs to, so the GID of a listener is the one
 * among the port's GIDs with the listener's address; an InfiniBand port has its own at index 0. */
#include "net/rdma/port.h"
#include "net/rdma/settings.h"
#include <arpa/inet.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { GIDS_MAX = 256 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct rdma_port used; /* under the lock */
static atomic_bool is_noted;  /* set by a listener or connection, not a guess */

static void address_bytes(const struct sockaddr *address, uint8_t bytes[static 16]) {
    memset(bytes, 0, 16);
    if (address->sa_family == AF_INET) {
        bytes[10] = bytes[11] = 0xff;
        memcpy(bytes + 12, &((const struct sockaddr_in *)address)->sin_addr, 4);
    } else if (address->sa_family == AF_INET6)
        memcpy(bytes, &((const struct sockaddr_in6 *)address)->sin6_addr, 16);
}

/* The GID of `address` (NULL: any), or the first one. */
static bool find_gid(struct ibv_context *verbs, uint8_t port, int count, const struct sockaddr *address,
                     union ibv_gid *gid) {
    uint8_t wanted[16];
    if (address) {
        address_bytes(address, wanted);
        for (int i = 0; i < count && i < GIDS_MAX; i++)
            if (ibv_query_gid(verbs, port, i, gid) == 0 && memcmp(gid->raw, wanted, sizeof wanted) == 0) return true;
    }
    return ibv_query_gid(verbs, port, 0, gid) == 0;
}

static bool describe(struct ibv_context *verbs, uint8_t number, const struct sockaddr *address,
                     struct rdma_port *port) {
    static const union ibv_gid none;
    struct ibv_port_attr attr;
    union ibv_gid gid;
    if (ibv_query_port(verbs, number, &attr) != 0) return false;
    *port = (struct rdma_port){.number = number, .active = attr.state == IBV_PORT_ACTIVE};
    snprintf(port->device, sizeof port->device, "%s", ibv_get_device_name(verbs->device));
    if (attr.active_mtu >= IBV_MTU_256 && attr.active_mtu <= IBV_MTU_4096) port->mtu = 128u << attr.active_mtu;
    if (find_gid(verbs, number, attr.gid_tbl_len, address, &gid) && memcmp(&gid, &none, sizeof gid) != 0)
        inet_ntop(AF_INET6, &gid, port->gid, sizeof port->gid);
    return true;
}

/* Examines a device that may not be in use yet. */
static bool first_active(struct rdma_port *port) {
    int count = 0;
    bool found = false;
    struct ibv_device **devices = ibv_get_device_list(&count);
    for (int i = 0; devices && i < count && !found; i++) {
        struct ibv_context *verbs = ibv_open_device(devices[i]);
        struct ibv_device_attr limits;
        if (!verbs) continue;
        int ports = ibv_query_device(verbs, &limits) == 0 ? limits.phys_port_cnt : 0;
        for (int number = 1; number <= ports && !found; number++)
            found = describe(verbs, (uint8_t)number, NULL, port) && port->active;
        ibv_close_device(verbs);
    }
    if (devices) ibv_free_device_list(devices);
    return found;
}

void rdma_port_note(struct rdma_cm_id *id) {
    struct rdma_port port;
    if (atomic_load_explicit(&is_noted, memory_order_relaxed) || !id->verbs) return;
    if (!describe(id->verbs, id->port_num ? id->port_num : 1, rdma_get_local_addr(id), &port)) return;
    pthread_mutex_lock(&lock);
    used = port;
    is_noted = true;
    pthread_mutex_unlock(&lock);
}

void rdma_port_forget(void) {
    pthread_mutex_lock(&lock);
    is_noted = false;
    pthread_mutex_unlock(&lock);
}

const struct rdma_port *rdma_port_used(void) {
    static _Thread_local struct rdma_port copy;
    pthread_mutex_lock(&lock);
    if (!used.device[0] && rdma_usable() && !first_active(&used)) used.device[0] = 0;
    copy = used;
    pthread_mutex_unlock(&lock);
    return copy.device[0] ? &copy : NULL;
}

const char *rdma_device_name(void) {
    const struct rdma_port *port = rdma_port_used();
    return port ? port->device : NULL;
}

const char *rdma_device_text(const struct rdma_cm_id *id, char text[static RDMA_NAME_MAX]) {
    static const union ibv_gid none;
    char name[INET6_ADDRSTRLEN];
    snprintf(text, RDMA_NAME_MAX, "%s", id && id->verbs ? ibv_get_device_name(id->verbs->device) : "any device");
    if (!id || !id->verbs) return text;
    union ibv_gid gid = id->route.addr.addr.ibaddr.sgid;
    if (memcmp(&gid, &none, sizeof gid) == 0) { /* a listener: it has no route */
        struct rdma_port port;
        if (!describe(id->verbs, id->port_num ? id->port_num : 1, &id->route.addr.src_addr, &port) || !port.gid[0])
            return text;
        snprintf(name, sizeof name, "%s", port.gid);
    } else if (!inet_ntop(AF_INET6, &gid, name, sizeof name))
        return text;
    size_t len = strlen(text);
    snprintf(text + len, RDMA_NAME_MAX - len, ", GID %s", name);
    return text;
}
