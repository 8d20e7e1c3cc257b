/* main.c: valkey-rdma-proxy: options, listeners, threads, signals, the status. See proxy.h. */
#include "client/proxy/proxy.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/thread.h"
#include "lib/system/version.h"
#include "net/pin.h"
#include "net/rdma/rdma.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { THREADS_MAX = 128, LISTENERS_MAX = 16, END_US = 2500 * 1000 };

struct proxy_options proxy_options = {.connect_timeout_ms = 5000, .linger_ms = 1000, .buffer = 256 * 1024};

static const char usage[] =
    "valkey-rdma-proxy " PROJECT_VERSION "\n"
    "Usage: valkey-rdma-proxy --server HOST:PORT [OPTIONS]\n"
    "\n"
    "Lets programs that know only sockets reach a Valkey server over RDMA. It listens on this machine, and opens an\n"
    "RDMA connection to the server for each client. It understands no command: a client authenticates with the\n"
    "server, through the proxy.\n"
    "\n"
    "Addresses:\n"
    "  --server <host:port>     The RDMA listener of the server. Port 6379 if it is left out.\n"
    "  --listen <address>       Where clients connect: a path (a Unix socket), a port of 127.0.0.1, or host:port.\n"
    "                           May be given several times. Default: 127.0.0.1:6379. Port 0: any free port.\n"
    "  --allow-remote           Listen also on addresses that other machines can reach. What clients send is not\n"
    "                           encrypted.\n"
    "  --unixsocketperm <mode>  Permissions of Unix sockets, octal. Default: 700.\n"
    "  --unixsocketgroup <name> Group of Unix sockets.\n"
    "  --source <address>       Connect to the server from this address.\n"
    "\n"
    "Resources:\n"
    "  --threads <n>            Threads, each with clients of its own. Default: 1.\n"
    "  --cpus <list>            CPUs to pin the threads to, one after the other, as 0-3,8. The completion vector of\n"
    "                           the same CPU is used.\n"
    "  --maxclients <n>         Further clients get an error. Default: 10000.\n"
    "  --buffer <bytes>         Bytes that wait in each direction of a connection, at most. Default: 262144.\n"
    "  --receive-buffer <bytes> Largest RDMA receive buffer of a connection. Default: 1048576.\n"
    "  --busy-poll-us <us>      Poll the device for this long before a thread sleeps. Default: 20.\n"
    "\n"
    "Times:\n"
    "  --connect-timeout <ms>   Default: 5000.\n"
    "  --linger <ms>            A client that has ended its sending may wait this long for replies. Default: 1000.\n"
    "\n"
    "Output:\n"
    "  --status <s>             Print the status every <s> seconds. SIGUSR1 prints it, too.\n"
    "  --verbose                A line for each client.\n"
    "  --help                   Show this help.\n"
    "  --version                Show the version.\n"
    "\n"
    "Examples:\n"
    "  valkey-rdma-proxy --server 192.0.2.1:6379 --listen /run/valkey-rdma-proxy/socket\n"
    "  valkey-rdma-proxy --server 192.0.2.1 --listen 7390 --threads 4 --cpus 2-5\n";

static struct proxy_worker workers[THREADS_MAX];
static pthread_t threads[THREADS_MAX];
static int worker_count = 1;
static unsigned maxclients = 10000;
static _Atomic uint64_t refused;
static uint64_t status_us, started_us;
static const char *cpus;
static struct listener *listeners[LISTENERS_MAX];
static int listener_count;
static volatile sig_atomic_t wants_status, wants_end;
static _Atomic bool ending;

void proxy_print(const char *format, ...) {
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    flockfile(stdout);
    puts(line);
    fflush(stdout);
    funlockfile(stdout);
}

static void __attribute__((noreturn, format(printf, 1, 2))) proxy_fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "valkey-rdma-proxy: ");
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    exit(2);
}

/* --- Options --- */

static uint64_t number(const char *option, const char *text, uint64_t least, uint64_t most) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || errno || value < least || value > most)
        proxy_fail("%s %s: not a number from %llu to %llu", option, text, (unsigned long long)least,
                   (unsigned long long)most);
    return value;
}

