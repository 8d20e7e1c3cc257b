/* io_threads.c: see io_threads.h.
 *
 * A batch is one allocation: its head, a table of requests, their arguments, their bytes, space for replies. The I/O
 * thread allocates and frees it, so the memory stays in that thread's allocator cache.
 *
 * A request with parts outside the input (a large argument, an inline request with quotes) is not copied to a batch:
 * the I/O thread hands over its whole reader, which ends the batch. The request occupies one byte of the batch, so that
 * the batch is not used up before it.
 *
 * Rejected: one queue and a pool of threads that take any client's work (a client's state would move from cache to
 * cache, and its queue pair would have several owners). Handing over every request by itself (a queue operation and
 * perhaps a wake-up for each request of a pipeline). */
#include "server/clients/io_threads.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/thread.h"
#include "net/remote.h"
#include "net/socket.h"
#include "server/clients/auth.h"
#include "server/clients/client.h"
#include "server/feature.h"
#include "server/server.h"
#include "server/config/config.h"
#include "server/uncounted_memory.h"
#include "server/clients/open_files.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS_MAX = 256,
    BATCH_BYTES = 64 * 1024,
    REPLY_SPACE_MIN = 2048,
    REPLY_SPACE_PER_REQUEST = 64,
    REPLY_SPACE_MAX = 16 * 1024,
    DESCRIPTORS = 6,
    TABLE_KEPT = 4096, /* entries */
    GROWTH_STEP = 16 * 1024,
    MOVE_DELAY_MIN_US = 500,
    MOVE_DELAY_MAX_US = 1000 * 1000
};

struct io_request {
    int argc;
    size_t size;
};

struct io_batch {
    struct remote_message message; /* must be first */
    uint32_t count, next, fetched;
    bool lent; /* request `next` is in the client's reader */
    struct io_request *requests;
    struct slice *argv; /* arguments of request `next` */
    /* After the requests, at most one of these. */
    struct request_reader *apart;
    bool apart_given;
    size_t over; /* size in bytes of a request above the query buffer limit; 0: none */
    bool failed;
    char error[sizeof((struct request_reader *)0)->error];
    struct slice unread; /* a copy of what could not be parsed, for the log */
};

struct io_client {
    struct remote_end end; /* must be first */
    struct request_reader reader;
    size_t stream_len; /* bytes of the stream that are in no batch yet */
    bool waits;        /* not authenticated: waits for the reply to its request */
};

struct io_thread {
    struct remote_worker worker; /* must be first */
    pthread_t id;
    int number;
    bool rdma; /* the thread can own RDMA connections */
    struct event_post stop;
    /* The batch being built. */
    struct io_request *requests;
    struct slice *argv;
    size_t requests_capacity, argv_capacity, count, argc;
};

/* The first `threads_serving` of the threads get connections. The others serve those that cannot move. A thread that
 * was started runs until the process ends: its queue pairs cannot move to another thread, and without connections it
 * sleeps. */
static struct io_thread *threads[THREADS_MAX];
static int threads_wanted, threads_serving, threads_started;
static bool always_active;

/* While connections move, after a change of io-threads. */
bool io_threads_moving;
static struct event_timer move_timer;
static uint64_t move_delay_us;

/* The options that I/O threads need. */
static struct {
    _Atomic int64_t bulk_max, query_limit;
    atomic_bool auth_required;
} published;

static void io_threads_publish(void) {
    if (!threads_started) return;
    atomic_store_explicit(&published.bulk_max, client_settings.bulk_max, memory_order_relaxed);
    atomic_store_explicit(&published.query_limit, client_settings.query_buffer_limit, memory_order_relaxed);
    atomic_store_explicit(&published.auth_required, auth_required(), memory_order_relaxed);
    remote_report_growth(clients_memory_is_limited() ? GROWTH_STEP : 0);
}

/* --- I/O threads --- */

static void batch_drop(struct event_post *post) {
    struct io_batch *batch = (struct io_batch *)post;
    if (batch->apart) {
        request_reader_free(batch->apart);
        mem_free(batch->apart);
    }
    mem_free((char *)batch->unread.data);
    remote_message_free(post);
}

