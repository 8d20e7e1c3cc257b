/* question.c: the connections on which a candidate asks the members of its group for votes: one connection for each
 * question. It carries AUTH (primaryuser, primaryauth), as a link to a primary does, and REPLCONF SYNC-ASK. A question
 * without an answer is dropped after a while; the state machine asks again. */
#include "lib/system/log.h"
#include "net/resp_client.h"
#include "repl/link_transport.h"
#include "repl/quorum/question.h"
#include "repl/quorum/quorum.h"
#include "server/clients/listeners.h"
#include "server/config/tls_options.h"
#include "server/server.h"
#include <string.h>

enum { QUESTIONS_MAX = 2 * QUORUM_MEMBERS_MAX, TIMEOUT_MS = 2000, LOG_US = 10 * 1000 * 1000 };

static struct question {
    struct resp_client *client; /* NULL: unused */
    char id[QUORUM_ID_LEN + 1];
    struct quorum_vote_request request;
    int64_t began_ms;
} questions[QUESTIONS_MAX];

static void question_close(struct question *question) {
    struct resp_client *client = question->client;
    question->client = NULL; /* the callbacks of the requests come from the next line */
    if (client) resp_client_close(client);
}

static void question_failed(struct question *question, struct slice answer) {
    static struct log_limit limit = {.interval_us = LOG_US};
    log_limited(&limit, LOG_LEVEL_WARNING, "A member of the group did not vote: %.*s",
                (int)(answer.len > 200 ? 200 : answer.len), answer.data);
    question_close(question);
}

static void question_authenticated(struct resp_client *client, void *context, const struct resp_value *reply) {
    struct question *question = context;
    if (question->client == client && reply && reply->type == RESP_ERROR) question_failed(question, reply->text);
}

static void question_answered(struct resp_client *client, void *context, const struct resp_value *reply) {
    static struct quorum_vote vote;
    struct question *question = context;
    if (question->client != client || !reply) return;
    if (reply->type != RESP_STATUS || !quorum_vote_parse(reply->text, &vote)) {
        question_failed(question, reply->text);
        return;
    }
    question_close(question);
    quorum_machine_voted(&quorum_machine, &vote, quorum_now_ms());
}

static void question_ended(struct resp_client *client, void *owner, const char *reason) {
    struct question *question = owner;
    if (question->client == client) question->client = NULL;
}

static const struct resp_client_events events = {.ended = question_ended};

static void question_send(struct question *question) {
    struct memory_output text;
    struct slice auth[3];
    int words = link_auth(auth);
    memory_output_init(&text);
    quorum_vote_request_print(&text.out, &question->request);
    if (words) resp_client_send(question->client, words, auth, question_authenticated, question);
    resp_client_send(question->client, 3,
                     (struct slice[]){SLICE("REPLCONF"), SLICE("SYNC-ASK"), memory_output_slice(&text)},
                     question_answered, question);
    memory_output_free(&text);
}

void quorum_question_send(const struct quorum_member *member, const struct quorum_vote_request *request) {
    struct question *unused = NULL;
    int64_t now_ms = quorum_now_ms();
    for (int i = 0; i < QUESTIONS_MAX; i++) {
        struct question *question = &questions[i];
        if (question->client && now_ms - question->began_ms > TIMEOUT_MS) question_close(question);
        if (!question->client) {
            if (!unused) unused = question;
        } else if (strcmp(question->id, member->id) == 0) {
            if (question->request.kind == request->kind &&
                quorum_term_compare(&question->request.term, &request->term) == 0)
                return;
            question_close(question);
            if (!unused) unused = question;
        }
    }
    if (!unused) return;
    memcpy(unused->id, member->id, sizeof unused->id);
    unused->request = *request;
    unused->began_ms = now_ms;
    unused->client = resp_client_new(
        server.loop, &(struct resp_client_options){.transport = transport_find(tls_for_replication() ? "tls" : "tcp"),
                                                   .host = member->host,
                                                   .port = member->port,
                                                   .source_host = outgoing_source(),
                                                   .source_optional = true,
                                                   .timeout_ms = TIMEOUT_MS,
                                                   .reply_max = QUORUM_TEXT_MAX + 64,
                                                   .events = &events,
                                                   .owner = unused});
    question_send(unused);
}
