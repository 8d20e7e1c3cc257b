/* region.c: memory of the program that servers read and write. See valkeyrdma.h.
 *
 * A region has one registration, a key, for each device context that it has been used with. The key counts as a user of
 * the device context, so that this outlives it. A key on a device that was removed is of no more use and goes when the
 * region is looked at next.
 *
 * Rejected: registering when an item first names the region. Registering takes longer than the transfer of a value, and
 * an item could not wait for it without holding up those behind it. */
#include "client/library.h"
#include "lib/system/memory.h"
#include "net/rdma/connection.h"
#include "net/rdma/lifetime.h"
#include "net/rdma/loop.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

struct region_key {
    struct list_link link;
    struct rdma_device *device;
    struct ibv_mr *mr;
};

/* The device context keeps the registration to its end: without a queue pair of its protection domain no peer can use
 * its key. In the state ERR a queue pair may still complete a WRITE that has begun; only its end excludes that. New
 * connections open the device again, with a domain of their own. */
static void connections_end(struct rdma_device *device) {
    list_each(&device->owner->connections, link) {
        struct rdma_connection *c = container_of(link, struct rdma_connection, link);
        if (c->qp.device == device) rdma_connection_cut(c, EIO, "memory of the program could not be deregistered");
    }
    if (!device->removed) rdma_device_set_removed(device);
}

static void key_free(struct valkeyrdma_region *region, struct region_key *key) {
    bool removed = key->device->removed; /* then its connections end, or have ended, in any case */
    if (!rdma_unregister_claimed(&key->device->memory, key->mr, region->length) && !removed)
        connections_end(key->device);
    rdma_device_left(key->device);
    list_remove(&region->keys, &key->link);
    mem_free(key);
}

static struct ibv_mr *register_with(struct valkeyrdma_region *region, struct rdma_device *device) {
    int access = (region->uses & VALKEYRDMA_REGION_GET ? IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE : 0) |
                 (region->uses & VALKEYRDMA_REGION_SET ? IBV_ACCESS_REMOTE_READ : 0);
    if (region->address) return ibv_reg_mr(device->pd, region->address, region->length, access);
    return ibv_reg_dmabuf_mr(device->pd, region->offset, region->length, region->offset, region->fd, access);
}

static struct region_key *key_for(struct valkeyrdma_region *region, struct rdma_device *device, char *error,
                                  size_t error_size) {
    list_each_entry(&region->keys, struct region_key, link, key) {
        if (key->device == device) return key;
        if (key->device->removed) key_free(region, key);
    }
    struct ibv_mr *mr = NULL;
    errno = EDQUOT;
    if (rdma_register_claim(&device->memory, region->length)) {
        mr = register_with(region, device);
        int failure = errno;
        rdma_register_done(&device->memory, mr, failure);
        if (!mr) rdma_register_unclaim(region->length);
        errno = failure;
    }
    if (!mr) {
        int failure = errno;
        rdma_registration_error(failure, device->name, error, error_size);
        errno = failure;
        return NULL;
    }
    struct region_key *key = mem_calloc(1, sizeof *key);
    key->device = device;
    key->mr = mr;
    device->users++;
    list_append(&region->keys, &key->link);
    return key;
}

int region_reach(struct valkeyrdma_region *region, const struct connection *conn, uint64_t *key, uint64_t *address,
                 char *error, size_t error_size) {
    struct rdma_device *device = rdma_of(conn)->qp.device;
    if (!device) return -ENOTCONN;
    const struct region_key *known = key_for(region, device, error, error_size);
    if (!known) return -errno;
    *key = known->mr->rkey;
    *address = region->address ? (uintptr_t)region->address : region->offset;
    return 0;
}

int regions_reach(struct valkeyrdma_context *context, const struct connection *conn, char *error, size_t error_size) {
    uint64_t key, address;
    int result = 0;
    list_each_entry(&context->regions, struct valkeyrdma_region, link, region) {
        if (result == 0) result = region_reach(region, conn, &key, &address, error, error_size);
    }
    return result;
}

