/* links.c: see links.h. */
#include "sentinel/links.h"
#include "lib/system/memory.h"
#include "net/resp_client.h"
#include "sentinel/sentinel_file.h"
#include "sentinel/this_sentinel.h"
#include "server/clients/listeners.h"
#include "server/config/config.h"
#include "server/config/tls_options.h"
#include "server/server.h"
#include <stdio.h>
#include <string.h>

enum { REPLY_MAX = 512 * 1024, ARGUMENTS_MAX = 8, REQUEST_KINDS = REQUEST_KILL_SCRIPT + 1 };

const char sentinel_hello_channel[] = "__sentinel__:hello";

/* One connection of a link. When the link closes, it stays until the end of the turn. */
struct half {
    struct sentinel_link *link; /* NULL: closed */
    enum link_kind kind;
    struct resp_client *client;
    bool rdma, opened;
    char own_host[sizeof((struct address *)NULL)->host]; /* of this end; "": not asked for yet */
    struct event_deferred deferred;
    struct short_context {
        struct half *half;
        enum sentinel_request_kind kind;
    } contexts[REQUEST_KINDS];
};

static void half_free(struct event_deferred *deferred) {
    mem_free(container_of(deferred, struct half, deferred));
}
static void half_end(struct half *half) {
    half->link = NULL;
    event_loop_defer(server.loop, &half->deferred, half_free);
}

/* --- Replies --- */

static void read_ask_reply(const struct resp_value *reply, struct sentinel_answer *answer) {
    if (reply->type != RESP_ARRAY || reply->count != 3) return;
    const struct resp_value *down = &reply->children[0], *leader = &reply->children[1], *epoch = &reply->children[2];
    if (down->type != RESP_INTEGER || leader->type != RESP_BULK || epoch->type != RESP_INTEGER) return;
    if (memchr(leader->text.data, 0, leader->text.len)) return;
    answer->valid = true;
    answer->down = down->integer == 1;
    answer->leader = leader->text;
    answer->leader_epoch = (uint64_t)epoch->integer;
}
static void reply_to_machine(struct half *half, enum sentinel_request_kind kind, const char *group,
                             const struct resp_value *reply) {
    if (!half->link) return;
    if (half->link->pending) half->link->pending--;
    if (!reply) return;
    bool is_text = reply->type == RESP_STATUS || reply->type == RESP_ERROR || reply->type == RESP_BULK ||
                   reply->type == RESP_VERBATIM;
    struct sentinel_answer answer = {.error = reply->type == RESP_ERROR,
                                     .text = is_text ? reply->text : slice_make("", 0)};
    if (kind == REQUEST_PING && reply->type != RESP_STATUS && reply->type != RESP_ERROR) answer.text.len = 0;
    if (kind == REQUEST_INFO && reply->type != RESP_BULK && reply->type != RESP_VERBATIM) answer.error = true;
    if (kind == REQUEST_ASK) read_ask_reply(reply, &answer);
    sentinel_replied(this_sentinel, half->link, kind, group, &answer, sentinel_now());
}
static void replied(struct resp_client *client, void *context, const struct resp_value *reply) {
    struct short_context *to = context;
    reply_to_machine(to->half, to->kind, NULL, reply);
}
struct ask_context {
    struct half *half;
    char group[SENTINEL_NAME_MAX];
};
static void ask_replied(struct resp_client *client, void *context, const struct resp_value *reply) {
    struct ask_context *to = context;
    reply_to_machine(to->half, REQUEST_ASK, to->group, reply);
    mem_free(to);
}
/* Replies that nobody needs: to AUTH, and to the steps of a transaction. */
static void counted(struct resp_client *client, void *context, const struct resp_value *reply) {
    struct half *half = context;
    if (half->link && half->kind == LINK_COMMANDS && half->link->pending) half->link->pending--;
    if (reply && reply->type == RESP_ERROR && half->link) {
        static struct log_limit limit = {.interval_us = 10 * 1000000};
        const struct instance *i = half->link->instance;
        log_limited(&limit, LOG_LEVEL_NOTICE, "%s %s:%d replied: %.*s",
                    i->flags & INSTANCE_SENTINEL ? "Sentinel" : "Server", i->address.host, i->address.port,
                    (int)(reply->text.len > 200 ? 200 : reply->text.len), reply->text.data);
    }
}

