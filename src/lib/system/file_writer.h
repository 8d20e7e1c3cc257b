/* file_writer.h: a thread that replaces small files as a whole: nodes.conf, Sentinel's file.
 *
 * A file is written beside its path, synced, renamed over the path, and its directory is synced, so that a crash leaves
 * the old content or the new. An fsync may take half a second on a busy disk. The event loop does not wait for it: it
 * submits the content, gets a ticket, continues, and sends messages that depend on the file (a vote, an epoch) when the
 * ticket is done.
 *
 * Tickets are done in the order in which they were submitted. If the last submitted content has not been started and
 * another content for the same path is submitted, the new content replaces it, and both tickets are done together.
 * Content for another path in between prevents this, because the order would change.
 *
 * Rejected: a kind of job in background.h, because every server would have one more thread, needed or not. */
#pragma once
#include "lib/text/slice.h"
#include <stdint.h>
#include <sys/types.h>

struct file_lock;
struct file_writer;

enum file_step {
    FILE_STEP_OPEN,
    FILE_STEP_WRITE,
    FILE_STEP_FSYNC,
    FILE_STEP_CLOSE,
    FILE_STEP_RENAME,
    FILE_STEP_DIR_FSYNC,
    FILE_STEP_UNLINK, /* of the temporary file, after a failure */
    FILE_STEPS
};
const char *file_step_name(enum file_step step); /* "open", "dir-fsync", ... */

struct file_written {
    uint64_t ticket; /* this ticket and all earlier ones are done */
    const char *path;
    size_t len, done; /* bytes of the content; how many of them were written */
    bool durable;
    int error; /* 0, or -errno of the step that failed. The file has its old content unless that step is DIR_FSYNC */
    enum file_step failed;
    uint32_t step_us[FILE_STEPS]; /* duration of each step; 0: not reached */
};

struct file_writer_options {
    mode_t mode;             /* of new files, less the umask */
    const char *thread_name; /* at most 15 characters */
    void (*setup)(void);     /* called first in the thread, for CPU pinning; may be NULL */
    /* Called in the writer's thread: the owner's thread must then call file_writer_deliver(). It is not called again
     * before that, so that a post to an event loop may be a member of the owner. */
    void (*post)(void *context);
    void (*done)(void *context, const struct file_written *written); /* called by file_writer_deliver() */
    void *context;
    struct file_lock *lock; /* lock of one of the paths, which is replaced with file_lock_rename(); may be NULL */
};
/* NULL, with errno: the thread could not be started. All functions are for the owner's thread. */
struct file_writer *file_writer_new(const struct file_writer_options *options);
/* Writes and delivers all submitted contents and ends the thread. A call of `post` may still be unanswered. */
void file_writer_free(struct file_writer *writer);

/* Submits a copy of `content`. Without `durable` nothing is synced. */
uint64_t file_writer_submit(struct file_writer *writer, const char *path, struct slice content, bool durable);
/* Calls `done` for all completed tickets. Call it only after `post`. */
void file_writer_deliver(struct file_writer *writer);
/* Waits until the ticket is done, and delivers. */
void file_writer_wait(struct file_writer *writer, uint64_t ticket);
uint64_t file_writer_last_ticket(const struct file_writer *writer); /* 0: nothing was submitted */

/* Removes files that writers of `path` have left behind because their process was killed: regular files beside it with
 * the names of temporary files. Returns their number. Call it only with the lock of `path` (file_lock.h). */
int file_writer_clean(const char *path);

/* Replaces a file in the calling thread, as the writer does for each content. Fills *written except `ticket`. */
void file_write(const char *path, struct slice content, bool durable, mode_t mode, struct file_lock *lock,
                struct file_written *written);
