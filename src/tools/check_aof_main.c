/* check_aof_main.c: valkey-check-aof: checks an append-only file, or all files of a manifest. It can truncate the last
 * file after the last valid record, or at a point in time. The exit status is 0 if the files are valid, else 1.
 *
 * A file is valid up to the last record outside of an incomplete transaction. Only the last file may be truncated,
 * because later files depend on all commands of earlier ones. */
#include "formats/aof_manifest.h"
#include "formats/aof_reader.h"
#include "formats/rdb_file.h"
#include "lib/system/memory.h"
#include "lib/system/version.h"
#include "lib/text/number.h"
#include "tools/check_rdb.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAGIC_PEEK = 6, MANIFEST_MAX = 16 * 1024 * 1024 };
enum outcome { VALID, EMPTY, CUT, BAD };

static struct {
    bool fix;
    int64_t truncate_to; /* Unix time; 0: do not truncate */
    uint64_t line;       /* lines of all files so far, plus one */
} check = {.line = 1};

static int open_file(const char *path, struct stat *info) {
    int fd = open(path, (check.fix || check.truncate_to ? O_RDWR : O_RDONLY) | O_CLOEXEC);
    if (fd >= 0 && fstat(fd, info) == 0 && S_ISREG(info->st_mode)) return fd;
    if (fd >= 0)
        printf("Cannot open file %s: it is no regular file\n", path);
    else
        printf("Cannot open file %s: %s, aborting...\n", path, strerror(errno));
    if (fd >= 0) close(fd);
    return -1;
}

static bool looks_like_rdb(struct source *source) {
    source_want(source, MAGIC_PEEK);
    return rdb_is_magic(source->at, (size_t)(source->end - source->at));
}

/* Truncates at the first annotation after the point in time. */
static enum outcome cut_at_time(int fd, const char *path, const char *name, bool last, uint64_t offset) {
    if (offset == 0) {
        printf("AOF %s has nothing before timestamp %lld, aborting...\n", path, (long long)check.truncate_to);
        return BAD;
    }
    if (!last) {
        printf("Failed to truncate AOF %s to timestamp %lld to offset %llu because it is not the last file.\n", path,
               (long long)check.truncate_to, (unsigned long long)offset);
        printf("If you insist, please delete all files after this file according to the manifest file and delete the "
               "corresponding records in manifest file manually. Then re-run valkey-check-aof.\n");
        return BAD;
    }
    if (ftruncate(fd, (off_t)offset) != 0) {
        printf("Failed to truncate AOF %s to timestamp %lld\n", name, (long long)check.truncate_to);
        return BAD;
    }
    return CUT;
}

static bool confirmed(const char *name, uint64_t size, uint64_t good) {
    char answer[8] = "";
    printf("This will shrink the AOF %s from %llu bytes, with %llu bytes, to %llu bytes\nContinue? [y/N]: ", name,
           (unsigned long long)size, (unsigned long long)(size - good), (unsigned long long)good);
    fflush(stdout);
    if (fgets(answer, sizeof answer, stdin) && strncasecmp(answer, "y", 1) == 0) return true;
    printf("Aborting...\n");
    return false;
}

static enum outcome fix(int fd, const char *name, bool last, uint64_t size, uint64_t good) {
    if (!check.fix) {
        printf("AOF %s is not valid. Use the --fix option to try fixing it.\n", name);
        return BAD;
    }
    if (!last) {
        printf("Failed to truncate AOF %s because it is not the last file\n", name);
        return BAD;
    }
    if (!confirmed(name, size, good)) return BAD;
    if (ftruncate(fd, (off_t)good) != 0) {
        printf("Failed to truncate AOF %s\n", name);
        return BAD;
    }
    printf("Successfully truncated AOF %s\n", name);
    return CUT;
}

static void show_failure(const struct aof_reader *reader, enum aof_record record, const char *name) {
    if (record == AOF_FAILED)
        printf("0x%16llx: %s\n", (unsigned long long)source_offset(reader->source), reader->source->reason);
    else if (reader->part_offset == reader->record_offset && strcmp(reader->reason, "format error") == 0)
        printf("AOF %s format error\n", name);
    else
        printf("0x%16llx: %s%s%s\n", (unsigned long long)reader->part_offset, reader->reason,
               strncmp(reader->reason, "Unexpected ", 11) == 0 ? " in AOF " : "",
               strncmp(reader->reason, "Unexpected ", 11) == 0 ? name : "");
}

