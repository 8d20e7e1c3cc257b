/* benchmark_run.c: runs a batch of requests against the server repeatedly, from many connections.
 *
 * Each thread has an event loop, a share of the connections, and its own counters. Threads share only the number of
 * remaining requests, which they claim in chunks, and a barrier at the start and the end of the run. Before the clock
 * starts, all connections are open and have completed their setup commands (AUTH, SELECT …).
 *
 * With --warmup, batches sent before warm_until_ns are neither claimed from that count nor recorded. With --duration,
 * nothing is sent after deadline_ns. With --rps, each thread has a share of the rate: each batch advances the time of
 * the thread's next batch, and a connection that is too early waits in a queue for the timer.
 *
 * A connection sends a batch, counts its replies in place, and sends the next one. Between a reply and the next request
 * it reads the clock once, patches the digits, copies the batch into the connection's send memory, and flushes once.
 * Long values are not copied. */
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "lib/system/thread.h"
#include "resp/reply_reader.h"
#include "resp/request.h"
#include "tools/benchmark.h"
#ifdef USE_RDMA
#include "net/rdma/rdma.h"
#include "net/rdma/read.h"
#endif
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum {
    LATENCY_BITS = 10, /* three decimal digits */
    PROGRESS_US = 250 * 1000,
    SAMPLE_US = 5 * 1000,
    SPIN_US = 10, /* longer polling was slower on a shared CPU, because the scheduler preempts the thread */
};
static const uint64_t LATENCY_MAX_NS = UINT64_C(60) * 1000 * 1000 * 1000;

struct benchmark_run { /* shared by all threads */
    const struct bench_options *options;
    struct bench_cluster *cluster;
    const struct bench_request *request;
    struct slice greeting; /* AUTH, SELECT … */
    int greeting_replies;
    uint64_t total; /* requests */
    _Alignas(64) _Atomic uint64_t claimed;
    _Alignas(64) _Atomic bool stop;
    _Atomic int working;
    pthread_barrier_t ready;
    pthread_mutex_t mutex; /* protects the following fields */
    enum bench_outcome outcome;
    char error[512];
};

struct benchmark_worker {
    _Alignas(64) struct benchmark_run *run;
    struct event_loop *loop;
    struct benchmark_client *clients;
    int clients_count, clients_ready, clients_busy;
    int index;
    uint64_t credit;          /* requests claimed and not yet sent */
    char *scratch;            /* the batch being patched */
    struct bench_part *parts; /* parts of one request; NULL: copy it all from the batch */
    int parts_count;
    struct histogram *latencies;
    uint64_t start_ns, end_ns;
    uint64_t warm_until_ns, deadline_ns; /* 0: none */
    uint64_t interval_ns, next_ns;       /* between two requests; time of the next batch; interval 0: no limit */
    struct event_timer pace;
    struct benchmark_client **early; /* a ring of clients_count entries: clients that wait for next_ns */
    int early_first, early_count;
    bool failed, running;
    pthread_t thread;
    _Alignas(64) _Atomic uint64_t done, latency_ns; /* read by the thread that shows progress */
};

struct benchmark_client {
    struct connection *conn;
    struct benchmark_worker *worker;
    const struct bench_node *node;
    struct reply_counter counter;
    bool discarding; /* the bytes that the counter is to skip do not come here */
    int greeting_missing;
    int pending;                /* replies of the batch not yet received */
    struct bench_memory memory; /* --placement */
    char *arena;
#ifdef USE_RDMA
    struct rdma_window window;
#endif
    uint64_t sent_ns;
};

static void run_fail(struct benchmark_worker *w, enum bench_outcome outcome, const char *text) {
    struct benchmark_run *run = w->run;
    pthread_mutex_lock(&run->mutex);
    if (run->outcome == BENCH_DONE) {
        run->outcome = outcome;
        snprintf(run->error, sizeof run->error, "%s", text);
    }
    pthread_mutex_unlock(&run->mutex);
    atomic_store(&run->stop, true);
    w->failed = true;
}