void region_destroy(struct valkeyrdma_region *region) {
    while (region->keys.len) key_free(region, container_of(list_first(&region->keys), struct region_key, link));
    list_remove(&region->context->regions, &region->link);
    if (region->fd >= 0) close(region->fd);
    mem_free(region);
}

/* Registers with the devices that the context knows. 0 or -errno. */
static int register_known(struct valkeyrdma_region *region, char *error, size_t error_size) {
    struct rdma_loop *transport = rdma_loop_find(region->context->loop);
    int result = 0;
    if (!transport) return 0; /* no connection was ever begun */
    list_each_entry(&transport->devices, struct rdma_device, link, device) {
        if (result == 0 && !device->removed && !key_for(region, device, error, error_size)) result = -errno;
    }
    return result;
}

static struct valkeyrdma_region *region_new(struct valkeyrdma_context *context, struct valkeyrdma_region wanted,
                                            char *error, size_t error_size) {
    enum { KNOWN_USES = VALKEYRDMA_REGION_GET | VALKEYRDMA_REGION_SET };
    int result = 0;
    char text[VALKEYRDMA_ERROR_MAX] = "";
    if (wanted.length == 0 || wanted.uses & ~KNOWN_USES || wanted.offset + wanted.length < wanted.offset ||
        (uintptr_t)wanted.address + wanted.length < wanted.length)
        result = -EINVAL;
    if (result == 0 && wanted.fd >= 0 && (wanted.fd = fcntl(wanted.fd, F_DUPFD_CLOEXEC, 0)) < 0) result = -errno;
    if (result == 0 && !context_enter(context)) {
        result = -EPERM;
        if (wanted.fd >= 0) close(wanted.fd);
    }
    if (result < 0) {
        fail_text(error, error_size,
                  result == -EPERM ? "the context belongs to the parent process" : strerror(-result));
        errno = -result;
        return NULL;
    }
    struct valkeyrdma_region *region = mem_calloc(1, sizeof *region);
    *region = wanted;
    if (!region->uses) region->uses = KNOWN_USES;
    region->context = context;
    list_init(&region->keys);
    list_append(&context->regions, &region->link);
    result = register_known(region, text, sizeof text);
    if (result < 0) region_destroy(region);
    context_leave(context);
    if (result == 0) return region;
    fail_text(error, error_size, text);
    errno = -result;
    return NULL;
}

struct valkeyrdma_region *valkeyrdma_region_register(struct valkeyrdma_context *context, void *address, size_t length,
                                                     int uses, char *error, size_t error_size) {
    if (!address) length = 0; /* refused */
    return region_new(context, (struct valkeyrdma_region){.address = address, .fd = -1, .length = length, .uses = uses},
                      error, error_size);
}

struct valkeyrdma_region *valkeyrdma_region_register_dmabuf(struct valkeyrdma_context *context, int fd, uint64_t offset,
                                                            size_t length, int uses, char *error, size_t error_size) {
    if (fd < 0) length = 0;
    return region_new(context, (struct valkeyrdma_region){.fd = fd, .offset = offset, .length = length, .uses = uses},
                      error, error_size);
}

int valkeyrdma_region_key(struct valkeyrdma_region *region, struct valkeyrdma *c, uint64_t *key, uint64_t *address) {
    char text[VALKEYRDMA_ERROR_MAX];
    if (!context_enter(c->context)) return -EPERM;
    int result = !c->one_sided || region->context != c->context ? -EINVAL : !c->connected || c->ended ? -ENOTCONN : 0;
    if (result == 0) result = region_reach(region, c->conn, key, address, text, sizeof text);
    context_leave(c->context);
    return result;
}

void valkeyrdma_region_free(struct valkeyrdma_region *region) {
    if (!region) return;
    struct valkeyrdma_context *context = region->context;
    if (!context_enter(context)) return;
    placement_let_go(region);
    region_destroy(region);
    context_leave(context);
}
