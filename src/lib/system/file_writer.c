/* file_writer.c: see file_writer.h. The lock of a writer protects its two queues: contents to write, and written
 * contents that are not delivered yet. */
#include "lib/system/file_writer.h"
#include "lib/structures/linked_list.h"
#include "lib/system/clock.h"
#include "lib/system/file.h"
#include "lib/system/file_lock.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/thread.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct file_writer_job {
    struct list_link link;
    uint64_t ticket;
    char *path, *data;
    size_t len;
    bool durable;
    struct file_written written;
};

struct file_writer {
    struct file_writer_options options;
    uint64_t last_ticket; /* owner's thread */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t submitted, finished;
    struct list queue, done; /* of struct file_writer_job */
    uint64_t done_ticket;
    bool posted, stopping;
};

#define TEMPORARY_MARK ".tmp-" /* then the process and the time, both in digits */

const char *file_step_name(enum file_step step) {
    static const char *const names[FILE_STEPS] = {"open", "write", "fsync", "close", "rename", "dir-fsync", "unlink"};
    return names[step];
}

/* Measures the time of each step and keeps the first failure. */
struct steps {
    struct file_written *written;
    uint64_t begin_us;
};
static bool step_end(struct steps *steps, enum file_step step, int error) {
    uint64_t now = clock_monotonic_us(), took = now - steps->begin_us;
    struct file_written *written = steps->written;
    written->step_us[step] = took > UINT32_MAX ? UINT32_MAX : took ? (uint32_t)took : 1;
    steps->begin_us = now;
    if (!error || written->error) return !error;
    written->error = error;
    written->failed = step;
    return false;
}
static int errno_of(bool ok) {
    return ok ? 0 : -errno;
}

static bool write_steps(struct steps *steps, const char *temporary, const char *path, struct slice content,
                        bool durable, mode_t mode, struct file_lock *lock) {
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, mode);
    if (!step_end(steps, FILE_STEP_OPEN, errno_of(fd >= 0))) return false;
    bool ok = step_end(steps, FILE_STEP_WRITE, file_write_all(fd, content, &steps->written->done));
    if (ok && durable) ok = step_end(steps, FILE_STEP_FSYNC, errno_of(fsync(fd) == 0));
    if (!step_end(steps, FILE_STEP_CLOSE, errno_of(close(fd) == 0)) || !ok) return false;
    bool locked = lock && strcmp(lock->path, path) == 0;
    return step_end(steps, FILE_STEP_RENAME,
                    locked ? file_lock_rename(lock, temporary) : errno_of(rename(temporary, path) == 0));
}

void file_write(const char *path, struct slice content, bool durable, mode_t mode, struct file_lock *lock,
                struct file_written *written) {
    *written = (struct file_written){.path = path, .len = content.len, .durable = durable};
    struct steps steps = {written, clock_monotonic_us()};
    size_t size = strlen(path) + 64;
    char *temporary = mem_alloc(size);
    snprintf(temporary, size, "%s" TEMPORARY_MARK "%d-%llu", path, (int)getpid(),
             (unsigned long long)clock_monotonic_us());
    if (write_steps(&steps, temporary, path, content, durable, mode, lock)) {
        if (durable) step_end(&steps, FILE_STEP_DIR_FSYNC, file_sync_directory_of(path));
    } else if (written->failed != FILE_STEP_OPEN) {
        step_end(&steps, FILE_STEP_UNLINK, errno_of(unlink(temporary) == 0));
    }
    mem_free(temporary);
}

/* --- What was left behind --- */

static bool is_temporary_of(const char *name, const char *base) {
    static const char digits[] = "0123456789";
    size_t len = strlen(base), process, time;
    if (strncmp(name, base, len) != 0) return false;
    name += len;
    if (strncmp(name, TEMPORARY_MARK, sizeof TEMPORARY_MARK - 1) != 0) return false;
    name += sizeof TEMPORARY_MARK - 1;
    process = strspn(name, digits);
    if (!process || name[process] != '-') return false;
    name += process + 1;
    time = strspn(name, digits);
    return time && !name[time];
}

int file_writer_clean(const char *path) {
    const char *slash = strrchr(path, '/');
    char *directory = mem_strndup(slash ? path : ".", slash ? (size_t)(slash - path) + 1 : 1);
    DIR *files = opendir(directory);
    mem_free(directory);
    if (!files) return 0;
    int removed = 0;
    for (const struct dirent *file; (file = readdir(files));) {
        struct stat about;
        if (!is_temporary_of(file->d_name, slash ? slash + 1 : path)) continue;
        if (fstatat(dirfd(files), file->d_name, &about, AT_SYMLINK_NOFOLLOW) != 0 || !S_ISREG(about.st_mode)) continue;
        if (unlinkat(dirfd(files), file->d_name, 0) == 0) removed++;
    }
    closedir(files);
    return removed;
}

/* --- The thread --- */

