/* sentinel_file.c: see sentinel_file.h. */
#include "sentinel/sentinel_file.h"
#include "lib/system/file.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include "resp/request.h"
#include "sentinel/this_sentinel.h"
#include "server/config/config_engine.h"
#include "server/durable_file.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { FILE_MODE = 0644 };

/* --- Reading --- */

/* A line `sentinel ...`, kept until all options are known. */
struct sentinel_line {
    int number, count;
    char *text;
    struct slice *words;
    struct sentinel_line *next;
};
static struct sentinel_line *lines, **lines_end = &lines;
static bool skipped; /* the file had lines that were left out */

static const char *keep_line(int count, const struct slice *words) {
    struct slice text;
    struct sentinel_line *line = mem_calloc(1, sizeof *line);
    line->number = config_reading_line(&text);
    line->text = mem_strndup(text.data, text.len);
    line->count = count;
    line->words = mem_calloc((size_t)count + 1, sizeof *line->words);
    for (int i = 0; i < count; i++)
        line->words[i] = (struct slice){mem_strndup(words[i].data, words[i].len), words[i].len};
    *lines_end = line;
    lines_end = &line->next;
    return NULL;
}
static void line_free(struct sentinel_line *line) {
    for (int i = 0; i < line->count; i++) mem_free((char *)(uintptr_t)line->words[i].data);
    mem_free(line->words);
    mem_free(line->text);
    mem_free(line);
}

static const char *read_flag(struct slice word, bool *flag, const char *reason) {
    if (!slice_is(word, "yes") && !slice_is(word, "no")) return reason;
    *flag = slice_is(word, "yes");
    return NULL;
}
static int64_t sentinel_file_number_of(struct slice word) { /* 0: none */
    int64_t number;
    return parse_int64(word, &number) ? number : 0;
}
static const char *read_epoch(struct slice word, uint64_t *epoch) {
    int64_t number;
    if (!parse_int64(word, &number) || number < 0) return "Invalid epoch.";
    *epoch = (uint64_t)number;
    return NULL;
}

/* Directives of the process. *taken: it was one. */
static const char *read_global(int count, const struct slice *words, bool *taken) {
    struct sentinel_settings *settings = &this_sentinel->settings;
    *taken = count == 2;
    if (count != 2) return NULL;
    struct slice word = words[0], value = words[1];
    if (slice_is(word, "myid")) {
        if (value.len != SENTINEL_ID_LEN || memchr(value.data, 0, value.len))
            return "Malformed Sentinel id in myid option.";
        snprintf(this_sentinel->id, sizeof this_sentinel->id, "%.*s", (int)value.len, value.data);
        return NULL;
    }
    if (slice_is(word, "current-epoch")) {
        uint64_t epoch;
        const char *reason = read_epoch(value, &epoch);
        if (!reason && epoch > this_sentinel->current_epoch) this_sentinel->current_epoch = epoch;
        return reason;
    }
    if (slice_is(word, "announce-ip")) {
        if (value.len >= SENTINEL_HOST_MAX) return "Invalid address.";
        sentinel_set_text(&sentinel_options.announce_ip, value);
        return NULL;
    }
    if (slice_is(word, "announce-port")) {
        int64_t port = sentinel_file_number_of(value);
        if (port < 0 || port > 65535) return "Invalid port number.";
        sentinel_options.announce_port = (int)port;
        return NULL;
    }
    if (slice_is(word, "deny-scripts-reconfig"))
        return read_flag(value, &sentinel_options.deny_scripts_reconfig,
                         "Please specify yes or no for the deny-scripts-reconfig options.");
    if (slice_is(word, "resolve-hostnames"))
        return read_flag(value, &settings->resolve_hostnames,
                         "Please specify yes or no for the resolve-hostnames option.");
    if (slice_is(word, "announce-hostnames"))
        return read_flag(value, &settings->announce_hostnames,
                         "Please specify yes or no for the announce-hostnames option.");
    if (slice_is(word, "rdma"))
        return read_flag(value, &sentinel_options.rdma, "Please specify yes or no for the rdma option.");
    if (slice_is(word, "sentinel-user")) {
        sentinel_set_text(&sentinel_options.user, value);
        return NULL;
    }
    if (slice_is(word, "sentinel-pass")) {
        sentinel_set_text(&sentinel_options.password, value);
        return NULL;
    }
    *taken = false;
    return NULL;
}

static const char *read_monitor(int count, const struct slice *words) {
    if (count != 5) return "Unrecognized sentinel configuration statement.";
    int64_t port;
    if (!parse_int64(words[3], &port)) return "Invalid port number.";
    return sentinel_monitor(this_sentinel, words[1], words[2], port, sentinel_file_number_of(words[4]), NULL, 0);
}

