/* verbs.c: rdma-core, loaded at run time. See verbs.h.
 *
 * The transport in net/rdma/ calls libibverbs and librdmacm by their names. The server links with them. In the client
 * library these names are the functions below, hidden from the program, which call through a table of pointers that
 * verbs_load() fills. Posting requests and polling completions do not pass through here: they are inline functions of
 * the verbs header, which call the device's driver.
 *
 * Rejected: weak references, which are resolved only if the program itself is linked with rdma-core; a table in the
 * transport, which the server would pay for and which would change every call there. */
#include "client/verbs.h"
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdio.h>

/* These are macros of the verbs header, in front of functions of the same name. */
#undef ibv_reg_mr
#undef ibv_query_port

struct _compat_ibv_port_attr;

/* X(library, result, name, parameters, arguments) */
#define VERBS(X)                                                                                                       \
    X(ibverbs, struct ibv_device **, ibv_get_device_list, (int *count), (count))                                       \
    X(ibverbs, const char *, ibv_get_device_name, (struct ibv_device * device), (device))                              \
    X(ibverbs, struct ibv_context *, ibv_open_device, (struct ibv_device * device), (device))                          \
    X(ibverbs, int, ibv_close_device, (struct ibv_context * context), (context))                                       \
    X(ibverbs, int, ibv_get_async_event, (struct ibv_context * context, struct ibv_async_event * event),               \
      (context, event))                                                                                                \
    X(ibverbs, int, ibv_query_device, (struct ibv_context * context, struct ibv_device_attr * attr), (context, attr))  \
    X(ibverbs, int, ibv_query_port, (struct ibv_context * context, uint8_t port, struct _compat_ibv_port_attr * attr), \
      (context, port, attr))                                                                                           \
    X(ibverbs, int, ibv_query_gid, (struct ibv_context * context, uint8_t port, int index, union ibv_gid *gid),        \
      (context, port, index, gid))                                                                                     \
    X(ibverbs, struct ibv_pd *, ibv_alloc_pd, (struct ibv_context * context), (context))                               \
    X(ibverbs, int, ibv_dealloc_pd, (struct ibv_pd * pd), (pd))                                                        \
    X(ibverbs, struct ibv_mr *, ibv_reg_mr, (struct ibv_pd * pd, void *start, size_t size, int access),                \
      (pd, start, size, access))                                                                                       \
    X(ibverbs, struct ibv_mr *, ibv_reg_mr_iova2,                                                                      \
      (struct ibv_pd * pd, void *start, size_t size, uint64_t iova, unsigned int access),                              \
      (pd, start, size, iova, access))                                                                                 \
    X(ibverbs, int, ibv_dereg_mr, (struct ibv_mr * mr), (mr))                                                          \
    X(ibverbs, struct ibv_comp_channel *, ibv_create_comp_channel, (struct ibv_context * context), (context))          \
    X(ibverbs, int, ibv_destroy_comp_channel, (struct ibv_comp_channel * channel), (channel))                          \
    X(ibverbs, struct ibv_cq *, ibv_create_cq,                                                                         \
      (struct ibv_context * context, int size, void *own, struct ibv_comp_channel *channel, int vector),               \
      (context, size, own, channel, vector))                                                                           \
    X(ibverbs, int, ibv_destroy_cq, (struct ibv_cq * cq), (cq))                                                        \
    X(ibverbs, int, ibv_get_cq_event, (struct ibv_comp_channel * channel, struct ibv_cq * *cq, void **own),            \
      (channel, cq, own))                                                                                              \
    X(ibverbs, struct ibv_srq *, ibv_create_srq, (struct ibv_pd * pd, struct ibv_srq_init_attr * attr), (pd, attr))    \
    X(ibverbs, int, ibv_modify_srq, (struct ibv_srq * srq, struct ibv_srq_attr * attr, int mask), (srq, attr, mask))   \
    X(ibverbs, int, ibv_destroy_srq, (struct ibv_srq * srq), (srq))                                                    \
    X(ibverbs, int, ibv_modify_qp, (struct ibv_qp * qp, struct ibv_qp_attr * attr, int mask), (qp, attr, mask))        \
    X(ibverbs, int, ibv_fork_init, (void), ())                                                                         \
    X(ibverbs, enum ibv_fork_status, ibv_is_fork_initialized, (void), ())                                              \
    X(ibverbs, const char *, ibv_wc_status_str, (enum ibv_wc_status status), (status))                                 \
    X(ibverbs, const char *, ibv_event_type_str, (enum ibv_event_type type), (type))                                   \
    X(rdmacm, struct rdma_event_channel *, rdma_create_event_channel, (void), ())                                      \
    X(rdmacm, int, rdma_create_id,                                                                                     \
      (struct rdma_event_channel * channel, struct rdma_cm_id * *id, void *own, enum rdma_port_space space),           \
      (channel, id, own, space))                                                                                       \
    X(rdmacm, int, rdma_destroy_id, (struct rdma_cm_id * id), (id))                                                    \
    X(rdmacm, int, rdma_bind_addr, (struct rdma_cm_id * id, struct sockaddr * address), (id, address))                 \
    X(rdmacm, int, rdma_listen, (struct rdma_cm_id * id, int backlog), (id, backlog))                                  \
    X(rdmacm, int, rdma_resolve_addr,                                                                                  \
      (struct rdma_cm_id * id, struct sockaddr * from, struct sockaddr * to, int timeout_ms),                          \
      (id, from, to, timeout_ms))                                                                                      \
    X(rdmacm, int, rdma_resolve_route, (struct rdma_cm_id * id, int timeout_ms), (id, timeout_ms))                     \
    X(rdmacm, int, rdma_create_qp, (struct rdma_cm_id * id, struct ibv_pd * pd, struct ibv_qp_init_attr * attr),       \
      (id, pd, attr))                                                                                                  \
    X(rdmacm, int, rdma_connect, (struct rdma_cm_id * id, struct rdma_conn_param * param), (id, param))                \
    X(rdmacm, int, rdma_accept, (struct rdma_cm_id * id, struct rdma_conn_param * param), (id, param))                 \
    X(rdmacm, int, rdma_reject, (struct rdma_cm_id * id, const void *data, uint8_t size), (id, data, size))            \
    X(rdmacm, int, rdma_notify, (struct rdma_cm_id * id, enum ibv_event_type event), (id, event))                      \
    X(rdmacm, int, rdma_disconnect, (struct rdma_cm_id * id), (id))                                                    \
    X(rdmacm, int, rdma_get_cm_event, (struct rdma_event_channel * channel, struct rdma_cm_event * *event),            \
      (channel, event))                                                                                                \
    X(rdmacm, int, rdma_ack_cm_event, (struct rdma_cm_event * event), (event))                                         \
    X(rdmacm, const char *, rdma_event_str, (enum rdma_cm_event_type event), (event))                                  \
    X(rdmacm, int, rdma_set_option, (struct rdma_cm_id * id, int level, int name, void *value, size_t size),           \
      (id, level, name, value, size))                                                                                  \
    X(rdmacm, int, rdma_migrate_id, (struct rdma_cm_id * id, struct rdma_event_channel * channel), (id, channel))      \
    X(rdmacm, int, rdma_init_qp_attr, (struct rdma_cm_id * id, struct ibv_qp_attr * attr, int *mask),                  \
      (id, attr, mask))                                                                                                \
    X(rdmacm, __be16, rdma_get_src_port, (struct rdma_cm_id * id), (id))

