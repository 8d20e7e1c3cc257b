/* log.c: log lines to standard output, a file, syslog; see log.h.
 *
 * A line is formatted in one buffer and written by one write() to a file opened for appending, so lines of several
 * threads and of child processes do not mix. The file is opened for every line: after logrotate moves the log away, the
 * next line creates it again, without a signal. At the log rate of a server the cost is negligible.
 *
 * The local time is computed here from a cached offset to UTC. localtime() takes a lock in the C library, and a child
 * forked while another thread held it would hang at its first line. */
#include "lib/system/log.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

enum { LINE_SIZE = 2048, STAMP_SIZE = 64, PATH_SIZE = 4096 };

_Atomic(enum log_level) log_level = LOG_LEVEL_NOTICE;

static _Atomic char role = 'M';
static char path[PATH_SIZE]; /* "": standard output */
static _Atomic bool use_syslog;
static _Atomic(enum log_format) line_format = LOG_FORMAT_LEGACY;
static _Atomic(enum log_timestamp) stamp_format = LOG_TIMESTAMP_LEGACY;

/* Configuration and logging may run on different threads; writing a line copies the settings under the lock. A forked
 * child finds the lock free (see the fork_ functions). */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void log_set_role(char new_role) {
    role = new_role;
}

int log_set_file(const char *new_path) {
    if (!new_path) new_path = "";
    size_t len = strlen(new_path);
    if (len >= sizeof(path)) return -ENAMETOOLONG;
    if (len) {
        int fd = open(new_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
        if (fd < 0) return -errno;
        close(fd);
    }
    pthread_mutex_lock(&lock);
    memcpy(path, new_path, len + 1);
    pthread_mutex_unlock(&lock);
    return 0;
}

void log_set_syslog(bool enabled, const char *ident, int facility) {
    static char name[128]; /* openlog keeps the pointer */
    if (use_syslog) closelog();
    use_syslog = enabled;
    if (!enabled) return;
    snprintf(name, sizeof(name), "%s", ident ? ident : "");
    openlog(name, LOG_PID | LOG_NDELAY | LOG_NOWAIT, facility);
}

void log_set_format(enum log_format format, enum log_timestamp timestamp) {
    line_format = format;
    stamp_format = timestamp;
}

/* --- Time --- */

/* Seconds east of UTC, refreshed every quarter of an hour, the finest granularity of offset changes. Children do not
 * refresh it. */
static long utc_offset(time_t now) {
    static _Atomic long offset;
    static _Atomic time_t valid_from = -1;
    time_t quarter = now - now % 900;
    if (valid_from != quarter && (role != 'C' || valid_from == -1)) {
        struct tm tm;
        if (localtime_r(&now, &tm)) offset = tm.tm_gmtoff;
        valid_from = quarter;
    }
    return offset;
}

/* Converts days since 1970 to a Gregorian date. Years start in March, so that the leap day is the last day. */
static void civil_date(int64_t days, int *year, int *month, int *day) {
    days += 719468; /* 0000-03-01 */
    int64_t era = (days >= 0 ? days : days - 146096) / 146097, of_era = days - era * 146097;
    int64_t y = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int64_t of_year = of_era - (365 * y + y / 4 - y / 100), m = (5 * of_year + 2) / 153;
    *day = (int)(of_year - (153 * m + 2) / 5 + 1);
    *month = (int)(m < 10 ? m + 3 : m - 9);
    *year = (int)(y + era * 400 + (*month <= 2));
}

static void format_stamp(char text[STAMP_SIZE]) {
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    int64_t us = clock_wall_us();
    if (stamp_format == LOG_TIMESTAMP_MILLISECONDS) {
        snprintf(text, STAMP_SIZE, "%lld", (long long)(us / 1000));
        return;
    }
    time_t now = (time_t)(us / 1000000);
    long offset = utc_offset(now);
    int64_t local = now + offset, days = (local >= 0 ? local : local - 86399) / 86400;
    int seconds = (int)(local - days * 86400), year, month, day, ms = (int)(us / 1000 % 1000);
    int h = seconds / 3600, min = seconds / 60 % 60, s = seconds % 60;
    civil_date(days, &year, &month, &day);
    if (stamp_format == LOG_TIMESTAMP_LEGACY) {
        snprintf(text, STAMP_SIZE, "%02d %.3s %04d %02d:%02d:%02d.%03d", day, months + (month - 1) * 3, year, h, min, s,
                 ms);
    } else {
        long minutes = (offset < 0 ? -offset : offset) / 60;
        snprintf(text, STAMP_SIZE, "%04d-%02d-%02dT%02d:%02d:%02d.%03d%c%02ld:%02ld", year, month, day, h, min, s, ms,
                 offset < 0 ? '-' : '+', minutes / 60, minutes % 60);
    }
}

/* --- Lines --- */

static void write_all(int fd, const char *text, size_t len) {
    while (len) {
        ssize_t written = write(fd, text, len);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return; /* a failure to log cannot be reported */
        text += written, len -= (size_t)written;
    }
}

static void emit(const char *line, size_t len) {
    pthread_mutex_lock(&lock);
    if (path[0]) {
        int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
        if (fd >= 0) {
            write_all(fd, line, len);
            close(fd);
        }
    } else {
        write_all(STDOUT_FILENO, line, len);
    }
    pthread_mutex_unlock(&lock);
}

static const char *role_word(char r) {
    return r == 'M' ? "primary" : r == 'S' ? "replica" : r == 'C' ? "RDB/AOF" : "sentinel";
}

/* A value in double quotes must not contain quotes or line breaks. */
static void logfmt_clean(char *text) {
    for (; *text; text++) {
        if (*text == '"')
            *text = '\'';
        else if ((unsigned char)*text < ' ')
            *text = ' ';
    }
}

/* The message as the inside of a JSON string; the longest escape is six bytes. Bytes above 127 stay as they are. */
static size_t json_write(char *to, const char *message, size_t len) {
    static const char plain[] = "\"\\\n\r\t\b\f", letters[] = "\"\\nrtbf", digits[] = "0123456789abcdef";
    char *at = to;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)message[i];
        const char *found = c ? strchr(plain, c) : NULL;
        if (found) {
            *at++ = '\\', *at++ = letters[found - plain];
        } else if (c < ' ' || c == 127) {
            memcpy(at, "\\u00", 4), at += 4;
            *at++ = digits[c >> 4], *at++ = digits[c & 15];
        } else {
            *at++ = (char)c;
        }
    }
    return (size_t)(at - to);
}