static void *file_writer_run(void *argument) {
    struct file_writer *writer = argument;
    const struct file_writer_options *options = &writer->options;
    if (options->thread_name) pthread_setname_np(pthread_self(), options->thread_name);
    if (options->setup) options->setup();
    pthread_mutex_lock(&writer->lock);
    for (;;) {
        while (!writer->queue.len && !writer->stopping) pthread_cond_wait(&writer->submitted, &writer->lock);
        if (!writer->queue.len) break;
        struct file_writer_job *job = container_of(list_first(&writer->queue), struct file_writer_job, link);
        list_remove(&writer->queue, &job->link);
        pthread_mutex_unlock(&writer->lock);
        file_write(job->path, slice_make(job->data, job->len), job->durable, options->mode, options->lock,
                   &job->written);
        job->written.ticket = job->ticket;
        pthread_mutex_lock(&writer->lock);
        list_append(&writer->done, &job->link);
        must_less(writer->done_ticket, job->ticket);
        writer->done_ticket = job->ticket;
        pthread_cond_broadcast(&writer->finished);
        bool post = !writer->posted;
        writer->posted = true;
        if (!post) continue;
        pthread_mutex_unlock(&writer->lock);
        options->post(options->context);
        pthread_mutex_lock(&writer->lock);
    }
    pthread_mutex_unlock(&writer->lock);
    return NULL;
}

static void job_free(struct file_writer_job *job) {
    mem_free(job->path);
    mem_free(job->data);
    mem_free(job);
}

struct file_writer *file_writer_new(const struct file_writer_options *options) {
    struct file_writer *writer = mem_calloc(1, sizeof *writer);
    writer->options = *options;
    list_init(&writer->queue);
    list_init(&writer->done);
    pthread_mutex_init(&writer->lock, NULL);
    pthread_cond_init(&writer->submitted, NULL);
    pthread_cond_init(&writer->finished, NULL);
    int error = thread_create(&writer->thread, file_writer_run, writer);
    if (!error) return writer;
    mem_free(writer);
    errno = -error;
    return NULL;
}

static void deliver(struct file_writer *writer) {
    for (;;) {
        pthread_mutex_lock(&writer->lock);
        struct file_writer_job *job = NULL;
        if (writer->done.len) {
            job = container_of(list_first(&writer->done), struct file_writer_job, link);
            list_remove(&writer->done, &job->link);
        }
        pthread_mutex_unlock(&writer->lock);
        if (!job) return;
        writer->options.done(writer->options.context, &job->written);
        job_free(job);
    }
}

void file_writer_free(struct file_writer *writer) {
    if (!writer) return;
    pthread_mutex_lock(&writer->lock);
    writer->stopping = true;
    pthread_cond_signal(&writer->submitted);
    pthread_mutex_unlock(&writer->lock);
    pthread_join(writer->thread, NULL);
    must_equal(writer->queue.len, 0); /* the thread ends with the last job */
    deliver(writer);
    pthread_mutex_destroy(&writer->lock);
    pthread_cond_destroy(&writer->submitted);
    pthread_cond_destroy(&writer->finished);
    mem_free(writer);
}

uint64_t file_writer_submit(struct file_writer *writer, const char *path, struct slice content, bool durable) {
    struct file_writer_job *job = mem_calloc(1, sizeof *job), *replaced = NULL;
    *job = (struct file_writer_job){.ticket = ++writer->last_ticket,
                                    .path = mem_strdup(path),
                                    .data = mem_alloc(content.len + 1),
                                    .len = content.len,
                                    .durable = durable};
    if (content.len) memcpy(job->data, content.data, content.len);
    pthread_mutex_lock(&writer->lock);
    if (writer->queue.len) {
        replaced = container_of(writer->queue.head.prev, struct file_writer_job, link);
        if (strcmp(replaced->path, path) == 0) {
            list_remove(&writer->queue, &replaced->link);
            job->durable |= replaced->durable;
        } else {
            replaced = NULL;
        }
    }
    list_append(&writer->queue, &job->link);
    pthread_cond_signal(&writer->submitted);
    pthread_mutex_unlock(&writer->lock);
    if (replaced) job_free(replaced);
    return writer->last_ticket;
}

void file_writer_deliver(struct file_writer *writer) {
    pthread_mutex_lock(&writer->lock);
    writer->posted = false;
    pthread_mutex_unlock(&writer->lock);
    deliver(writer);
}

void file_writer_wait(struct file_writer *writer, uint64_t ticket) {
    must_within(ticket, writer->last_ticket);
    pthread_mutex_lock(&writer->lock);
    while (writer->done_ticket < ticket) pthread_cond_wait(&writer->finished, &writer->lock);
    pthread_mutex_unlock(&writer->lock);
    deliver(writer);
}

uint64_t file_writer_last_ticket(const struct file_writer *writer) {
    return writer->last_ticket;
}
