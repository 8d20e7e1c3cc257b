/* file.c: see file.h. */
#include "lib/system/file.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

int file_read(const char *path, size_t max, struct output *out) {
    int fd = open(path, O_RDONLY | O_CLOEXEC), result = 0;
    if (fd < 0) return -errno;
    for (size_t total = 0;;) {
        char *space = output_reserve(out, OUTPUT_RESERVE_MAX);
        ssize_t got = read(fd, space, OUTPUT_RESERVE_MAX);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) result = -errno;
        if (got <= 0) break;
        output_commit(out, (size_t)got);
        total += (size_t)got;
        if (total <= max) continue;
        result = -EFBIG;
        break;
    }
    close(fd);
    return result;
}

mode_t file_mode(const char *path, mode_t otherwise) {
    struct stat st;
    return stat(path, &st) == 0 ? st.st_mode & 07777 : otherwise;
}

int file_write_all(int fd, struct slice content, size_t *done) {
    while (content.len) {
        ssize_t written = write(fd, content.data, content.len);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return -errno;
        content.data += written, content.len -= (size_t)written;
        if (done) *done += (size_t)written;
    }
    return 0;
}

static int sync_and_close(int fd) {
    if (fd < 0) return -errno;
    int error = fsync(fd) < 0 && errno != EINVAL ? -errno : 0;
    close(fd);
    return error;
}
int file_sync_directory(const char *directory) {
    return sync_and_close(open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}
int file_sync_directory_at(int directory) {
    return sync_and_close(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
}

int file_sync_directory_of(const char *path) {
    char directory[PATH_MAX];
    const char *slash = strrchr(path, '/');
    if (!slash) return file_sync_directory(".");
    snprintf(directory, sizeof directory, "%.*s", (int)(slash - path) + 1, path);
    return file_sync_directory(directory);
}

int file_replace(const char *path, struct slice content, mode_t mode) {
    char temporary[PATH_MAX + 32];
    snprintf(temporary, sizeof temporary, "%s-%d.tmp-XXXXXX", path, (int)getpid());
    int fd = mkostemp(temporary, O_CLOEXEC);
    if (fd < 0) return -errno;
    int result = file_write_all(fd, content, NULL);
    if (!result && fsync(fd) < 0) result = -errno;
    if (!result && fchmod(fd, mode) < 0) result = -errno;
    if (close(fd) < 0 && !result) result = -errno;
    if (!result && rename(temporary, path) < 0) result = -errno;
    if (result)
        unlink(temporary);
    else
        file_sync_directory_of(path);
    return result;
}