static void write_line(enum log_level level, char *message) {
    static const char marks[] = ".-*#";
    static const char *const words[] = {"debug", "info", "notice", "warning"};
    char stamp[STAMP_SIZE], head[160];
    int head_len;
    format_stamp(stamp);
    enum log_format shape = line_format;
    const char *end = "\n";
    if (shape == LOG_FORMAT_JSON) {
        end = "\"}\n";
        head_len = snprintf(head, sizeof(head),
                            "{\"pid\":%d,\"role\":\"%s\",\"timestamp\":\"%s\",\"level\":\"%s\",\"message\":\"",
                            (int)getpid(), role_word(role), stamp, words[level]);
    } else if (shape == LOG_FORMAT_LOGFMT) {
        end = "\"\n";
        logfmt_clean(message);
        head_len = snprintf(head, sizeof(head), "pid=%d role=%s timestamp=\"%s\" level=%s message=\"", (int)getpid(),
                            role_word(role), stamp, words[level]);
    } else {
        head_len = snprintf(head, sizeof(head), "%d:%c %s %c ", (int)getpid(), role, stamp, marks[level]);
    }
    size_t len = strlen(message), per_byte = shape == LOG_FORMAT_JSON ? 6 : 1;
    size_t total = (size_t)head_len + len * per_byte + strlen(end);
    char small[LINE_SIZE], *line = total <= sizeof(small) ? small : mem_try_alloc(total);
    if (!line) line = small, len = (sizeof(small) - (size_t)head_len - strlen(end)) / per_byte;
    char *at = line;
    memcpy(at, head, (size_t)head_len), at += head_len;
    if (shape == LOG_FORMAT_JSON)
        at += json_write(at, message, len);
    else
        memcpy(at, message, len), at += len;
    memcpy(at, end, strlen(end)), at += strlen(end);
    emit(line, (size_t)(at - line));
    if (line != small) mem_free(line);
}

