/* disk-faults.c: a library that makes a disk fail, for tests of what a program does then.
 *
 *   LD_PRELOAD=…/disk-faults.so DISK_FAULTS=FILE program…
 *
 * With DISK_SYNCED=DIRECTORY the library records there what a test needs to make a killed process's files look as after
 * a crash of the machine. It records files below the directory that DIRECTORY is in:
 *
 *   DEVICE-INODE  the length that the file had when its last successful sync began
 *   names         every change of a directory entry (create, rename, unlink, mkdir) and every sync of a directory, in
 *                 their order. The fields of a line are separated by tabs:
 *                     change DIR NAME OLD NEW [DIR NAME OLD NEW]    inodes before and after, 0: no such entry
 *                     begin ID DIR                                  a sync of DIR begins,
 *                     end ID                                        and has succeeded
 *   kept-INODE    a link to each file that has lost a name
 *
 * FILE holds rules, one a line, and is read anew at each call that a rule may concern, so that a test switches faults
 * on and off while the program runs. No file, or an empty one: nothing fails.
 *
 *   CALL GLOB ACTION [ARGUMENT] [after=N] [times=N]
 *
 *   CALL    write (write, writev, pwrite), sync (fsync, fdatasync, sync_file_range; of directories, too), rename,
 *           unlink, open (for writing), the three also by a descriptor of a directory, or close
 *   GLOB    of the file's path as the kernel shows it: "*" is anything. Of the new name for rename
 *   ACTION  fail NAME   the call fails with ENOSPC, EIO, EDQUOT, EACCES, EROFS or EINTR
 *           short N     a write takes at most N bytes
 *           slow MS     the call takes MS milliseconds longer
 *           wait        a sync begins when the rule is gone; until then there is a file FILE.waiting
 *           kill        the process ends by SIGKILL in the middle of the call: half of the bytes are written
 *           powercut    the same, and bytes that were written to the file after its last successful sync are lost
 *   after   for write: only once that many bytes were written to files of that rule, by this process; what goes beyond
 *           is cut off first, so that a failure falls on exactly that byte. For other calls: once they came that often
 *   times   at most that often in this process
 *
 * Counts belong to a rule, by its text, and to a process: a child starts with those of its parent. Of the rules that
 * fit a call, the first one acts. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { RULES_MAX = 32, LINE_MAX_BYTES = 512, FILE_MAX_BYTES = 8192, SYNCED_MAX = 64 };

struct rule {
    char call[16], glob[256], action[16], argument[32];
    uint64_t after, times;
    struct count *count;
};
struct count {
    char line[LINE_MAX_BYTES];
    uint64_t seen, done;
};
static struct count counts[RULES_MAX];
static struct rule rules[RULES_MAX];
static int rules_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A child that is forked while another thread holds the lock would wait for it for ever. */
static void before_fork(void) {
    pthread_mutex_lock(&lock);
}
static void after_fork(void) {
    pthread_mutex_unlock(&lock);
}
__attribute__((constructor)) static void set_up(void) {
    pthread_atfork(before_fork, after_fork, after_fork);
}

/* How much of a file is on the disk, for powercut. */
static struct synced {
    dev_t device;
    ino_t inode;
    off_t bytes;
} synced[SYNCED_MAX];
static int synced_count;

static struct count *count_of(const char *line) {
    for (int i = 0; i < RULES_MAX; i++) {
        if (!counts[i].line[0]) snprintf(counts[i].line, sizeof counts[i].line, "%s", line);
        if (strcmp(counts[i].line, line) == 0) return &counts[i];
    }
    return NULL;
}

static void parse(char *line) {
    struct rule rule = {.times = UINT64_MAX};
    struct count *count = count_of(line);
    char *word[8], *save, *at = strtok_r(line, " \t", &save);
    int words = 0;
    for (; at && words < 8; at = strtok_r(NULL, " \t", &save)) word[words++] = at;
    if (words < 3 || !count) return;
    snprintf(rule.call, sizeof rule.call, "%s", word[0]);
    snprintf(rule.glob, sizeof rule.glob, "%s", word[1]);
    snprintf(rule.action, sizeof rule.action, "%s", word[2]);
    for (int i = 3; i < words; i++) {
        if (strncmp(word[i], "after=", 6) == 0)
            rule.after = strtoull(word[i] + 6, NULL, 10);
        else if (strncmp(word[i], "times=", 6) == 0)
            rule.times = strtoull(word[i] + 6, NULL, 10);
        else
            snprintf(rule.argument, sizeof rule.argument, "%s", word[i]);
    }
    rule.count = count;
    rules[rules_count++] = rule;
}