/* Splits "host:port", "[host]:port", "host" or, if `bare_port`, "port". The host is a copy. */
static void split_address(const char *option, const char *text, bool bare_port, int fallback, char **host, int *port) {
    const char *colon = strrchr(text, ':'), *from = text, *digits = NULL;
    size_t len = strlen(text);
    if (bare_port && len && strspn(text, "0123456789") == len) {
        *host = mem_strdup("127.0.0.1");
        *port = (int)number(option, text, 0, 65535);
        return;
    }
    if (*text == '[') {
        const char *end = strchr(text, ']');
        if (!end || (end[1] && end[1] != ':')) proxy_fail("%s %s: not an address", option, text);
        from = text + 1;
        len = (size_t)(end - from);
        if (end[1]) digits = end + 2;
    } else if (colon && strchr(text, ':') == colon) { /* more than one: an IPv6 address without a port */
        len = (size_t)(colon - text);
        digits = colon + 1;
    }
    if (len == 0) proxy_fail("%s %s: there is no host", option, text);
    *host = mem_strndup(from, len);
    *port = digits ? (int)number(option, digits, bare_port ? 0 : 1, 65535) : fallback;
}

static const char *wanted[LISTENERS_MAX]; /* addresses to listen at */
static int wanted_count, unix_mode = 0700;
static const char *unix_group;
static bool allow_remote;

static void parse(int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        const char *option = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
        bool flag = true;
        if (strcmp(option, "--help") == 0 || strcmp(option, "-h") == 0) {
            fputs(usage, stdout);
            exit(0);
        } else if (strcmp(option, "--version") == 0 || strcmp(option, "-v") == 0) {
            puts("valkey-rdma-proxy " PROJECT_VERSION);
            exit(0);
        } else if (strcmp(option, "--allow-remote") == 0)
            allow_remote = true;
        else if (strcmp(option, "--verbose") == 0)
            proxy_options.verbose = true;
        else
            flag = false;
        if (flag) continue;
        if (!value && strncmp(option, "--", 2) == 0)
            proxy_fail("%s: its value is missing, or there is no such option", option);
        i++;
        if (strcmp(option, "--server") == 0) {
            char *host;
            split_address(option, value, false, 6379, &host, &proxy_options.server_port);
            proxy_options.server_host = host;
        } else if (strcmp(option, "--listen") == 0) {
            if (wanted_count == LISTENERS_MAX) proxy_fail("--listen: more than %d addresses", LISTENERS_MAX);
            wanted[wanted_count++] = value;
        } else if (strcmp(option, "--unixsocketperm") == 0) {
            char *end;
            unsigned long mode = strtoul(value, &end, 8);
            if (*value < '0' || *value > '7' || *end || mode > 0777 || mode == 0)
                proxy_fail("%s %s: not an octal mode", option, value);
            unix_mode = (int)mode;
        } else if (strcmp(option, "--unixsocketgroup") == 0)
            unix_group = value;
        else if (strcmp(option, "--source") == 0)
            proxy_options.source_host = value;
        else if (strcmp(option, "--threads") == 0)
            worker_count = (int)number(option, value, 1, THREADS_MAX);
        else if (strcmp(option, "--cpus") == 0)
            cpus = value;
        else if (strcmp(option, "--maxclients") == 0)
            maxclients = (unsigned)number(option, value, 1, 1000000);
        else if (strcmp(option, "--buffer") == 0)
            proxy_options.buffer = number(option, value, 16 * 1024, 1024 * 1024 * 1024);
        else if (strcmp(option, "--receive-buffer") == 0)
            rdma_settings.rx_size = (uint32_t)number(option, value, RDMA_RX_SIZE_MIN, RDMA_RX_SIZE_MAX);
        else if (strcmp(option, "--busy-poll-us") == 0)
            rdma_settings.busy_poll_us = (uint32_t)number(option, value, 0, 1000000);
        else if (strcmp(option, "--connect-timeout") == 0)
            proxy_options.connect_timeout_ms = (uint32_t)number(option, value, 1, 3600000);
        else if (strcmp(option, "--linger") == 0)
            proxy_options.linger_ms = (uint32_t)number(option, value, 0, 3600000);
        else if (strcmp(option, "--status") == 0)
            status_us = number(option, value, 1, 86400) * 1000000;
        else
            proxy_fail("%s: there is no such option. --help shows the options", option);
    }
    if (!proxy_options.server_host) proxy_fail("--server HOST:PORT is missing. --help shows the options");
    if (!wanted_count) wanted[wanted_count++] = "127.0.0.1:6379";
}