/* --- Requests --- */

static const struct instance *group_of_instance(const struct instance *i) {
    return i->flags & INSTANCE_PRIMARY ? i : i->primary;
}
/* The command's name on this server: rename-command of the group. */
static struct slice name_on(const struct instance *to, const char *command) {
    if (!(to->flags & INSTANCE_SENTINEL))
        for (const struct renamed_command *r = group_of_instance(to)->options.renamed; r; r = r->next)
            if (strcasecmp(r->from, command) == 0) return slice_of(r->to);
    return slice_of(command);
}
static bool send_words(struct half *half, const struct instance *to, resp_client_replied *callback, void *context,
                       const char *const *words) {
    struct slice argv[ARGUMENTS_MAX];
    int argc = 0;
    while (argc < ARGUMENTS_MAX && words[argc]) {
        argv[argc] = argc ? slice_of(words[argc]) : name_on(to, words[argc]);
        argc++;
    }
    if (resp_client_send(half->client, argc, argv, callback, context) < 0) return false;
    if (half->kind == LINK_COMMANDS) half->link->pending++;
    return true;
}
#define SEND(half, to, ...) send_words(half, to, counted, half, (const char *const[]){__VA_ARGS__, NULL})
#define ASK(half, to, kind_, ...)                                                                                      \
    send_words(half, to, replied, &(half)->contexts[kind_], (const char *const[]){__VA_ARGS__, NULL})

static bool send_replication(struct half *half, const struct instance *to, const struct sentinel_request *request) {
    char port[12];
    snprintf(port, sizeof port, "%d", request->port);
    bool sent = SEND(half, to, "MULTI");
    if (request->abort) sent &= SEND(half, to, "FAILOVER", "ABORT");
    sent &= request->host ? SEND(half, to, "SLAVEOF", request->host, port) : SEND(half, to, "SLAVEOF", "NO", "ONE");
    sent &= SEND(half, to, "CONFIG", "REWRITE");
    sent &= SEND(half, to, "CLIENT", "KILL", "TYPE", "normal");
    sent &= SEND(half, to, "CLIENT", "KILL", "TYPE", "pubsub");
    return sent & SEND(half, to, "EXEC");
}
static bool send_coordinated(struct half *half, const struct instance *to, const struct sentinel_request *request) {
    char port[12], timeout[24];
    snprintf(port, sizeof port, "%d", request->port);
    snprintf(timeout, sizeof timeout, "%lld", (long long)request->timeout_ms);
    bool sent = SEND(half, to, "MULTI");
    sent &= SEND(half, to, "CLIENT", "PAUSE", timeout, "WRITE");
    sent &= SEND(half, to, "FAILOVER", "TO", request->host, port, "TIMEOUT", timeout);
    return sent & SEND(half, to, "EXEC");
}
/* The steps after a hand-over, which FAILOVER does not include. */
static bool send_handed_over(struct half *half, const struct instance *to) {
    bool sent = SEND(half, to, "MULTI");
    sent &= SEND(half, to, "CONFIG", "REWRITE");
    sent &= SEND(half, to, "CLIENT", "KILL", "TYPE", "normal");
    sent &= SEND(half, to, "CLIENT", "KILL", "TYPE", "pubsub");
    sent &= SEND(half, to, "CLIENT", "UNPAUSE");
    return sent & SEND(half, to, "EXEC");
}
static bool send_ask(struct half *half, const struct instance *to, const struct sentinel_request *request) {
    char port[12], epoch[24];
    snprintf(port, sizeof port, "%d", request->port);
    snprintf(epoch, sizeof epoch, "%llu", (unsigned long long)request->epoch);
    struct ask_context *context = mem_alloc(sizeof *context);
    context->half = half;
    snprintf(context->group, sizeof context->group, "%s", to->primary->name);
    /* The older name: every Sentinel knows it. */
    const char *words[] = {"SENTINEL", "is-master-down-by-addr", request->host, port, epoch, request->text, NULL};
    if (send_words(half, to, ask_replied, context, words)) return true;
    mem_free(context);
    return false;
}

