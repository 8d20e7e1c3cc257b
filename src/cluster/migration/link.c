/* link.c: see link.h. */
#include "cluster/migration/link.h"
#include "lib/system/log.h"
#include "resp/request.h"

struct migration_machine migrations = {.jobs = LIST_INIT(migrations.jobs),
                                       .in_progress = LIST_INIT(migrations.in_progress)};
static uint64_t bytes_imported, bytes_exported;
struct client_listener link_listener;

int64_t migration_now(void) {
    return cluster_now();
}

void link_count_bytes(const struct slot_job *job) {
    struct job_link *link = link_of(job);
    const struct connection *conn = link->client ? link->client->conn : NULL;
    if (!conn) return;
    if (job->kind == JOB_IMPORT)
        bytes_imported += conn->bytes_in - link->counted_in;
    else
        bytes_exported += conn->bytes_out - link->counted_out;
    link->counted_in = conn->bytes_in;
    link->counted_out = conn->bytes_out;
}
void jobs_count_exported(uint64_t bytes) {
    bytes_exported += bytes;
}
void jobs_count_imported(uint64_t bytes) {
    bytes_imported += bytes;
}
void jobs_bytes(uint64_t *imported, uint64_t *exported) {
    *imported = bytes_imported;
    *exported = bytes_exported;
}

struct slot_job *job_of_client(const struct client *client) {
    return client_state(client, &link_listener);
}

void link_attach(struct slot_job *job, struct client *client) {
    struct job_link *link = link_of(job);
    link->client = client;
    link->counted_in = client->conn->bytes_in;
    link->counted_out = client->conn->bytes_out;
    client_set_state(client, &link_listener, job);
}

void link_detach(struct slot_job *job) {
    struct job_link *link = link_of(job);
    if (!link->client) return;
    link_count_bytes(job);
    client_set_state(link->client, &link_listener, NULL);
    link->client = NULL;
}

void job_send_words(struct slot_job *job, int argc, const struct slice *argv) {
    static struct memory_output bytes;
    struct job_link *link = link_of(job);
    if (!link->client && link->conn) { /* the handshake */
        request_write(&link->conn->out, argc, argv);
        conn_flush(link->conn);
    }
    if (!link->client) return;
    if (!bytes.out.ops) memory_output_init(&bytes);
    memory_output_clear(&bytes);
    request_write(&bytes.out, argc, argv);
    if (job->kind == JOB_IMPORT) {
        client_push(link->client, memory_output_slice(&bytes));
    } else {
        output_write(&link->client->conn->out, memory_output_slice(&bytes));
        client_flush_later(link->client);
    }
}

void job_send_message(struct slot_job *job, const struct slot_message *message) {
    struct slot_arguments arguments;
    slot_message_arguments(message, &arguments);
    job_send_words(job, arguments.argc, arguments.argv);
    slot_arguments_free(&arguments);
}

/* --- Failures --- */

void import_command_failed(struct slot_import *import) {
    job_end_later(&import->job, "Failed to process command during slot migration. Check logs for more information");
}
void import_out_of_memory(struct slot_import *import) {
    log_warning("Slot migration %s failed due to OOM", import_text(import));
    job_end_later(&import->job, "Ran out of memory (OOM) during slot import");
}