/* --- Status --- */

static unsigned clients_now(void) {
    unsigned clients = 0;
    for (int i = 0; i < worker_count; i++) clients += workers[i].clients;
    return clients;
}

static void print_status(void) {
    uint64_t accepted = 0, failed = 0, to_server = 0, to_clients = 0;
    char each[THREADS_MAX * 12] = "";
    for (int i = 0; i < worker_count; i++) {
        const struct proxy_worker *w = &workers[i];
        accepted += w->accepted, failed += w->failed;
        to_server += w->bytes_to_server, to_clients += w->bytes_to_clients;
        size_t len = strlen(each);
        snprintf(each + len, sizeof each - len, "%s%u", i ? "," : "", (unsigned)w->clients);
    }
    proxy_print("status: uptime=%llu clients=%u clients-of-threads=%s accepted=%llu refused=%llu connect-failed=%llu "
                "bytes-to-server=%llu bytes-to-clients=%llu",
                (unsigned long long)((clock_monotonic_us() - started_us) / 1000000), clients_now(), each,
                (unsigned long long)accepted, (unsigned long long)refused, (unsigned long long)failed,
                (unsigned long long)to_server, (unsigned long long)to_clients);
}

static uint64_t status_due(struct event_timer *timer) {
    print_status();
    return status_us;
}

/* --- Clients --- */

static struct event_loop *place(struct listener *listener) {
    struct proxy_worker *least = &workers[0];
    for (int i = 1; i < worker_count; i++)
        if (workers[i].clients < least->clients) least = &workers[i];
    /* Counted here, so that several in a row do not all go to the same one. Worker 0 counts in accepted(). */
    if (least != &workers[0]) least->clients++;
    return least->loop;
}

static void proxy_begin(struct proxy_worker *worker, struct connection *conn) {
    if (clients_now() > maxclients || worker->ending) {
        worker->clients--;
        refused++;
        pair_refuse(conn,
                    worker->ending ? "-ERR valkey-rdma-proxy is ending\r\n" : "-ERR max number of clients reached\r\n");
        return;
    }
    pair_start(worker, conn);
}

static void proxy_accepted(struct listener *listener, struct connection *conn) {
    workers[0].clients++;
    proxy_begin(&workers[0], conn);
}

static void arrived(struct connection *conn) {
    for (int i = 1; i < worker_count; i++)
        if (workers[i].loop == conn->loop) proxy_begin(&workers[i], conn);
}

static void listen_at(const char *text) {
    char *host = NULL, error[400];
    int port = 0;
    bool is_path = *text == '/' || *text == '.';
    if (is_path)
        host = mem_strdup(text);
    else
        split_address("--listen", text, true, 6379, &host, &port);
    struct address address = {.port = port};
    snprintf(address.host, sizeof address.host, "%s", strcmp(host, "localhost") == 0 ? "127.0.0.1" : host);
    if (!is_path && !allow_remote && !address_is_loopback(&address))
        proxy_fail(
            "--listen %s: not a loopback address. Other machines could send commands to the server through it, not "
            "encrypted. --allow-remote permits it",
            text);
    struct listen_options options = {.host = is_path ? host : address.host,
                                     .port = port,
                                     .backlog = 511,
                                     .accept_batch = 100,
                                     .unix_mode = unix_mode,
                                     .unix_group = unix_group,
                                     .accepted = proxy_accepted,
                                     .place = worker_count > 1 ? place : NULL,
                                     .arrived = arrived};
    struct listener *listener =
        conn_listen(is_path ? &transport_unix : &transport_tcp, workers[0].loop, &options, error, sizeof error);
    if (!listener) proxy_fail("%s", error);
    listeners[listener_count++] = listener;
    if (is_path)
        proxy_print("ready %s", host);
    else
        proxy_print(strchr(listener->address.host, ':') ? "ready [%s]:%d" : "ready %s:%d", listener->address.host,
                    listener->address.port);
    mem_free(host);
}