static void read_rules(void) {
    rules_count = 0;
    const char *path = getenv("DISK_FAULTS");
    int fd = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC) : -1;
    if (fd < 0) return;
    char text[FILE_MAX_BYTES];
    ssize_t len = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
    if (len <= 0) return;
    text[len] = 0;
    char *save;
    for (char *line = strtok_r(text, "\n", &save); line && rules_count < RULES_MAX; line = strtok_r(NULL, "\n", &save))
        if (*line != '#') parse(line);
}

static bool path_of(int fd, char *path, size_t size) {
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, size - 1);
    if (len <= 0) return false;
    path[len] = 0;
    return path[0] == '/'; /* not a pipe or socket */
}

/* The rule that acts on this call. With the lock. */
static struct rule *find(const char *call, const char *path) {
    read_rules();
    for (int i = 0; i < rules_count; i++) {
        struct rule *rule = &rules[i];
        if (strcmp(rule->call, call) == 0 && rule->count->done < rule->times && fnmatch(rule->glob, path, 0) == 0)
            return rule;
    }
    return NULL;
}

static int error_of(const struct rule *rule) {
    static const struct {
        const char *name;
        int number;
    } errors[] = {{"ENOSPC", ENOSPC}, {"EIO", EIO},     {"EDQUOT", EDQUOT},
                  {"EACCES", EACCES}, {"EROFS", EROFS}, {"EINTR", EINTR}};
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strcmp(errors[i].name, rule->argument) == 0) return errors[i].number;
    return EIO;
}

static struct synced *synced_of(int fd) {
    struct stat status;
    if (fstat(fd, &status) < 0) return NULL;
    for (int i = 0; i < synced_count; i++)
        if (synced[i].device == status.st_dev && synced[i].inode == status.st_ino) return &synced[i];
    if (synced_count == SYNCED_MAX) return NULL;
    synced[synced_count] = (struct synced){status.st_dev, status.st_ino, 0};
    return &synced[synced_count++];
}

static void end_process(const struct rule *rule, int fd) {
    if (strcmp(rule->action, "powercut") == 0 && fd >= 0) {
        struct synced *file = synced_of(fd);
        if (file && ftruncate(fd, file->bytes) < 0) _exit(99);
    }
    raise(SIGKILL);
}
static bool ends_process(const struct rule *rule) {
    return strcmp(rule->action, "kill") == 0 || strcmp(rule->action, "powercut") == 0;
}
static void sleep_ms(long ms) {
    struct timespec time = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&time, &time) < 0 && errno == EINTR) continue;
}

/* What is to happen to a write of `len` bytes: how many of them may be written (0: the error in *error). */
static size_t judge_write(int fd, size_t len, int *error, bool *ends) {
    char path[4096];
    *error = 0;
    *ends = false;
    if (!getenv("DISK_FAULTS") || len == 0 || !path_of(fd, path, sizeof path)) return len;
    long slow = 0;
    pthread_mutex_lock(&lock);
    struct rule *rule = find("write", path);
    if (rule) {
        struct count *count = rule->count;
        if (count->seen < rule->after) {
            if (len > rule->after - count->seen) len = rule->after - count->seen;
        } else if (strcmp(rule->action, "fail") == 0) {
            *error = error_of(rule);
            count->done++;
        } else if (strcmp(rule->action, "short") == 0) {
            size_t most = strtoull(rule->argument, NULL, 10);
            if (most && len > most) {
                len = most;
                count->done++;
            }
        } else if (strcmp(rule->action, "slow") == 0) {
            slow = strtol(rule->argument, NULL, 10);
            count->done++;
        } else if (ends_process(rule)) {
            *ends = true;
            len = len / 2;
        }
        if (!*error) count->seen += len;
    }
    pthread_mutex_unlock(&lock);
    if (slow) sleep_ms(slow);
    return len;
}
static void end_after_write(int fd) {
    char path[4096];
    pthread_mutex_lock(&lock);
    struct rule *rule = path_of(fd, path, sizeof path) ? find("write", path) : NULL;
    if (rule) end_process(rule, fd);
    raise(SIGKILL);
}