/* A request with very many arguments does not leave its tables in the thread. */
static void tables_shrink(struct io_thread *thread) {
    if (thread->requests_capacity > TABLE_KEPT) {
        mem_free(thread->requests);
        thread->requests = NULL;
        thread->requests_capacity = 0;
    }
    if (thread->argv_capacity > TABLE_KEPT) {
        mem_free(thread->argv);
        thread->argv = NULL;
        thread->argv_capacity = 0;
    }
}

static void batch_fail(struct io_batch *batch, const struct request_reader *reader) {
    batch->failed = true;
    memcpy(batch->error, reader->error, sizeof batch->error);
    char *copy = reader->unread.len ? mem_try_alloc(reader->unread.len) : NULL;
    if (copy) batch->unread = slice_make(memcpy(copy, reader->unread.data, reader->unread.len), reader->unread.len);
}

static void fail_for_memory(char error[static sizeof((struct request_reader *)0)->error]) {
    snprintf(error, sizeof((struct request_reader *)0)->error,
             "ERR Protocol error: not enough memory for the arguments");
}

/* False: out of memory. */
static bool request_add(struct io_thread *thread, const struct request_reader *reader) {
    mem_grow(thread->requests, thread->count, thread->requests_capacity, 64);
    size_t argc = (size_t)reader->argc;
    if (thread->argc + argc > thread->argv_capacity) {
        size_t capacity = thread->argv_capacity * 2 + argc + 64;
        struct slice *argv = mem_try_realloc(thread->argv, capacity * sizeof *argv);
        if (!argv) return false;
        thread->argv = argv;
        thread->argv_capacity = capacity;
    }
    if (argc) memcpy(thread->argv + thread->argc, reader->argv, argc * sizeof *reader->argv);
    thread->argc += argc;
    thread->requests[thread->count++] = (struct io_request){reader->argc, reader->size};
    return true;
}

/* Packs the requests found in `input`. `mark`: space for the byte of a request apart or of an error. NULL: out of
 * memory for requests. */
static struct io_batch *batch_pack(struct io_thread *thread, struct slice input, bool mark) {
    size_t space = thread->count * REPLY_SPACE_PER_REQUEST;
    if (space < REPLY_SPACE_MIN) space = REPLY_SPACE_MIN;
    if (space > REPLY_SPACE_MAX) space = REPLY_SPACE_MAX;
    size_t requests = thread->count * sizeof(struct io_request), argv = thread->argc * sizeof(struct slice),
           len = input.len + mark;
    size_t size = sizeof(struct io_batch) + requests + argv + len + space;
    struct remote_message *message = thread->count ? remote_message_try_new(size) : remote_message_new(size);
    if (!message) return NULL;
    struct io_batch *batch = (struct io_batch *)message;
    memset((char *)batch + sizeof batch->message, 0, sizeof *batch - sizeof batch->message);
    batch->message.post.drop = batch_drop;
    batch->count = (uint32_t)thread->count;
    batch->requests = (struct io_request *)(batch + 1);
    batch->argv = (struct slice *)(batch->requests + thread->count);
    char *bytes = (char *)(batch->argv + thread->argc);
    if (requests) memcpy(batch->requests, thread->requests, requests);
    for (size_t i = 0; i < thread->argc; i++) {
        struct slice from = thread->argv[i];
        batch->argv[i] = (struct slice){from.len ? bytes + (from.data - input.data) : bytes, from.len};
    }
    if (input.len) memcpy(bytes, input.data, input.len);
    if (mark) bytes[input.len] = 0;
    batch->message.bytes = bytes;
    batch->message.len = len;
    batch->message.reply = bytes + len;
    batch->message.reply_capacity = space;
    return batch;
}

enum io_found { FOUND_NO_MORE, FOUND_ENOUGH, FOUND_APART, FOUND_LARGE, FOUND_FAILED };

