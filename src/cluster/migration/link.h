/* link.h: the link of a job, between two servers, and what all files of this directory use of the machine.
 *
 * A link is a connection with a client of this server: of the source's at the target, and the other way round. The
 * machine of this server is one; host.c carries out its effects. */
#pragma once
#include "cluster/migration/protocol/migration_machine.h"
#include "cluster/this_node.h"
#include "server/clients/client.h"

/* struct slot_job.host */
struct job_link {
    struct client *client;            /* of the link; NULL: none (any more) */
    struct connection *conn;          /* an export: until the client exists */
    struct resp_client *question;     /* an export; NULL: none */
    uint64_t counted_in, counted_out; /* bytes of the link that are counted */
    bool tcp_only;                    /* an RDMA connection to the target could not be made */
    struct memory_output backlog;     /* changes of slots in the snapshot, until that is sent */
    size_t ahead;                     /* bytes of the snapshot that are made, and not in the output yet */
    int stream_db;                    /* selected in the stream; -1: none */
    struct pull_key *pull_key;        /* of the chunks, with TLS */
    struct slot_fetch *fetch;         /* an import: pull.h; NULL: chunks come through the link */
};
extern struct migration_machine migrations;

static inline struct job_link *link_of(const struct slot_job *job) {
    return job->host;
}
static inline const char *export_text(const struct slot_export *export) {
    return job_text(&migrations, &export->job);
}
static inline const char *import_text(const struct slot_import *import) {
    return job_text(&migrations, &import->job);
}
static inline struct client *export_client(const struct slot_export *export) {
    return link_of(&export->job)->client;
}

int64_t migration_now(void);
/* The link belongs to the job from here on. When its client is freed, the machine gets the event. */
void link_attach(struct slot_job *job, struct client *client);
void link_detach(struct slot_job *job); /* the client stays */
struct slot_job *job_of_client(const struct client *client);
extern struct client_listener link_listener; /* host.c sets its callbacks */

void job_send_words(struct slot_job *job, int argc, const struct slice *argv); /* on the link */
void job_send_message(struct slot_job *job, const struct slot_message *message);

void link_count_bytes(const struct slot_job *job);
void jobs_count_exported(uint64_t bytes); /* that were offered */
void jobs_count_imported(uint64_t bytes); /* that were fetched */
void jobs_bytes(uint64_t *imported, uint64_t *exported);

/* Fail a job. */
void import_out_of_memory(struct slot_import *import);
void import_command_failed(struct slot_import *import);