static enum outcome check_records(struct source *source, int fd, const char *path, const char *name, bool last,
                                  uint64_t size) {
    struct aof_reader reader;
    enum aof_record record;
    enum outcome outcome = VALID;
    aof_reader_init(&reader, source);
    reader.line = check.line;
    while ((record = aof_reader_next(&reader)) == AOF_COMMAND || record == AOF_ANNOTATION)
        if (record == AOF_ANNOTATION && check.truncate_to && reader.timestamp > check.truncate_to) {
            outcome = cut_at_time(fd, path, name, last, reader.record_offset);
            break;
        }
    check.line = reader.line;
    bool bad = record == AOF_TRUNCATED || record == AOF_DAMAGED || record == AOF_FAILED;
    uint64_t good = reader.good_offset;
    if (bad) show_failure(&reader, record, name);
    aof_reader_free(&reader);
    if (check.truncate_to && !bad) {
        if (outcome == VALID)
            printf("Truncate nothing in AOF %s to timestamp %lld\n", name, (long long)check.truncate_to);
        else if (outcome == CUT)
            printf("Successfully truncated AOF %s to timestamp %lld\n", name, (long long)check.truncate_to);
        return outcome;
    }
    printf("AOF analyzed: filename=%s, size=%llu, ok_up_to=%llu, ok_up_to_line=%llu, diff=%llu\n", name,
           (unsigned long long)size, (unsigned long long)good, (unsigned long long)check.line,
           (unsigned long long)(size - good));
    if (record == AOF_FAILED) return BAD;
    return bad ? fix(fd, name, last, size, good) : VALID;
}

static enum outcome check_file(const char *path, const char *name, bool last, bool base, bool named) {
    struct stat info;
    struct source source;
    int fd = open_file(path, &info);
    if (fd < 0) return BAD;
    if (info.st_size == 0) {
        close(fd);
        return EMPTY;
    }
    source_init_fd(&source, fd);
    bool rdb = looks_like_rdb(&source), good = true;
    if (base) printf("Start to check BASE AOF (%s format).\n", rdb ? "RDB" : "RESP");
    if (rdb) {
        static const struct check_rdb_options plain;
        good = check_rdb(&source, named ? path : name, &plain);
        printf(good ? "RDB preamble is OK, proceeding with AOF tail...\n"
                    : "RDB preamble of AOF file is not sane, aborting.\n");
    }
    enum outcome outcome = good ? check_records(&source, fd, path, name, last, (uint64_t)info.st_size) : BAD;
    source_free(&source);
    close(fd);
    return outcome;
}

static void show(const char *kind, const char *name, enum outcome outcome) {
    if (outcome == VALID) printf("%sAOF %s is valid\n", kind, name);
    if (outcome == EMPTY) printf("%sAOF %s is empty\n", kind, name);
}

/* --- Several files --- */

static char *read_manifest(const char *path, size_t *len) {
    struct stat info;
    struct source source;
    char *text = NULL;
    int fd = open_file(path, &info);
    if (fd < 0) return NULL;
    if (info.st_size > MANIFEST_MAX) {
        printf("Cannot read file %s: it is too large for a manifest\n", path);
    } else {
        *len = (size_t)info.st_size;
        text = mem_alloc(*len + 1);
        source_init_fd(&source, fd);
        if (!source_read(&source, text, *len)) {
            printf("Cannot read file %s: %s\n", path, source.reason);
            mem_free(text);
            text = NULL;
        }
        source_free(&source);
    }
    close(fd);
    return text;
}

static bool check_named(const char *directory, const struct aof_file *file, bool last) {
    bool base = file->type == AOF_BASE;
    size_t size = strlen(directory) + strlen(file->name) + 2;
    char *path = mem_alloc(size);
    snprintf(path, size, "%s/%s", directory, file->name);
    enum outcome outcome = check_file(path, file->name, last, base, true);
    show(base ? "BASE " : "INCR ", file->name, outcome);
    mem_free(path);
    return outcome != BAD;
}