/* Parses whole requests in the input, up to *used. */
static enum io_found requests_find(struct io_client *io, struct io_thread *thread, const struct request_limits *limits,
                                   size_t *used) {
    const struct connection *conn = io->end.conn;
    while (conn->in_len > *used) {
        switch (request_read(&io->reader, (struct slice){conn->in + *used, conn->in_len - *used}, limits)) {
        case REQUEST_PARTIAL: return FOUND_NO_MORE;
        case REQUEST_LARGE: return FOUND_LARGE;
        case REQUEST_FAILED: return FOUND_FAILED;
        case REQUEST_READY: break;
        }
        if (!request_is_detached(&io->reader) && !request_add(thread, &io->reader)) {
            fail_for_memory(io->reader.error);
            return FOUND_FAILED;
        }
        *used += io->reader.size;
        if (request_is_detached(&io->reader)) return FOUND_APART;
        request_done(&io->reader);
        if (limits->unauthenticated || *used >= BATCH_BYTES) return FOUND_ENOUGH;
    }
    return FOUND_NO_MORE;
}

/* Without requests, and with the byte of an error. */
static struct io_batch *batch_empty(struct io_thread *thread, const struct connection *conn) {
    thread->count = thread->argc = 0;
    return batch_pack(thread, slice_make(conn->in, 0), true);
}

/* A batch that reports that there is no memory for one with the requests. None of them is executed. */
static struct io_batch *batch_of_failure(struct io_thread *thread, const struct connection *conn) {
    struct io_batch *batch = batch_empty(thread, conn);
    batch->failed = true;
    fail_for_memory(batch->error);
    return batch;
}

/* Makes one batch of the received requests. Returns false if nothing more can be parsed now. */
static bool batch_make(struct io_client *io) {
    struct io_thread *thread = (struct io_thread *)io->end.worker;
    struct connection *conn = io->end.conn;
    struct request_limits limits = {.multibulk_max = 1024 * 1024 * 1024};
    limits.bulk_max = atomic_load_explicit(&published.bulk_max, memory_order_relaxed);
    /* The user of a peer with a certificate is chosen at home, which trusts it a moment later. */
    bool known = conn->trusted || conn_peer_names(conn);
    if (!known && atomic_load_explicit(&published.auth_required, memory_order_relaxed))
        limits = (struct request_limits){.multibulk_max = 10, .bulk_max = 16384, .unauthenticated = true};
    size_t query_limit = (size_t)atomic_load_explicit(&published.query_limit, memory_order_relaxed), used = 0;
    thread->count = thread->argc = 0;
    enum io_found found = requests_find(io, thread, &limits, &used);
    size_t missing = found == FOUND_LARGE ? io->reader.large->len - io->reader.large_have : conn->sink_len;
    size_t left = request_figures(&io->reader, conn->in_len - used, missing).waiting;
    bool over = (found == FOUND_NO_MORE || found == FOUND_LARGE) && left > query_limit;
    io->stream_len += used;
    if (thread->count || found == FOUND_APART || found == FOUND_FAILED || over) {
        bool mark = found == FOUND_APART || found == FOUND_FAILED || over;
        size_t apart_size = found == FOUND_APART ? io->reader.size : 0;
        struct io_batch *batch = batch_pack(thread, (struct slice){conn->in, used - apart_size}, mark);
        if (!batch) {
            batch = batch_of_failure(thread, conn);
            found = FOUND_FAILED;
        } else if (found == FOUND_APART) {
            batch->message.size += io->reader.memory;
            batch->apart = mem_alloc(sizeof *batch->apart);
            request_reader_init(batch->apart);
            if (request_hand_over(&io->reader, batch->apart)) {
                batch->apart->size = 1;
            } else {
                mem_free(batch->apart);
                batch->apart = NULL;
                batch_fail(batch, &io->reader);
            }
        } else if (found == FOUND_FAILED) {
            batch_fail(batch, &io->reader);
        } else if (over) {
            batch->over = left;
        }
        batch->message.stream_len = io->stream_len;
        io->stream_len = 0;
        remote_send_input(&io->end, &batch->message);
    }
    conn_consume(conn, used);
    tables_shrink(thread);
    if (found == FOUND_FAILED || over) {
        remote_end_finish(&io->end);
        return false;
    }
    if (found == FOUND_LARGE) {
        struct request_reader *reader = &io->reader;
        io->stream_len += reader->size + reader->large->len - reader->large_have;
        conn_consume(conn, reader->size);
        conn_receive_into(conn, reader->large->data + reader->large_have, reader->large->len - reader->large_have);
        return false;
    }
    if (limits.unauthenticated && (found == FOUND_ENOUGH || found == FOUND_APART)) {
        io->waits = true;
        remote_end_pause(&io->end, true);
        return false;
    }
    return found != FOUND_NO_MORE;
}