bool sentinel_links_send(void *context, struct sentinel_link *link, const struct instance *to,
                         const struct sentinel_request *request) {
    struct half *half = link->half[LINK_COMMANDS].host;
    if (!half || !half->client) return false;
    switch (request->kind) {
    case REQUEST_PING: return ASK(half, to, REQUEST_PING, "PING");
    case REQUEST_INFO: return ASK(half, to, REQUEST_INFO, "INFO");
    case REQUEST_HELLO:
        sentinel_file_settle();
        return ASK(half, to, REQUEST_HELLO, "PUBLISH", sentinel_hello_channel, request->text);
    case REQUEST_ASK: return sentinel_file_settle() == 0 && send_ask(half, to, request);
    case REQUEST_REPLICATE: sentinel_file_settle(); return send_replication(half, to, request);
    case REQUEST_COORDINATED: sentinel_file_settle(); return send_coordinated(half, to, request);
    case REQUEST_HANDED_OVER: return send_handed_over(half, to);
    case REQUEST_KILL_SCRIPT: return SEND(half, to, "SCRIPT", "KILL");
    }
    return false;
}

/* --- Connections --- */

static void send_auth(struct half *half, const struct instance *to) {
    const struct instance *group = group_of_instance(to);
    const char *user = NULL, *password = NULL;
    struct memory_output requirepass = MEMORY_OUTPUT_INIT;
    if (!(to->flags & INSTANCE_SENTINEL)) {
        user = group->options.auth_user, password = group->options.auth_pass;
    } else if (*sentinel_options.password) {
        user = *sentinel_options.user ? sentinel_options.user : NULL;
        password = sentinel_options.password;
    } else {
        const struct config_option *option = config_find(SLICE("requirepass"));
        if (option && option->get) option->get(option, &requirepass.out);
        output_write(&requirepass.out, slice_make("", 1));
        password = *requirepass.data ? requirepass.data : NULL;
    }
    if (password && user)
        SEND(half, to, "AUTH", user, password);
    else if (password)
        SEND(half, to, "AUTH", password);
    memory_output_free(&requirepass);
}

static const struct transport *over_rdma(void) { /* NULL: not compiled in */
    return transport_find(tls_for_replication() ? "rdma-tls" : "rdma");
}

static void client_opened(struct resp_client *client, void *owner) {
    struct half *half = owner;
    if (!half->link) return;
    half->opened = true;
    sentinel_link_opened(this_sentinel, half->link, half->kind, sentinel_now());
}
static void client_push(struct resp_client *client, void *owner, const struct resp_value *message) {
    struct half *half = owner;
    if (!half->link) return;
    sentinel_link_heard(this_sentinel, half->link, sentinel_now());
    if (message->count != 3 || !slice_equal(message->children[0].text, SLICE("message"))) return;
    if (slice_equal(message->children[1].text, slice_of(sentinel_hello_channel)))
        sentinel_hello(this_sentinel, message->children[2].text, sentinel_now());
}
static void client_ended(struct resp_client *client, void *owner, const char *reason) {
    struct half *half = owner;
    struct sentinel_link *link = half->link;
    if (!link) return;
    enum link_kind kind = half->kind;
    if (!half->opened) {
        if (link->rdma != half->rdma) /* the other half has changed it */
            ;
        else if (half->rdma)
            link->rdma = false;
        else
            link->rdma = sentinel_options.rdma && over_rdma();
    }
    const struct instance *i = link->instance;
    if (half->opened || strcmp(link->error, reason) != 0)
        log_debug("%s to %s:%d: %s", kind == LINK_COMMANDS ? "-cmd-link" : "-pubsub-link", i->address.host,
                  i->address.port, reason);
    half->client = NULL;
    half_end(half);
    sentinel_link_closed(this_sentinel, link, kind, reason, sentinel_now());
}
static const struct resp_client_events client_events = {
    .opened = client_opened, .push = client_push, .ended = client_ended};