/* `left`: lines that a limit left out before this one. */
static void write_message(enum log_level level, uint64_t left, const char *format, va_list args) {
    enum { NOTE_SIZE = 64 };
    if (level < log_level || level >= LOG_LEVEL_NOTHING) return;
    int saved_errno = errno;
    char small[LINE_SIZE + NOTE_SIZE], *message = small;
    va_list again;
    va_copy(again, args);
    int len = vsnprintf(small, LINE_SIZE, format, args);
    if (len >= LINE_SIZE && (message = mem_try_alloc((size_t)len + 1 + NOTE_SIZE)))
        vsnprintf(message, (size_t)len + 1, format, again);
    va_end(again);
    if (!message) message = small;
    if (len >= 0) {
        if (left)
            snprintf(message + strlen(message), NOTE_SIZE, " (%llu more of these lines were left out)",
                     (unsigned long long)left);
        static const int priorities[] = {LOG_DEBUG, LOG_INFO, LOG_NOTICE, LOG_WARNING};
        if (use_syslog) syslog(priorities[level], "%s", message);
        write_line(level, message);
    }
    if (message != small) mem_free(message);
    errno = saved_errno;
}

void log_write(enum log_level level, const char *format, ...) {
    va_list args;
    va_start(args, format);
    write_message(level, 0, format, args);
    va_end(args);
}

bool log_limit_allows(struct log_limit *limit) {
    uint64_t now = clock_monotonic_us();
    if (!limit->began_us || now - limit->began_us >= limit->interval_us) limit->began_us = now, limit->written = 0;
    if (limit->written < (limit->lines ? limit->lines : 1)) return limit->written++, true;
    return limit->left++, false;
}

void log_write_limited(struct log_limit *limit, enum log_level level, const char *format, ...) {
    va_list args;
    va_start(args, format);
    write_message(level, limit->left, format, args);
    va_end(args);
    limit->left = 0;
}

/* --- Signal handlers and forked children --- */

static void raw_pieces(const char *const *pieces, int count) {
    int fd = path[0] ? open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644) : STDOUT_FILENO;
    if (fd < 0) return;
    for (int i = 0; i < count; i++) write_all(fd, pieces[i], strlen(pieces[i]));
    if (path[0]) close(fd);
}

void log_write_raw(const char *text) {
    int saved_errno = errno;
    raw_pieces(&text, 1);
    errno = saved_errno;
}

void log_write_from_handler(const char *text) {
    if (log_level == LOG_LEVEL_NOTHING) return;
    int saved_errno = errno;
    char pid[24], seconds[24];
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    pid[format_int64(pid, getpid())] = '\0';
    seconds[format_int64(seconds, now.tv_sec)] = '\0';
    const char *pieces[] = {pid, ":signal-handler (", seconds, ") ", text, "\n"};
    raw_pieces(pieces, 6);
    errno = saved_errno;
}

static void fork_prepare(void) {
    pthread_mutex_lock(&lock);
}
static void fork_done(void) {
    pthread_mutex_unlock(&lock);
}
static __attribute__((constructor)) void log_fork_setup(void) {
    pthread_atfork(fork_prepare, fork_done, fork_done);
}
