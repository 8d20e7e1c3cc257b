/* log.h: the log of server and tools: standard output, a file, syslog. Any thread may log; each line is one write. The
 * format is that of Valkey: "pid:role dd Mon yyyy hh:mm:ss.mmm mark text". */
#pragma once
#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_VERBOSE, LOG_LEVEL_NOTICE, LOG_LEVEL_WARNING, LOG_LEVEL_NOTHING };
enum log_format { LOG_FORMAT_LEGACY, LOG_FORMAT_LOGFMT, LOG_FORMAT_JSON };
enum log_timestamp { LOG_TIMESTAMP_LEGACY, LOG_TIMESTAMP_ISO8601, LOG_TIMESTAMP_MILLISECONDS };

extern _Atomic(enum log_level) log_level; /* lines below it are dropped; check it before an expensive message */
void log_set_role(char role);             /* 'M' primary, 'S' replica, 'C' child, 'X' sentinel */
int log_set_file(const char *path);       /* "" or NULL: standard output. Opens it once as a check: 0 or -errno */
void log_set_syslog(bool enabled, const char *ident, int facility);
void log_set_format(enum log_format format, enum log_timestamp timestamp);

#define LOG(level, ...)  ((level) < log_level ? (void)0 : log_write((level), __VA_ARGS__))
#define log_debug(...)   LOG(LOG_LEVEL_DEBUG, __VA_ARGS__)
#define log_verbose(...) LOG(LOG_LEVEL_VERBOSE, __VA_ARGS__)
#define log_notice(...)  LOG(LOG_LEVEL_NOTICE, __VA_ARGS__)
#define log_warning(...) LOG(LOG_LEVEL_WARNING, __VA_ARGS__)
void log_write(enum log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* A message that a peer or a failing disk can cause at any rate: at most `lines` lines in `interval_us`. The first line
 * of the next interval that has one ends with the number of lines that were left out. A limit belongs to one thread:
 *
 *     static struct log_limit limit = {.interval_us = 60 * 1000000};
 *     log_limited(&limit, LOG_LEVEL_WARNING, "the reason: %s", reason);
 *
 * The arguments are only evaluated for a line that is written. */
struct log_limit {
    uint64_t interval_us;
    unsigned lines;          /* 0: one */
    unsigned written;        /* private: in this interval */
    uint64_t began_us, left; /* private: the interval's start; 0: none. Lines left out since the last line */
};
#define log_limited(limit, level, ...)                                                                                 \
    ((level) < log_level || !log_limit_allows(limit) ? (void)0 : log_write_limited((limit), (level), __VA_ARGS__))
bool log_limit_allows(struct log_limit *limit); /* counts a line, written or left out */
void log_write_limited(struct log_limit *limit, enum log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* For signal handlers: async-signal-safe, without formatting or locks. The first writes the text unchanged (crash
 * reports); the second writes one line: "pid:signal-handler (seconds) text". */
void log_write_raw(const char *text);
void log_write_from_handler(const char *text);