#define REAL(name, type, ...)                                                                                          \
    static type (*real)(__VA_ARGS__);                                                                                  \
    if (!real) real = (type(*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

ssize_t write(int fd, const void *bytes, size_t len) {
    REAL("write", ssize_t, int, const void *, size_t);
    int error;
    bool ends;
    size_t allowed = judge_write(fd, len, &error, &ends);
    if (error) {
        errno = error;
        return -1;
    }
    ssize_t written = allowed || !ends ? real(fd, bytes, allowed) : 0;
    if (ends) end_after_write(fd);
    return written;
}
ssize_t pwrite(int fd, const void *bytes, size_t len, off_t offset) {
    REAL("pwrite", ssize_t, int, const void *, size_t, off_t);
    int error;
    bool ends;
    size_t allowed = judge_write(fd, len, &error, &ends);
    if (error) {
        errno = error;
        return -1;
    }
    ssize_t written = allowed || !ends ? real(fd, bytes, allowed, offset) : 0;
    if (ends) end_after_write(fd);
    return written;
}
ssize_t writev(int fd, const struct iovec *pieces, int count) {
    REAL("writev", ssize_t, int, const struct iovec *, int);
    size_t len = 0;
    for (int i = 0; i < count; i++) len += pieces[i].iov_len;
    int error;
    bool ends;
    size_t allowed = judge_write(fd, len, &error, &ends);
    if (error) {
        errno = error;
        return -1;
    }
    if (allowed == len && !ends) return real(fd, pieces, count);
    struct iovec cut[64];
    int used = 0;
    for (size_t left = allowed; left && used < count && used < 64; used++) {
        cut[used] = pieces[used];
        if (cut[used].iov_len > left) cut[used].iov_len = left;
        left -= cut[used].iov_len;
    }
    ssize_t written = used ? real(fd, cut, used) : 0;
    if (ends) end_after_write(fd);
    return written;
}

static void show_waiting(bool waits) {
    char path[4096];
    snprintf(path, sizeof path, "%s.waiting", getenv("DISK_FAULTS"));
    if (!waits) {
        unlinkat(AT_FDCWD, path, 0);
        return;
    }
    int fd = openat(AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    if (fd >= 0) close(fd);
}

/* True: the call fails with errno set. */
static bool judge(const char *call, const char *path, int fd) {
    if (!getenv("DISK_FAULTS")) return false;
    bool waits = false;
    long slow = 0;
    int error = 0;
    pthread_mutex_lock(&lock);
    struct rule *rule = find(call, path);
    if (rule && rule->count->seen++ >= rule->after) {
        rule->count->done++;
        if (strcmp(rule->action, "fail") == 0) error = error_of(rule);
        if (strcmp(rule->action, "slow") == 0) slow = strtol(rule->argument, NULL, 10);
        waits = strcmp(rule->action, "wait") == 0;
        if (ends_process(rule)) end_process(rule, fd);
    }
    pthread_mutex_unlock(&lock);
    if (slow) sleep_ms(slow);
    if (waits) show_waiting(true);
    bool waited = waits;
    while (waits) {
        sleep_ms(2);
        pthread_mutex_lock(&lock);
        rule = find(call, path);
        waits = rule && strcmp(rule->action, "wait") == 0;
        pthread_mutex_unlock(&lock);
    }
    if (waited) show_waiting(false);
    if (error) errno = error;
    return error != 0;
}
static bool judge_fd(const char *call, int fd) {
    char path[4096];
    int saved = errno;
    if (!getenv("DISK_FAULTS") || !path_of(fd, path, sizeof path)) {
        errno = saved;
        return false;
    }
    if (judge(call, path, fd)) return true;
    errno = saved;
    return false;
}
/* The length of the file before it is synced: what is written meanwhile may be lost. -1: of no interest. */
static off_t length_before(int fd) {
    struct stat status;
    if (!getenv("DISK_FAULTS") && !getenv("DISK_SYNCED")) return -1;
    return fstat(fd, &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : -1;
}
static void record_synced(const char *directory, int fd, off_t bytes) {
    struct stat status;
    if (fstat(fd, &status) < 0) return;
    char path[512], text[32];
    snprintf(path, sizeof path, "%s/%llu-%llu", directory, (unsigned long long)status.st_dev,
             (unsigned long long)status.st_ino);
    int out = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (out < 0) return;
    /* One write of a fixed length: a process that is killed leaves the old text or the new one. */
    int len = snprintf(text, sizeof text, "%020lld", (long long)bytes);
    syscall(SYS_pwrite64, out, text, (size_t)len, (off_t)0);
    syscall(SYS_close, out);
}
static void note_synced(int fd, off_t bytes) {
    if (bytes < 0) return;
    pthread_mutex_lock(&lock);
    struct synced *file = synced_of(fd);
    if (file) file->bytes = bytes;
    if (getenv("DISK_SYNCED")) record_synced(getenv("DISK_SYNCED"), fd, bytes);
    pthread_mutex_unlock(&lock);
}

/* Directory entries */

struct entry {
    char directory[PATH_MAX], name[NAME_MAX + 1];
    ino_t before, after;
};

static ino_t inode_at(const char *path) {
    struct stat status;
    return lstat(path, &status) == 0 ? status.st_ino : 0;
}

/* False: changes of this entry are not recorded. */
static bool entry_find(const char *path, struct entry *entry) {
    const char *synced_directory = getenv("DISK_SYNCED"), *slash = strrchr(path, '/');
    char parent[PATH_MAX];
    if (!synced_directory || strlen(path) >= sizeof parent) return false;
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - path) : 1, slash ? path : ".");
    if (!realpath(parent[0] ? parent : "/", entry->directory)) return false;
    size_t root = (size_t)(strrchr(synced_directory, '/') - synced_directory), len = strlen(synced_directory);
    if (strncmp(entry->directory, synced_directory, root) != 0) return false;
    if (entry->directory[root] && entry->directory[root] != '/') return false;
    if (strncmp(entry->directory, synced_directory, len) == 0) return false;
    snprintf(entry->name, sizeof entry->name, "%s", slash ? slash + 1 : path);
    entry->before = inode_at(path);
    return true;
}

static void entry_keep(const char *path, const struct entry *entry) {
    char kept[PATH_MAX];
    snprintf(kept, sizeof kept, "%s/kept-%llu", getenv("DISK_SYNCED"), (unsigned long long)entry->before);
    if (entry->before) syscall(SYS_linkat, AT_FDCWD, path, AT_FDCWD, kept, 0);
}

/* One write() for each line, so that lines of several processes do not mix and a killed process leaves none in part. */
static void names_append(const char *line, int len) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/names", getenv("DISK_SYNCED"));
    int fd = (int)syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0) return;
    syscall(SYS_write, fd, line, (size_t)len);
    syscall(SYS_close, fd);
}

