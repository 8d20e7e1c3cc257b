/* durable_file.c: see durable_file.h. */
#include "server/durable_file.h"
#include "lib/system/memory.h"
#include "server/server.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

int durable_file_find(struct durable_file *file, const char *name) {
    char directory[PATH_MAX];
    if (name[0] == '/') {
        file->path = mem_strdup(name);
        return 0;
    }
    if (!getcwd(directory, sizeof directory)) return -errno;
    size_t size = strlen(directory) + strlen(name) + 2;
    file->path = mem_alloc(size);
    snprintf(file->path, size, "%s/%s", directory, name);
    return 0;
}

int durable_file_take_lock(struct durable_file *file) {
    return file_lock_take(&file->lock, file->path);
}

static void durable_file_deliver(struct event_post *post) {
    struct durable_file *file = container_of(post, struct durable_file, post);
    if (file->writer) file_writer_deliver(file->writer);
}
/* In the writer's thread. */
static void durable_file_post(void *context) {
    struct durable_file *file = context;
    file->post.run = durable_file_deliver;
    event_loop_post(server.loop, &file->post);
}
static void durable_file_done(void *context, const struct file_written *written) {
    ((struct durable_file *)context)->written(written);
}

int durable_file_start(struct durable_file *file) {
    event_loop_take_posts(server.loop);
    file->writer = file_writer_new(&(struct file_writer_options){.mode = file->mode,
                                                                 .thread_name = file->thread_name,
                                                                 .post = durable_file_post,
                                                                 .done = durable_file_done,
                                                                 .context = file,
                                                                 .lock = file->lock.path ? &file->lock : NULL});
    return file->writer ? 0 : -errno;
}

void durable_file_stop(struct durable_file *file) {
    if (!file->writer) return;
    file_writer_free(file->writer);
    file->writer = NULL;
    if (file->lock.path) file_lock_release(&file->lock);
}
