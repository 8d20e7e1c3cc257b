/* verbs.c: rdma-core, loaded at run time. See verbs.h.
 *
 * The transport in net/rdma/ calls libibverbs and librdmacm by their names. The server links with them. In the client
 * library these names are the functions below, hidden from the program, which call through a table of pointers that
 * verbs_load() fills. Posting requests and polling completions do not pass through here: they are inline functions of
 * the verbs header, which call the device's driver.
 *
 * After fork: librdmacm keeps the device that the parent opened and gives it to the child's connections as well, but
 * the kernel refuses requests on a device file from another process than the one that opened it. librdmacm has no call
 * to start anew. So the child loads a copy of it, whose state is empty, and which opens devices of its own. libibverbs
 * keeps no such state.
 *
 * Rejected: weak references, which are resolved only if the program itself is linked with rdma-core; a table in the
 * transport, which the server would pay for and which would change every call there. */
#include "client/verbs.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <rdma/rdma_cma.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

enum { COPY_BYTES = 1024 * 1024 };

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
    X(ibverbs, struct ibv_mr *, ibv_reg_dmabuf_mr,                                                                     \
      (struct ibv_pd * pd, uint64_t offset, size_t size, uint64_t iova, int fd, int access),                           \
      (pd, offset, size, iova, fd, access))                                                                            \
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
static atomic_int loaded_by; /* the process; 0: not loaded */
static void *handles[2];     /* of libibverbs, librdmacm */

static void verbs_before_fork(void) {
    pthread_mutex_lock(&lock);
}
static void after_fork(void) {
    pthread_mutex_unlock(&lock);
}
/* Before those of the callers, which hold locks of their own here: handlers run in the reverse order before a fork. */
__attribute__((constructor(101))) static void start(void) {
    pthread_atfork(verbs_before_fork, after_fork, after_fork);
}

static void *open_library(const char *name, char *error, size_t error_size) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char *why = dlerror();
        snprintf(error, error_size, "RDMA is not available, rdma-core is not installed: %s", why ? why : name);
    }
    return library;
}

/* What stands in for a function that older versions of the libraries have not. */
static struct ibv_mr *no_dmabuf(struct ibv_pd *pd, uint64_t offset, size_t size, uint64_t iova, int fd, int access) {
    errno = EOPNOTSUPP;
    return NULL;
}

/* Looks all functions up. */
static int fill_table(char *error, size_t error_size) {
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        void *found = dlsym(handles[entries[i].cm], entries[i].name);
        if (!found && entries[i].slot == &table.ibv_reg_dmabuf_mr) { /* it came with rdma-core 34 */
            table.ibv_reg_dmabuf_mr = no_dmabuf;
            continue;
        }
        if (!found) {
            snprintf(error, error_size, "RDMA is not available: %s is missing in %s", entries[i].name,
                     entries[i].cm ? "librdmacm.so.1" : "libibverbs.so.1");
            return -ENOSYS;
        }
        *(void **)entries[i].slot = found;
    }
    return 0; /* both libraries stay loaded as long as the process runs */
}

static int verbs_library_load(char *error, size_t error_size) {
    void *ibverbs = open_library("libibverbs.so.1", error, error_size);
    if (!ibverbs) return -ENOSYS;
    void *rdmacm = open_library("librdmacm.so.1", error, error_size);
    handles[0] = ibverbs;
    handles[1] = rdmacm;
    int result = rdmacm ? fill_table(error, error_size) : -ENOSYS;
    if (result < 0) {
        if (rdmacm) dlclose(rdmacm);
        dlclose(ibverbs);
    }
    return result;
}

/* The bytes of the file, in a file of another identity: the loader does not load one file twice. */
static int copy_of(const char *path) {
    int from = open(path, O_RDONLY | O_CLOEXEC), to = from < 0 ? -1 : memfd_create("librdmacm", MFD_CLOEXEC);
    ssize_t count = -1;
    while (to >= 0 && (count = sendfile(to, from, NULL, COPY_BYTES)) > 0) {
    }
    int error = errno;
    if (from >= 0) close(from);
    if (count == 0) return to;
    if (to >= 0) close(to);
    return -error;
}

static int load_in_child(char *error, size_t error_size) {
    const struct link_map *known;
    char path[32];
    if (dlinfo(handles[1], RTLD_DI_LINKMAP, &known) < 0) return 0;
    const char *name = strrchr(known->l_name, '/');
    if (!name || strncmp(name, "/librdmacm.so", 13) != 0) return 0; /* something in its place that knows fork */
    int fd = copy_of(known->l_name);
    if (fd < 0) {
        snprintf(error, error_size, "RDMA is not available in this forked process: %s cannot be copied: %s",
                 known->l_name, strerror(-fd));
        return fd;
    }
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    void *rdmacm = open_library(path, error, error_size);
    close(fd);
    if (!rdmacm) return -ENOSYS;
    handles[1] = rdmacm;
    return fill_table(error, error_size);
}

int verbs_load(char *error, size_t error_size) {
    int process = getpid();
    if (atomic_load_explicit(&loaded_by, memory_order_acquire) == process) return 0;
    pthread_mutex_lock(&lock);
    int by = atomic_load(&loaded_by);
    int result = by == process ? 0 : by ? load_in_child(error, error_size) : verbs_library_load(error, error_size);
    if (result == 0) atomic_store_explicit(&loaded_by, process, memory_order_release);
    pthread_mutex_unlock(&lock);
    return result;
}