/* An instance that refuses the commands of this Sentinel, because its user has changed, counts as disconnected. */
static void subscribed(struct resp_client *client, void *context, const struct resp_value *reply) {
    struct half *half = context;
    struct sentinel_link *link = half->link;
    char reason[sizeof link->error];
    counted(client, context, reply);
    if (!link || !reply || reply->type != RESP_ERROR) return;
    snprintf(reason, sizeof reason, "%.*s",
             (int)(reply->text.len < sizeof reason ? reply->text.len : sizeof reason - 1), reply->text.data);
    sentinel_links_close(NULL, link, LINK_PUBSUB);
    sentinel_link_closed(this_sentinel, link, LINK_PUBSUB, reason, sentinel_now());
}

void sentinel_links_dial(void *context, struct sentinel_link *link, enum link_kind kind) {
    const struct instance *i = link->instance;
    struct half *half = mem_calloc(1, sizeof *half);
    half->link = link;
    half->kind = kind;
    for (int k = 0; k < REQUEST_KINDS; k++)
        half->contexts[k] = (struct short_context){half, (enum sentinel_request_kind)k};
    const struct transport *transport = transport_find(tls_for_replication() ? "tls" : "tcp");
    half->rdma = link->rdma && over_rdma();
    if (half->rdma) transport = over_rdma();
    half->client = resp_client_new(server.loop, &(struct resp_client_options){.transport = transport,
                                                                              .host = i->address.ip,
                                                                              .port = i->address.port,
                                                                              .source_host = outgoing_source(),
                                                                              .source_optional = true,
                                                                              .reply_max = REPLY_MAX,
                                                                              .pending_max = 400,
                                                                              .subscriber = kind == LINK_PUBSUB,
                                                                              .events = &client_events,
                                                                              .owner = half});
    link->half[kind].host = half;
    send_auth(half, i);
    char name[64];
    snprintf(name, sizeof name, "sentinel-%.8s-%s", this_sentinel->id, kind == LINK_COMMANDS ? "cmd" : "pubsub");
    SEND(half, i, "CLIENT", "SETNAME", name);
    if (kind == LINK_PUBSUB)
        send_words(half, i, subscribed, half, (const char *const[]){"SUBSCRIBE", sentinel_hello_channel, NULL});
}

void sentinel_links_close(void *context, struct sentinel_link *link, enum link_kind kind) {
    struct half *half = link->half[kind].host;
    if (!half) return;
    link->half[kind].host = NULL;
    half_end(half); /* before its callbacks */
    resp_client_close(half->client);
    half->client = NULL;
}

const char *sentinel_links_transport(const struct sentinel_link *link) {
    const struct half *half = link->half[LINK_COMMANDS].host;
    return half && half->opened && half->client ? conn_transport_name(resp_client_connection(half->client)) : "";
}

bool sentinel_links_own_address(void *context, const struct sentinel_link *link, char host[static SENTINEL_HOST_MAX],
                                int *port) {
    struct half *half = link->half[LINK_COMMANDS].host;
    struct address local;
    if (*sentinel_options.announce_ip) {
        snprintf(host, SENTINEL_HOST_MAX, "%s", sentinel_options.announce_ip);
    } else {
        if (!half || !half->client || !resp_client_is_open(half->client)) return false;
        if (!*half->own_host && conn_address(resp_client_connection(half->client), false, &local))
            memcpy(half->own_host, local.host, sizeof half->own_host);
        if (!*half->own_host) return false;
        snprintf(host, SENTINEL_HOST_MAX, "%s", half->own_host);
    }
    if (sentinel_options.announce_port)
        *port = sentinel_options.announce_port;
    else if (tls_for_replication() && listeners_tls_port())
        *port = listeners_tls_port();
    else
        *port = listeners_port();
    return *port > 0;
}