static const char *read_script(struct slice path, char **script, const char *reason) {
    char *text = mem_strndup(path.data, path.len);
    if (access(text, X_OK) != 0) {
        mem_free(text);
        return reason;
    }
    mem_free(*script);
    *script = text;
    return NULL;
}
static const char *read_renamed(struct instance *group, struct slice from, struct slice to) {
    for (struct renamed_command *r = group->options.renamed; r; r = r->next)
        if (slice_is(from, r->from)) return "Same command renamed multiple times with rename-command.";
    sentinel_rename_command(group, from, to);
    return NULL;
}
/* The file of Valkey's Sentinel must be readable. It keeps servers whose port became 0, which cannot be reached, and
 * Sentinels with any text as id. */
static bool is_usable(const struct instance *group, int count, const struct slice *words) {
    int64_t port;
    bool zero = parse_int64(words[3], &port) && port == 0;
    if (!zero && (count == 4 || words[4].len == SENTINEL_ID_LEN)) return true;
    log_warning("%.*s %.*s:%.*s of '%s' in the configuration file has %s: the line is removed", (int)words[0].len,
                words[0].data, (int)words[2].len, words[2].data, (int)words[3].len, words[3].data, group->name,
                zero ? "no port" : "no valid id");
    skipped = true;
    return false;
}
static const char *read_replica(struct instance *group, const struct slice *words) {
    bool duplicate;
    const char *reason =
        sentinel_add_replica(this_sentinel, group, words[2], sentinel_file_number_of(words[3]), &duplicate);
    if (reason || !duplicate) return reason;
    /* A Sentinel of Valkey can write such a file, and then refuses to start with it. */
    log_warning("Replica %.*s:%.*s of '%s' is in the configuration file more than once: the second line is removed",
                (int)words[2].len, words[2].data, (int)words[3].len, words[3].data, group->name);
    skipped = true;
    return NULL;
}

static const char *read_of_group(int count, const struct slice *words) {
    static const char unknown[] = "Unrecognized sentinel configuration statement.";
    static const struct {
        const char *word;
        int count; /* of words; 45: 4 or 5 */
    } known[] = {{"down-after-milliseconds", 3},
                 {"failover-timeout", 3},
                 {"parallel-syncs", 3},
                 {"notification-script", 3},
                 {"client-reconfig-script", 3},
                 {"auth-pass", 3},
                 {"auth-user", 3},
                 {"config-epoch", 3},
                 {"leader-epoch", 3},
                 {"known-slave", 4},
                 {"known-replica", 4},
                 {"known-sentinel", 45},
                 {"rename-command", 4},
                 {"master-reboot-down-after-period", 3},
                 {"primary-reboot-down-after-period", 3}};
    size_t n = 0, known_count = sizeof known / sizeof *known;
    while (n < known_count && !slice_is(words[0], known[n].word)) n++;
    if (n == known_count || !(count == known[n].count || (known[n].count == 45 && (count == 4 || count == 5))))
        return unknown;
    struct instance *group = sentinel_find_group(this_sentinel, words[1]);
    if (!group) return "No such master with specified name.";
    struct slice word = words[0], value = words[2];
    int64_t number = sentinel_file_number_of(value);
    if (slice_is(word, "down-after-milliseconds")) {
        if (number <= 0) return "negative or zero time parameter.";
        sentinel_set_down_after(group, number);
    } else if (slice_is(word, "failover-timeout")) {
        if (number <= 0) return "negative or zero time parameter.";
        group->options.failover_timeout_ms = sentinel_limit_ms(number);
    } else if (slice_is(word, "parallel-syncs")) {
        group->options.parallel_syncs = number > 0 && number <= INT32_MAX ? (unsigned)number : 0;
    } else if (slice_is(word, "notification-script")) {
        return read_script(value, &group->options.notification_script,
                           "Notification script seems non existing or non executable.");
    } else if (slice_is(word, "client-reconfig-script")) {
        return read_script(value, &group->options.reconfig_script,
                           "Client reconfiguration script seems non existing or non executable.");
    } else if (slice_is(word, "auth-pass")) {
        sentinel_set_text(&group->options.auth_pass, value);
    } else if (slice_is(word, "auth-user")) {
        sentinel_set_text(&group->options.auth_user, value);
    } else if (slice_is(word, "config-epoch")) {
        const char *reason = read_epoch(value, &group->config_epoch);
        /* The current epoch is at least the epoch of each configuration. */
        if (!reason && group->config_epoch > this_sentinel->current_epoch)
            this_sentinel->current_epoch = group->config_epoch;
        return reason;
    } else if (slice_is(word, "leader-epoch")) {
        return read_epoch(value, &group->vote.epoch);
    } else if (slice_is(word, "known-slave") || slice_is(word, "known-replica")) {
        return is_usable(group, count, words) ? read_replica(group, words) : NULL;
    } else if (slice_is(word, "known-sentinel")) {
        if (count == 4) return NULL; /* of an old version, without an id: hello messages bring it */
        if (!is_usable(group, count, words)) return NULL;
        return sentinel_add_sentinel(this_sentinel, group, words[2], sentinel_file_number_of(words[3]), words[4]);
    } else if (slice_is(word, "rename-command")) {
        return read_renamed(group, words[2], words[3]);
    } else {
        if (number < 0) return "negative time parameter.";
        group->options.reboot_down_after_ms = sentinel_limit_ms(number);
    }
    return NULL;
}

