/* blob_get.c: BLOB.GET, BLOB.RDMA_GET, BLOB.TCP_GET, BLOB.INFO. See blob.h. */
#include "blob/arguments.h"
#include "blob/blob.h"
#include "blob/checksum.h"
#include "blob/transfer.h"
#include "commands/lookup.h"
#include "lib/system/must.h"
#include "server/clients/client.h"
#include "server/clients/reply_barrier.h"

/* The string of the key. NULL: replied with nil or an error. */
static struct entry *find_string(struct call *call) {
    bool again = call->client->flags & CLIENT_CALLED_AGAIN; /* it was counted before */
    struct entry *entry =
        again ? db_find(call->db, call->argv[1], LOOKUP_NOTOUCH | LOOKUP_NOSTATS) : find_read(call, call->argv[1]);
    if (!entry) {
        reply_null(call->reply);
        return NULL;
    }
    return type_ok(call, entry, TYPE_STRING) ? entry : NULL;
}

static void get_value(struct call *call) {
    const struct entry *entry = find_string(call);
    if (entry) reply_string_value(call, entry);
}

static void reply_receipt(struct call *call, uint64_t length, uint32_t crc) {
    reply_array(call->reply, 2);
    reply_integer(call->reply, (int64_t)length);
    reply_integer(call->reply, crc);
}

/* The value as a blob, with a reference. NULL: replied. */
static struct blob *get_blob(struct call *call) {
    const struct entry *entry = find_string(call);
    if (!entry) return NULL;
    struct blob *blob = entry_blob(entry);
    char text[STRING_NUMBER_TEXT];
    return blob ? blob_hold(blob) : blob_copy(entry_string(entry, text));
}

/* Whether the transfer may begin before the reply is complete. Not if the reply has to wait for more than the checksum,
 * or goes nowhere; and not if the client may get a push about a change of the key, which would come before the reply
 * then. */
static bool may_begin_before_reply(const struct call *call) {
    const struct client *client = call->client;
    return !reply_barrier_armed && call->reply->out == &client->conn->out &&
           !(client->flags & (CLIENT_TRACKING | CLIENT_PUBSUB));
}

static void get_placed(struct call *call, const struct blob_texts *texts) {
    struct placement_range ranges[BLOB_RANGES_MAX];
    uint64_t sum, length;
    uint32_t crc;
    enum checksum_state state = checksum_state(call, &length, &crc);
    if (state != CHECKSUM_NONE) {
        if (state == CHECKSUM_THERE) reply_receipt(call, length, crc);
        return;
    }
    struct blob *blob = get_blob(call);
    if (!blob) return;
    int count = blob_read_ranges(call, texts, 2, call->argc, ranges, &sum);
    if (count < 0 || !blob_ranges_suffice(call, texts, sum, blob->len) || !blob_may_transfer(call)) {
        blob_release(blob);
        return;
    }
    bool before = may_begin_before_reply(call);
    if ((!before && !checksum_find(call, blob, &crc)) || !transfer_admit(call, blob->len)) {
        blob_release(blob);
        return;
    }
    if (before && checksum_begin(call, blob)) {
        transfer_begin(call, blob, ranges, count, NULL, NULL);
        client_flush_later(call->client);
        return;
    }
    bool known = !before || checksum_find(call, blob, &crc);
    must(known); /* or was computed at once */
    length = blob->len;
    if (length)
        transfer_begin(call, blob, ranges, count, NULL, NULL);
    else
        blob_release(blob);
    reply_receipt(call, length, crc);
}

void blob_get_run(struct call *call) {
    if (call->argc == 2)
        get_value(call);
    else if (call->argc < 5)
        reply_blob_arity(call);
    else
        get_placed(call, &blob_texts_older);
}

void blob_rdma_get_run(struct call *call) {
    if (call->argc < 5)
        reply_blob_arity(call);
    else
        get_placed(call, &blob_texts_newer);
}

void blob_tcp_get_run(struct call *call) {
    if (call->argc != 2)
        reply_blob_arity(call);
    else
        get_value(call);
}

/* --- INFO --- */

enum { FIELD_LEN = 1, FIELD_CRC = 2, FIELD_TIER = 4, FIELD_ALL = FIELD_LEN | FIELD_CRC | FIELD_TIER };

static int field_of(struct slice word) {
    return slice_is(word, "len")    ? FIELD_LEN
           : slice_is(word, "crc")  ? FIELD_CRC
           : slice_is(word, "tier") ? FIELD_TIER
                                    : 0;
}

static void reply_information(struct call *call, int fields, size_t length, uint32_t crc) {
    bool named = fields == FIELD_ALL;
    if (named) reply_array(call->reply, 6);
    if (named) reply_status(call->reply, "len");
    if (fields & FIELD_LEN) reply_integer(call->reply, (int64_t)length);
    if (named) reply_status(call->reply, "crc");
    if (fields & FIELD_CRC) reply_integer(call->reply, crc);
    if (named) reply_status(call->reply, "tier");
    if (fields & FIELD_TIER) reply_status(call->reply, "dram");
}

void blob_info_run(struct call *call) {
    uint32_t crc = 0;
    if (call->argc != 2 && call->argc != 3) {
        reply_blob_arity(call);
        return;
    }
    struct blob *blob = get_blob(call);
    if (!blob) return;
    int fields = call->argc == 3 ? field_of(call->argv[2]) : FIELD_ALL;
    if (!fields)
        reply_error(call->reply, "ERR invalid information field");
    else if (!(fields & FIELD_CRC) || checksum_find(call, blob, &crc))
        reply_information(call, fields, blob->len, crc);
    blob_release(blob);
}
