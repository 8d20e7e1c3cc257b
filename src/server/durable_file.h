/* durable_file.h: a file with state of the server that a thread replaces as a whole (lib/system/file_writer.h):
 * nodes.conf, the file of promises of synchronous replication, Sentinel's configuration.
 *
 *     static struct durable_file file = {.thread_name = "nodes-conf", .mode = 0644, .written = written};
 *     durable_file_find(&file, "nodes.conf");   durable_file_take_lock(&file);   … read file.path …
 *     durable_file_start(&file);
 *     ticket = file_writer_submit(file.writer, file.path, content, true);      … written() … durable_file_stop(&file);
 *
 * The path is made absolute at start, so CONFIG SET dir does not move the file. Main thread only. */
#pragma once
#include "lib/system/file_lock.h"
#include "lib/system/file_writer.h"
#include "net/event_loop.h"

struct durable_file {
    const char *thread_name; /* at most 15 characters */
    mode_t mode;
    void (*written)(const struct file_written *written); /* from the loop, file_writer_wait() or durable_file_stop() */
    char *path;                                          /* absolute */
    struct file_writer *writer;                          /* NULL: not started, or stopped */
    struct file_lock lock;                               /* private */
    struct event_post post;                              /* private */
};
int durable_file_find(struct durable_file *file, const char *name); /* sets the path; -errno: no working directory */
int durable_file_take_lock(struct durable_file *file);              /* of file_lock.h; optional. 0 or -errno */
int durable_file_start(struct durable_file *file);                  /* 0, or -errno: the thread could not be started */
void durable_file_stop(struct durable_file *file);                  /* writes what was submitted; it may be stopped */