const char *sentinel_file_read(int *number, char **text) {
    const char *reason = NULL;
    for (int step = 0; step < 3 && !reason; step++)
        for (struct sentinel_line *line = lines; line && !reason; line = line->next) {
            bool taken = false;
            if (!line->count) continue;
            bool monitor = slice_is(line->words[0], "monitor");
            if (step == 0)
                reason = read_global(line->count, line->words, &taken);
            else if (step == 1 && monitor)
                reason = read_monitor(line->count, line->words);
            else if (step == 2 && !monitor) {
                read_global(line->count, line->words, &taken);
                if (!taken) reason = read_of_group(line->count, line->words);
            }
            if (reason) {
                *number = line->number;
                *text = line->text;
                line->text = NULL;
            }
        }
    while (lines) {
        struct sentinel_line *line = lines;
        lines = line->next;
        line_free(line);
    }
    lines_end = &lines;
    each_group(group) if (group->vote.epoch > this_sentinel->current_epoch) this_sentinel->current_epoch =
        group->vote.epoch;
    return reason;
}

/* --- Rewriting --- */

/* The lines to write, in a queue for each directive. Each line of the file is replaced by the next one of its
 * directive; the remaining lines are appended. */
struct queue {
    char word[48];
    struct memory_output text; /* lines */
    size_t used;
    bool in_place; /* a default: replaces a line of the file, and is not appended */
    struct queue *next;
};
static struct queue *queues;
static bool queues_made;

static struct queue *queue_of(struct slice word) {
    struct queue **at = &queues;
    while (*at && !slice_is(word, (*at)->word)) at = &(*at)->next;
    return *at;
}
static void sentinel_file_put(struct output *out, struct slice word, bool quoted) {
    output_write(out, SLICE(" "));
    if (quoted)
        word_write(out, word, true);
    else
        output_write(out, word);
}
/* Adds a line: NULL ends the words; the word after QUOTED is written in quotes. A word of the user may have the same
 * text as QUOTED, so its address is compared. */
static const char QUOTED[] = "";
static void add_line(const char *word, bool in_place, const char *const *values) {
    struct queue *queue = queue_of(slice_of(word));
    if (!queue) {
        queue = mem_calloc(1, sizeof *queue);
        snprintf(queue->word, sizeof queue->word, "%s", word);
        queue->in_place = in_place;
        memory_output_init(&queue->text);
        struct queue **at = &queues;
        while (*at) at = &(*at)->next;
        *at = queue;
    }
    struct output *out = &queue->text.out;
    output_write(out, SLICE("sentinel"));
    sentinel_file_put(out, slice_of(word), false);
    for (; *values; values++) {
        bool quoted = *values == QUOTED;
        if (quoted) values++;
        sentinel_file_put(out, slice_of(*values), quoted || strpbrk(*values, " \t\"'\\\r\n") || !**values);
    }
    output_write(out, SLICE("\n"));
}
#define LINE(word, ...)                  add_line(word, false, (const char *const[]){__VA_ARGS__, NULL})
#define DEFAULT_LINE(word, default, ...) add_line(word, default, (const char *const[]){__VA_ARGS__, NULL})
static void add_flag(const char *word, bool value, bool initial) {
    DEFAULT_LINE(word, value == initial, value ? "yes" : "no");
}
static const char *sentinel_file_text_of(int64_t number) {
    static char texts[4][24];
    static unsigned next;
    char *text = texts[next++ % 4];
    snprintf(text, sizeof texts[0], "%lld", (long long)number);
    return text;
}