static size_t end_waiting(const struct remote_end *end) {
    const struct io_client *io = (const struct io_client *)end;
    const struct connection *conn = end->conn;
    return request_figures(&io->reader, conn->in_len, conn->sink_len).waiting;
}

/* Bytes of a large argument that have arrived, with its line end. */
static size_t large_arrived(const struct io_client *io) {
    const struct connection *conn = io->end.conn;
    if (__builtin_expect(!io->reader.large, 1)) return 0;
    return io->reader.large->len - conn->sink_len + (conn->in_len < 2 ? conn->in_len : 2);
}

/* An argument passes the query buffer limit while it arrives. */
static void send_over(struct io_client *io, size_t size) {
    struct io_batch *batch = batch_empty((struct io_thread *)io->end.worker, io->end.conn);
    batch->over = size;
    batch->message.stream_len = io->stream_len;
    io->stream_len = 0;
    remote_send_input(&io->end, &batch->message);
    remote_end_finish(&io->end);
}

static void end_readable(struct remote_end *end) {
    struct io_client *io = (struct io_client *)end;
    struct connection *conn = end->conn;
    size_t limit = (size_t)atomic_load_explicit(&published.query_limit, memory_order_relaxed);
    size_t large = large_arrived(io);
    if (__builtin_expect(large > limit, 0) && !io->end.finished) {
        send_over(io, large);
    } else {
        while (!io->waits && !io->end.finished && !conn->sink_len && batch_make(io)) {
        }
    }
    /* The complete arguments of a partial request stay in the input and do not count: the rest must arrive. */
    conn_set_in_limit(conn, conn->in_len < limit ? limit : 2 * conn->in_len);
    end->held = sizeof *io + io->reader.memory;
}

static void end_returned(struct remote_end *end, struct remote_message *message) {
    struct io_client *io = (struct io_client *)end;
    if (!io->waits) return;
    io->waits = false;
    remote_end_pause(end, false);
    if (end->conn->in_len) end_readable(end);
}

static struct remote_end *end_opened(struct remote_worker *worker, struct connection *conn) {
    struct io_client *io = mem_calloc(1, sizeof *io);
    request_reader_init(&io->reader);
    return &io->end;
}

static void end_free(struct remote_end *end) {
    struct io_client *io = (struct io_client *)end;
    request_reader_free(&io->reader);
    mem_free(io);
}

static void accepted(struct connection *conn) {
    client_accept(NULL, conn);
}

static bool end_idle(const struct remote_end *end) {
    const struct io_client *io = (const struct io_client *)end;
    return request_is_idle(&io->reader) && !io->stream_len && !io->waits && !io->end.finished;
}

static struct remote_worker *end_left(struct connection *conn);
static void batches_prefetch(struct remote_message *message);

static const struct remote_worker_ops worker_ops = {.opened = end_opened,
                                                    .readable = end_readable,
                                                    .returned = end_returned,
                                                    .free = end_free,
                                                    .accepted = accepted,
                                                    .left = end_left,
                                                    .waiting = end_waiting,
                                                    .idle = end_idle,
                                                    .upcoming = batches_prefetch};

static void *thread_run(void *argument) {
    struct io_thread *thread = argument;
    char name[16];
    snprintf(name, sizeof name, "io_thread_%d", thread->number);
    pthread_setname_np(pthread_self(), name);
    event_loop_run(thread->worker.loop);
    return NULL;
}

static void thread_stop(struct event_post *post) {
    struct io_thread *thread = container_of(post, struct io_thread, stop);
    remote_worker_flush(&thread->worker);
    event_loop_stop(thread->worker.loop);
}