static bool check_manifest_files(const struct aof_manifest *manifest, const char *directory) {
    const struct list *files = &manifest->incremental;
    if (manifest->base && !check_named(directory, manifest->base, files->len == 0)) return false;
    if (files->len) printf("Start to check INCR files.\n");
    for (struct list_link *link = files->head.next; link != &files->head; link = link->next)
        if (!check_named(directory, aof_file_of(link), link->next == &files->head)) return false;
    printf("All AOF files and manifest are valid\n");
    return true;
}

static bool check_manifest(const char *path) {
    const char *error, *slash = strrchr(path, '/');
    int line;
    struct slice at;
    size_t len;
    printf("Start checking Multi Part AOF\n");
    char *text = read_manifest(path, &len);
    if (!text) return false;
    struct aof_manifest *manifest = aof_manifest_parse((struct slice){text, len}, &error, &line, &at);
    bool good = false;
    if (!manifest) {
        printf("*** FATAL AOF MANIFEST FILE ERROR ***\nReading the manifest file, at line %d\n>>> '%.*s'\n%s\n", line,
               (int)at.len, at.data, error);
    } else {
        char *directory = slash ? mem_strndup(path, (size_t)(slash - path)) : mem_strdup(".");
        good = check_manifest_files(manifest, directory);
        mem_free(directory);
        aof_manifest_free(manifest);
    }
    mem_free(text);
    return good;
}

static bool check_single(const char *path) {
    if (access(path, F_OK) != 0) {
        printf("Cannot open file %s: %s\n", path, strerror(errno));
        return false;
    }
    printf("Start checking Old-Style AOF\n");
    enum outcome outcome = check_file(path, path, true, false, false);
    show("", path, outcome);
    return outcome != BAD;
}

/* A manifest's first line that is neither empty nor a comment starts with "file". */
static bool is_manifest(const char *path) {
    char text[256] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t len = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
    if (fd >= 0) close(fd);
    const char *at = text;
    for (; len > 0; at = strchr(at, '\n') + 1) {
        while (isspace((unsigned char)*at)) at++;
        if (*at != '#') return strncasecmp(at, "file ", 5) == 0;
        if (!strchr(at, '\n') || strncmp(at, "#TS:", 4) == 0) return false;
    }
    return false;
}

static int usage(const char *program, int status) {
    printf("Usage: %s [--fix|--truncate-to-timestamp $timestamp] <file.manifest|file.aof>\n", program);
    return status;
}

static int help(const char *program) {
    usage(program, 0);
    printf("\n"
           "Checks an append-only file, or all files of a manifest. The exit status is 0 if they are valid.\n"
           "  --fix                    Truncate the last file after its last valid command\n"
           "  --truncate-to-timestamp  Truncate it after the commands of this Unix time; the file must\n"
           "                           have annotations (aof-timestamp-enabled)\n"
           "  --version, --help\n"
           "If the name of the file starts with a dash, give its directory: ./-name\n");
    return 0;
}

int main(int argc, char **argv) {
    const char *path = NULL;
    if (argc == 2 && (strcmp(argv[1], "-v") == 0 || strcmp(argv[1], "--version") == 0)) {
        printf("valkey-check-aof v=" PROJECT_VERSION "\n");
        return 0;
    }
    if (argc == 2 && (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0)) return help(argv[0]);
    if (argc == 2 && argv[1][0] != '-')
        path = argv[1];
    else if (argc == 3 && strcmp(argv[1], "--fix") == 0)
        check.fix = true, path = argv[2];
    else if (argc == 4 && strcmp(argv[1], "--truncate-to-timestamp") == 0)
        path = argv[3];
    else
        return usage(argv[0], 1);
    if (argc == 4 && (!parse_int64(slice_of(argv[2]), &check.truncate_to) || check.truncate_to <= 0)) {
        printf("Invalid timestamp, aborting...\n");
        return 1;
    }
    return (is_manifest(path) ? check_manifest(path) : check_single(path)) ? 0 : 1;
}