/* A host name in the file can be read only with resolve-hostnames. NULL: this is off, and the address is unknown. */
static const char *host_to_write(const struct sentinel_address *address) {
    if (this_sentinel->settings.resolve_hostnames) return sentinel_announced(this_sentinel, address);
    return *address->ip ? address->ip : NULL;
}
static void add_server(const char *word, const char *group, const struct sentinel_address *address, const char *id) {
    const char *host = host_to_write(address);
    if (!host) return; /* it cannot be connected to; INFO or a hello message brings it back */
    if (id)
        LINE(word, group, host, sentinel_file_text_of(address->port), QUOTED, id);
    else
        LINE(word, group, host, sentinel_file_text_of(address->port));
}
static void add_group(const struct instance *group) {
    const struct sentinel_address *primary = sentinel_primary_address(group);
    const struct sentinel_timers *timers = &sentinel_default_timers;
    const char *name = group->name;
    const char *host = host_to_write(primary); /* known: see parameter_is_valid() */
    LINE("monitor", name, host ? host : primary->host, sentinel_file_text_of(primary->port),
         sentinel_file_text_of(group->options.quorum));
    if (group->down_after_ms != timers->default_down_after)
        LINE("down-after-milliseconds", name, sentinel_file_text_of(group->down_after_ms));
    if (group->options.failover_timeout_ms != timers->default_failover_timeout)
        LINE("failover-timeout", name, sentinel_file_text_of(group->options.failover_timeout_ms));
    if (group->options.parallel_syncs != 1)
        LINE("parallel-syncs", name, sentinel_file_text_of(group->options.parallel_syncs));
    if (group->options.notification_script)
        LINE("notification-script", name, QUOTED, group->options.notification_script);
    if (group->options.reconfig_script) LINE("client-reconfig-script", name, QUOTED, group->options.reconfig_script);
    if (group->options.auth_pass) LINE("auth-pass", name, QUOTED, group->options.auth_pass);
    if (group->options.auth_user) LINE("auth-user", name, QUOTED, group->options.auth_user);
    if (group->options.reboot_down_after_ms)
        LINE("primary-reboot-down-after-period", name, sentinel_file_text_of(group->options.reboot_down_after_ms));
    LINE("config-epoch", name, sentinel_file_text_of((int64_t)group->config_epoch));
    LINE("leader-epoch", name, sentinel_file_text_of((int64_t)group->vote.epoch));
    /* After a promotion the old primary is a replica, and the promoted one is none. */
    each_in(&group->replicas, replica) {
        const struct sentinel_address *address = &replica->address;
        if (sentinel_address_equal(this_sentinel, address, primary)) address = &group->address;
        add_server("known-replica", name, address, NULL);
    }
    each_in(&group->sentinels, other) {
        if (other->address.port) add_server("known-sentinel", name, &other->address, other->run_id);
    }
    for (const struct renamed_command *r = group->options.renamed; r; r = r->next)
        LINE("rename-command", name, QUOTED, r->from, QUOTED, r->to);
}
static void make_queues(void) {
    const struct sentinel_settings *settings = &this_sentinel->settings;
    LINE("myid", this_sentinel->id);
    add_flag("deny-scripts-reconfig", sentinel_options.deny_scripts_reconfig, true);
    add_flag("resolve-hostnames", settings->resolve_hostnames, false);
    add_flag("announce-hostnames", settings->announce_hostnames, false);
    add_flag("rdma", sentinel_options.rdma, false);
    each_group(group) add_group(group);
    LINE("current-epoch", sentinel_file_text_of((int64_t)this_sentinel->current_epoch));
    DEFAULT_LINE("announce-ip", !*sentinel_options.announce_ip, QUOTED, sentinel_options.announce_ip);
    if (sentinel_options.announce_port) LINE("announce-port", sentinel_file_text_of(sentinel_options.announce_port));
    if (*sentinel_options.user) LINE("sentinel-user", QUOTED, sentinel_options.user);
    if (*sentinel_options.password) LINE("sentinel-pass", QUOTED, sentinel_options.password);
    queues_made = true;
}
static void write_queue(struct queue *queue, bool all, struct output *out) {
    struct slice text = memory_output_slice(&queue->text);
    text.data += queue->used, text.len -= queue->used;
    while (text.len) {
        const char *newline = memchr(text.data, '\n', text.len);
        size_t len = (size_t)(newline - text.data) + 1;
        output_write(out, (struct slice){text.data, len});
        queue->used += len;
        text.data += len, text.len -= len;
        if (!all) break;
    }
}
/* Returns the present name of a directive. */
static struct slice current_word(struct slice word) {
    if (slice_is(word, "known-slave")) return SLICE("known-replica");
    if (slice_is(word, "master-reboot-down-after-period")) return SLICE("primary-reboot-down-after-period");
    return word;
}
static void rewrite_line(int count, const struct slice *words, struct output *out) {
    if (!this_sentinel || !count) return;
    if (!queues_made) make_queues();
    struct queue *queue = queue_of(current_word(words[0]));
    if (queue) write_queue(queue, false, out);
}
static void rewrite_rest(struct output *out) {
    if (!this_sentinel) return;
    if (!queues_made) make_queues();
    while (queues) {
        struct queue *queue = queues;
        queues = queue->next;
        if (!queue->in_place) write_queue(queue, true, out);
        memory_output_free(&queue->text);
        mem_free(queue);
    }
    queues_made = false;
}

