/* socket_pool.c: what the sockets of a loop share, and what a socket shows of itself. See socket.h. */
#include "lib/system/memory.h"
#include "net/socket_private.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

static const char pool_key;
static struct list pools = LIST_INIT(pools);
static pthread_mutex_t pools_mutex = PTHREAD_MUTEX_INITIALIZER;

static void pool_free(struct event_attachment *attachment) {
    struct socket_pool *pool = container_of(attachment, struct socket_pool, attachment);
    while (pool->handshakes.len)
        socket_arrival_drop(container_of(list_first(&pool->handshakes), struct socket_connection, pool_link));
    while (pool->lingering.len)
        socket_linger_end(container_of(list_first(&pool->lingering), struct socket_connection, pool_link));
    while (pool->free) {
        struct socket_chunk *chunk = pool->free;
        pool->free = chunk->next_free;
        mem_free(chunk);
    }
    pthread_mutex_lock(&pools_mutex);
    list_remove(&pools, &pool->link);
    pthread_mutex_unlock(&pools_mutex);
    mem_free(pool->input.data);
    mem_free(pool);
}

struct socket_pool *socket_pool_of(struct event_loop *loop) {
    struct event_attachment *attachment = event_loop_attachment(loop, &pool_key);
    if (attachment) return container_of(attachment, struct socket_pool, attachment);
    struct socket_pool *pool = mem_calloc(1, sizeof *pool);
    pool->loop = loop;
    pool->input.data = mem_alloc(INPUT_SHARED_SIZE);
    list_init(&pool->handshakes);
    list_init(&pool->has_input);
    list_init(&pool->lingering);
    pool->attachment.key = &pool_key;
    pool->attachment.free = pool_free;
    event_loop_attach(loop, &pool->attachment);
    pthread_mutex_lock(&pools_mutex);
    list_append(&pools, &pool->link);
    pthread_mutex_unlock(&pools_mutex);
    return pool;
}

size_t socket_idle_memory(void) {
    size_t chunks = 0;
    pthread_mutex_lock(&pools_mutex);
    list_each_entry(&pools, const struct socket_pool, link, pool) {
        unsigned count = atomic_load_explicit(&pool->free_count, memory_order_relaxed);
        if (count > CHUNKS_STEADY) chunks += count - CHUNKS_STEADY;
    }
    pthread_mutex_unlock(&pools_mutex);
    return chunks * CHUNK_SIZE;
}

size_t socket_memory(const struct connection *conn, size_t *input, size_t *output) {
    const struct socket_connection *s = ((const struct socket_connection *)conn);
    const struct output_queue *q = &s->output;
    size_t in = s->input.own_size,
           out = s->chunk_memory + q->queued_blobs + q->segments.len * sizeof(struct output_segment);
    if (input) *input = in;
    if (output) *output = out;
    return sizeof *s + in + out + (s->session ? s->io->memory(s) : 0);
}

size_t socket_shared(const struct connection *conn) {
    return ((const struct socket_connection *)conn)->output.queued_blobs;
}

const char *socket_error_text(const struct connection *conn) {
    const struct socket_connection *s = (const struct socket_connection *)conn;
    if (s->error_note) return s->error_note;
    return conn->error ? strerror(conn->error) : "Connection closed by the peer";
}

size_t socket_pending(const struct connection *conn) {
    return output_queue_pending(&((const struct socket_connection *)conn)->output, &conn->out);
}

int socket_fd(const struct connection *conn) {
    return ((const struct socket_connection *)conn)->fd;
}

void socket_set_error_note(struct socket_connection *s, const char *text) {
    mem_free(s->error_note);
    s->error_note = mem_strdup(text);
}
