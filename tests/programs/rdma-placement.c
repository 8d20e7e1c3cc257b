/* rdma-placement: uses the regions and the placement client of libvalkeyrdma as a program would. It includes nothing
 * else of this project.
 *
 *   rdma-placement CHECK HOST PORT         one of the checks below, or "all": those for every server of the BLOB
 *                                          commands. Prints "ok NAME" for each that has passed
 *   rdma-placement misbehaviour HOST PORT  the same against rdma-blob-standin, with what only it does
 *   rdma-placement frozen HOST PORT PID    stops the server with this process number, lets a deadline pass, and
 *                                          continues it: nothing may be written into the memory after that
 *   rdma-placement kept HOST PORT          a region that the device does not deregister is given back under way
 *   rdma-placement load HOST PORT SECONDS  gets and sets from 4 threads until the time is over or the connection is
 *                                          lost. Prints "running"; exits 3 if a value is wrong or a lost item's memory
 *                                          changes
 *   rdma-placement bench HOST PORT COUNT SIZE ROUNDS
 *                                          COUNT values of SIZE bytes in one batch; prints GB/s of set and get */
#include "client-check.h"
#include "client/valkeyrdma.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCK = 65536, BLOCKS = 64 };

#define CHECK_IS(got, wanted)                                                                                          \
    do {                                                                                                               \
        long long got_ = (got), wanted_ = (wanted);                                                                    \
        if (got_ != wanted_) {                                                                                         \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #got, got_, wanted_);                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* What every check begins with. */
struct scene {
    struct valkeyrdma_context *context;
    struct valkeyrdma_placement *client;
    struct valkeyrdma_region *region;
    unsigned char *arena;
    struct valkeyrdma_item items[BLOCKS];
    char keys[BLOCKS][64];
};

static unsigned char *map(size_t size) {
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

static struct valkeyrdma_placement *new_client(struct valkeyrdma_context *context,
                                               const struct valkeyrdma_placement_options *options) {
    char error[VALKEYRDMA_ERROR_MAX] = "";
    struct valkeyrdma_placement *client = valkeyrdma_placement_new(context, host, port, options, error, sizeof error);
    if (!client) fprintf(stderr, "no client: %s\n", error);
    CHECK(client);
    return client;
}

static void connect_client(struct valkeyrdma_placement *client) {
    int result = valkeyrdma_placement_connect(client, 10000);
    if (result < 0) fprintf(stderr, "connecting failed: %s\n", valkeyrdma_placement_error_text(client));
    CHECK_IS(result, 0);
}

/* Items of `count` blocks from `first` on, with keys PREFIX0, PREFIX1 … */
static struct valkeyrdma_item *name_items(struct scene *s, int first, int count, const char *prefix) {
    for (int i = 0; i < count; i++) {
        snprintf(s->keys[first + i], sizeof s->keys[0], "%s%d", prefix, i);
        s->items[first + i] = (struct valkeyrdma_item){.key = s->keys[first + i],
                                                       .key_length = strlen(s->keys[first + i]),
                                                       .region = s->region,
                                                       .offset = (size_t)(first + i) * BLOCK,
                                                       .length = BLOCK};
    }
    return &s->items[first];
}

static void open_scene(struct scene *s) {
    char error[VALKEYRDMA_ERROR_MAX] = "";
    *s = (struct scene){.arena = map((size_t)BLOCK * BLOCKS)};
    s->context = valkeyrdma_context_new(error, sizeof error);
    CHECK(s->context);
    s->region = valkeyrdma_region_register(s->context, s->arena, (size_t)BLOCK * BLOCKS, 0, error, sizeof error);
    if (!s->region) fprintf(stderr, "no region: %s\n", error);
    CHECK(s->region);
    s->client = new_client(s->context, NULL);
    connect_client(s->client);
}

static void close_scene(struct scene *s) {
    valkeyrdma_placement_free(s->client);
    valkeyrdma_region_free(s->region);
    valkeyrdma_context_free(s->context);
    munmap(s->arena, (size_t)BLOCK * BLOCKS);
}

/* Waits for the batch and frees it. Returns the number of items that succeeded. */
static ssize_t finish(struct valkeyrdma_batch *batch) {
    CHECK(batch);
    CHECK_IS(valkeyrdma_batch_wait(batch, 20000), 0);
    ssize_t succeeded = valkeyrdma_batch_succeeded(batch);
    valkeyrdma_batch_free(batch);
    return succeeded;
}

static struct valkeyrdma_batch_options with(int flags, int timeout_ms) {
    return (struct valkeyrdma_batch_options){
        .size = sizeof(struct valkeyrdma_batch_options), .flags = flags, .timeout_ms = timeout_ms};
}

static void fill(unsigned char *memory, size_t size, unsigned seed) {
    for (size_t i = 0; i < size; i++) memory[i] = (unsigned char)((seed = seed * 1103515245 + 12345) >> 16);
}

static bool holds_only(const unsigned char *memory, size_t size, unsigned char byte) {
    for (size_t i = 0; i < size; i++)
        if (memory[i] != byte) return false;
    return true;
}

/* Some time in which a server that still writes would have done so: requests on a connection of its own. */
static void let_server_work(int requests) {
    struct valkeyrdma *c = valkeyrdma_connect(NULL, host, port, NULL, 10000, NULL, 0);
    char reply[7];
    CHECK(c);
    for (int i = 0; i < requests; i++) {
        CHECK(valkeyrdma_send(c, "*1\r\n$4\r\nPING\r\n", 14, 10000) == 14);
        for (size_t got = 0; got < sizeof reply;) {
            ssize_t n = valkeyrdma_recv(c, reply + got, sizeof reply - got, 10000);
            CHECK(n > 0);
            got += (size_t)n;
        }
    }
    valkeyrdma_close(c);
}

/* --- Checks for every server --- */

static void check_values(void) {
    struct scene s;
    open_scene(&s);
    int half = BLOCKS / 2;
    fill(s.arena, (size_t)half * BLOCK, 1);
    struct valkeyrdma_item *from = name_items(&s, 0, half, "values:"), *into = name_items(&s, half, half, "values:");
    CHECK_IS(finish(valkeyrdma_placement_delete(s.client, from, (size_t)half, NULL)) >= 0, 1);
    CHECK_IS(finish(valkeyrdma_placement_exists(s.client, from, (size_t)half, NULL)), 0);
    CHECK_IS(from[3].result, -ENOENT);
    CHECK_IS(finish(valkeyrdma_placement_get(s.client, into, (size_t)half, NULL)), 0);
    CHECK_IS(into[3].result, -ENOENT);
    CHECK(holds_only(s.arena + (size_t)half * BLOCK, (size_t)half * BLOCK, 0));
    CHECK_IS(finish(valkeyrdma_placement_set(s.client, from, (size_t)half, NULL)), half);
    CHECK_IS(finish(valkeyrdma_placement_exists(s.client, from, (size_t)half, NULL)), half);
    struct valkeyrdma_batch_options options = with(VALKEYRDMA_CHECK, 20000);
    CHECK_IS(finish(valkeyrdma_placement_get(s.client, into, (size_t)half, &options)), half);
    CHECK(memcmp(s.arena, s.arena + (size_t)half * BLOCK, (size_t)half * BLOCK) == 0);
    for (int i = 0; i < half; i++) {
        CHECK_IS((long long)into[i].value_length, BLOCK);
        CHECK_IS(into[i].checksum, valkeyrdma_checksum(s.arena + (size_t)i * BLOCK, BLOCK));
    }
    CHECK_IS(finish(valkeyrdma_placement_delete(s.client, from, 1, NULL)), 1);
    CHECK_IS(finish(valkeyrdma_placement_get(s.client, into, (size_t)half, NULL)), half - 1);
    CHECK_IS(into[0].result, -ENOENT);
    CHECK_IS(valkeyrdma_checksum("123456789", 9), 0xe3069283);
    close_scene(&s);
}

static void check_lengths(void) {
    struct scene s;
    open_scene(&s);
    static const size_t lengths[] = {1, 2, 63, 64, 1000, 4095, 4096, 4097, 30000, BLOCK};
    enum { N = sizeof lengths / sizeof *lengths };
    fill(s.arena, (size_t)N * BLOCK, 2);
    struct valkeyrdma_item *from = name_items(&s, 0, N, "lengths:"), *into = name_items(&s, N, N, "lengths:");
    for (int i = 0; i < N; i++) {
        from[i].length = lengths[i];
        from[i].offset += (size_t)(i * 3) % (BLOCK - lengths[i] + 1); /* not only aligned ones */
    }
    CHECK_IS(finish(valkeyrdma_placement_set(s.client, from, N, NULL)), N);
    struct valkeyrdma_batch_options options = with(VALKEYRDMA_CHECK, 0);
    CHECK_IS(finish(valkeyrdma_placement_get(s.client, into, N, &options)), N);
    for (int i = 0; i < N; i++) {
        CHECK_IS((long long)into[i].value_length, (long long)lengths[i]);
        CHECK(memcmp(s.arena + from[i].offset, s.arena + into[i].offset, lengths[i]) == 0);
        CHECK(holds_only(s.arena + into[i].offset + lengths[i], BLOCK - lengths[i], 0));
    }
    memset(s.arena + into[0].offset, 0x55, (size_t)N * BLOCK);
    for (int i = 1; i < N; i++) into[i].length = lengths[i] - 1;
    CHECK_IS(finish(valkeyrdma_placement_get(s.client, into + 1, N - 1, NULL)), 0);
    for (int i = 1; i < N; i++) {
        CHECK_IS(into[i].result, -EMSGSIZE);
        CHECK(into[i].value_length == 0);
    }
    CHECK(holds_only(s.arena + into[0].offset, (size_t)N * BLOCK, 0x55));
    close_scene(&s);
}

static void check_conditions(void) {
    struct scene s;
    open_scene(&s);
    struct valkeyrdma_item *item = name_items(&s, 0, 1, "conditions:");
    struct valkeyrdma_batch_options nx = with(VALKEYRDMA_NX, 0), xx = with(VALKEYRDMA_XX, 0);
    finish(valkeyrdma_placement_delete(s.client, item, 1, NULL));
    finish(valkeyrdma_placement_set(s.client, item, 1, &xx));
    CHECK_IS(item->result, -ENOENT);
    finish(valkeyrdma_placement_set(s.client, item, 1, &nx));
    CHECK_IS(item->result, 0);
    finish(valkeyrdma_placement_set(s.client, item, 1, &nx));
    CHECK_IS(item->result, -EEXIST);
    finish(valkeyrdma_placement_set(s.client, item, 1, &xx));
    CHECK_IS(item->result, 0);
    struct valkeyrdma_batch_options expiring = with(0, 0);
    expiring.expire_ms = 3600000;
    finish(valkeyrdma_placement_set(s.client, item, 1, &expiring));
    CHECK_IS(item->result, 0);
    struct valkeyrdma_batch_options keep = with(VALKEYRDMA_KEEPTTL | VALKEYRDMA_XX, 0);
    finish(valkeyrdma_placement_set(s.client, item, 1, &keep));
    CHECK_IS(item->result, 0);
    close_scene(&s);
}

static void check_arguments(void) {
    struct scene s;
    char error[VALKEYRDMA_ERROR_MAX];
    open_scene(&s);
#define REFUSED(expected, call)                                                                                        \
    do {                                                                                                               \
        errno = 0;                                                                                                     \
        CHECK(!(call));                                                                                                \
        CHECK_IS(errno, expected);                                                                                     \
    } while (0)
    struct valkeyrdma_item *item = name_items(&s, 0, 2, "arguments:"), good = *item;
    struct valkeyrdma_batch_options options = with(VALKEYRDMA_NX | VALKEYRDMA_XX, 0);
    REFUSED(EINVAL, valkeyrdma_placement_set(s.client, item, 1, &options));
    REFUSED(EINVAL, valkeyrdma_placement_get(s.client, item, 1, &options));
    REFUSED(EINVAL, valkeyrdma_placement_get(s.client, item, 0, NULL));
    options = with(1024, 0);
    REFUSED(EINVAL, valkeyrdma_placement_get(s.client, item, 1, &options));
    options = with(0, -1);
    REFUSED(EINVAL, valkeyrdma_placement_get(s.client, item, 1, &options));
    item[1].length = 0;
    REFUSED(EINVAL, valkeyrdma_placement_get(s.client, item, 2, NULL));
    item[1] = good;
    item[1].offset = (size_t)BLOCK * BLOCKS - BLOCK + 1;
    REFUSED(EINVAL, valkeyrdma_placement_get(s.client, item, 2, NULL));
    item[1].offset = SIZE_MAX;
    REFUSED(EINVAL, valkeyrdma_placement_set(s.client, item, 2, NULL));
    item[1] = good;
    item[1].region = NULL;
    REFUSED(EINVAL, valkeyrdma_placement_set(s.client, item, 2, NULL));
    item[1] = good;
    item[1].key_length = 0;
    REFUSED(EINVAL, valkeyrdma_placement_exists(s.client, item, 2, NULL));
    REFUSED(EINVAL, valkeyrdma_region_register(s.context, NULL, 4096, 0, error, sizeof error));
    REFUSED(EINVAL, valkeyrdma_region_register(s.context, s.arena, 0, 0, error, sizeof error));
    REFUSED(EINVAL, valkeyrdma_region_register(s.context, s.arena, 4096, 8, error, sizeof error));
    REFUSED(EINVAL, valkeyrdma_region_register_dmabuf(s.context, -1, 0, 4096, 0, error, sizeof error));
    REFUSED(EINVAL, valkeyrdma_placement_new(s.context, host, 0, NULL, error, sizeof error));
    /* Memory that is only read may be read-only, and serves no get. */
    unsigned char *constant = map(BLOCK);
    fill(constant, BLOCK, 3);
    CHECK(mprotect(constant, BLOCK, PROT_READ) == 0);
    struct valkeyrdma_region *readable =
        valkeyrdma_region_register(s.context, constant, BLOCK, VALKEYRDMA_REGION_SET, error, sizeof error);
    CHECK(readable);
    item[0] = item[1] = good;
    item[0].region = readable;
    REFUSED(EACCES, valkeyrdma_placement_get(s.client, item, 1, NULL));
    CHECK_IS(finish(valkeyrdma_placement_set(s.client, item, 1, NULL)), 1);
    CHECK_IS(finish(valkeyrdma_placement_get(s.client, item + 1, 1, NULL)), 1);
    CHECK(memcmp(constant, s.arena, BLOCK) == 0);
    valkeyrdma_region_free(readable);
    struct valkeyrdma_region *writable =
        valkeyrdma_region_register(s.context, s.arena, BLOCK, VALKEYRDMA_REGION_GET, error, sizeof error);
    CHECK(writable);
    item[0].region = writable;
    REFUSED(EACCES, valkeyrdma_placement_set(s.client, item, 1, NULL));
    CHECK_IS(finish(valkeyrdma_placement_get(s.client, item, 1, NULL)), 1);
    valkeyrdma_region_free(writable);
    valkeyrdma_region_free(NULL);
    valkeyrdma_placement_free(NULL);
    valkeyrdma_batch_free(NULL);
    munmap(constant, BLOCK);
    close_scene(&s);
}

/* Memory that this process has not mapped. */
static void check_dmabuf(void) {
    struct scene s;
    char error[VALKEYRDMA_ERROR_MAX] = "";
    unsigned char bytes[BLOCK];
    open_scene(&s);
    int fd = memfd_create("dmabuf", MFD_CLOEXEC);
    CHECK(fd >= 0 && ftruncate(fd, 3 * BLOCK) == 0);
    fill(bytes, BLOCK, 6);
    CHECK(pwrite(fd, bytes, BLOCK, BLOCK) == BLOCK);
    struct valkeyrdma_region *region =
        valkeyrdma_region_register_dmabuf(s.context, fd, BLOCK, 2 * BLOCK, 0, error, sizeof error);
    if (!region) fprintf(stderr, "%s\n", error);
    CHECK(region);
    CHECK(!valkeyrdma_region_register_dmabuf(s.context, fd, BLOCK, 3 * BLOCK, 0, error, sizeof error) && *error);
    struct valkeyrdma_item *items = name_items(&s, 0, 2, "dmabuf:");
    items[0].region = items[1].region = region;
    items[1].key = items[0].key;
    struct valkeyrdma_batch_options check = with(VALKEYRDMA_CHECK, 0);
    REFUSED(EOPNOTSUPP, valkeyrdma_placement_get(s.client, items, 1, &check));
    CHECK_IS(finish(valkeyrdma_placement_set(s.client, items, 1, NULL)), 1);
    CHECK_IS(finish(valkeyrdma_placement_get(s.client, items + 1, 1, NULL)), 1);
    CHECK_IS(items[1].checksum, valkeyrdma_checksum(bytes, BLOCK));
    unsigned char got[BLOCK];
    CHECK(pread(fd, got, BLOCK, 2 * BLOCK) == BLOCK && memcmp(got, bytes, BLOCK) == 0);
    close(fd);
    CHECK_IS(finish(valkeyrdma_placement_get(s.client, items, 1, NULL)), 1); /* the library has a descriptor */
    valkeyrdma_region_free(region);
    close_scene(&s);
}

/* 32 batches of two clients under way, found by the descriptor. */
static void check_descriptor(void) {
    struct scene s;
    enum { EACH = 2, CLIENTS = 2, BATCHES = BLOCKS / EACH };
    open_scene(&s);
    struct valkeyrdma_placement *clients[CLIENTS] = {s.client, new_client(s.context, NULL)};
    struct valkeyrdma_batch *batches[BATCHES];
    int result;
    while ((result = valkeyrdma_placement_connect(clients[1], 0)) == -EAGAIN) {
    }
    CHECK_IS(result, 0);
    CHECK_IS(valkeyrdma_placement_state(clients[1]), 1);
    for (int round = 0; round < 20; round++) {
        bool seen[BATCHES] = {false};
        for (int i = 0; i < BATCHES; i++) {
            struct valkeyrdma_item *items = name_items(&s, i * EACH, EACH, "descriptor:");
            struct valkeyrdma_batch_options options = {.size = sizeof options, .data = &batches[i]};
            struct valkeyrdma_placement *client = clients[i % CLIENTS];
            batches[i] = round % 2 == 0 ? valkeyrdma_placement_set(client, items, EACH, &options)
                                        : valkeyrdma_placement_get(client, items, EACH, &options);
            CHECK(batches[i]);
        }
        for (int left = BATCHES; left > 0;) {
            struct pollfd descriptor = {.fd = valkeyrdma_context_fd(s.context), .events = POLLIN};
            if (valkeyrdma_context_process(s.context) == 0) CHECK(poll(&descriptor, 1, 10000) >= 0);
            for (struct valkeyrdma_batch *batch; (batch = valkeyrdma_batch_next(s.context)); left--) {
                struct valkeyrdma_batch **place = valkeyrdma_batch_data(batch);
                CHECK(*place == batch && !seen[place - batches]);
                seen[place - batches] = true;
                CHECK_IS(valkeyrdma_batch_succeeded(batch), EACH);
                valkeyrdma_batch_free(batch);
            }
        }
        CHECK(!valkeyrdma_context_next(s.context));
    }
    valkeyrdma_placement_free(clients[1]);
    close_scene(&s);
}

struct worker {
    struct scene *scene;
    pthread_t thread;
    int number;
};

static void *work(void *argument) {
    struct worker *worker = argument;
    struct scene *s = worker->scene;
    char prefix[32];
    snprintf(prefix, sizeof prefix, "worker:%d:", worker->number);
    struct valkeyrdma_item *from = name_items(s, worker->number * 8, 4, prefix);
    struct valkeyrdma_item *into = name_items(s, worker->number * 8 + 4, 4, prefix);
    for (int round = 0; round < 50; round++) {
        fill(s->arena + from->offset, 4 * BLOCK, (unsigned)(round * 8 + worker->number));
        CHECK_IS(finish(valkeyrdma_placement_set(s->client, from, 4, NULL)), 4);
        struct valkeyrdma_batch_options options = with(VALKEYRDMA_CHECK, 20000);
        CHECK_IS(finish(valkeyrdma_placement_get(s->client, into, 4, &options)), 4);
        CHECK(memcmp(s->arena + from->offset, s->arena + into->offset, 4 * BLOCK) == 0);
    }
    return NULL;
}

static void check_threads(void) {
    struct scene s;
    struct worker workers[BLOCKS / 8];
    open_scene(&s);
    for (int i = 0; i < BLOCKS / 8; i++) {
        workers[i] = (struct worker){.scene = &s, .number = i};
        CHECK(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < BLOCKS / 8; i++) pthread_join(workers[i].thread, NULL);
    close_scene(&s);
}

/* One thread waits, another one serves the descriptor: what that one handles ends the wait. */
static atomic_bool served_enough;
static void *serve_descriptor(void *argument) {
    struct valkeyrdma_context *context = argument;
    while (!served_enough) {
        struct pollfd descriptor = {.fd = valkeyrdma_context_fd(context), .events = POLLIN};
        valkeyrdma_context_process(context);
        CHECK(poll(&descriptor, 1, 100) >= 0);
    }
    return NULL;
}

static void check_served(void) {
    pthread_t server;
    struct valkeyrdma_context *context = valkeyrdma_context_new(NULL, 0);
    CHECK(context);
    served_enough = false;
    CHECK(pthread_create(&server, NULL, serve_descriptor, context) == 0);
    int right = port;
    port = 1; /* an open connection would wake it four times a second */
    for (int round = 0; round < 200; round++) {
        struct valkeyrdma_placement *client = new_client(context, NULL);
        CHECK(valkeyrdma_placement_connect(client, 20000) < 0);
        valkeyrdma_placement_free(client);
    }
    port = right;
    served_enough = true;
    pthread_join(server, NULL);
    valkeyrdma_context_free(context);
}

/* More requests than may be under way, each of them long. */
static void check_window(void) {
    struct scene s;
    enum { MANY = 3000 };
    open_scene(&s);
    struct valkeyrdma_placement_options options = {.size = sizeof options, .in_flight = 3, .data = &s};
    struct valkeyrdma_placement *client = new_client(s.context, &options);
    CHECK(valkeyrdma_placement_data(client) == &s);
    connect_client(client);
    struct valkeyrdma_item *items = calloc(MANY, sizeof *items);
    char key[2000];
    memset(key, 'k', sizeof key);
    for (int i = 0; i < MANY; i++)
        items[i] = (struct valkeyrdma_item){.key = key, .key_length = sizeof key, .region = s.region, .length = 100};
    struct valkeyrdma_batch *batches[3] = {valkeyrdma_placement_set(client, items, 1000, NULL),
                                           valkeyrdma_placement_get(client, items + 1000, 1000, NULL),
                                           valkeyrdma_placement_exists(s.client, items + 2000, 1000, NULL)};
    CHECK_IS(finish(batches[1]), 1000);
    CHECK_IS(finish(batches[0]), 1000);
    CHECK(finish(batches[2]) >= 0);
    free(items);
    valkeyrdma_placement_free(client);
    close_scene(&s);
}

static void check_cancel(void) {
    struct scene s;
    open_scene(&s);
    for (int round = 0; round < 30; round++) {
        struct valkeyrdma_item *items = name_items(&s, 0, BLOCKS, "cancel:");
        struct valkeyrdma_batch *batch = round % 2 ? valkeyrdma_placement_get(s.client, items, BLOCKS, NULL)
                                                   : valkeyrdma_placement_set(s.client, items, BLOCKS, NULL);
        CHECK(batch);
        int wait = round / 2 % 3;
        if (wait) valkeyrdma_context_process(s.context);
        switch (round % 5) {
        case 0: valkeyrdma_batch_cancel(batch); break;
        case 1: /* a batch is cancelled when it is freed */
            valkeyrdma_batch_free(batch);
            batch = NULL;
            break;
        case 2:
            valkeyrdma_placement_free(s.client);
            s.client = new_client(s.context, NULL);
            break;
        case 3:
            valkeyrdma_region_free(s.region);
            s.region = valkeyrdma_region_register(s.context, s.arena, (size_t)BLOCK * BLOCKS, 0, NULL, 0);
            CHECK(s.region);
            break;
        default: break;
        }
        if (batch) {
            CHECK(valkeyrdma_batch_succeeded(batch) >= 0 || round % 5 == 4);
            ssize_t succeeded = finish(batch);
            for (int i = 0; round % 5 != 4 && i < BLOCKS; i++)
                if (items[i].result != 0 && items[i].result != -ENOENT) CHECK_IS(items[i].result, -ECANCELED);
            CHECK(succeeded <= BLOCKS);
        }
        memset(s.arena, 0x55, (size_t)BLOCK * BLOCKS);
        let_server_work(3);
        CHECK(holds_only(s.arena, (size_t)BLOCK * BLOCKS, 0x55));
        connect_client(s.client);
    }
    close_scene(&s);
}

/* A program's own commands. */
static void check_key(void) {
    struct scene s;
    char request[256], reply[256] = "";
    uint64_t key, address;
    open_scene(&s);
    fill(s.arena, BLOCK, 7);
    CHECK_IS(finish(valkeyrdma_placement_set(s.client, name_items(&s, 0, 1, "key:"), 1, NULL)), 1);
    struct valkeyrdma *plain = valkeyrdma_connect(s.context, host, port, NULL, 10000, NULL, 0);
    CHECK(plain);
    CHECK_IS(valkeyrdma_region_key(s.region, plain, &key, &address), -EINVAL);
    valkeyrdma_close(plain);
    struct valkeyrdma_options options = {.size = sizeof options, .one_sided = 1};
    struct valkeyrdma *c = valkeyrdma_connect(s.context, host, port, &options, 10000, NULL, 0);
    CHECK(c);
    CHECK_IS(valkeyrdma_region_key(s.region, c, &key, &address), 0);
    CHECK(address == (uintptr_t)s.arena);
    int len = snprintf(request, sizeof request, "%llu", (unsigned long long)key);
    char rkey[32], where[32];
    memcpy(rkey, request, (size_t)len + 1);
    snprintf(where, sizeof where, "%llu", (unsigned long long)(address + BLOCK));
    len = snprintf(request, sizeof request,
                   "*5\r\n$8\r\nBLOB.GET\r\n$5\r\nkey:0\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$5\r\n65536\r\n", strlen(rkey),
                   rkey, strlen(where), where);
    CHECK(valkeyrdma_send(c, request, (size_t)len, 10000) == len);
    for (size_t got = 0; !strstr(reply, "\r\n:") || reply[got - 1] != '\n' || strlen(strstr(reply, "\r\n:")) < 5;) {
        ssize_t n = valkeyrdma_recv(c, reply + got, sizeof reply - 1 - got, 10000);
        CHECK(n > 0);
        got += (size_t)n;
    }
    CHECK(memcmp(s.arena, s.arena + BLOCK, BLOCK) == 0);
    valkeyrdma_close(c);
    close_scene(&s);
}

static void check_fork(void) {
    struct scene s;
    open_scene(&s);
    struct valkeyrdma_item *items = name_items(&s, 0, 2, "fork:");
    pid_t child = fork();
    if (child == 0) {
        errno = 0;
        CHECK(!valkeyrdma_placement_get(s.client, items, 2, NULL) && errno == EPERM);
        CHECK(!valkeyrdma_region_register(s.context, s.arena, BLOCK, 0, NULL, 0) && errno == EPERM);
        CHECK_IS(valkeyrdma_placement_connect(s.client, 1000), -EPERM);
        CHECK_IS(valkeyrdma_placement_state(s.client), -EPERM);
        valkeyrdma_placement_free(s.client);
        valkeyrdma_region_free(s.region);
        _exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK_IS(finish(valkeyrdma_placement_set(s.client, items, 2, NULL)), 2);
    close_scene(&s);
}

static void check_connecting(void) {
    struct scene s;
    open_scene(&s);
    struct valkeyrdma_item *items = name_items(&s, 0, 2, "connecting:");
    struct valkeyrdma_placement *client = new_client(s.context, NULL);
    CHECK_IS(valkeyrdma_placement_state(client), -ENOTCONN);
    CHECK(*valkeyrdma_placement_error_text(client) == '\0');
    CHECK_IS(finish(valkeyrdma_placement_set(client, items, 2, NULL)), 0); /* it does not connect by itself */
    CHECK_IS(items[1].result, -ENOTCONN);
    CHECK_IS(valkeyrdma_placement_connect(client, 0), -EAGAIN);
    CHECK_IS(finish(valkeyrdma_placement_set(client, items, 2, NULL)), 2); /* waits for the connection */
    CHECK_IS(valkeyrdma_placement_connect(client, 1000), 0);
    valkeyrdma_placement_free(client);
    int right = port;
    port = 1;
    client = new_client(s.context, NULL);
    CHECK(valkeyrdma_placement_connect(client, 2000) < 0);
    CHECK(*valkeyrdma_placement_error_text(client));
    CHECK_IS(valkeyrdma_placement_connect(client, 0), -EAGAIN);
    CHECK_IS(finish(valkeyrdma_placement_exists(client, items, 2, NULL)), 0);
    CHECK_IS(items[0].result, -ENOTCONN);
    port = right;
    valkeyrdma_placement_free(client);
    close_scene(&s);
}

/* --- Checks against rdma-blob-standin --- */

static struct valkeyrdma_item *one(struct scene *s, const char *prefix) {
    struct valkeyrdma_item *item = name_items(s, 0, 1, prefix);
    fill(s->arena, BLOCK, 9);
    CHECK_IS(finish(valkeyrdma_placement_set(s->client, item, 1, NULL)), 1);
    return item;
}

static void check_replies(void) {
    struct scene s;
    open_scene(&s);
    struct valkeyrdma_item *item = one(&s, "wrong:");
    struct valkeyrdma_batch_options check = with(VALKEYRDMA_CHECK, 0), asking = with(VALKEYRDMA_ASKING, 0);
    CHECK_IS(finish(valkeyrdma_placement_get(s.client, item, 1, NULL)), 1);
    CHECK_IS(finish(valkeyrdma_placement_get(s.client, item, 1, &check)), 0);
    CHECK_IS(item->result, -EBADMSG);
    item = one(&s, "moved:");
    struct valkeyrdma_batch *batch = valkeyrdma_placement_get(s.client, item, 1, NULL);
    CHECK_IS(valkeyrdma_batch_wait(batch, -1), 0);
    CHECK_IS(item->result, -EREMOTE);
    CHECK(strncmp(item->error_text, "MOVED 7 ", 8) == 0 && strstr(item->error_text, host));
    valkeyrdma_batch_free(batch);
    item = one(&s, "ask:");
    CHECK_IS(finish(valkeyrdma_placement_get(s.client, item, 1, NULL)), 0);
    CHECK_IS(item->result, -EREMOTE);
    CHECK_IS(finish(valkeyrdma_placement_get(s.client, item, 1, &asking)), 1);
    static const char *const senseless[] = {"nonsense:", "long:"};
    for (int i = 0; i < 2; i++) {
        item = one(&s, senseless[i]);
        CHECK_IS(finish(valkeyrdma_placement_get(s.client, item, 1, NULL)), 0);
        CHECK_IS(item->result, -EPROTO);
        CHECK_IS(valkeyrdma_placement_state(s.client), -ENOTCONN);
        CHECK(strstr(valkeyrdma_placement_error_text(s.client), "no sense"));
        CHECK_IS(finish(valkeyrdma_placement_get(s.client, item, 1, NULL)), 0); /* it does not connect by itself */
        CHECK_IS(item->result, -ENOTCONN);
        connect_client(s.client);
    }
    item = one(&s, "close:");
    CHECK_IS(finish(valkeyrdma_placement_get(s.client, item, 1, NULL)), 0);
    CHECK(item->result < 0 && item->result != -ENOENT);
    CHECK_IS(valkeyrdma_placement_state(s.client), -ENOTCONN);
    connect_client(s.client);
    CHECK_IS(finish(valkeyrdma_placement_exists(s.client, item, 1, NULL)), 1);
    struct valkeyrdma_placement_options options = {.size = sizeof options, .password = "wrong", .database = 2};
    struct valkeyrdma_placement *client = new_client(s.context, &options);
    CHECK_IS(valkeyrdma_placement_connect(client, 5000), -EACCES);
    CHECK(strstr(valkeyrdma_placement_error_text(client), "WRONGPASS"));
    valkeyrdma_placement_free(client);
    options.password = "secret";
    options.username = "someone";
    client = new_client(s.context, &options);
    connect_client(client);
    CHECK_IS(finish(valkeyrdma_placement_exists(client, item, 1, NULL)), 1);
    valkeyrdma_placement_free(client);
    close_scene(&s);
}

/* An item that is late costs its connection, and nothing is written after that. */
static void check_deadlines(void) {
    struct scene s;
    open_scene(&s);
    struct valkeyrdma_batch_options soon = with(0, 100);
    for (int round = 0; round < 10; round++) {
        struct valkeyrdma_item *item = one(&s, round % 2 ? "flood:" : "never:");
        struct valkeyrdma_item *others = name_items(&s, 1, 3, "others:");
        double began = now();
        struct valkeyrdma_batch *late = valkeyrdma_placement_get(s.client, item, 1, &soon);
        struct valkeyrdma_batch *behind = valkeyrdma_placement_exists(s.client, others, 3, NULL);
        CHECK_IS(valkeyrdma_batch_wait(late, 10000), 0);
        memset(s.arena, 0x55, BLOCK);
        double took = now() - began;
        if (took < 0.09 || took > 5) fprintf(stderr, "round %d: the deadline passed after %.3f s\n", round, took);
        CHECK(took >= 0.09 && took < 5);
        CHECK_IS(item->result, -ETIMEDOUT);
        CHECK(holds_only(s.arena, BLOCK, 0x55));
        valkeyrdma_batch_free(late);
        finish(behind);
        CHECK(others[0].result == -ECONNABORTED || others[0].result == -ENOENT);
        let_server_work(20);
        CHECK(holds_only(s.arena, BLOCK, 0x55));
        CHECK_IS(valkeyrdma_placement_state(s.client), -ENOTCONN);
        connect_client(s.client);
    }
    /* One that was not sent costs nothing. */
    struct valkeyrdma_placement_options options = {.size = sizeof options, .in_flight = 1};
    struct valkeyrdma_placement *client = new_client(s.context, &options);
    connect_client(client);
    struct valkeyrdma_item *item = one(&s, "never:"), *other = name_items(&s, 1, 1, "others:");
    struct valkeyrdma_batch *first = valkeyrdma_placement_get(client, item, 1, NULL);
    CHECK_IS(finish(valkeyrdma_placement_get(client, other, 1, &soon)), 0);
    CHECK_IS(other->result, -ETIMEDOUT);
    CHECK_IS(valkeyrdma_placement_state(client), 1);
    CHECK_IS(valkeyrdma_batch_wait(first, 0), -EAGAIN);
    CHECK_IS(valkeyrdma_batch_wait(first, 10), -ETIMEDOUT);
    valkeyrdma_batch_free(first);
    valkeyrdma_placement_free(client);
    close_scene(&s);
}

/* The region is freed while the server writes into it, or the client is. */
static void check_freeing(void) {
    struct scene s;
    open_scene(&s);
    for (int round = 0; round < 10; round++) {
        struct valkeyrdma_item *item = one(&s, "flood:");
        item->region = valkeyrdma_region_register(s.context, s.arena + BLOCK, BLOCK, 0, NULL, 0);
        memset(s.arena + BLOCK, 0x55, BLOCK);
        struct valkeyrdma_batch *batch = valkeyrdma_placement_get(s.client, item, 1, NULL);
        while (*(volatile unsigned char *)(s.arena + BLOCK) == 0x55) valkeyrdma_context_process(s.context);
        if (round % 2 == 0)
            valkeyrdma_region_free(item->region);
        else
            valkeyrdma_placement_free(s.client);
        memset(s.arena + BLOCK, 0x55, BLOCK);
        CHECK_IS(valkeyrdma_batch_wait(batch, 0), 0);
        CHECK_IS(item->result, -ECANCELED);
        valkeyrdma_batch_free(batch);
        let_server_work(10);
        CHECK(holds_only(s.arena + BLOCK, BLOCK, 0x55));
        if (round % 2) {
            valkeyrdma_region_free(item->region);
            s.client = new_client(s.context, NULL);
        }
        connect_client(s.client);
    }
    close_scene(&s);
}

/* The device refuses to deregister the region, and to move a queue pair to another state. */
static void keep(void) {
    static char rules[256], armed[64], request[256];
    struct scene s;
    uint64_t key, address;
    snprintf(armed, sizeof armed, "/tmp/rdma-placement.%d", (int)getpid());
    snprintf(rules, sizeof rules, "dereg_mr:fail=EBUSY,while=%s;modify_qp:fail=EIO,while=%s", armed, armed);
    setenv("SOFTRDMA_FAULTS", rules, 1);
    open_scene(&s);
    one(&s, "flood:");
    struct valkeyrdma_options options = {.size = sizeof options, .one_sided = 1};
    for (int round = 0; round < 3; round++) {
        struct valkeyrdma *c = valkeyrdma_connect(s.context, host, port, &options, 10000, NULL, 0);
        struct valkeyrdma_region *region = valkeyrdma_region_register(s.context, s.arena + BLOCK, BLOCK, 0, NULL, 0);
        CHECK(c && region);
        CHECK_IS(valkeyrdma_region_key(region, c, &key, &address), 0);
        char rkey[32], where[32];
        snprintf(rkey, sizeof rkey, "%llu", (unsigned long long)key);
        snprintf(where, sizeof where, "%llu", (unsigned long long)address);
        int len = snprintf(request, sizeof request,
                           "*5\r\n$8\r\nBLOB.GET\r\n$7\r\nflood:0\r\n$%zu\r\n%s\r\n$%zu\r\n%s\r\n$5\r\n65536\r\n",
                           strlen(rkey), rkey, strlen(where), where);
        memset(s.arena + BLOCK, 0x55, BLOCK);
        CHECK(valkeyrdma_send(c, request, (size_t)len, 10000) == len);
        while (*(volatile unsigned char *)(s.arena + BLOCK) == 0x55) valkeyrdma_context_process(s.context);
        FILE *file = fopen(armed, "w");
        CHECK(file);
        fclose(file);
        valkeyrdma_region_free(region);
        memset(s.arena + BLOCK, 0x55, BLOCK);
        unlink(armed);
        let_server_work(50);
        CHECK(holds_only(s.arena + BLOCK, BLOCK, 0x55));
        CHECK(valkeyrdma_recv(c, request, sizeof request, 10000) < 0);
        valkeyrdma_close(c);
        valkeyrdma_context_process(s.context);
    }
    close_scene(&s);
}

/* --- With a server that is stopped or killed --- */

static void freeze(pid_t server) {
    struct scene s;
    open_scene(&s);
    struct valkeyrdma_item *items = name_items(&s, 0, BLOCKS, "frozen:");
    fill(s.arena, (size_t)BLOCK * BLOCKS, 4);
    CHECK_IS(finish(valkeyrdma_placement_set(s.client, items, BLOCKS, NULL)), BLOCKS);
    for (int round = 0; round < 5; round++) {
        struct valkeyrdma_batch_options soon = with(0, 50);
        CHECK(kill(server, SIGSTOP) == 0);
        bool sets = round % 2;
        memset(s.arena, 0x33, (size_t)BLOCK * BLOCKS);
        CHECK_IS(finish(sets ? valkeyrdma_placement_set(s.client, items, BLOCKS, &soon)
                             : valkeyrdma_placement_get(s.client, items, BLOCKS, &soon)),
                 0);
        CHECK_IS(items[0].result, -ETIMEDOUT);
        memset(s.arena, 0x55, (size_t)BLOCK * BLOCKS); /* the program has its memory back */
        CHECK(kill(server, SIGCONT) == 0);
        let_server_work(50);
        CHECK(holds_only(s.arena, (size_t)BLOCK * BLOCKS, 0x55));
        connect_client(s.client);
        /* Nor has the server read what the program wrote afterwards. */
        CHECK_IS(finish(valkeyrdma_placement_get(s.client, items, BLOCKS, NULL)), BLOCKS);
        for (int i = 0; i < BLOCKS; i++) CHECK(!holds_only(s.arena + items[i].offset, BLOCK, 0x55));
    }
    close_scene(&s);
}

static double load_until;
static atomic_int lost, wrong;

static void *load_work(void *argument) {
    struct worker *worker = argument;
    struct scene *s = worker->scene;
    struct valkeyrdma_item *items = name_items(s, worker->number * 16, 16, "load:");
    unsigned char *memory = s->arena + items->offset;
    for (int round = 0; now() < load_until; round++) {
        bool sets = round % 2 == 0;
        for (int i = 0; i < 16; i++) memset(memory + (size_t)i * BLOCK, sets ? i + 1 : 0x55, BLOCK);
        struct valkeyrdma_batch_options options = with(sets ? 0 : VALKEYRDMA_CHECK, 20000);
        struct valkeyrdma_batch *batch = sets ? valkeyrdma_placement_set(s->client, items, 16, &options)
                                              : valkeyrdma_placement_get(s->client, items, 16, &options);
        CHECK(batch && valkeyrdma_batch_wait(batch, -1) == 0);
        bool ends = false;
        for (int i = 0; i < 16; i++) {
            const unsigned char *block = memory + (size_t)i * BLOCK;
            if (items[i].result == 0) {
                if (!holds_only(block, BLOCK, (unsigned char)(i + 1))) wrong++;
            } else if (items[i].result == -EBADMSG)
                wrong++;
            else if (items[i].result != -ENOENT)
                ends = true;
        }
        if (ends) {
            memset(memory, 0x77, (size_t)16 * BLOCK);
            struct timespec moment = {.tv_nsec = 2000000};
            nanosleep(&moment, NULL); /* of use to a server that writes although it was told to stop */
            if (!holds_only(memory, (size_t)16 * BLOCK, 0x77)) wrong++;
            lost++;
        }
        valkeyrdma_batch_free(batch);
        if (ends) break;
    }
    return NULL;
}

static int load(int seconds) {
    struct scene s;
    struct worker workers[BLOCKS / 16];
    open_scene(&s);
    load_until = now() + seconds;
    puts("running");
    fflush(stdout);
    for (int i = 0; i < BLOCKS / 16; i++) {
        workers[i] = (struct worker){.scene = &s, .number = i};
        CHECK(pthread_create(&workers[i].thread, NULL, load_work, &workers[i]) == 0);
    }
    for (int i = 0; i < BLOCKS / 16; i++) pthread_join(workers[i].thread, NULL);
    printf("lost %d wrong %d: %s\n", (int)lost, (int)wrong, valkeyrdma_placement_error_text(s.client));
    close_scene(&s);
    return wrong ? 3 : 0;
}

static void bench(size_t count, size_t size, int rounds) {
    struct valkeyrdma_context *context = valkeyrdma_context_new(NULL, 0);
    CHECK(context);
    unsigned char *arena = map(count * size);
    memset(arena, 1, count * size);
    struct valkeyrdma_region *region = valkeyrdma_region_register(context, arena, count * size, 0, NULL, 0);
    CHECK(region);
    struct valkeyrdma_placement *client = new_client(context, NULL);
    connect_client(client);
    struct valkeyrdma_item *items = calloc(count, sizeof *items);
    char(*keys)[32] = calloc(count, sizeof *keys);
    for (size_t i = 0; i < count; i++) {
        snprintf(keys[i], sizeof keys[i], "bench:%zu", i);
        items[i] = (struct valkeyrdma_item){
            .key = keys[i], .key_length = strlen(keys[i]), .region = region, .offset = i * size, .length = size};
    }
    for (int round = 0; round < rounds; round++) {
        double began = now();
        CHECK_IS(finish(valkeyrdma_placement_set(client, items, count, NULL)), (long long)count);
        double between = now();
        CHECK_IS(finish(valkeyrdma_placement_get(client, items, count, NULL)), (long long)count);
        double bytes = (double)count * (double)size / 1e9;
        printf("set %.2f get %.2f\n", bytes / (between - began), bytes / (now() - between));
    }
    free(items);
    free(keys);
    valkeyrdma_placement_free(client);
    valkeyrdma_region_free(region);
    valkeyrdma_context_free(context);
}

static const struct {
    const char *name;
    void (*run)(void);
    bool misbehaviour;
} checks[] = {
    {"values", check_values, false},         {"lengths", check_lengths, false}, {"conditions", check_conditions, false},
    {"arguments", check_arguments, false},   {"dmabuf", check_dmabuf, false},   {"descriptor", check_descriptor, false},
    {"threads", check_threads, false},       {"served", check_served, false},   {"window", check_window, false},
    {"cancel", check_cancel, false},         {"key", check_key, false},         {"fork", check_fork, false},
    {"connecting", check_connecting, false}, {"replies", check_replies, true},  {"deadlines", check_deadlines, true},
    {"freeing", check_freeing, true},
};

int main(int argc, char **argv) {
    if (argc < 4) {
        fprintf(stderr, "usage: rdma-placement CHECK HOST PORT [ARGUMENTS]\n");
        return 2;
    }
    host = argv[2];
    port = atoi(argv[3]);
    if (strcmp(argv[1], "frozen") == 0 && argc == 5) {
        freeze((pid_t)atoi(argv[4]));
        puts("ok frozen");
        return 0;
    }
    if (strcmp(argv[1], "kept") == 0) {
        keep();
        puts("ok kept");
        return 0;
    }
    if (strcmp(argv[1], "load") == 0 && argc == 5) return load(atoi(argv[4]));
    if (strcmp(argv[1], "bench") == 0 && argc == 7) {
        bench((size_t)atol(argv[4]), (size_t)atol(argv[5]), atoi(argv[6]));
        return 0;
    }
    bool all = strcmp(argv[1], "all") == 0, misbehaviour = strcmp(argv[1], "misbehaviour") == 0;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        if (!(misbehaviour || (all && !checks[i].misbehaviour) || strcmp(argv[1], checks[i].name) == 0)) continue;
        checks[i].run();
        printf("ok %s\n", checks[i].name);
        fflush(stdout);
    }
    return 0;
}