static void entries_changed(const struct entry *first, const struct entry *second) {
    char line[2 * (PATH_MAX + NAME_MAX) + 128];
    int len = snprintf(line, sizeof line, "change\t%s\t%s\t%llu\t%llu", first->directory, first->name,
                       (unsigned long long)first->before, (unsigned long long)first->after);
    if (second)
        len += snprintf(line + len, sizeof line - (size_t)len, "\t%s\t%s\t%llu\t%llu", second->directory, second->name,
                        (unsigned long long)second->before, (unsigned long long)second->after);
    line[len++] = '\n';
    names_append(line, len);
}

/* Before the real call. Returns whether `fd` is a directory whose entries are recorded, and sets an identifier. */
static bool directory_sync_begins(int fd, char id[static 64]) {
    static unsigned number;
    char path[PATH_MAX], line[PATH_MAX + 128];
    struct stat status;
    if (!getenv("DISK_SYNCED") || fstat(fd, &status) < 0 || !S_ISDIR(status.st_mode)) return false;
    if (!path_of(fd, path, sizeof path)) return false;
    pthread_mutex_lock(&lock);
    snprintf(id, 64, "%d.%u", (int)getpid(), number++);
    names_append(line, snprintf(line, sizeof line, "begin\t%s\t%s\n", id, path));
    pthread_mutex_unlock(&lock);
    return true;
}