/* Claims up to `wanted` of the requests that remain. */
static uint64_t claim(struct benchmark_worker *w, uint64_t wanted) {
    struct benchmark_run *run = w->run;
    if (w->credit == 0) {
        /* Chunks are small enough that all threads finish at about the same time. */
        uint64_t piece = run->options->threads == 1 ? run->total : run->total / (uint64_t)(run->options->threads * 64);
        piece = piece < wanted ? wanted : piece > 4096 * wanted ? 4096 * wanted : piece - piece % wanted;
        uint64_t before = atomic_fetch_add_explicit(&run->claimed, piece, memory_order_relaxed);
        if (before >= run->total) return 0;
        w->credit = run->total - before < piece ? run->total - before : piece;
    }
    uint64_t got = w->credit < wanted ? w->credit : wanted;
    w->credit -= got;
    return got;
}

static void client_connect(struct benchmark_client *client);

/* Writes the first `count` requests of the batch. */
static inline void batch_write(struct benchmark_worker *w, struct output *out, uint64_t count) {
    size_t size = w->run->request->size;
    if (__builtin_expect(w->parts_count == 0, 1)) {
        output_write(out, slice_make(w->scratch, count * size));
        return;
    }
    for (const char *at = w->scratch; count > 0; count--, at += size) {
        for (int i = 0; i < w->parts_count; i++) {
            const struct bench_part *part = &w->parts[i];
            if (part->blob)
                output_write_blob(out, part->blob);
            else
                output_write(out, slice_make(at + part->offset, part->len));
        }
    }
}

static void client_send(struct benchmark_client *client, uint64_t now);

/* Whether all requests are claimed, or the time is over. */
static bool nothing_left(const struct benchmark_worker *w, uint64_t now) {
    if (now < w->warm_until_ns) return false;
    if (w->deadline_ns && now >= w->deadline_ns) return true;
    return w->credit == 0 && atomic_load_explicit(&w->run->claimed, memory_order_relaxed) >= w->run->total;
}

static uint64_t pace_fire(struct event_timer *timer) {
    struct benchmark_worker *w = container_of(timer, struct benchmark_worker, pace);
    uint64_t now = clock_monotonic_ns();
    while (w->early_count && (w->next_ns <= now || nothing_left(w, now))) {
        struct benchmark_client *client = w->early[w->early_first];
        w->early_first = (w->early_first + 1) % w->clients_count;
        w->early_count--;
        client_send(client, now);
    }
    return w->early_count ? (w->next_ns - now + 999) / 1000 : 0;
}

/* Returns false if it is too early for the client's batch; the timer will send it. */
static bool pace_allows(struct benchmark_client *client, uint64_t now) {
    enum { CATCH_UP_NS = 10 * 1000 * 1000 }; /* longer delays are not made up, so that no burst follows a stall */
    struct benchmark_worker *w = client->worker;
    if (w->next_ns > now) {
        w->early[(w->early_first + w->early_count++) % w->clients_count] = client;
        if (w->early_count == 1) event_timer_set(w->loop, &w->pace, (w->next_ns - now + 999) / 1000, pace_fire);
        return false;
    }
    if (w->next_ns + CATCH_UP_NS < now) w->next_ns = now - CATCH_UP_NS;
    w->next_ns += w->interval_ns * (uint64_t)w->run->request->count * (uint64_t)w->run->request->commands;
    return true;
}

/* How many requests of a batch may be sent now; 0: the run is over. */
static uint64_t batch_count(struct benchmark_worker *w, uint64_t now) {
    uint64_t count = (uint64_t)w->run->request->count;
    if (now < w->warm_until_ns) return count;
    if (w->deadline_ns && now >= w->deadline_ns) return 0;
    return claim(w, count);
}

static void client_send(struct benchmark_client *client, uint64_t now) {
    struct benchmark_worker *w = client->worker;
    const struct bench_request *request = w->run->request;
    if (w->interval_ns && !nothing_left(w, now) && !pace_allows(client, now)) return;
    uint64_t count = batch_count(w, now);
    if (count == 0) {
        if (--w->clients_busy == 0) w->end_ns = now;
        return;
    }
    if (request->patches_count) {
        const struct bench_node *node = client->node;
        const char *tag =
            node->slots_count ? w->run->cluster->tags[node->slots[random_below((uint64_t)node->slots_count)]] : NULL;
        request_patch(request, w->run->options, w->scratch, (int)count, tag, &client->memory);
    }
    client->pending = (int)count * request->commands;
    client->sent_ns = now;
    batch_write(w, &client->conn->out, count);
    conn_flush(client->conn);
}

