/* transfer.c: see transfer.h.
 *
 * An account counts the transfers of a client. It lives as long as the client or one of its transfers. Its numbers, and
 * the totals, are atomic: with I/O threads a transfer ends on another thread. That thread wakes the main thread only if
 * a client waits for one of the limits, or for the end of this transfer. */
#include "blob/transfer.h"
#include "blob/again.h"
#include "blob/blob.h"
#include "blob/checksum.h"
#include "lib/structures/linked_list.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/thread.h"
#include "net/remote.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/reply_barrier.h"
#include "server/stats/latency_monitor.h"
#include <stdatomic.h>
#include <string.h>

static int max_client_transfers, max_transfers, timeout_ms;
static int64_t max_memory;
int64_t blob_max_object_size;

struct account {
    struct list_link link; /* of those whose client exists */
    struct client *client; /* NULL: it is gone */
    _Atomic uint32_t references, transfers;
    _Atomic uint64_t bytes, ended;
    uint64_t seen_ended, seen_us; /* `ended` changed last, or the client had no transfer, at seen_us */
};

struct transfer {
    struct placement placement; /* must be first */
    struct event_post post;
    struct account *account;
    uint64_t bytes, began_us;
    int error;
    transfer_ended *ended; /* NULL: of a GET */
    void *context;         /* main thread; NULL: it is gone */
    struct placement_range ranges[];
};

static struct list accounts = LIST_INIT(accounts);
static _Atomic uint32_t all_transfers;
static _Atomic uint64_t all_bytes, gets, get_bytes, sets, set_bytes, failed;
static uint64_t overtaken, ahead, timeouts, waits;

/* Clients that wait for a limit, in the order in which they began to. */
struct limit_wait {
    struct again again;
    struct list_link link;
    uint64_t bytes;
};
static struct list waiting = LIST_INIT(waiting);
static atomic_bool wanted; /* the next transfer that ends wakes the first of them */
static atomic_bool wake_is_posted;

/* --- Accounts --- */

static void account_release(struct account *account) {
    if (atomic_fetch_sub(&account->references, 1) == 1) mem_free(account);
}

static struct client_listener client_listener;
static void client_gone(struct client *client) {
    struct account *account = client_state(client, &client_listener);
    if (!account) return;
    client_set_state(client, &client_listener, NULL);
    list_remove(&accounts, &account->link);
    account->client = NULL;
    account_release(account);
}
static void client_reported(const struct client *client, struct client_report *report) {
    const struct account *account = client_state(client, &client_listener);
    report->transfers += account->transfers;
    report->pinned += account->bytes;
}
static struct client_listener client_listener = {.freed = client_gone, .report = client_reported};

static struct account *account_of(struct client *client) {
    struct account *account = client_state(client, &client_listener);
    if (account) {
        must(account->client == client);
        return account;
    }
    account = mem_calloc(1, sizeof *account);
    account->client = client;
    account->references = 1;
    list_append(&accounts, &account->link);
    client_set_state(client, &client_listener, account);
    return account;
}

/* --- Limits --- */

static bool client_has_space(const struct client *client) {
    const struct account *account = client_state(client, &client_listener);
    return !account || account->transfers < (uint32_t)max_client_transfers;
}

static bool has_space(const struct client *client, uint64_t bytes) {
    if (!client_has_space(client) || all_transfers >= (uint32_t)max_transfers) return false;
    return !all_bytes || all_bytes + bytes <= (uint64_t)max_memory; /* one transfer of any size is always possible */
}

/* Whether a client that began to wait before `wait` (NULL: any) waits for the totals. It comes first: otherwise small
 * transfers of others could use up what ends, and a large one would wait for ever. */
static bool others_come_first(const struct limit_wait *wait) {
    for (const struct list_link *link = waiting.head.next; link != &waiting.head; link = link->next) {
        const struct limit_wait *other = container_of(link, struct limit_wait, link);
        if (other == wait) return false;
        if (client_has_space(other->again.client) && !again_is_paused(&other->again)) return true;
    }
    return false;
}

static bool may_begin(const struct client *client, uint64_t bytes, const struct limit_wait *wait) {
    return has_space(client, bytes) && !others_come_first(wait);
}

static uint64_t wake_fire(struct event_timer *timer) {
    if (waiting.len) atomic_store(&wanted, true); /* first: a transfer that ends from now on wakes again */
    list_each(&waiting, link) {
        struct limit_wait *wait = container_of(link, struct limit_wait, link);
        if (!client_has_space(wait->again.client)) continue;
        if (has_space(wait->again.client, wait->bytes)) again_soon(&wait->again);
        if (!again_is_paused(&wait->again)) break; /* when it has gone, the next one is woken */
    }
    return 0;
}
static struct event_timer wake_timer;
static void wake(void) {
    event_timer_set(server.loop, &wake_timer, 0, wake_fire);
}
static void wake_posted(struct event_post *post) {
    atomic_store(&wake_is_posted, false);
    wake();
}
static struct event_post wake_post = {.run = wake_posted};

