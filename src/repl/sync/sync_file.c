/* sync_file.c: the file of promises: loaded at start, replaced by the thread of lib/system/file_writer.h. Its path is
 * made absolute at start, so CONFIG SET dir does not move it. A write that fails is tried again; until it succeeds the
 * server neither promises nor acknowledges. */
#include "lib/system/file.h"
#include "lib/system/file_lock.h"
#include "lib/system/file_writer.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/event_loop.h"
#include "repl/sync/sync.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FILE_MODE = 0600, FILE_MAX = 256 * 1024, RETRY_US = 500 * 1000, LOG_US = 10 * 1000 * 1000 };

static char *path;
static struct file_lock lock;
static struct file_writer *writer;
static struct event_post post;
static struct event_timer retry;
static struct sync_state last;

static uint64_t write_again(struct event_timer *timer) {
    sync_file_save(&last);
    return 0;
}

static void written(void *context, const struct file_written *written) {
    static struct log_limit limit = {.interval_us = LOG_US};
    if (!written->error) {
        sync_who_saved(&sync_who, written->ticket, sync_now_ms());
        return;
    }
    log_limited(&limit, LOG_LEVEL_WARNING, "Can't write the promises of synchronous replication to %s (%s): %s",
                written->path, file_step_name(written->failed), strerror(-written->error));
    if (!retry.heap_index) event_timer_set(server.loop, &retry, RETRY_US, write_again);
}

static void deliver(struct event_post *done) {
    if (writer) file_writer_deliver(writer);
}
static void post_from_writer(void *context) {
    post.run = deliver;
    event_loop_post(server.loop, &post);
}

static void find_path(void) {
    char directory[PATH_MAX];
    const char *name = sync_settings.file;
    if (name[0] == '/') {
        path = mem_strdup(name);
        return;
    }
    if (!getcwd(directory, sizeof directory)) {
        log_warning("Can't find the working directory for sync-replication-file: %s", strerror(errno));
        exit(1);
    }
    size_t size = strlen(directory) + strlen(name) + 2;
    path = mem_alloc(size);
    snprintf(path, size, "%s/%s", directory, name);
}

bool sync_file_load(struct sync_state *state) {
    struct memory_output text;
    find_path();
    int error = file_lock_take(&lock, path);
    if (error) {
        log_warning("Can't lock sync-replication-file %s: %s", path,
                    error == -EWOULDBLOCK ? "another server uses it" : strerror(-error));
        exit(1);
    }
    memory_output_init(&text);
    error = file_read(path, FILE_MAX, &text.out);
    struct slice content = memory_output_slice(&text);
    if (error || (content.len && !sync_state_parse(content, state))) {
        log_warning("The promises of synchronous replication in %s cannot be read (%s). The server does not start, "
                    "because it might break them. Restore the file, or see docs/durability.md.",
                    path, error ? strerror(-error) : "the file is damaged");
        exit(1);
    }
    bool exists = content.len != 0;
    memory_output_free(&text);
    event_loop_take_posts(server.loop);
    struct file_writer_options options = {
        .mode = FILE_MODE, .thread_name = "sync-promises", .post = post_from_writer, .done = written, .lock = &lock};
    writer = file_writer_new(&options);
    if (!writer) {
        log_warning("Can't start the thread that writes %s: %s", path, strerror(errno));
        exit(1);
    }
    return exists;
}

uint64_t sync_file_save(const struct sync_state *state) {
    struct memory_output text;
    if (state != &last) last = *state;
    memory_output_init(&text);
    sync_state_print(&text.out, state);
    uint64_t ticket = file_writer_submit(writer, path, memory_output_slice(&text), true);
    memory_output_free(&text);
    return ticket;
}

void sync_file_stop(void) {
    if (!writer) return;
    struct file_writer *ending = writer;
    writer = NULL;
    event_timer_cancel(server.loop, &retry);
    file_writer_free(ending);
    file_lock_release(&lock);
}