static void greeting_ended(struct benchmark_client *client) {
    struct benchmark_worker *w = client->worker;
    if (!w->running)
        w->clients_ready++;
    else
        client_send(client, clock_monotonic_ns()); /* reconnected (-k 0) */
}

/* Registers memory for the values of a batch. */
static bool memory_open(struct benchmark_client *client) {
    const struct bench_options *o = client->worker->run->options;
    int error = -EOPNOTSUPP;
#ifdef USE_RDMA
    enum { PAGE = 4096 };
    size_t size = ((size_t)o->pipeline * (size_t)o->data_size + PAGE) & ~(size_t)(PAGE - 1);
    if (!client->arena) {
        client->arena = aligned_alloc(PAGE, size);
        if (client->arena)
            for (size_t i = 0; i < size; i++) client->arena[i] = (char)(i * 7 + i / PAGE);
    }
    error = client->arena ? rdma_window_open(client->conn, RDMA_WINDOW_PLACED, client->arena, size, &client->window)
                          : -ENOMEM;
    client->memory = (struct bench_memory){(uintptr_t)client->arena, client->window.rkey};
#endif
    if (!error) return true;
    char text[256];
    snprintf(text, sizeof text, "Error: --placement: cannot register %lld bytes for each of %lld values: %s",
             (long long)o->data_size, (long long)o->pipeline, strerror(-error));
    run_fail(client->worker, BENCH_FAILED, text);
    return false;
}

static void benchmark_run_on_connected(struct connection *conn) {
    struct benchmark_client *client = conn->owner;
    const struct benchmark_run *run = client->worker->run;
    if (run->options->placement && !memory_open(client)) return;
    client->greeting_missing = run->greeting_replies;
    if (!client->greeting_missing) {
        greeting_ended(client);
        return;
    }
    output_write(&conn->out, run->greeting);
    conn_flush(conn);
}

/* The benchmark looks at no value. Over RDMA it does not even copy a large one out of the receive buffer. */
static void value_discard(struct benchmark_client *client) {
#ifdef USE_RDMA
    enum { LEAST = 1024 };
    client->discarding = client->counter.skip >= LEAST && rdma_discard(client->conn, client->counter.skip);
#endif
}

/* Counts the replies that have come, `limit` at most, and consumes them. -1: invalid RESP. */
static int64_t take_replies(struct benchmark_client *client, int64_t limit) {
    size_t used = 0;
    struct slice input = conn_peek(client->conn); /* empty if nothing follows a discarded value */
    int64_t before = client->discarding ? reply_skipped(&client->counter) : 0;
    client->discarding = false;
    int64_t count = input.len ? reply_count(&client->counter, input, limit - before, &used) : 0;
    if (count < 0) return -1;
    if (used) conn_consume(client->conn, used);
    value_discard(client);
    return before + count;
}

static void on_readable(struct connection *conn) {
    struct benchmark_client *client = conn->owner;
    struct benchmark_worker *w = client->worker;
    bool greeting = client->greeting_missing > 0;
    int64_t count = take_replies(client, greeting ? client->greeting_missing : client->pending);
    if (__builtin_expect(count < 0, 0)) {
        run_fail(w, BENCH_FAILED, "Error: the server's answer is not RESP");
        return;
    }
    if (__builtin_expect(client->counter.errors != 0, 0)) {
        run_fail(w, BENCH_SERVER_ERROR, client->counter.error_text);
        return;
    }
    if (count == 0) return;
    if (greeting) {
        client->greeting_missing -= (int)count;
        if (client->greeting_missing == 0) greeting_ended(client);
        return;
    }
    uint64_t now = clock_monotonic_ns(), latency = now - client->sent_ns;
    if (client->sent_ns >= w->warm_until_ns) histogram_record(w->latencies, latency, (uint64_t)count);
    atomic_store_explicit(&w->done, w->latencies->count, memory_order_relaxed);
    atomic_store_explicit(&w->latency_ns, w->latencies->sum, memory_order_relaxed);
    client->pending -= (int)count;
    if (client->pending > 0) return;
    if (w->run->options->keep_alive) {
        client_send(client, now);
        return;
    }
    conn_close(conn);
    client_connect(client);
}

