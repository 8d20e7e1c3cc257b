/* blob_set.c: BLOB.SET, BLOB.RDMA_SET, BLOB.TCP_SET. See blob.h.
 *
 * Transfers for one key end in any order. They are kept in the order in which they began: one that ends marks those
 * that began earlier, for the same key, as overtaken. Such a SET replies OK and changes nothing, as if it had been
 * executed just before the one that overtook it. SETs with NX, XX or KEEPTTL depend on the key's state and neither
 * overtake nor are overtaken.
 *
 * The transfers of further SETs in a pipeline begin ahead of their execution (ahead.h). */
#include "blob/again.h"
#include "blob/ahead.h"
#include "blob/arguments.h"
#include "blob/blob.h"
#include "blob/transfer.h"
#include "commands/expire_time.h"
#include "commands/lookup.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "server/clients/blocking.h"
#include "server/clients/user.h"
#include "server/command/dispatch.h"
#include "server/config/settings.h"
#include "server/notify.h"
#include <errno.h>

enum set_condition { SET_NX = 1, SET_XX = 2 };
struct set_request {
    uint64_t length;
    int count; /* of ranges */
    unsigned conditions;
    struct expire_option expire;
    int64_t at; /* -1: no expiry */
};

/* A SET whose transfer is in progress, or has ended and waits to be executed. */
struct set_wait {
    struct again again;
    struct ahead_item ahead; /* of a SET whose transfer began ahead; it has no `again` */
    struct list_link link;
    struct transfer *transfer; /* NULL: it has ended */
    struct blob *blob;
    int error;
    bool begun, transferred, overtaken;
    struct db *db;
    size_t key_len;
    char key[];
};
static struct list sets = LIST_INIT(sets); /* the oldest first */

/* --- The SET --- */

static bool is_unconditional(const struct set_request *request) {
    return !request->conditions && request->expire.kind != EXPIRE_KEEPTTL;
}

static void store(struct call *call, struct slice value, struct blob *blob, const struct set_request *request) {
    struct slice key = call->argv[1];
    char text[NUMBER_TEXT_MAX];
    bool keeps = request->expire.kind == EXPIRE_KEEPTTL, existed;
    if (request->at != -1) {
        struct slice time = {text, format_int64(text, request->at)};
        call_propagate_blob(call, 5, (struct slice[]){SLICE("SET"), key, value, SLICE("PXAT"), time}, 2, blob);
    } else {
        call_propagate_blob(call, keeps ? 4 : 3, (struct slice[]){SLICE("SET"), key, value, SLICE("KEEPTTL")}, 2, blob);
    }
    db_put_string(call->db, key, value, blob, request->at, put_flags(call) | (keeps ? PUT_KEEP_TTL : 0), &existed);
    if (!existed) notify(call->db, NOTIFY_NEW, "new", key);
    notify(call->db, NOTIFY_STRING, "set", key);
    if (request->at != -1) notify(call->db, NOTIFY_GENERIC, "expire", key);
    call->dirty++;
}

/* Whether the conditions hold; replied if not. */
static bool conditions_hold(struct call *call, const struct set_request *request, const struct entry *entry) {
    if (!type_ok(call, entry, TYPE_STRING)) return false;
    bool refused = (request->conditions & SET_NX && entry) || (request->conditions & SET_XX && !entry);
    if (refused) reply_null(call->reply);
    return !refused;
}

/* Takes over the blob. */
static void execute(struct call *call, struct blob *blob, const struct set_request *request) {
    const struct entry *entry = find_replace(call, call->argv[1]);
    if (!conditions_hold(call, request, entry)) {
        blob_release(blob);
        return;
    }
    reply_ok(call->reply);
    if (request->at != -1 && expire_time_is_past(call, request->at)) {
        if (entry) expire_now(call, call->argv[1]);
        blob_release(blob);
        return;
    }
    store(call, blob_slice(blob), blob, request);
}