/* --- Threads --- */

/* The thread's CPU of --cpus. */
static void pin(int index) {
    cpu_set_t set;
    char error[200];
    if (!cpus || !pin_parse_cpulist(cpus, &set, error, sizeof error) || CPU_COUNT(&set) == 0) return;
    int wanted_cpu = index % CPU_COUNT(&set), cpu = 0;
    for (int seen = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &set) && seen++ == wanted_cpu) break;
    char list[16];
    snprintf(list, sizeof list, "%d", cpu);
    int result = pin_thread(list);
    if (result < 0) proxy_print("thread %d cannot be pinned to CPU %d: %s", index, cpu, strerror(-result));
}

/* Until all pairs are closed, or the time is over. */
static void end_pairs(struct proxy_worker *worker) {
    worker->ending = true;
    pairs_end(worker);
    uint64_t until = clock_monotonic_us() + END_US;
    while (worker->pairs.len && clock_monotonic_us() < until) event_loop_turn(worker->loop, 10000);
    event_loop_turn(worker->loop, 0);
}

static void *run_worker(void *argument) {
    struct proxy_worker *worker = argument;
    pin((int)(worker - workers));
    while (!ending) event_loop_turn(worker->loop, -1);
    end_pairs(worker);
    return NULL;
}

static void on_signal(int number) {
    if (number == SIGUSR1)
        wants_status = 1;
    else
        wants_end = 1;
    event_loop_wake(workers[0].loop);
}

static void raise_descriptors(void) {
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur == limit.rlim_max) return;
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
}

int main(int argc, char **argv) {
    parse(argc, argv);
    cpu_set_t set;
    char error[200];
    if (cpus && !pin_parse_cpulist(cpus, &set, error, sizeof error)) proxy_fail("--cpus %s: %s", cpus, error);
    if (cpus) rdma_settings.completion_vector = RDMA_VECTOR_AUTO;
    log_level = LOG_LEVEL_WARNING;
    started_us = clock_monotonic_us();
    raise_descriptors();
    for (int i = 0; i < worker_count; i++) {
        workers[i].loop = event_loop_new();
        event_loop_take_posts(workers[i].loop);
        list_init(&workers[i].pairs);
    }
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &action, NULL);
    signal(SIGPIPE, SIG_IGN);
    for (int i = 0; i < wanted_count; i++) listen_at(wanted[i]);
    for (int i = 1; i < worker_count; i++) {
        int result = thread_create(&threads[i], run_worker, &workers[i]);
        if (result) proxy_fail("thread %d: %s", i, strerror(-result));
    }
    pin(0);
    struct event_timer status = {0};
    if (status_us) event_timer_set(workers[0].loop, &status, status_us, status_due);
    while (!wants_end) {
        event_loop_turn(workers[0].loop, -1);
        if (wants_status) {
            wants_status = 0;
            print_status();
        }
    }
    while (listener_count) listener_close(listeners[--listener_count]);
    ending = true;
    for (int i = 1; i < worker_count; i++) event_loop_wake(workers[i].loop);
    end_pairs(&workers[0]);
    for (int i = 1; i < worker_count; i++) pthread_join(threads[i], NULL);
    print_status();
    event_timer_cancel(workers[0].loop, &status);
    signal(SIGUSR1, SIG_IGN); /* on_signal() needs a loop */
    signal(SIGTERM, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    for (int i = worker_count - 1; i >= 0; i--) event_loop_free(workers[i].loop);
    return 0;
}