static void limit_wait_over(void *state) {
    struct limit_wait *wait = state;
    again_cancel(&wait->again);
    list_remove(&waiting, &wait->link);
    mem_free(wait);
    if (waiting.len) wake(); /* the next one may have waited for this one */
}

bool transfer_may_begin_ahead(const struct client *client, uint64_t bytes) {
    return all_bytes + bytes <= (uint64_t)max_memory / 2 && may_begin(client, bytes, NULL);
}

bool transfer_admit(struct call *call, uint64_t bytes) {
    const struct limit_wait *before = call_wait(call, limit_wait_over);
    if (may_begin(call->client, bytes, before)) return true;
    struct limit_wait *wait = (struct limit_wait *)(uintptr_t)before;
    if (!wait) {
        wait = mem_alloc(sizeof *wait);
        *wait = (struct limit_wait){.bytes = bytes};
        again_init(&wait->again, call);
        list_append(&waiting, &wait->link);
        waits++;
    }
    wait->bytes = bytes;
    atomic_store(&wanted, true);
    if (has_space(call->client, bytes)) wake();                /* one has ended meanwhile */
    call_block(call, &(struct blocking){.changes_later = true, /* all is still to be done */
                                        .until_done = true,
                                        .state = wait,
                                        .ended = limit_wait_over});
    return false;
}

/* --- Transfers --- */

static const char *const events[] = {"blob-get", "blob-set"};
static _Atomic uint64_t worst_us[2]; /* of transfers that ended on other threads, for cron() */

static void note_latency(bool is_set, uint64_t us) {
    if (thread_is_main()) {
        latency_event(events[is_set], us);
        return;
    }
    uint64_t worst = worst_us[is_set];
    while (us > worst && !atomic_compare_exchange_weak(&worst_us[is_set], &worst, us)) continue;
}

static void count(const struct transfer *transfer, int error) {
    struct account *account = transfer->account;
    bool is_set = transfer->placement.from_peer;
    if (!error) note_latency(is_set, clock_monotonic_us() - transfer->began_us);
    if (error) {
        atomic_fetch_add(&failed, 1);
    } else {
        atomic_fetch_add(is_set ? &sets : &gets, 1);
        atomic_fetch_add(is_set ? &set_bytes : &get_bytes, transfer->bytes);
    }
    atomic_fetch_add(&account->ended, 1);
    uint32_t transfers = atomic_fetch_sub(&account->transfers, 1), total = atomic_fetch_sub(&all_transfers, 1);
    uint64_t bytes = atomic_fetch_sub(&account->bytes, transfer->bytes);
    uint64_t total_bytes = atomic_fetch_sub(&all_bytes, transfer->bytes);
    /* Other threads change them meanwhile, so the numbers of the client and the totals are of different moments. */
    must_hold(transfers && total, "%u transfers of %u", transfers, total);
    must_within(transfer->bytes, bytes);
    must_within(transfer->bytes, total_bytes);
    if (!atomic_load(&wanted) || !atomic_exchange(&wanted, false)) return;
    if (thread_is_main())
        wake();
    else if (!atomic_exchange(&wake_is_posted, true))
        event_loop_post(server.loop, &wake_post);
}

static void transfer_free(struct transfer *transfer) {
    blob_release(transfer->placement.blob);
    account_release(transfer->account);
    mem_free(transfer);
}

static void transfer_report(struct transfer *transfer) {
    if (transfer->context) transfer->ended(transfer->context, transfer->error);
    transfer_free(transfer);
}
static void transfer_reported(struct event_post *post) {
    transfer_report(container_of(post, struct transfer, post));
}
static void transfer_dropped(struct event_post *post) {
    transfer_free(container_of(post, struct transfer, post));
}

static void placement_ended(struct placement *placement, int error) {
    struct transfer *transfer = container_of(placement, struct transfer, placement);
    transfer->error = error;
    count(transfer, error);
    if (!transfer->ended) {
        transfer_free(transfer);
    } else if (thread_is_main()) {
        transfer_report(transfer);
    } else {
        transfer->post = (struct event_post){.run = transfer_reported, .drop = transfer_dropped};
        event_loop_post(server.loop, &transfer->post);
    }
}