static void set_value(struct call *call) {
    struct slice value = call->argv[2];
    struct set_request request = {.at = -1};
    if (!type_ok(call, find_replace(call, call->argv[1]), TYPE_STRING)) return;
    if (value.len == 0) {
        reply_error(call->reply, "ERR object length must be > 0");
    } else if (value.len > (uint64_t)blob_max_object_size) {
        reply_error(call->reply, "ERR max object size exceeded");
    } else {
        struct blob *blob = argument_blob(call, 2);
        execute(call, blob ? blob : blob_copy(value), &request);
    }
}

/* --- The request --- */

static bool is_option(struct slice word) {
    static const char *const names[] = {"nx", "xx", "ex", "px", "exat", "pxat", "keepttl"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (slice_is(word, names[i])) return true;
    return false;
}

static bool read_options(struct call *call, int first, struct set_request *request) {
    for (int i = first; i < call->argc; i++) {
        struct slice word = call->argv[i];
        if (slice_is(word, "nx") && !(request->conditions & SET_XX)) {
            request->conditions |= SET_NX;
        } else if (slice_is(word, "xx") && !(request->conditions & SET_NX)) {
            request->conditions |= SET_XX;
        } else if (!expire_option_read(call, &i, &request->expire, EXPIRE_TIMES | EXPIRE_KEEPTTL)) {
            reply_syntax_error(call->reply);
            return false;
        }
    }
    return expire_option_time(call, &request->expire, &request->at);
}

static bool length_ok(struct call *call, uint64_t length) {
    const char *error = NULL;
    if (length == 0) error = "ERR object length must be > 0";
    if (length > (uint64_t)blob_max_object_size) error = "ERR max object size exceeded";
    if (error) reply_error(call->reply, error);
    return !error;
}

/* False: replied with an error. The order of the checks is that of each generation. `ahead`: without effects, and
 * without the check of the key's type. */
static bool read_request(struct call *call, const struct blob_texts *texts, bool ahead, struct set_request *request,
                         struct placement_range ranges[static BLOB_RANGES_MAX]) {
    uint64_t sum;
    int end = 3;
    while (end < call->argc && !is_option(call->argv[end])) end++;
    /* The lookup may remove an expired key, which only an executed command may do. */
    if (texts->newer && !ahead && !type_ok(call, find_replace(call, call->argv[1]), TYPE_STRING)) return false;
    if (!blob_parse_u64(call->argv[2], &request->length)) {
        reply_error(call->reply, "ERR invalid len");
        return false;
    }
    if (texts->newer && !length_ok(call, request->length)) return false;
    request->count = blob_read_ranges(call, texts, 3, end, ranges, &sum);
    return request->count > 0 && blob_ranges_suffice(call, texts, sum, request->length) &&
           read_options(call, end, request) && blob_may_transfer(call) && length_ok(call, request->length);
}

/* --- The transfer --- */

static void set_over(void *state) {
    struct set_wait *wait = state;
    if (wait->transfer) transfer_forget(wait->transfer);
    again_cancel(&wait->again);
    list_remove(&sets, &wait->link);
    if (wait->blob) blob_release(wait->blob);
    mem_free(wait);
}

static void set_transferred(void *context, int error) {
    struct set_wait *wait = context;
    must(wait->begun && !wait->transferred);
    wait->transfer = NULL;
    wait->transferred = true;
    wait->error = error;
    again_soon(&wait->again);
}

static struct set_wait *set_wait_new(const struct call *call, struct blob *blob) {
    struct slice key = call->argv[1];
    struct set_wait *wait = mem_alloc(sizeof *wait + key.len);
    *wait = (struct set_wait){.blob = blob, .db = call->db, .key_len = key.len};
    if (key.len) memcpy(wait->key, key.data, key.len);
    again_init(&wait->again, call);
    list_append(&sets, &wait->link);
    return wait;
}

static void set_wait_on(struct call *call, struct set_wait *wait) {
    call_block(call, &(struct blocking){.changes_later = true, .until_done = true, .state = wait, .ended = set_over});
}

static void set_transfer(struct call *call, const struct set_request *request, const struct placement_range *ranges,
                         struct set_wait *wait) {
    wait->begun = true;
    set_wait_on(call, wait);
    struct transfer *transfer =
        transfer_begin(call, blob_hold(wait->blob), ranges, request->count, set_transferred, wait);
    if (!wait->transferred) wait->transfer = transfer; /* else it is over, and freed */
    transfer_flush(call->client);
    ahead_look_soon(call->client);
}

/* Takes the memory for the value, which counts as used from now on. If that exceeds maxmemory, the command is called
 * again before the transfer: then keys are evicted, which is not possible within a call, or it is refused. */
static void set_begin(struct call *call, const struct set_request *request, const struct placement_range *ranges) {
    struct blob *blob = blob_try_new_large((size_t)request->length);
    if (!blob) {
        reply_error(call->reply, "OOM no registered memory for the value: raise rdma-max-registered-memory (and the "
                                 "limit of locked memory), or use SET");
        return;
    }
    struct set_wait *wait = set_wait_new(call, blob);
    if (server_settings.maxmemory && mem_used() > (size_t)server_settings.maxmemory) {
        set_wait_on(call, wait);
        again_soon(&wait->again);
    } else {
        set_transfer(call, request, ranges, wait);
    }
}

/* The SET is executed, before those that began earlier. One whose transfer began ahead was not called yet: its turn
 * comes later. */
static void overtake(const struct set_wait *by) {
    struct slice key = {by->key, by->key_len};
    list_each(&sets, link) {
        struct set_wait *wait = container_of(link, struct set_wait, link);
        if (wait == by) return;
        if (!wait->ahead.over && wait->db == by->db && slice_equal((struct slice){wait->key, wait->key_len}, key))
            wait->overtaken = true;
    }
}

static void set_end(struct call *call, const struct blob_texts *texts, const struct set_request *request,
                    struct set_wait *wait) {
    if (wait->error == -ENOBUFS) {
        reply_error_format(call->reply, "%s: no registered memory for the value, raise rdma-max-registered-memory",
                           texts->read_failed);
    } else if (wait->error == -EOPNOTSUPP) {
        reply_error_format(call->reply, "%s: the client allows no READs (responder_resources of rdma_connect)",
                           texts->read_failed);
    } else if (wait->error) {
        reply_error(call->reply, texts->read_failed);
    } else if (wait->overtaken && is_unconditional(request)) {
        transfer_set_overtaken();
        reply_ok(call->reply);
    } else {
        if (is_unconditional(request)) overtake(wait);
        struct blob *blob = wait->blob;
        wait->blob = NULL;
        must(blob && blob->len == request->length);
        execute(call, blob, request);
    }
}

/* --- Ahead --- */

static void ahead_transferred(void *context, int error) {
    struct set_wait *wait = context;
    must(wait->begun && !wait->transferred);
    wait->transfer = NULL;
    wait->transferred = true;
    wait->error = error;
    ahead_ended(&wait->ahead);
}

static void ahead_over(struct ahead_item *item) {
    set_over(container_of(item, struct set_wait, ahead));
}

/* Whether the state of the server would refuse the command. */
static bool is_refused(struct client *client, const struct call *call) {
    enum {
        BY_STATE = FILTER_BIT(FILTER_CLUSTER) | FILTER_BIT(FILTER_DISK) | FILTER_BIT(FILTER_REPLICAS) |
                   FILTER_BIT(FILTER_READONLY) | FILTER_BIT(FILTER_STALE)
    };
    int16_t slot = client->slot;
    client->slot = -1;
    bool refused = !user_may(client, call->command, call->argc, call->argv) ||
                   dispatch_ask(client, call->command, call->command->spec->flags, call->argc, call->argv, BY_STATE);
    client->slot = slot;
    return refused;
}

static const struct blob_texts *texts_of(const struct command *command) {
    return command->spec->run == blob_set_run        ? &blob_texts_older
           : command->spec->run == blob_rdma_set_run ? &blob_texts_newer
                                                     : NULL;
}

bool ahead_is_set(const struct command *command) {
    return texts_of(command) != NULL;
}

struct ahead_item *ahead_begin(struct client *client, int argc, const struct slice *argv, uint64_t limit) {
    static struct null_output nowhere;
    struct placement_range ranges[BLOB_RANGES_MAX];
    struct set_request request = {.at = -1};
    struct command *parent, *command = command_lookup(argc, argv, &parent);
    const struct blob_texts *texts = command ? texts_of(command) : NULL;
    if (!texts || argc < 6) return NULL;
    if (!nowhere.out.ops) null_output_init(&nowhere);
    struct reply unseen = {.out = &nowhere.out, .protocol = 2};
    struct call call = {.command = command,
                        .argc = argc,
                        .argv = argv,
                        .reply = &unseen,
                        .client = client,
                        .db = client->db,
                        .slot = -1};
    if (is_refused(client, &call) || !read_request(&call, texts, true, &request, ranges)) return NULL;
    if (request.length > limit) return NULL;
    const struct entry *entry = db_find(client->db, argv[1], LOOKUP_NOTOUCH | LOOKUP_NOSTATS | LOOKUP_NOEXPIRE);
    if (!conditions_hold(&call, &request, entry) || !transfer_may_begin_ahead(client, request.length)) return NULL;
    if (server_settings.maxmemory && mem_used() + request.length > (size_t)server_settings.maxmemory) return NULL;
    struct blob *blob = blob_try_new_large((size_t)request.length);
    if (!blob) return NULL;
    struct set_wait *wait = set_wait_new(&call, blob);
    wait->begun = true;
    wait->ahead = (struct ahead_item){.bytes = request.length, .over = ahead_over};
    struct transfer *transfer = transfer_begin(&call, blob_hold(blob), ranges, request.count, ahead_transferred, wait);
    if (!wait->transferred) wait->transfer = transfer;
    transfer_set_ahead();
    return &wait->ahead;
}

static struct set_wait *begun_ahead(const struct call *call, const struct set_request *request) {
    struct ahead_item *item = ahead_of(call);
    if (!item) return NULL;
    struct set_wait *wait = container_of(item, struct set_wait, ahead);
    must(wait->transferred);
    bool same = wait->db == call->db && slice_equal((struct slice){wait->key, wait->key_len}, call->argv[1]) &&
                wait->blob->len == request->length;
    return same ? wait : NULL;
}

/* --- The command --- */

static void set_placed(struct call *call, const struct blob_texts *texts) {
    struct placement_range ranges[BLOB_RANGES_MAX];
    struct set_request request = {.at = -1};
    struct set_wait *wait = call_wait(call, set_over);
    if (!read_request(call, texts, false, &request, ranges)) return;
    if (!wait) wait = begun_ahead(call, &request);
    if (wait && !wait->begun) {
        set_transfer(call, &request, ranges, wait);
    } else if (wait && !wait->transferred) { /* called again for another reason */
        set_wait_on(call, wait);
    } else if (wait) {
        set_end(call, texts, &request, wait);
    } else if (conditions_hold(call, &request, find_replace(call, call->argv[1])) &&
               transfer_admit(call, request.length)) {
        set_begin(call, &request, ranges);
    }
}

void blob_set_run(struct call *call) {
    if (call->argc == 3)
        set_value(call);
    else if (call->argc < 6)
        reply_blob_arity(call);
    else
        set_placed(call, &blob_texts_older);
}

void blob_rdma_set_run(struct call *call) {
    if (call->argc < 6)
        reply_blob_arity(call);
    else
        set_placed(call, &blob_texts_newer);
}

void blob_tcp_set_run(struct call *call) {
    if (call->argc != 3)
        reply_blob_arity(call);
    else
        set_value(call);
}
