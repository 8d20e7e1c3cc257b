/* restore_large.c: see restore_large.h. */
#include "commands/restore_large.h"
#include "formats/rdb.h"
#include "lib/hash/crc64.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/text/blob.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/server.h"

enum { PAYLOAD = 3, SUM_STEP = 256 * 1024, LOAD_STEP = 16 * 1024, TURN_US = 1000, RETRY_US = 10 * 1000 };

struct large_load {
    struct client *client;
    struct keyspace *keyspace;
    struct blob *payload;
    struct slice key, value; /* value: in the payload, without version and checksum */
    size_t summed;           /* bytes of the payload in `crc` */
    uint64_t crc;
    struct rdb_steps *steps; /* NULL: the checksum is not known to be right */
    bool over;
    int64_t began_ms;
    struct event_timer timer;
    char key_bytes[];
};

struct db *large_load_db(const struct large_load *load) {
    return keyspace_db(load->keyspace, 0);
}
int64_t large_load_began_ms(const struct large_load *load) {
    return load->began_ms;
}

static void wait_ended(void *state) {
    struct large_load *load = state;
    event_timer_cancel(server.loop, &load->timer);
    if (load->steps) rdb_steps_free(load->steps);
    keyspace_free(load->keyspace); /* empty */
    blob_release(load->payload);
    mem_free(load);
}

/* --- Loading --- */

static void sum(struct large_load *load) {
    struct slice payload = blob_slice(load->payload);
    size_t left = payload.len - DUMP_CHECKSUM - load->summed, len = left < SUM_STEP ? left : SUM_STEP;
    load->crc = crc64(load->crc, payload.data + load->summed, len);
    load->summed += len;
    if (len < left) return;
    if (dump_checksum_is(payload, load->crc))
        load->steps = rdb_steps_new(load->value, large_load_db(load), load->key);
    else
        load->over = true;
}

static uint64_t load_some(struct event_timer *timer) {
    struct large_load *load = container_of(timer, struct large_load, timer);
    if (dispatch_running() || server_is_loading()) return RETRY_US;
    for (uint64_t end = clock_monotonic_us() + TURN_US; !load->over && clock_monotonic_us() < end;) {
        if (load->steps)
            load->over = rdb_steps_run(load->steps, LOAD_STEP);
        else
            sum(load);
    }
    if (!load->over) return 1;
    if (clients_paused() != PAUSE_NONE) return RETRY_US;
    blocking_call_again(load->client); /* frees the load */
    return 0;
}

struct entry *large_load_entry(struct large_load *load, const struct source **failure) {
    *failure = NULL;
    return load->steps ? rdb_steps_end(load->steps, failure) : NULL;
}

/* --- The call --- */

bool large_load_possible(const struct call *call) {
    const struct client *client = call->client;
    struct slice value;
    /* A call after ASKING would be redirected when it comes again. */
    bool asking = client->flags & CLIENT_ASKING && !(call->command->spec->flags & CMD_ASKING);
    return call->argv[PAYLOAD].len > RESTORE_LARGE_MIN && client->conn && !asking &&
           !(client->flags & CLIENT_DENY_BLOCKING) && !client_must_be_obeyed(client) &&
           dump_value(call->argv[PAYLOAD], &value);
}

static void wait(struct call *call, struct large_load *load, const struct slice *argv) {
    call_propagate_nothing(call);
    call_block(call, &(struct blocking){
                         .call_at_end = true, .changes_later = true, .argv = argv, .state = load, .ended = wait_ended});
}

void large_load_begin(struct call *call) {
    struct slice name = call->argv[1];
    struct blob *payload = call_take_blob(call, PAYLOAD);
    static const struct store_hooks nobody;
    struct large_load *load = mem_calloc(1, sizeof *load + name.len);
    load->client = call->client;
    load->keyspace = keyspace_new(1, &nobody);
    load->payload = payload ? payload : blob_copy(call->argv[PAYLOAD]);
    load->key = (struct slice){load->key_bytes, name.len};
    if (name.len) memcpy(load->key_bytes, name.data, name.len);
    load->began_ms = clock_data_ms();
    dump_value(blob_slice(load->payload), &load->value);
    event_timer_set(server.loop, &load->timer, 0, load_some);
    /* What waits is the call without the payload. */
    struct slice *argv = mem_alloc((size_t)call->argc * sizeof *argv);
    memcpy(argv, call->argv, (size_t)call->argc * sizeof *argv);
    argv[PAYLOAD] = SLICE("");
    wait(call, load, argv);
    mem_free(argv);
}

struct large_load *large_load_of(const struct call *call) {
    return call_wait(call, wait_ended);
}

bool large_load_waits(struct large_load *load, struct call *call) {
    if (call->client->flags & CLIENT_DENY_BLOCKING) {
        call_propagate_nothing(call);
        reply_error(call->reply, "UNBLOCKED client unblocked via CLIENT UNBLOCK");
        return true;
    }
    if (!load->over) wait(call, load, call->argv);
    return !load->over;
}

void large_load_propagate(const struct large_load *load, struct call *call, int argc, struct slice *argv) {
    call_propagate_nothing(call);
    if (!propagate_wanted()) return;
    struct blob **blobs = mem_calloc((size_t)argc, sizeof *blobs);
    blobs[PAYLOAD] = load->payload;
    argv[PAYLOAD] = blob_slice(load->payload);
    propagate(db_id(call->db), argc, argv, blobs);
    mem_free(blobs);
}
