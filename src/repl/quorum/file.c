/* file.c: the file of promises (server/durable_file.h): loaded at start, replaced by a thread. A write that fails
 * is tried again; until it succeeds the server neither promises nor acknowledges. */
#include "lib/system/file.h"
#include "lib/system/log.h"
#include "repl/quorum/file.h"
#include "repl/quorum/quorum.h"
#include "server/durable_file.h"
#include "server/server.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MODE = 0600, FILE_MAX = 256 * 1024, RETRY_US = 500 * 1000, LOG_US = 10 * 1000 * 1000 };

static void quorum_file_written(const struct file_written *written);
static struct durable_file file = {.thread_name = "sync-promises", .mode = FILE_MODE, .written = quorum_file_written};
static struct event_timer retry;
static struct quorum_state last;

static uint64_t quorum_file_write_again(struct event_timer *timer) {
    quorum_file_save(&last);
    return 0;
}

static void quorum_file_written(const struct file_written *written) {
    static struct log_limit limit = {.interval_us = LOG_US};
    if (!written->error) {
        quorum_machine_saved(&quorum_machine, written->ticket, quorum_now_ms());
        return;
    }
    log_limited(&limit, LOG_LEVEL_WARNING, "Can't write the promises of synchronous replication to %s (%s): %s",
                written->path, file_step_name(written->failed), strerror(-written->error));
    if (!retry.heap_index) event_timer_set(server.loop, &retry, RETRY_US, quorum_file_write_again);
}

bool quorum_file_load(struct quorum_state *state) {
    struct memory_output text;
    int error = durable_file_find(&file, quorum_config.file);
    if (error) {
        log_warning("Can't find the working directory for sync-replication-file: %s", strerror(-error));
        exit(1);
    }
    error = durable_file_take_lock(&file);
    if (error) {
        log_warning("Can't lock sync-replication-file %s: %s", file.path,
                    error == -EWOULDBLOCK ? "another server uses it" : strerror(-error));
        exit(1);
    }
    memory_output_init(&text);
    error = file_read(file.path, FILE_MAX, &text.out);
    struct slice content = memory_output_slice(&text);
    if (error || (content.len && !quorum_state_parse(content, state))) {
        log_warning("The promises of synchronous replication in %s cannot be read (%s). The server does not start, "
                    "because it might break them. Restore the file, or see docs/durability.md.",
                    file.path, error ? strerror(-error) : "the file is damaged");
        exit(1);
    }
    bool exists = content.len != 0;
    memory_output_free(&text);
    error = durable_file_start(&file);
    if (error) {
        log_warning("Can't start the thread that writes %s: %s", file.path, strerror(-error));
        exit(1);
    }
    return exists;
}

uint64_t quorum_file_save(const struct quorum_state *state) {
    struct memory_output text = MEMORY_OUTPUT_INIT;
    if (state != &last) last = *state;
    quorum_state_print(&text.out, state);
    uint64_t ticket = file_writer_submit(file.writer, file.path, memory_output_slice(&text), true);
    memory_output_free(&text);
    return ticket;
}

void quorum_file_stop(void) {
    durable_file_stop(&file);
    event_timer_cancel(server.loop, &retry);
}
