/* file_lock.h: locks for a file that only one process may use at a time, such as nodes.conf.
 *
 * Two locks (flock) are held until file_lock_release() or the end of the process. Valkey takes and checks the lock on
 * the file itself. But a rename replaces the file, and a process that has opened the old file may still lock that one.
 * Processes of this program therefore also use a lock on <path>.lock, which is never replaced. file_lock_rename() moves
 * the first lock to the new file, so that Valkey is excluded as well.
 *
 * A forked child does not hold the locks: otherwise it would keep them when its parent crashes and is restarted. */
#pragma once
#include "lib/structures/linked_list.h"

struct file_lock {
    struct list_link link; /* private */
    char *path;
    int file, lock_file; /* descriptors */
};
/* Creates the file if it is missing. Returns 0 or -errno; -EWOULDBLOCK: another process has locked it. */
int file_lock_take(struct file_lock *lock, const char *path);
void file_lock_release(struct file_lock *lock);
/* Renames `temporary` to the locked path and locks the new file. Returns 0 or -errno of the rename. Any thread may call
 * it. */
int file_lock_rename(struct file_lock *lock, const char *temporary);