static void benchmark_run_on_closed(struct connection *conn) {
    struct benchmark_client *client = conn->owner;
    struct benchmark_worker *w = client->worker;
    char text[512], where[128];
    endpoint_format(&client->node->endpoint, where, sizeof where);
    if (!conn->error)
        snprintf(text, sizeof text, "Error: Server closed the connection");
    else if (w->running || conn->error == ECONNRESET) /* the server has accepted the connection: maxclients with TLS */
        snprintf(text, sizeof text, "Error: %s", endpoint_error_text(conn, false));
    else
        snprintf(text, sizeof text, "Could not connect to server at %s: %s", where, endpoint_error_text(conn, true));
    run_fail(w, BENCH_FAILED, text);
}

static const struct connection_events events = {
    .connected = benchmark_run_on_connected, .readable = on_readable, .closed = benchmark_run_on_closed};

static void client_connect(struct benchmark_client *client) {
    memset(&client->counter, 0, sizeof client->counter);
    client->discarding = false;
    client->conn = endpoint_connect(&client->node->endpoint, client->worker->loop, 0, &events, client);
    conn_set_in_limit(client->conn, 16 * 1024 * 1024);
}

static void worker_open(struct benchmark_worker *w) {
    struct benchmark_run *run = w->run;
    for (int i = 0; i < w->clients_count; i++) {
        struct benchmark_client *client = &w->clients[i];
        client->worker = w;
        client->node = &run->cluster->nodes[(i * (int)run->options->threads + w->index) % run->cluster->count];
        client_connect(client);
        /* Do not exceed the server's listen backlog. */
        while (i - w->clients_ready > 100 && !atomic_load(&run->stop)) event_loop_turn(w->loop, 100 * 1000);
    }
    while (w->clients_ready < w->clients_count && !atomic_load(&run->stop)) event_loop_turn(w->loop, 100 * 1000);
}

static void worker_drive(struct benchmark_worker *w) {
    struct benchmark_run *run = w->run;
    const struct bench_options *o = run->options;
    const uint64_t second = 1000 * 1000 * 1000;
    w->running = true;
    w->start_ns = w->end_ns = w->next_ns = clock_monotonic_ns();
    if (o->warmup) w->start_ns = w->end_ns = w->warm_until_ns = w->start_ns + (uint64_t)o->warmup * second;
    if (o->duration) w->deadline_ns = w->start_ns + (uint64_t)o->duration * second;
    if (o->rps) w->interval_ns = second * (uint64_t)o->threads / (uint64_t)o->rps;
    w->clients_busy = w->clients_count;
    for (int i = 0; i < w->clients_count && !w->failed; i++) client_send(&w->clients[i], clock_monotonic_ns());
    while (w->clients_busy > 0 && !atomic_load_explicit(&run->stop, memory_order_relaxed))
        event_loop_turn(w->loop, 100 * 1000);
}

