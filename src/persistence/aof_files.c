/* aof_files.c: the directory of the append-only file.
 *
 * The manifest is replaced like a snapshot: a temporary file, fsync(), rename(), fsync() of the directory. So after a
 * crash there is the old manifest or the new one. The files of both exist: a file is created and the directory is
 * synced before a manifest names the file, and it is deleted after a manifest that does not name it is on disk.
 *
 * If the directory cannot be synced after the rename(), a crash may bring back the old manifest, and writes to files
 * that only the new one names would be lost. This is treated like a failed fsync() of the file (aof_sync.c): the server
 * exits, or refuses writes until the directory is synced. Until then no file is deleted. */
#include "lib/system/background.h"
#include "lib/system/file.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "persistence/aof_private.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

const char *aof_path(const char *name) {
    static char paths[2][PATH_MAX];
    static int turn;
    turn = !turn;
    int len = snprintf(paths[turn], sizeof paths[turn], "%s/%s", aof_settings.directory, name);
    if (len < 0 || len >= PATH_MAX) paths[turn][0] = 0; /* open() fails, instead of opening a truncated path */
    return paths[turn];
}

int aof_directory_sync(void) {
    return file_sync_directory(aof_settings.directory);
}

/* --- The manifest --- */

static int replace_file(const char *temporary, const char *path, struct slice bytes) {
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) return -errno;
    int error = file_write_all(fd, bytes, NULL);
    if (!error && fsync(fd) < 0) error = -errno;
    close(fd);
    if (!error) error = file_sync_directory(aof_settings.directory);
    if (!error && rename(temporary, path) < 0) error = -errno;
    if (error) {
        unlink(temporary);
        return error;
    }
    /* The new manifest is in use from now on, on disk or not: the rename cannot be undone. */
    error = file_sync_directory(aof_settings.directory);
    if (error) {
        log_warning("Fail to fsync the AOF directory %s: %s", aof_settings.directory, strerror(-error));
        aof_sync_directory_failed(error);
    }
    return 0;
}

/* A new directory is durable when its parent is synced. If the server is killed before that, the next start does it
 * (aof_files_sync()). */
int aof_directory_create(void) {
    int error = 0;
    if (mkdir(aof_settings.directory, 0755) == 0)
        error = file_sync_directory(".");
    else if (errno != EEXIST)
        error = -errno;
    if (error) log_warning("Can't open or create append-only dir %s: %s", aof_settings.directory, strerror(-error));
    return error;
}

int aof_manifest_save(struct aof_manifest *manifest) {
    if (!manifest->changed) return 0;
    char name[PATH_MAX], temporary[PATH_MAX];
    snprintf(name, sizeof name, "%s/%s.manifest", aof_settings.directory, aof_settings.file_name);
    snprintf(temporary, sizeof temporary, "%s/temp-%s.manifest", aof_settings.directory, aof_settings.file_name);
    int error = aof_directory_create();
    if (error) return error;
    struct memory_output text = MEMORY_OUTPUT_INIT;
    aof_manifest_format(manifest, &text.out);
    error = replace_file(temporary, name, memory_output_slice(&text));
    memory_output_free(&text);
    if (error)
        log_warning("Cannot write the AOF manifest file %s: %s", name, strerror(-error));
    else
        manifest->changed = false;
    return error;
}

/* --- Deleting files --- */

static void delete_run(void *arg) {
    char *path = arg;
    if (unlink(path) < 0 && errno != ENOENT) log_warning("Error deleting the file %s: %s", path, strerror(errno));
    mem_free(path);
}

void aof_history_delete(void) {
    struct aof_manifest *manifest = aof.manifest;
    if (aof_settings.keep_history || !manifest->history.len || aof_sync_directory_pending()) return;
    list_each(&manifest->history, link) {
        const char *name = aof_file_of(link)->name;
        log_notice("Removing the history file %s in the background", name);
        background_submit(BACKGROUND_CLOSE_FILE, delete_run, mem_strdup(aof_path(name)));
    }
    aof_manifest_drop_history(manifest);
    aof_manifest_save(manifest);
}

void aof_delete_temporary_files(void) {
    char name[PATH_MAX];
    snprintf(name, sizeof name, "temp-%s.incr", aof_settings.file_name);
    unlink(aof_path(name));
    snprintf(name, sizeof name, "temp-%s.manifest", aof_settings.file_name);
    unlink(aof_path(name));
}

static uint64_t file_size(const char *name) {
    struct stat status;
    return stat(aof_path(name), &status) == 0 ? (uint64_t)status.st_size : 0;
}

/* At start: syncs what an earlier process may have left unsynced, because later writes build on it. */
int aof_files_sync(int fd) {
    int error = fdatasync(fd) < 0 ? -errno : 0;
    if (!error) error = file_sync_directory(aof_settings.directory);
    if (!error) error = file_sync_directory(".");
    if (error) log_warning("Fail to fsync the AOF file or its directory: %s", strerror(-error));
    return error;
}

uint64_t aof_base_file_size(void) {
    return aof.manifest->base ? file_size(aof.manifest->base->name) : 0;
}

uint64_t aof_files_size(void) {
    uint64_t size = aof_base_file_size();
    list_each(&aof.manifest->incremental, link) size += file_size(aof_file_of(link)->name);
    return size;
}

/* --- Incremental files --- */

int aof_incremental_create(const char *reason) {
    struct aof_manifest *next = aof_manifest_copy(aof.manifest);
    struct aof_file *file = aof_manifest_add_incremental(next, aof_settings.file_name);
    log_notice("Creating AOF incr file %s on %s", file->name, reason);
    aof_directory_create();
    int fd = open(aof_path(file->name), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) {
        int error = errno;
        log_warning("Can't open the append-only file %s: %s", file->name, strerror(error));
        aof_manifest_free(next);
        return -error;
    }
    int error = aof_manifest_save(next);
    if (error) {
        unlink(aof_path(file->name));
        close(fd);
        aof_manifest_free(next);
        return error;
    }
    aof_manifest_free(aof.manifest);
    aof.manifest = next;
    return fd;
}

/* The files of the old and the new manifest exist until the new one is saved, so a crash leaves one of the two intact.
 * */
int aof_base_adopt(const char *rdb) {
    int fd = -1, error = aof_directory_create();
    if (error) return error;
    struct aof_manifest *next = aof_manifest_copy(aof.manifest);
    const char *base = aof_manifest_add_base(next, aof_settings.file_name, true)->name;
    const char *incremental = aof_manifest_add_incremental(next, aof_settings.file_name)->name;
    aof_manifest_retire(next, 1);
    if (rename(rdb, aof_path(base)) < 0) {
        error = -errno;
    } else {
        fd = open(aof_path(incremental), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644);
        error = fd < 0 ? -errno : aof_manifest_save(next);
        if (error) {
            if (fd >= 0) {
                unlink(aof_path(incremental));
                close(fd);
            }
            if (rename(aof_path(base), rdb) < 0)
                log_warning("Cannot rename %s back to %s: %s", base, rdb, strerror(errno));
        }
    }
    if (error) {
        aof_manifest_free(next);
        return error;
    }
    aof_manifest_free(aof.manifest);
    aof.manifest = next;
    return fd;
}

int aof_incremental_open(void) {
    struct aof_file *file = aof_manifest_last(aof.manifest);
    if (!file) return aof_incremental_create("server start");
    log_notice("Opening AOF incr file %s on server start", file->name);
    int fd = open(aof_path(file->name), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd >= 0) return fd;
    int error = errno;
    log_warning("Can't open the append-only file %s: %s", file->name, strerror(error));
    return -error;
}
