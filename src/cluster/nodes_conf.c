/* nodes_conf.c: see nodes_conf.h. */
#include "cluster/nodes_conf.h"
#include "cluster/settings.h"
#include "lib/system/file.h"
#include "lib/system/log.h"
#include "server/durable_file.h"
#include "server/stats/latency_monitor.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MODE = 0644, FILE_MAX = 1024 * 1024 * 1024 };

static void written(const struct file_written *written);
static struct durable_file file = {.thread_name = "nodes-conf", .mode = FILE_MODE, .written = written};
static void (*notify_saved)(uint64_t ticket);
static uint64_t unsafe_ticket;
static int last_error; /* of the last content that was written */
static bool tolerant;  /* a failure only makes the command fail that asked for the file */

/* --- The writer --- */

static void note_latency(const struct file_written *written) {
    static const char *const events[FILE_STEPS] = {
        [FILE_STEP_OPEN] = "cluster-config-open",     [FILE_STEP_WRITE] = "cluster-config-write",
        [FILE_STEP_FSYNC] = "cluster-config-fsync",   [FILE_STEP_CLOSE] = "cluster-config-close",
        [FILE_STEP_RENAME] = "cluster-config-rename", [FILE_STEP_DIR_FSYNC] = "cluster-config-dir-fsync",
        [FILE_STEP_UNLINK] = "cluster-config-unlink",
    };
    for (int step = 0; step < FILE_STEPS; step++)
        if (written->step_us[step]) latency_event(events[step], written->step_us[step]);
}

static void log_failure(const struct file_written *written) {
    static struct log_limit limit = {.interval_us = 30 * 1000000};
    char reason[NODES_FILE_TEXT_MAX];
    nodes_file_failure_text(written, reason);
    log_warning("%s", reason);
    if (cluster_options.save_behavior == SAVE_SYNC) {
        if (tolerant) return;
        log_warning("Fatal: can't update cluster config file.");
        exit(1);
    }
    log_limited(&limit, LOG_LEVEL_WARNING,
                "Cluster config updated even though writing the cluster config file to disk failed.");
}

static void written(const struct file_written *written) {
    last_error = written->error;
    note_latency(written);
    if (written->error) log_failure(written);
    if (unsafe_ticket && written->ticket >= unsafe_ticket) unsafe_ticket = 0;
    notify_saved(written->ticket);
}

void nodes_conf_save(const struct cluster *cluster, bool durable) {
    struct memory_output text = MEMORY_OUTPUT_INIT;
    cluster_print_configuration(cluster, &text.out);
    uint64_t ticket = file_writer_submit(file.writer, file.path, memory_output_slice(&text), durable);
    memory_output_free(&text);
    if (durable) unsafe_ticket = ticket;
}

uint64_t nodes_conf_unsafe_ticket(void) {
    return unsafe_ticket;
}

int nodes_conf_save_now(const struct cluster *cluster) {
    nodes_conf_save(cluster, true);
    file_writer_wait(file.writer, unsafe_ticket);
    return last_error;
}

int nodes_conf_save_on_request(const struct cluster *cluster) {
    tolerant = !unsafe_ticket;
    int status = nodes_conf_save_now(cluster);
    tolerant = false;
    return status;
}

/* --- Start --- */

static void take_lock(void) {
    int error = durable_file_take_lock(&file);
    if (!error) return;
    if (error == -EWOULDBLOCK) {
        char text[NODES_FILE_TEXT_MAX];
        nodes_file_in_use_text(cluster_options.config_file, text);
        log_warning("%s", text);
    } else {
        log_warning("Can't open %s in order to acquire a lock: %s", cluster_options.config_file, strerror(-error));
    }
    exit(1);
}

static void start_writer(void) {
    int error = durable_file_start(&file);
    if (!error) return;
    log_warning("Can't start the thread that writes the cluster config file: %s", strerror(-error));
    exit(1);
}

static void note_ignored(void *context, const char *text) {
    log_warning("The cluster config file %s: %s", cluster_options.config_file, text);
}

static _Noreturn void refuse_file(const struct nodes_file_error *error) {
    struct memory_output text = MEMORY_OUTPUT_INIT;
    nodes_file_print_error(&text.out, error);
    struct slice line = memory_output_slice(&text);
    log_warning("%.*s", (int)(line.len > 900 ? 900 : line.len), line.data);
    log_warning("The server does not start with a damaged cluster config file: %s", file.path);
    exit(1);
}

struct cluster *nodes_conf_start(const struct cluster_settings *settings, const struct cluster_effects *effects,
                                 void (*saved)(uint64_t ticket), int64_t now_ms) {
    struct memory_output text;
    struct nodes_file nodes;
    struct nodes_file_error error;
    struct cluster *cluster;
    notify_saved = saved;
    int failed = durable_file_find(&file, cluster_options.config_file);
    if (failed) {
        log_warning("Can't find the working directory for the cluster config file: %s", strerror(-failed));
        exit(1);
    }
    take_lock();
    int leftovers = file_writer_clean(file.path);
    if (leftovers) log_notice("Removed %d unfinished cluster config files of earlier processes", leftovers);
    memory_output_init(&text);
    failed = file_read(file.path, FILE_MAX, &text.out);
    if (failed) {
        log_warning("Loading the cluster node config from %s: %s", file.path, strerror(-failed));
        exit(1);
    }
    struct slice content = memory_output_slice(&text);
    if (!nodes_file_parse(content, settings->tls, note_ignored, NULL, &nodes, &error)) refuse_file(&error);
    if (nodes.count == 0) {
        cluster = cluster_new(settings, effects, NULL, now_ms);
        log_notice("No cluster configuration found, I'm %.40s", cluster->myself->id.text);
    } else {
        const char *reason;
        cluster = cluster_new_from(&nodes, settings, effects, NULL, now_ms, &reason);
        if (!cluster) {
            error = (struct nodes_file_error){.line = content};
            snprintf(error.reason, sizeof error.reason, "%s", reason);
            refuse_file(&error);
        }
        log_notice("Node configuration loaded, I'm %.40s", cluster->myself->id.text);
    }
    nodes_file_free(&nodes);
    memory_output_free(&text);
    start_writer();
    return cluster;
}

void nodes_conf_stop(void) {
    durable_file_stop(&file);
}
