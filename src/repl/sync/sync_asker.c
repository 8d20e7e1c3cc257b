/* sync_asker.c: the connections on which a candidate asks the members of its group for votes: one connection for each
 * question. It carries AUTH (primaryuser, primaryauth), as a link to a primary does, and REPLCONF SYNC-ASK. A question
 * without an answer is dropped after a while; the state machine asks again. */
#include "lib/system/log.h"
#include "net/resp_client.h"
#include "repl/replica.h"
#include "repl/sync/sync.h"
#include "server/clients/listeners.h"
#include "server/config/tls_options.h"
#include "server/server.h"
#include <string.h>

enum { ASKERS_MAX = 2 * SYNC_MEMBERS_MAX, TIMEOUT_MS = 2000, LOG_US = 10 * 1000 * 1000 };

static struct asker {
    struct resp_client *client; /* NULL: unused */
    char id[SYNC_ID_LEN + 1];
    struct sync_ask ask;
    int64_t began_ms;
} askers[ASKERS_MAX];

static void asker_close(struct asker *asker) {
    struct resp_client *client = asker->client;
    asker->client = NULL; /* the callbacks of the requests come from the next line */
    if (client) resp_client_close(client);
}

static void asker_failed(struct asker *asker, struct slice answer) {
    static struct log_limit limit = {.interval_us = LOG_US};
    log_limited(&limit, LOG_LEVEL_WARNING, "A member of the group did not vote: %.*s",
                (int)(answer.len > 200 ? 200 : answer.len), answer.data);
    asker_close(asker);
}

static void asker_authenticated(struct resp_client *client, void *context, const struct resp_value *reply) {
    struct asker *asker = context;
    if (asker->client == client && reply && reply->type == RESP_ERROR) asker_failed(asker, reply->text);
}

static void asker_answered(struct resp_client *client, void *context, const struct resp_value *reply) {
    static struct sync_vote vote;
    struct asker *asker = context;
    if (asker->client != client || !reply) return;
    if (reply->type != RESP_STATUS || !sync_vote_parse(reply->text, &vote)) {
        asker_failed(asker, reply->text);
        return;
    }
    asker_close(asker);
    sync_who_voted(&sync_who, &vote, sync_now_ms());
}

static void asker_ended(struct resp_client *client, void *owner, const char *reason) {
    struct asker *asker = owner;
    if (asker->client == client) asker->client = NULL;
}

static const struct resp_client_events events = {.ended = asker_ended};

static void asker_send(struct asker *asker) {
    struct memory_output text;
    struct slice auth[3];
    int words = replica_auth(auth);
    memory_output_init(&text);
    sync_ask_print(&text.out, &asker->ask);
    if (words) resp_client_send(asker->client, words, auth, asker_authenticated, asker);
    resp_client_send(asker->client, 3,
                     (struct slice[]){SLICE("REPLCONF"), SLICE("SYNC-ASK"), memory_output_slice(&text)}, asker_answered,
                     asker);
    memory_output_free(&text);
}

void sync_asker_ask(const struct sync_member *member, const struct sync_ask *ask) {
    struct asker *unused = NULL;
    int64_t now_ms = sync_now_ms();
    for (int i = 0; i < ASKERS_MAX; i++) {
        struct asker *asker = &askers[i];
        if (asker->client && now_ms - asker->began_ms > TIMEOUT_MS) asker_close(asker);
        if (!asker->client) {
            if (!unused) unused = asker;
        } else if (strcmp(asker->id, member->id) == 0) {
            if (asker->ask.kind == ask->kind && sync_term_compare(&asker->ask.term, &ask->term) == 0) return;
            asker_close(asker);
            if (!unused) unused = asker;
        }
    }
    if (!unused) return;
    memcpy(unused->id, member->id, sizeof unused->id);
    unused->ask = *ask;
    unused->began_ms = now_ms;
    unused->client = resp_client_new(
        server.loop, &(struct resp_client_options){.transport = transport_find(tls_for_replication() ? "tls" : "tcp"),
                                                   .host = member->host,
                                                   .port = member->port,
                                                   .source_host = outgoing_source(),
                                                   .source_optional = true,
                                                   .timeout_ms = TIMEOUT_MS,
                                                   .reply_max = SYNC_TEXT_MAX + 64,
                                                   .events = &events,
                                                   .owner = unused});
    asker_send(unused);
}
