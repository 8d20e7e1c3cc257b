/* file_lock.c: see file_lock.h. */
#include "lib/system/file_lock.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

/* All locks of the process. A fork waits for the mutex: files are opened and locked while it is held, so the list has
 * all of them, and the child closes them. */
static struct list locks = LIST_INIT(locks);
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void file_lock_before_fork(void) {
    pthread_mutex_lock(&mutex);
}
static void in_parent(void) {
    pthread_mutex_unlock(&mutex);
}
static void close_both(struct file_lock *lock) {
    if (lock->file >= 0) close(lock->file);
    if (lock->lock_file >= 0) close(lock->lock_file);
    lock->file = lock->lock_file = -1;
}
static void in_child(void) {
    list_each(&locks, link) close_both(container_of(link, struct file_lock, link));
    pthread_mutex_unlock(&mutex);
}

/* Opens and locks a file. Returns the descriptor or -errno. */
static int open_locked(const char *path, int flags) {
    int fd = open(path, flags | O_RDWR | O_CLOEXEC, 0644);
    if (fd < 0) return -errno;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
    int error = -errno;
    close(fd);
    return error;
}

int file_lock_take(struct file_lock *lock, const char *path) {
    static bool fork_handled;
    *lock = (struct file_lock){.file = -1, .lock_file = -1};
    pthread_mutex_lock(&mutex);
    if (!fork_handled) fork_handled = pthread_atfork(file_lock_before_fork, in_parent, in_child) == 0;
    char *lock_path = mem_alloc(strlen(path) + sizeof ".lock");
    sprintf(lock_path, "%s.lock", path);
    lock->lock_file = open_locked(lock_path, O_CREAT);
    if (lock->lock_file >= 0) lock->file = open_locked(path, O_CREAT);
    int result = lock->lock_file < 0 ? lock->lock_file : lock->file < 0 ? lock->file : 0;
    if (result) {
        close_both(lock);
    } else {
        lock->path = mem_strdup(path);
        list_append(&locks, &lock->link);
    }
    pthread_mutex_unlock(&mutex);
    mem_free(lock_path);
    return result;
}

void file_lock_release(struct file_lock *lock) {
    pthread_mutex_lock(&mutex);
    /* A child that has just been forked may still have its copies: close() alone would leave the locks to it. */
    if (lock->file >= 0) flock(lock->file, LOCK_UN);
    if (lock->lock_file >= 0) flock(lock->lock_file, LOCK_UN);
    close_both(lock);
    if (lock->path) list_remove(&locks, &lock->link);
    pthread_mutex_unlock(&mutex);
    mem_free(lock->path);
    lock->path = NULL;
}

int file_lock_rename(struct file_lock *lock, const char *temporary) {
    int result = 0;
    must(lock->path); /* the caller holds it */
    pthread_mutex_lock(&mutex);
    /* Locks the file before the rename, so that no process finds it unlocked. A descriptor that was opened earlier
     * cannot be used: a child may have a copy. */
    int fd = open_locked(temporary, 0);
    if (rename(temporary, lock->path) < 0) result = -errno;
    if (result) {
        if (fd >= 0) close(fd);
    } else if (fd >= 0) {
        close(lock->file);
        lock->file = fd;
    }
    pthread_mutex_unlock(&mutex);
    return result;
}