static int sync_with(int (*real)(int), int fd) {
    if (judge_fd("sync", fd)) return -1;
    char id[64], line[96];
    bool directory = directory_sync_begins(fd, id);
    off_t bytes = length_before(fd);
    int result = real(fd);
    if (result == 0) note_synced(fd, bytes);
    if (result == 0 && directory) names_append(line, snprintf(line, sizeof line, "end\t%s\n", id));
    return result;
}
int fsync(int fd) {
    REAL("fsync", int, int);
    return sync_with(real, fd);
}
int fdatasync(int fd) {
    REAL("fdatasync", int, int);
    return sync_with(real, fd);
}
int sync_file_range(int fd, off_t offset, off_t len, unsigned flags) {
    REAL("sync_file_range", int, int, off_t, off_t, unsigned);
    return judge_fd("sync", fd) ? -1 : real(fd, offset, len, flags); /* makes nothing durable by itself */
}
/* A change and its record are one step for the syncs of directories in other threads. */
int rename(const char *from, const char *to) {
    REAL("rename", int, const char *, const char *);
    if (judge("rename", to, -1)) return -1;
    struct entry old, new;
    pthread_mutex_lock(&lock);
    bool recorded = entry_find(from, &old) && entry_find(to, &new);
    if (recorded) entry_keep(from, &old), entry_keep(to, &new);
    int result = real(from, to);
    if (result == 0 && recorded) {
        old.after = 0;
        new.after = old.before;
        entries_changed(&old, &new);
    }
    pthread_mutex_unlock(&lock);
    return result;
}
int unlink(const char *path) {
    REAL("unlink", int, const char *);
    if (judge("unlink", path, -1)) return -1;
    struct entry entry;
    pthread_mutex_lock(&lock);
    bool recorded = entry_find(path, &entry);
    if (recorded) entry_keep(path, &entry);
    int result = real(path);
    entry.after = 0;
    int error = errno;
    if (result == 0 && recorded) entries_changed(&entry, NULL);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}
int mkdir(const char *path, mode_t mode) {
    REAL("mkdir", int, const char *, mode_t);
    struct entry entry;
    pthread_mutex_lock(&lock);
    bool recorded = entry_find(path, &entry);
    int result = real(path, mode);
    int error = errno;
    entry.after = inode_at(path);
    if (result == 0 && recorded) entries_changed(&entry, NULL);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}
int close(int fd) {
    REAL("close", int, int);
    if (!judge_fd("close", fd)) return real(fd);
    int error = errno;
    real(fd);
    errno = error;
    return -1;
}

static bool open_fails(const char *path, int flags) {
    return (flags & O_ACCMODE) != O_RDONLY && judge("open", path, -1);
}
static int open_with(int (*real)(const char *, int, ...), const char *path, int flags, mode_t mode) {
    if (open_fails(path, flags)) return -1;
    if (!(flags & O_CREAT) || !getenv("DISK_SYNCED")) return real(path, flags, mode);
    struct entry entry;
    pthread_mutex_lock(&lock);
    bool recorded = entry_find(path, &entry);
    int fd = real(path, flags, mode), error = errno;
    if (fd >= 0 && recorded && !entry.before && (entry.after = inode_at(path)) != 0) {
        record_synced(getenv("DISK_SYNCED"), fd, 0); /* the inode may have been another file's before */
        entries_changed(&entry, NULL);
    }
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}
int open(const char *path, int flags, ...) {
    REAL("open", int, const char *, int, ...);
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_with(real, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    REAL("open64", int, const char *, int, ...);
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open_with(real, path, flags, mode);
}

/* The calls that take the descriptor of a directory: the path as the kernel shows it. */
static const char *at_path(int directory, const char *path, char joined[static PATH_MAX]) {
    if (directory == AT_FDCWD || path[0] == '/' || !path_of(directory, joined, PATH_MAX)) return path;
    size_t len = strlen(joined);
    if (len + 1 + strlen(path) >= PATH_MAX) return path;
    joined[len] = '/';
    strcpy(joined + len + 1, path);
    return joined;
}
int openat(int directory, const char *path, int flags, ...) {
    char joined[PATH_MAX];
    va_list args;
    va_start(args, flags);
    mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(args, mode_t) : 0;
    va_end(args);
    return open(at_path(directory, path, joined), flags, mode);
}
int renameat(int from_directory, const char *from, int to_directory, const char *to) {
    char joined_from[PATH_MAX], joined_to[PATH_MAX];
    return rename(at_path(from_directory, from, joined_from), at_path(to_directory, to, joined_to));
}
int unlinkat(int directory, const char *path, int flags) {
    REAL("unlinkat", int, int, const char *, int);
    char joined[PATH_MAX];
    return flags ? real(directory, path, flags) : unlink(at_path(directory, path, joined));
}
