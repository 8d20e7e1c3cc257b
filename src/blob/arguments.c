/* arguments.c: see arguments.h. */
#include "blob/arguments.h"
#include "server/clients/client.h"
#include <ctype.h>
#include <string.h>

const struct blob_texts blob_texts_older = {
    .unavailable = "ERR EFA unavailable on this instance",
    .not_hex = "ERR invalid peer address hex",
    .no_address = "ERR peer address must not be empty",
    .established = "ERR DMA session already established (one BLOB.HELLO per connection)",
    .no_triples = "ERR address args must be rkey, addr, len triples",
    .too_many = "ERR too many addresses (max 256)",
    .bad_address = "ERR invalid remote_addr",
    .bad_length = "ERR invalid addr len",
    .read_failed = "ERR EFA read",
};
const struct blob_texts blob_texts_newer = {
    .unavailable = "ERR RDMA provider unavailable on this instance",
    .not_hex = "ERR invalid rdma address hex",
    .no_address = "ERR rdma address must not be empty",
    .established = "ERR RDMA session already established",
    .no_triples = "ERR memory address args must be rkey, addr, len triples",
    .too_many = "ERR too many memory addresses (max 256)",
    .bad_address = "ERR invalid memory address",
    .bad_length = "ERR invalid memory address len",
    .read_failed = "ERR RDMA read failed",
    .newer = true,
};

void reply_blob_arity(struct call *call) {
    char name[64];
    size_t len = strlen(call->command->full_name);
    if (len >= sizeof name) len = sizeof name - 1;
    for (size_t i = 0; i < len; i++) name[i] = (char)toupper((unsigned char)call->command->full_name[i]);
    name[len] = 0;
    reply_error_format(call->reply, "ERR wrong number of arguments for '%s' command", name);
}

bool blob_parse_u64(struct slice text, uint64_t *value) {
    size_t i = text.len && text.data[0] == '+' ? 1 : 0;
    uint64_t number = 0;
    if (i == text.len) return false;
    for (; i < text.len; i++) {
        unsigned digit = (unsigned char)text.data[i] - '0';
        if (digit > 9 || __builtin_mul_overflow(number, 10, &number) || __builtin_add_overflow(number, digit, &number))
            return false;
    }
    *value = number;
    return true;
}

static const char *read_range(const struct blob_texts *texts, const struct slice *words,
                              struct placement_range *range) {
    uint64_t key;
    /* Keys of verbs have 32 bits. */
    if (!blob_parse_u64(words[0], &key) || key > UINT32_MAX) return "ERR invalid rkey";
    range->rkey = (uint32_t)key;
    if (!blob_parse_u64(words[1], &range->address)) return texts->bad_address;
    if (!blob_parse_u64(words[2], &range->length) || range->length == 0) return texts->bad_length;
    return NULL;
}

int blob_read_ranges(struct call *call, const struct blob_texts *texts, int first, int end,
                     struct placement_range ranges[static BLOB_RANGES_MAX], uint64_t *sum) {
    int words = end - first;
    const char *error = NULL;
    if (words <= 0 || words % 3)
        error = texts->no_triples;
    else if (words / 3 > BLOB_RANGES_MAX)
        error = texts->too_many;
    *sum = 0;
    for (int i = 0; !error && i < words / 3; i++) {
        error = read_range(texts, &call->argv[first + 3 * i], &ranges[i]);
        if (!error && __builtin_add_overflow(*sum, ranges[i].length, sum)) *sum = UINT64_MAX;
    }
    if (!error) return words / 3;
    reply_error(call->reply, error);
    return -1;
}

bool blob_ranges_suffice(struct call *call, const struct blob_texts *texts, uint64_t sum, uint64_t length) {
    if (sum >= length) return true;
    if (texts->newer)
        reply_error_format(call->reply, "ERR client memory address length %llu smaller than object length %llu",
                           (unsigned long long)sum, (unsigned long long)length);
    else
        reply_error(call->reply, "ERR client address space smaller than object length");
    return false;
}

#define INSTEAD "use BLOB.GET key or BLOB.SET key value"

bool blob_may_transfer(struct call *call) {
    const struct client *client = call->client;
    const char *error = NULL;
    if (!client->conn || client_must_be_obeyed(client))
        error = "ERR Blocking module command called from Lua script: direct placement needs a client's "
                "connection, " INSTEAD;
    else if (client->flags & CLIENT_DENY_BLOCKING)
        error = "ERR Blocking module command called from transaction: direct placement cannot be part of it, " INSTEAD;
    else if (strcmp(conn_transport_name(client->conn), "rdma-tls") == 0)
        error = "ERR direct placement would carry the value outside of TLS: connect over RDMA without TLS, or " INSTEAD;
    else if (!conn_places(client->conn))
        error = "ERR direct placement needs an RDMA connection: connect to rdma-port, or " INSTEAD;
    if (error) reply_error(call->reply, error);
    return !error;
}