const struct config_directive sentinel_directives[] = {
    {.name = "sentinel", .max_words = 0, .handle = keep_line, .rewrite = rewrite_rest, .rewrite_line = rewrite_line},
    {.name = NULL},
};

/* --- Writing --- */

static void written(const struct file_written *done);
static struct durable_file saved = {.thread_name = "sentinel-file", .mode = FILE_MODE, .written = written};
static bool changed, durable_changed;
static uint64_t unsafe_ticket, done_ticket;
static int last_error;

static void not_written(int error) {
    last_error = error;
    log_warning("WARNING: Sentinel was not able to save the new configuration on disk!!!: %s", strerror(-error));
}
static void written(const struct file_written *done) {
    last_error = 0;
    done_ticket = done->ticket;
    if (unsafe_ticket && done->ticket >= unsafe_ticket) unsafe_ticket = 0;
    if (done->error) {
        not_written(done->error);
    } else {
        log_debug("Rewritten config file (%s) successfully", done->path);
        log_notice("Sentinel new configuration saved on disk");
    }
}

static void submit(bool durable) {
    struct memory_output old = MEMORY_OUTPUT_INIT, new = MEMORY_OUTPUT_INIT;
    int result = file_read(saved.path, CONFIG_FILE_SIZE_MAX, &old.out);
    if (result == -ENOENT) result = 0;
    if (!result) config_rewrite_content(memory_output_slice(&old), false, &new.out);
    if (memory_output_slice(&new).len > CONFIG_FILE_SIZE_MAX) result = -EFBIG;
    if (result) { /* a rewrite would lose what the administrator wrote, or could not be read */
        not_written(result);
    } else {
        uint64_t ticket = file_writer_submit(saved.writer, saved.path, memory_output_slice(&new), true);
        if (durable) unsafe_ticket = ticket;
    }
    memory_output_free(&old);
    memory_output_free(&new);
    changed = durable_changed = false;
}

void sentinel_file_save(bool durable) {
    changed = true;
    durable_changed |= durable;
}
int sentinel_file_settle(void) {
    if (!saved.writer) return 0;
    /* The next rewrite reads the file, so the earlier content must be written first. */
    if (durable_changed || last_error) {
        if (file_writer_last_ticket(saved.writer))
            file_writer_wait(saved.writer, file_writer_last_ticket(saved.writer));
        submit(true);
    }
    if (unsafe_ticket) file_writer_wait(saved.writer, unsafe_ticket);
    return last_error;
}
void sentinel_file_turn(void) {
    if (!saved.writer || !changed || done_ticket < file_writer_last_ticket(saved.writer)) return;
    submit(durable_changed);
}
int sentinel_file_flush(void) {
    sentinel_file_save(true);
    return sentinel_file_settle();
}

void sentinel_file_start(void) {
    char path[PATH_MAX];
    struct stat about;
    int error = durable_file_find(&saved, realpath(config_file(), path) ? path : config_file());
    int leftovers = error ? 0 : file_writer_clean(saved.path);
    if (leftovers) log_notice("Removed %d unfinished config files of earlier processes", leftovers);
    if (!error && stat(saved.path, &about) == 0) saved.mode = about.st_mode & 0777;
    if (!error) error = durable_file_start(&saved);
    if (error) {
        log_warning("Can't start the thread that writes the Sentinel configuration file: %s", strerror(-error));
        exit(1);
    }
    if (!*this_sentinel->id) {
        random_hex(this_sentinel->id, SENTINEL_ID_LEN);
        if (sentinel_file_flush()) exit(1);
    } else if (skipped) {
        sentinel_file_save(false);
    }
    log_notice("Sentinel ID is %s", this_sentinel->id);
}
void sentinel_file_stop(void) {
    if (!saved.writer) return;
    sentinel_file_settle();
    if (changed && file_writer_last_ticket(saved.writer))
        file_writer_wait(saved.writer, file_writer_last_ticket(saved.writer));
    sentinel_file_turn();
    durable_file_stop(&saved);
}