/* --- Main thread --- */

int io_threads_count(void) {
    return threads_serving;
}
int io_threads_descriptors(void) {
    int started = threads_wanted - 1 > threads_started ? threads_wanted - 1 : threads_started;
    return started * DESCRIPTORS;
}

uint64_t io_threads_reads(void) {
    uint64_t sum = 0;
    for (int i = 0; i < threads_started; i++)
        sum += atomic_load_explicit(&threads[i]->worker.reads, memory_order_relaxed);
    return sum;
}

uint64_t io_threads_writes(void) {
    uint64_t sum = 0;
    for (int i = 0; i < threads_started; i++)
        sum += atomic_load_explicit(&threads[i]->worker.writes, memory_order_relaxed);
    return sum;
}

/* Returns the thread with the fewest connections, NULL: none serves. Among equals it rotates, because accepted
 * connections on their way to a thread are not counted yet. */
static struct io_thread *least_loaded(bool rdma) {
    static int turn;
    struct io_thread *best = NULL;
    for (int i = 0; i < threads_serving; i++) {
        struct io_thread *thread = threads[(turn + i) % threads_serving];
        if (rdma && !thread->rdma) continue;
        if (!best || thread->worker.count < best->worker.count) best = thread;
    }
    if (best) turn = best->number % threads_serving;
    return best;
}

static struct event_loop *place(struct listener *listener) {
    struct io_thread *best = least_loaded(listener_pins_connections(listener));
    return best ? best->worker.loop : NULL;
}

/* Moving
 *
 * After a change of io-threads the main thread visits all clients before it waits, when their replies are flushed, and
 * moves the connections that are idle. It repeats this until every connection is on its thread. */

static size_t fewest_connections(void) {
    size_t fewest = SIZE_MAX;
    for (int i = 0; i < threads_serving; i++)
        if (threads[i]->worker.count < fewest) fewest = threads[i]->worker.count;
    return fewest;
}

/* Whether a connection of the thread belongs to another one: io-threads does not include its thread any more, or
 * another thread has fewer connections. */
static bool thread_sheds(const struct io_thread *thread, size_t fewest) {
    return thread->number > threads_serving || thread->worker.count > fewest + 1;
}

/* Moves the client's connection, or asks its thread to let it go. Returns false if it remains to be moved. */
static bool client_place(struct client *client, size_t fewest) {
    struct connection *conn = client->conn;
    if (!client->threaded) {
        struct io_thread *to = least_loaded(false);
        if (!to || !conn_can_move(conn)) return true;
        struct connection *moved = client_can_change_connection(client) ? remote_adopt(&to->worker, conn) : NULL;
        if (moved) client_change_connection(client, moved);
        return moved != NULL;
    }
    if (remote_is_leaving(conn)) return false; /* its thread may refuse to release it now */
    if (!remote_can_leave(conn) || !thread_sheds((struct io_thread *)remote_worker_of(conn), fewest)) return true;
    if (client_can_change_connection(client)) remote_leave(conn);
    return false;
}

/* A connection has left its thread. It moves to the main thread if there are no I/O threads, otherwise to the thread
 * with the fewest connections. */
static struct remote_worker *end_left(struct connection *conn) {
    struct client *client = conn->owner;
    struct io_thread *to = least_loaded(false);
    if (to) return &to->worker;
    struct connection *real = client_can_change_connection(client) ? remote_take(conn) : NULL;
    if (!real) return remote_worker_of(conn);
    client_change_connection(client, real);
    return NULL;
}

static uint64_t move_again(struct event_timer *timer) {
    io_threads_moving = true;
    return 0;
}

void io_threads_move(void) {
    size_t fewest = fewest_connections();
    bool left = false;
    io_threads_moving = false;
    list_each_entry(clients_all(), struct client, link, client) {
        if (!(client->flags & (CLIENT_REPLICA | CLIENT_PRIMARY)) && !client_place(client, fewest)) left = true;
    }
    if (!left) return;
    event_timer_set(server.loop, &move_timer, move_delay_us, move_again);
    if (move_delay_us < MOVE_DELAY_MAX_US) move_delay_us *= 2;
}

