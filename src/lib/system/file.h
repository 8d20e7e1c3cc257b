/* file.h: small files that are read and replaced as a whole: the configuration, the users; directories. Errors are
 * -errno. */
#pragma once
#include "lib/text/output.h"
#include "lib/text/slice.h"
#include <sys/types.h>

/* Appends the content of a file, at most `max` bytes (-EFBIG: it has more). */
int file_read(const char *path, size_t max, struct output *out);
/* Writes a file beside `path`, syncs it and renames it to `path`, so that a crash leaves either the old or the new
 * content.
 */
int file_replace(const char *path, struct slice content, mode_t mode);
mode_t file_mode(const char *path, mode_t otherwise); /* returns `otherwise` if the file does not exist */
/* Writes all of it. *done counts the bytes, also of a failure; NULL: not wanted. */
int file_write_all(int fd, struct slice content, size_t *done);
/* What was created, renamed or removed in a directory is durable when the directory is synced. A file system that
 * cannot do this (EINVAL) is no failure. The last function takes the path of a file in the directory. */
int file_sync_directory(const char *directory);
int file_sync_directory_at(int directory); /* a descriptor, also of O_PATH, or AT_FDCWD */
int file_sync_directory_of(const char *path);
