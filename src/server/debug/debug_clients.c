/* debug_clients.c: the subcommands of DEBUG about clients. */
#include "server/debug/debug.h"
#include "lib/text/number.h"
#ifdef USE_TLS
#include "net/tls.h"
#endif
#include "server/clients/client.h"
#include <stdatomic.h>
#include <stdio.h>

/* CLIENT-EVICTION: how many clients use how much memory of maxmemory-clients, by powers of two. */

enum { BUCKET_FIRST_BITS = 15, BUCKETS = 19 };

static int bucket_of(size_t bytes) {
    int bucket = 0;
    while (bucket < BUCKETS - 1 && bytes >> (BUCKET_FIRST_BITS + bucket)) bucket++;
    return bucket;
}

static void run_client_eviction(struct call *call) {
    if (!clients_memory_is_limited()) {
        reply_error(call->reply, "ERR maxmemory-clients is disabled.");
        return;
    }
    size_t bytes[BUCKETS] = {0}, counts[BUCKETS] = {0};
    list_each_entry(clients_all(), struct client, link, client) {
        size_t used = client_limited_memory(client);
        if (!used) continue; /* cannot be evicted */
        bytes[bucket_of(used)] += used;
        counts[bucket_of(used)]++;
    }
    char text[BUCKETS * 96];
    size_t len = 0;
    for (int i = 0; i < BUCKETS; i++) {
        unsigned long long from = i ? 1ULL << (BUCKET_FIRST_BITS + i - 1) : 0, to = 1ULL << (BUCKET_FIRST_BITS + i);
        char range[48];
        snprintf(range, sizeof range, i < BUCKETS - 1 ? "%10llu - %10llu" : "%10llu+            ", from, to - 1);
        len += (size_t)snprintf(text + len, sizeof text - len, "bucket %s: tot-mem: %10zu, clients: %zu\n", range,
                                bytes[i], counts[i]);
    }
    reply_verbatim(call->reply, "txt", (struct slice){text, len});
}

static void run_protect_client(struct call *call) {
    int64_t id;
    struct client *client = NULL;
    if (!parse_int64(call->argv[2], &id) || id < 0)
        reply_error(call->reply, "ERR Invalid client id");
    else if (!(client = client_by_id((uint64_t)id)))
        reply_error(call->reply, "ERR No such client");
    else {
        client_protect(client);
        reply_ok(call->reply);
    }
}

static void run_replybuffer(struct call *call) {
    if (slice_is(call->argv[2], "resizing")) {
        int64_t on;
        client_reply_sizes_adapt = parse_int64(call->argv[3], &on) && on;
    } else if (!slice_is(call->argv[2], "peak-reset-time")) {
        debug_reply_unknown(call);
        return;
    } else if (slice_is(call->argv[3], "never")) {
        client_reply_peak_reset_ms = -1;
    } else if (slice_is(call->argv[3], "reset")) {
        client_reply_peak_reset_ms = REPLY_PEAK_MS;
    } else if (!argument_integer(call, 3, &client_reply_peak_reset_ms))
        return;
    reply_ok(call->reply);
}

/* In Valkey, the first bytes of output are in a buffer that does not count against limits; this switches it off. */
static void run_enforce_reply_list(struct call *call) {
    client_replies_are_lists = !slice_equal(call->argv[2], SLICE("0"));
    reply_ok(call->reply);
}

/* After it is switched off the connections resume: the event loop reports their sockets as writable. */
static void run_force_tls_write_error(struct call *call) {
    int64_t on;
    if (!parse_int64(call->argv[2], &on)) {
        reply_error(call->reply, "ERR value is not an integer or out of range");
        return;
    }
    if (on != 0 && on != 1) {
        reply_error(call->reply, "ERR Value must be 0 or 1");
        return;
    }
#ifdef USE_TLS
    atomic_store_explicit(&tls_writes_blocked, on, memory_order_relaxed);
#endif
    reply_ok(call->reply);
}

const struct debug_subcommand debug_client_subcommands[] = {
    {"client-enforce-reply-list", 1, 1, run_enforce_reply_list,
     WORDS("CLIENT-ENFORCE-REPLY-LIST <0|1>",
           "    When set to 1, it enforces the use of the client reply list directly",
           "    and avoids using the client's static buffer.")},
    {"client-eviction", 0, 0, run_client_eviction,
     WORDS("CLIENT-EVICTION", "    Show low level client eviction pools info (maxmemory-clients).")},
    {"force-tls-write-error", 1, 1, run_force_tls_write_error,
     WORDS("FORCE-TLS-WRITE-ERROR <0|1>", "    Force TLS write error for testing.")},
    {"replybuffer", 2, 2, run_replybuffer,
     WORDS("REPLYBUFFER PEAK-RESET-TIME <NEVER||RESET|time>",
           "    Sets the time (in milliseconds) to wait between client reply buffer peak resets.",
           "    In case NEVER is provided the last observed peak will never be reset",
           "    In case RESET is provided the peak reset time will be restored to the default value",
           "REPLYBUFFER RESIZING <0|1>", "    Enable or disable the reply buffer resize cron job")},
    {"protect-client", 1, 1, run_protect_client,
     WORDS("PROTECT-CLIENT <id>", "    Protect a client from being freed, forcing deferred close.")},
    {NULL, 0, 0, NULL, NULL}};