static void move_soon(void) {
    move_delay_us = MOVE_DELAY_MIN_US;
    io_threads_moving = true;
}

void io_threads_accepted(const struct connection *conn) {
    bool misplaced;
    if (conn_is_remote(conn))
        misplaced = ((struct io_thread *)remote_worker_of(conn))->number > threads_serving;
    else
        misplaced = threads_serving && conn_can_move(conn);
    if (misplaced) move_soon();
}

void io_threads_place(struct listen_options *options) {
    options->place = place;
    options->arrived = remote_arrived;
}

/* Starts thread `number`. Returns 0 or an errno. */
static int thread_start(int number) {
    const struct transport *rdma = transport_find("rdma");
    struct io_thread *thread = mem_calloc(1, sizeof *thread);
    struct event_loop *loop = event_loop_new();
    remote_worker_init(&thread->worker, loop, server.loop, &worker_ops);
    thread->number = number;
    socket_prepare(loop);
    thread->rdma = rdma && rdma->join && rdma->join(loop);
    int error = thread_create(&thread->id, thread_run, thread);
    if (error) {
        event_loop_free(loop);
        mem_free(thread);
        return -error;
    }
    must_less(threads_started, THREADS_MAX);
    threads[threads_started++] = thread;
    return 0;
}

static const char *threads_apply(void) {
    if (threads_started < threads_wanted - 1 && !open_files_raise())
        return "The operating system does not allow as many open files as maxclients and the threads need";
    while (threads_started < threads_wanted - 1) {
        int error = thread_start(threads_started + 1);
        if (error) return config_reason("Can't initialize IO thread: %s", strerror(error));
    }
    threads_serving = threads_wanted - 1;
    io_threads_publish();
    move_soon();
    return NULL;
}

/* An eviction causes messages to clients (invalidations, notifications). Without threads they are sent before the next
 * command; if they counted here, they would cause further evictions. */
static size_t in_transit(void) {
    size_t bytes = 0;
    for (int i = 0; i < threads_started; i++) bytes += remote_in_transit(&threads[i]->worker);
    return bytes;
}

static void io_threads_start(void) {
    static struct uncounted_memory transit = {.bytes = in_transit};
    uncounted_memory_add(&transit);
    socket_prepare(server.loop);
    const char *error = threads_apply();
    if (!error) return;
    log_warning("Fatal: %s", error);
    exit(1);
}

/* Sends all replies that were written, then stops. */
static void io_threads_stop(void) {
    for (int i = 0; i < threads_started; i++) {
        event_outbox_publish(&threads[i]->worker.to_loop);
        threads[i]->stop.run = thread_stop;
        event_loop_post(threads[i]->worker.loop, &threads[i]->stop);
    }
    for (int i = 0; i < threads_started; i++) {
        pthread_join(threads[i]->id, NULL);
        remote_worker_stopped(&threads[i]->worker);
    }
}

uint64_t io_thread_cpu_us(int number) {
    clockid_t clock;
    struct timespec time;
    if (number > threads_started || pthread_getcpuclockid(threads[number - 1]->id, &clock) != 0 ||
        clock_gettime(clock, &time) < 0)
        return 0;
    return (uint64_t)time.tv_sec * 1000000 + (uint64_t)time.tv_nsec / 1000;
}

/* The threads are active if they have used a noticeable part of the time since the last turn of the cron. */
enum { ACTIVE_SHARE = 20 };
static bool active;

bool io_threads_active(void) {
    return active;
}
static void active_note(void) {
    static uint64_t used_before, time_before;
    uint64_t used = 0, now = clock_mono();
    if (!threads_started) return;
    for (int i = 1; i <= threads_started; i++) used += io_thread_cpu_us(i);
    active = (used - used_before) * ACTIVE_SHARE > now - time_before;
    used_before = used;
    time_before = now;
}

static const struct server_part io_threads_part = {.name = "io-threads",
                                                   .start = io_threads_start,
                                                   .cron = active_note,
                                                   .before_wait = io_threads_publish,
                                                   .in_call = true,
                                                   .stop = io_threads_stop};