/* Functions without a result. */
#define VERBS_VOID(X)                                                                                                  \
    X(ibverbs, void, ibv_free_device_list, (struct ibv_device * *list), (list))                                        \
    X(ibverbs, void, ibv_ack_async_event, (struct ibv_async_event * event), (event))                                   \
    X(ibverbs, void, ibv_ack_cq_events, (struct ibv_cq * cq, unsigned int count), (cq, count))                         \
    X(rdmacm, void, rdma_destroy_event_channel, (struct rdma_event_channel * channel), (channel))                      \
    X(rdmacm, void, rdma_destroy_qp, (struct rdma_cm_id * id), (id))

#define MEMBER(library, result, name, parameters, arguments) result(*name) parameters;
static struct {
    VERBS(MEMBER)
    VERBS_VOID(MEMBER)
} table;

#define FUNCTION(library, result, name, parameters, arguments)                                                         \
    result name parameters;                                                                                            \
    result name parameters {                                                                                           \
        return table.name arguments;                                                                                   \
    }
#define PROCEDURE(library, result, name, parameters, arguments)                                                        \
    result name parameters;                                                                                            \
    result name parameters {                                                                                           \
        table.name arguments;                                                                                          \
    }
VERBS(FUNCTION)
VERBS_VOID(PROCEDURE)

static const struct {
    const char *name;
    void *slot;
    bool cm;
} entries[] = {
#define is_ibverbs                                              false
#define is_rdmacm                                               true
#define ENTRY(library, result, function, parameters, arguments) {#function, &table.function, is_##library},
    VERBS(ENTRY) VERBS_VOID(ENTRY)};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool loaded;

static void *open_library(const char *name, char *error, size_t error_size) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        snprintf(error, error_size, "RDMA is not available, rdma-core is not installed: %s", why ? why : name);
    }
    return library;
}

static int load(char *error, size_t error_size) {
    void *ibverbs = open_library("libibverbs.so.1", error, error_size);
    if (!ibverbs) return -ENOSYS;
    void *rdmacm = open_library("librdmacm.so.1", error, error_size);
    if (!rdmacm) {
        dlclose(ibverbs);
        return -ENOSYS;
    }
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *found = dlsym(entries[i].cm ? rdmacm : ibverbs, entries[i].name);
        if (!found) {
            snprintf(error, error_size, "RDMA is not available: %s is missing in %s", entries[i].name,
                     entries[i].cm ? "librdmacm.so.1" : "libibverbs.so.1");
            dlclose(rdmacm);
            dlclose(ibverbs);
            return -ENOSYS;
        }
        *(void **)entries[i].slot = found;
    }
    atomic_store_explicit(&loaded, true, memory_order_release);
    return 0; /* both stay loaded as long as the process runs */
}

int verbs_load(char *error, size_t error_size) {
    if (atomic_load_explicit(&loaded, memory_order_acquire)) return 0;
    pthread_mutex_lock(&lock);
    int result = atomic_load(&loaded) ? 0 : load(error, error_size);
    pthread_mutex_unlock(&lock);
    return result;
}