struct transfer *transfer_begin(struct call *call, struct blob *blob, const struct placement_range *ranges, int count,
                                transfer_ended *ended, void *context) {
    must(thread_is_main() && count > 0 && blob->len > 0);
    struct account *account = account_of(call->client);
    struct transfer *transfer = mem_alloc(sizeof *transfer + (size_t)count * sizeof *ranges);
    *transfer = (struct transfer){
        .account = account,
        .bytes = blob->len,
        .began_us = clock_monotonic_us(),
        .ended = ended,
        .context = context,
        .placement = {.blob = blob, .from_peer = ended != NULL, .count = (uint32_t)count, .ended = placement_ended}};
    memcpy(transfer->ranges, ranges, (size_t)count * sizeof *ranges);
    transfer->placement.ranges = transfer->ranges;
    if (!account->transfers) account->seen_us = clock_mono();
    atomic_fetch_add(&account->references, 1);
    atomic_fetch_add(&account->transfers, 1);
    atomic_fetch_add(&account->bytes, transfer->bytes);
    atomic_fetch_add(&all_transfers, 1);
    atomic_fetch_add(&all_bytes, transfer->bytes);
    /* What a READ brings shows nothing to the client: no held reply delays it. */
    output_place(ended ? &call->client->conn->out : call->reply->out, &transfer->placement);
    return transfer;
}

void transfer_flush(struct client *client) {
    if (conn_is_remote(client->conn))
        client_flush_later(client); /* a flush returns the message that the arguments are in */
    else
        conn_flush(client->conn);
}

void transfer_forget(struct transfer *transfer) {
    must(thread_is_main() && transfer->ended && transfer->context);
    transfer->context = NULL;
}

void transfer_set_overtaken(void) {
    overtaken++;
}
void transfer_set_ahead(void) {
    ahead++;
}

/* --- Clients whose transfers do not end --- */

static void close_late(struct account *account, uint64_t now_us) {
    static struct log_limit limit = {.interval_us = 1000000, .lines = 20};
    struct client *client = account->client;
    log_limited(&limit, LOG_LEVEL_WARNING,
                "Client closed: none of its %u transfers has ended for %llu ms (%llu bytes): %s", account->transfers,
                (unsigned long long)(now_us - account->seen_us) / 1000, (unsigned long long)account->bytes,
                client_log_text(client));
    timeouts++;
    client->conn->drops_output = true;
    client_free(client);
}

static void transfer_cron(void) {
    uint64_t now_us = clock_mono();
    for (int i = 0; i < 2; i++) {
        uint64_t us = worst_us[i] ? atomic_exchange(&worst_us[i], 0) : 0;
        if (us) latency_event(events[i], us);
    }
    if (waiting.len) wake(); /* the one that was to continue, and wake the next, may have been paused meanwhile */
    list_each(&accounts, link) {
        struct account *account = container_of(link, struct account, link);
        uint64_t ended = account->ended;
        bool waits_for_us = reply_barrier_holds_replies(account->client) || !account->client->conn;
        if (ended != account->seen_ended || !account->transfers || waits_for_us) {
            account->seen_ended = ended;
            account->seen_us = now_us;
        } else if (timeout_ms && now_us - account->seen_us > (uint64_t)timeout_ms * 1000) {
            close_late(account, now_us);
        }
    }
}

static void transfers_start(void) {
    client_listen(&client_listener);
    event_loop_take_posts(server.loop);
}

const struct server_part transfer_part = {.name = "blob", .start = transfers_start, .cron = transfer_cron};

/* --- Options, INFO --- */

const struct config_option blob_options[] = {
    {OPTION("blob-max-object-size", CONFIG_MEMORY, &blob_max_object_size, "536870912"), .min = 1,
     .max = 512 * 1024 * 1024},
    {OPTION("blob-max-client-transfers", CONFIG_INT, &max_client_transfers, "128"), .min = 1, .max = 65536},
    {OPTION("blob-max-transfers", CONFIG_INT, &max_transfers, "4096"), .min = 1, .max = 1048576},
    {OPTION("blob-max-transfer-memory", CONFIG_MEMORY, &max_memory, "1073741824"), .min = 1, .max = INT64_MAX},
    {OPTION("blob-transfer-timeout", CONFIG_INT, &timeout_ms, "10000"), .min = 0, .max = INT32_MAX},
    {.name = NULL},
};

static void blob_write(struct output *out) {
    uint64_t bytes, checksums = checksums_computed(&bytes);
    info_number(out, "blob_transfers", all_transfers);
    info_number(out, "blob_pinned_bytes", all_bytes);
    info_number(out, "blob_waiting_clients", waiting.len);
    info_number(out, "blob_gets", gets);
    info_number(out, "blob_get_bytes", get_bytes);
    info_number(out, "blob_sets", sets);
    info_number(out, "blob_set_bytes", set_bytes);
    info_number(out, "blob_sets_overtaken", overtaken);
    info_number(out, "blob_sets_ahead", ahead);
    info_number(out, "blob_failed_transfers", failed);
    info_number(out, "blob_timed_out_clients", timeouts);
    info_number(out, "blob_limit_waits", waits);
    info_number(out, "blob_checksums", checksums);
    info_number(out, "blob_checksum_bytes", bytes);
}

const struct info_section blob_sections[] = {
    {.name = "blob", .title = "Blob", .order = 56, .when = INFO_DEFAULT, .write = blob_write},
    {.name = NULL},
};