/* --- Batches --- */

struct io_batch *io_batch_of(const struct connection *conn) {
    return (struct io_batch *)remote_shown(conn);
}

enum request_status io_batch_next(struct io_batch *batch, struct request_reader *reader, size_t *size) {
    if (batch->next < batch->count) {
        const struct io_request *request = &batch->requests[batch->next];
        request_lend(reader, batch->argv, request->argc, request->size);
        batch->lent = true;
        return REQUEST_READY;
    }
    if (batch->apart_given) return reader->argc ? REQUEST_READY : REQUEST_PARTIAL;
    if (batch->apart) {
        request_hand_over(batch->apart, reader);
        batch->apart_given = true;
        return REQUEST_READY;
    }
    if (batch->failed) {
        memcpy(reader->error, batch->error, sizeof batch->error);
        reader->unread = batch->unread;
        return REQUEST_FAILED;
    }
    *size = batch->over;
    return batch->over ? REQUEST_LARGE : REQUEST_PARTIAL;
}

void io_batch_done(struct io_batch *batch, struct request_reader *reader) {
    if (!batch->lent) {
        request_done(reader);
        return;
    }
    batch->lent = false;
    batch->argv += batch->requests[batch->next++].argc;
    request_give_back(reader);
}

void io_batch_hold(struct io_batch *batch, struct request_reader *reader) {
    if (!batch->lent) return;
    batch->lent = false;
    request_give_back(reader);
}

struct io_threads_prefetched io_threads_prefetched;

static void prefetched_count(size_t count) {
    io_threads_prefetched.batches++;
    io_threads_prefetched.keys += count;
}

void io_batch_prefetch(struct io_batch *batch, struct db *db) {
    if (batch->next < batch->fetched || batch->count - batch->next < 2) return;
    struct slice keys[HASHTABLE_PREFETCH_MAX];
    const struct slice *argv = batch->argv;
    size_t count = 0, max = client_prefetch_max();
    uint32_t i = batch->next;
    for (; i < batch->count && i - batch->next < max; argv += batch->requests[i++].argc)
        if (batch->requests[i].argc > 1) keys[count++] = argv[1];
    batch->fetched = i;
    if (count < 2 || !db_prefetch_pays(db)) return;
    db_prefetch_requests(db, keys, count);
    prefetched_count(count);
}

/* Prefetches the keys of the first requests of several clients: a client that waits for each reply has no others. The
 * batches of clients in another database than the first one's are left out. */
static void batches_prefetch(struct remote_message *message) {
    static size_t seen; /* messages that follow and have been here before */
    if (seen) {
        seen--;
        return;
    }
    struct slice keys[HASHTABLE_PREFETCH_MAX];
    size_t count = 0, max = client_prefetch_max();
    struct db *db = NULL;
    if (max < 2) return;
    for (struct remote_message *next = message; next && seen < max; next = remote_next_message(next)) {
        if (next->kind != MESSAGE_INPUT) continue;
        seen++;
        const struct io_batch *batch = (const struct io_batch *)next;
        const struct connection *conn = remote_message_connection(next);
        const struct client *client = conn ? conn->owner : NULL; /* NULL: closed, or not accepted yet */
        if (!client || !batch->count || batch->requests[0].argc < 2) continue;
        if (!db) db = client->db;
        if (client->db == db) keys[count++] = batch->argv[1];
    }
    seen--; /* without this one */
    if (count < 2 || !db_prefetch_pays(db)) return;
    db_prefetch(db, keys, count);
    prefetched_count(count);
}

static const struct config_option io_threads_options[] = {
    {OPTION("io-threads", CONFIG_INT, &threads_wanted, "1"), .apply = threads_apply, .min = 1, .max = THREADS_MAX},
    {.name = "io-threads-always-active", /* they are */
     .type = CONFIG_BOOL,
     .flags = CONFIG_HIDDEN,
     .value = &always_active,
     .initial = "no"},
    {.name = NULL},
};

const struct feature io_threads_feature = {
    .name = "io-threads", .options = OPTIONS(io_threads_options), .parts = PARTS(&io_threads_part)};
