/* blob_commands.c: BLOB.HELLO, and the table of the BLOB commands. See blob.h.
 *
 * The module that introduced the commands checks the number of arguments itself, with its own text: so the arity is -1
 * here, as COMMAND INFO shows it for modules. */
#include "blob/arguments.h"
#include "blob/blob.h"
#include "blob/transfer.h"
#include "server/clients/client.h"
#include "server/command/command.h"
#include "server/command/spec.h"
#include "server/feature.h"
#include <arpa/inet.h>
#include <ctype.h>
#include <string.h>

/* --- HELLO --- */

/* A client that has sent HELLO. */
static struct client_listener hello_listener;
static void hello_forget(struct client *client) {
    if (client_state(client, &hello_listener)) client_set_state(client, &hello_listener, NULL);
}
static struct client_listener hello_listener = {.freed = hello_forget};

static bool is_hex(struct slice text) {
    if (text.len % 2) return false;
    for (size_t i = 0; i < text.len; i++)
        if (!isxdigit((unsigned char)text.data[i])) return false;
    return true;
}

/* The address of this end as a GID, in hexadecimal digits. */
static void own_address(const struct connection *conn, char text[static 33]) {
    struct in6_addr gid = {0};
    struct address own;
    bool known = conn_address(conn, false, &own);
    if (known && inet_pton(AF_INET6, own.host, &gid) != 1 && inet_pton(AF_INET, own.host, &gid.s6_addr[12]) == 1)
        gid.s6_addr[10] = gid.s6_addr[11] = 0xff;
    for (int i = 0; i < 16; i++) {
        text[2 * i] = "0123456789abcdef"[gid.s6_addr[i] >> 4];
        text[2 * i + 1] = "0123456789abcdef"[gid.s6_addr[i] & 15];
    }
    text[32] = 0;
}

/* The connection's queue pair carries the transfers, so HELLO sets up nothing. It answers for clients that expect a
 * session of their own. */
static void hello(struct call *call, const struct blob_texts *texts) {
    struct client *client = call->client;
    char address[33];
    const char *error = NULL;
    if (call->argc < 2) {
        reply_blob_arity(call);
        return;
    }
    if (!client->conn || !conn_places(client->conn))
        error = texts->unavailable;
    else if (!is_hex(call->argv[1]))
        error = texts->not_hex;
    else if (call->argv[1].len == 0)
        error = texts->no_address;
    else if (client_state(client, &hello_listener))
        error = texts->established;
    if (error) {
        reply_error(call->reply, error);
        return;
    }
    client_set_state(client, &hello_listener, &hello_listener);
    own_address(client->conn, address);
    reply_array(call->reply, 1);
    reply_bulk_text(call->reply, address);
}

static void blob_hello_run(struct call *call) {
    hello(call, &blob_texts_older);
}
static void blob_rdma_hello_run(struct call *call) {
    hello(call, &blob_texts_newer);
}

/* --- The table --- */

#define TRIPLES "range{rkey:integer address:integer length:integer}..."
#define CONDITIONS                                                                                                     \
    "[condition(NX|XX)] [expiration(EX seconds:integer|PX milliseconds:integer|EXAT unix-time-seconds:unix-time|"      \
    "PXAT unix-time-milliseconds:unix-time|KEEPTTL)]"

static const struct command_spec commands[] = {
    {COMMAND("blob.hello", blob_hello_run, -1, CMD_FAST | CMD_NO_DATA, .group = GROUP_MODULE, "9.1.0"),
     .categories = CAT_CONNECTION | CAT_LARGEOBJ, .complexity = "O(1)",
     .summary = "Returns the server's address to a client of direct placement, which needs none here.",
     .syntax = "address:string"},
    {COMMAND("blob.rdma_hello", blob_rdma_hello_run, -1, CMD_FAST | CMD_NO_DATA, .group = GROUP_MODULE, "9.1.0"),
     .categories = CAT_CONNECTION | CAT_LARGEOBJ, .complexity = "O(1)", .summary = "Another name of BLOB.HELLO.",
     .syntax = "address:string"},
    {COMMAND("blob.get", blob_get_run, -1, CMD_READONLY, .group = GROUP_MODULE, "9.1.0"), .categories = CAT_LARGEOBJ,
     .complexity = "O(1) for the server's CPU; the device transfers the value.",
     .summary = "Writes the string value of a key into registered memory of an RDMA client, and returns its length and "
                "CRC-32C; without memory it returns the value.",
     .syntax = "key:key [" TRIPLES "]", .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {COMMAND("blob.rdma_get", blob_rdma_get_run, -1, CMD_READONLY | CMD_FAST, .group = GROUP_MODULE, "9.1.0"),
     .categories = CAT_LARGEOBJ, .complexity = "O(1) for the server's CPU; the device transfers the value.",
     .summary = "Writes the string value of a key into registered memory of an RDMA client, and returns its length and "
                "CRC-32C.",
     .syntax = "key:key " TRIPLES, .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {COMMAND("blob.tcp_get", blob_tcp_get_run, -1, CMD_READONLY | CMD_FAST, .group = GROUP_MODULE, "9.1.0"),
     .categories = CAT_LARGEOBJ, .complexity = "O(1)",
     .summary = "Returns the string value of a key, on any connection.", .syntax = "key:key",
     .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {COMMAND("blob.set", blob_set_run, -1, CMD_WRITE | CMD_DENYOOM, .group = GROUP_MODULE, "9.1.0"),
     .categories = CAT_LARGEOBJ, .complexity = "O(1) for the server's CPU; the device transfers the value.",
     .summary =
         "Reads a string value from registered memory of an RDMA client and sets a key to it; with two arguments "
         "the second one is the value.",
     .syntax = "key:key data(length:integer|value:string) [" TRIPLES "] " CONDITIONS,
     .keys = FIRST_KEY(KEY_OW | KEY_UPDATE)},
    {COMMAND("blob.rdma_set", blob_rdma_set_run, -1, CMD_WRITE | CMD_DENYOOM | CMD_FAST, .group = GROUP_MODULE,
             "9.1.0"),
     .categories = CAT_LARGEOBJ, .complexity = "O(1) for the server's CPU; the device transfers the value.",
     .summary = "Reads a string value from registered memory of an RDMA client and sets a key to it.",
     .syntax = "key:key length:integer " TRIPLES " " CONDITIONS, .keys = FIRST_KEY(KEY_OW | KEY_UPDATE)},
    {COMMAND("blob.tcp_set", blob_tcp_set_run, -1, CMD_WRITE | CMD_DENYOOM | CMD_FAST, .group = GROUP_MODULE, "9.1.0"),
     .categories = CAT_LARGEOBJ, .complexity = "O(1)", .summary = "Sets the string value of a key, on any connection.",
     .syntax = "key:key value:string", .keys = FIRST_KEY(KEY_OW | KEY_UPDATE)},
    {COMMAND("blob.info", blob_info_run, -1, CMD_READONLY | CMD_FAST, .group = GROUP_MODULE, "9.1.0"),
     .categories = CAT_LARGEOBJ,
     .complexity = "O(1), except that the first request for the checksum of a value reads it.",
     .summary = "Returns length, CRC-32C and storage tier of a string value.",
     .syntax = "key:key [field(LEN|CRC|TIER)]", .keys = FIRST_KEY(KEY_RO)},
    {.name = NULL},
};

const struct feature blob_feature = {
    .name = "blob",
    .options = OPTIONS(blob_options),
    .commands = COMMANDS(commands),
    .sections = SECTIONS(blob_sections),
    .parts = PARTS(&transfer_part),
};