static void *worker_main(void *arg) {
    struct benchmark_worker *w = arg;
    struct benchmark_run *run = w->run;
    const struct bench_request *request = run->request;
    size_t size = request->size * (size_t)request->count;
    random_seed((uint64_t)run->options->seed + (uint64_t)w->index);
    w->loop = event_loop_new();
    w->clients = mem_calloc((size_t)w->clients_count, sizeof *w->clients);
    w->early = mem_calloc((size_t)w->clients_count, sizeof *w->early);
    w->scratch = mem_alloc(size);
    memcpy(w->scratch, request->bytes, size);
    w->latencies = histogram_new(LATENCY_BITS, LATENCY_MAX_NS);
    worker_open(w);
    w->parts_count =
        request_parts(request, &w->parts); /* after connecting: the transport chooses the memory for the parts */
    pthread_barrier_wait(&run->ready);
    if (run->options->idle) {
        while (!atomic_load(&run->stop)) event_loop_turn(w->loop, 1000 * 1000);
    } else if (!atomic_load(&run->stop)) {
        worker_drive(w);
    }
    atomic_fetch_sub(&run->working, 1);
    for (int i = 0; i < w->clients_count; i++) {
        if (w->clients[i].conn) conn_close(w->clients[i].conn);
    }
    event_timer_cancel(w->loop, &w->pace);
    event_loop_turn(w->loop, 0);
    event_loop_free(w->loop);
    for (int i = 0; i < w->clients_count; i++) free(w->clients[i].arena);
    mem_free(w->clients);
    mem_free(w->early);
    mem_free(w->scratch);
    request_parts_free(w->parts, w->parts_count);
    return NULL;
}

/* The setup commands of each connection. The order is that of Valkey's tool, since servers may depend on it. */
static int greeting_write(const struct bench_options *o, struct output *out) {
    int count = 0;
    const struct endpoint *e = &o->endpoint;
    if (e->password) {
        struct slice argv[3] = {SLICE("AUTH"), slice_of(e->user ? e->user : e->password), slice_of(e->password)};
        request_write(out, e->user ? 3 : 2, argv);
        count++;
    }
    if (o->read_replicas) {
        request_write(out, 1, (struct slice[]){SLICE("READONLY")});
        count++;
    }
    if (o->tracking) {
        request_write(out, 3, (struct slice[]){SLICE("CLIENT"), SLICE("TRACKING"), SLICE("on")});
        count++;
    }
    if (o->db) {
        char db[24];
        snprintf(db, sizeof db, "%lld", (long long)o->db);
        request_write(out, 2, (struct slice[]){SLICE("SELECT"), slice_of(db)});
        count++;
    }
    if (o->resp3) {
        request_write(out, 2, (struct slice[]){SLICE("HELLO"), SLICE("3")});
        count++;
    }
    return count;
}

/* All receive buffers together should fit into the CPU caches: receiving into uncached memory costs several times as
 * much (GET of 16 KiB, 50 connections, software device: 658,000 requests per second with 64 KiB each, 251,000 with 1
 * MiB). */
#ifdef USE_RDMA
static uint32_t rx_size_for(const struct bench_options *o) {
    enum { ALL_TOGETHER = 4 * 1024 * 1024, MOST = 256 * 1024 };
    if (o->rx_size) return (uint32_t)o->rx_size;
    uint32_t size = RDMA_RX_SIZE_MIN;
    while (size < MOST && size * 2 * (uint64_t)o->clients <= ALL_TOGETHER) size *= 2;
    return size;
}
#endif

/* Polling for completions avoids system calls but keeps a CPU busy. It pays if the server runs on another CPU. */
static void rdma_choose(const struct bench_options *o) {
#ifdef USE_RDMA
    if (!o->endpoint.rdma) return;
    cpu_set_t cpus;
    int count = sched_getaffinity(0, sizeof cpus, &cpus) == 0 ? CPU_COUNT(&cpus) : 1;
    rdma_settings.busy_poll_us = o->busy_poll_us >= 0 ? (uint32_t)o->busy_poll_us : count > o->threads ? SPIN_US : 0;
    rdma_settings.rx_size = rx_size_for(o);
    if (o->placement) rdma_settings.max_registered = 0;
#endif
}

static void series_add(struct bench_series *series, double seconds, uint64_t done, uint64_t latency_ns) {
    if (series->count == SERIES_MAX) {
        series->count /= 2;
        series->interval_us *= 2;
        for (int i = 0; i < series->count; i++) series->samples[i] = series->samples[2 * i + 1];
    }
    series->samples[series->count++] = (struct bench_sample){seconds, done, latency_ns};
}

