/* question.c: the question for the outcome of a grant, to the leader of the target's shard: one connection for each,
 * which carries AUTH (primaryuser, primaryauth), as a link to a primary does, and SYNCSLOTS OUTCOME. */
#include "cluster/migration/question.h"
#include "cluster/migration/link.h"
#include "net/resp_client.h"
#include "repl/link_transport.h"
#include "server/clients/listeners.h"
#include "server/config/tls_options.h"
#include "server/server.h"
#include <stdio.h>
#include <string.h>

enum { CONNECT_TIMEOUT_MS = 2000, ANSWER_MAX_BYTES = 1024 };

static int port_of(const struct cluster_node *node) {
    return tls_for_replication() ? node->tls_port : node->port;
}

bool question_can_ask(void *context, const struct cluster_node *node) {
    return node->address[0] && port_of(node);
}

/* Ends the connection: its callbacks find that the question is another one, or none. */
void question_hang_up(void *context, struct slot_export *export) {
    struct job_link *link = link_of(&export->job);
    struct resp_client *client = link->question;
    link->question = NULL;
    if (client) resp_client_close(client);
}

static void question_answered(struct resp_client *client, void *context, const struct resp_value *reply) {
    struct slot_export *export = context;
    char text[ANSWER_MAX_BYTES + 2];
    enum outcome_answer answer = OUTCOME_LATER;
    if (!reply || link_of(&export->job)->question != client) return; /* question_ended(), question_hang_up() */
    snprintf(text, sizeof text, "%c%.*s", (char)reply->type, (int)reply->text.len, reply->text.data);
    if (strcmp(text, "+TAKEN") == 0) answer = OUTCOME_TAKEN;
    if (strcmp(text, "+REFUSED") == 0) answer = OUTCOME_REFUSED;
    question_hang_up(NULL, export);
    export_outcome_answered(&migrations, export, answer, slice_of(text), migration_now());
}

static void question_ended(struct resp_client *client, void *owner, const char *reason) {
    struct slot_export *export = owner;
    if (link_of(&export->job)->question != client) return;
    link_of(&export->job)->question = NULL;
    export_question_lost(export);
}
static const struct resp_client_events question_events = {.ended = question_ended};

void question_ask(void *context, struct slot_export *export, const struct cluster_node *leader,
                  const struct slot_message *question) {
    struct resp_client_options options = {.transport = transport_find(tls_for_replication() ? "tls" : "tcp"),
                                          .host = leader->address,
                                          .port = port_of(leader),
                                          .source_host = outgoing_source(),
                                          .source_optional = true,
                                          .timeout_ms = CONNECT_TIMEOUT_MS,
                                          .reply_max = ANSWER_MAX_BYTES,
                                          .output_max = SIZE_MAX,
                                          .events = &question_events,
                                          .owner = export};
    struct slice auth[3];
    int words = link_auth(auth);
    struct slot_arguments arguments;
    struct resp_client *client = resp_client_new(server.loop, &options);
    link_of(&export->job)->question = client;
    if (words) resp_client_send(client, words, auth, NULL, NULL);
    slot_message_arguments(question, &arguments);
    resp_client_send(client, arguments.argc, arguments.argv, question_answered, export);
    slot_arguments_free(&arguments);
}