static void run_watch(struct benchmark_run *run, struct benchmark_worker *workers, int count,
                      struct bench_series *series, bench_progress *progress, void *context) {
    uint64_t start = clock_monotonic_us(), shown = start;
    uint64_t counted = start + (uint64_t)run->options->warmup * 1000 * 1000, sampled = counted;
    while (atomic_load(&run->working) > 0) {
        usleep(1000);
        uint64_t now = clock_monotonic_us();
        bool show = now - shown >= PROGRESS_US, sample = now >= sampled + series->interval_us;
        if ((!show && !sample) || run->options->idle) continue;
        uint64_t done = 0, latency = 0;
        for (int i = 0; i < count; i++) {
            done += atomic_load_explicit(&workers[i].done, memory_order_relaxed);
            latency += atomic_load_explicit(&workers[i].latency_ns, memory_order_relaxed);
        }
        if (sample) {
            sampled = now;
            series_add(series, (double)(now - counted) / 1e6, done, latency);
        }
        if (!show) continue;
        shown = now;
        if (progress && !atomic_load(&run->stop)) progress(context, done, latency, (double)(now - start) / 1e6);
    }
}

static void run_collect(struct benchmark_run *run, struct benchmark_worker *workers, int count,
                        struct bench_result *result) {
    uint64_t start = UINT64_MAX, end = 0;
    result->latencies = histogram_new(LATENCY_BITS, LATENCY_MAX_NS);
    for (int i = 0; i < count; i++) {
        struct benchmark_worker *w = &workers[i];
        histogram_merge(result->latencies, w->latencies);
        histogram_free(w->latencies);
        if (w->start_ns && w->start_ns < start) start = w->start_ns;
        if (w->end_ns > end) end = w->end_ns;
    }
    result->seconds = end > start ? (double)(end - start) / 1e9 : 0;
    /* The threads end shortly after the last request. One sample at its time replaces those after it. */
    const struct histogram *h = result->latencies;
    while (result->series.count && result->series.samples[result->series.count - 1].seconds >= result->seconds)
        result->series.count--;
    series_add(&result->series, result->seconds, h->count, h->sum);
    result->outcome = run->outcome;
    memcpy(result->error, run->error, sizeof result->error);
}

void bench_run(const struct bench_options *o, struct bench_cluster *cluster, const struct bench_request *request,
               struct bench_result *result, bench_progress *progress, void *context) {
    int count = (int)o->threads;
    struct memory_output greeting = MEMORY_OUTPUT_INIT;
    struct benchmark_run run = {.options = o, .cluster = cluster, .request = request};
    run.total = ((uint64_t)o->requests + (uint64_t)request->commands - 1) / (uint64_t)request->commands;
    run.greeting_replies = greeting_write(o, &greeting.out);
    run.greeting = memory_output_slice(&greeting);
    atomic_store(&run.working, count);
    pthread_barrier_init(&run.ready, NULL, (unsigned)count + 1);
    pthread_mutex_init(&run.mutex, NULL);
    rdma_choose(o);
    result->series.count = 0;
    result->series.interval_us = SAMPLE_US;
    /* Counters that other threads read have their own cache lines; the additional element allows to align the array. */
    void *memory = mem_calloc((size_t)count + 1, sizeof(struct benchmark_worker));
    struct benchmark_worker *workers = (struct benchmark_worker *)(((uintptr_t)memory + 63) & ~(uintptr_t)63);
    for (int i = 0; i < count; i++) {
        struct benchmark_worker *w = &workers[i];
        w->run = &run;
        w->index = i;
        w->clients_count = (int)(o->clients / count + (i < o->clients % count));
        int error = thread_create(&w->thread, worker_main, w);
        if (error) {
            fprintf(stderr, "Error: thread %d: %s\n", i, strerror(-error));
            exit(1);
        }
    }
    pthread_barrier_wait(&run.ready);
    run_watch(&run, workers, count, &result->series, progress, context);
    for (int i = 0; i < count; i++) pthread_join(workers[i].thread, NULL);
    run_collect(&run, workers, count, result);
    mem_free(memory);
    pthread_barrier_destroy(&run.ready);
    pthread_mutex_destroy(&run.mutex);
    memory_output_free(&greeting);
}
