/* this_sentinel.c: see this_sentinel.h. */
#include "sentinel/this_sentinel.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "net/connection.h"
#include "net/resolver.h"
#include "pubsub/pubsub.h"
#include "sentinel/links.h"
#include "sentinel/scripts.h"
#include "sentinel/sentinel_file.h"
#include "sentinel/views.h"
#include "server/server.h"
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { HZ = 10, EXIT_SIMULATED_CRASH = 99 };

struct sentinel *this_sentinel;
struct sentinel_options sentinel_options;
static struct event_timer timer;

void sentinel_set_text(char **text, struct slice value) {
    mem_free(*text);
    *text = mem_strndup(value.data, value.len);
}

/* The monotonic clock: a change of the wall clock must not make instances appear down. */
int64_t sentinel_now(void) {
    return clock_mono_ms();
}

/* --- Effects --- */

static uint64_t random_number(void *context) {
    return random_u64();
}

bool sentinel_waits_for_names = true; /* the file is read first */

/* A name server that does not answer must not stop the failure detection. */
static bool resolve(void *context, const char *host, bool names, char ip[static SENTINEL_IP_MAX]) {
    struct addrinfo *found;
    struct address address;
    bool ok, waits = !names || sentinel_waits_for_names;
    int failed = address_resolve(host, 0, waits && names ? 0 : AI_NUMERICHOST, &found);
    if (!failed) {
        ok = address_from(found->ai_addr, &address);
        freeaddrinfo(found);
    } else if (waits) {
        /* INFO and hello messages may have thousands of names, each time. */
        static struct log_limit limit = {.interval_us = 1000000};
        log_limited(&limit, LOG_LEVEL_WARNING, "Failed to resolve hostname '%s'", host);
        return false;
    } else {
        ok = resolver_find(host, &address) == 0;
    }
    ok = ok && strlen(address.host) < SENTINEL_IP_MAX;
    if (ok) snprintf(ip, SENTINEL_IP_MAX, "%.45s", address.host);
    return ok;
}
static void save(void *context, bool durable) {
    sentinel_file_save(durable);
}
static bool settle(void *context) {
    return sentinel_file_settle() == 0;
}
static void write_log(void *context, enum log_level level, const char *text) {
    LOG(level, "%s", text);
}
static void failover_delayed(void *context, int64_t wait_ms) {
    time_t when = (time_t)((clock_ms() + wait_ms) / 1000);
    char text[32];
    if (!ctime_r(&when, text)) return;
    log_notice("Next failover delay: I will not start a failover before %.24s", text);
}
static void event(void *context, enum log_level level, const char *type, const char *text,
                  const struct instance *group) {
    LOG(level, "%s %s", type, text);
    if (level == LOG_LEVEL_DEBUG) return;
    pubsub_publish(slice_of(type), slice_of(text), false);
    if (level == LOG_LEVEL_WARNING && group && group->options.notification_script)
        scripts_add((const char *const[]){group->options.notification_script, type, text, NULL});
}
static void reconfig_script(void *context, const struct instance *group, const char *role, const char *state,
                            const struct sentinel_address *from, const struct sentinel_address *to) {
    char from_port[12], to_port[12];
    if (!group->options.reconfig_script) return;
    snprintf(from_port, sizeof from_port, "%d", from->port);
    snprintf(to_port, sizeof to_port, "%d", to->port);
    scripts_add((const char *const[]){group->options.reconfig_script, group->name, role, state,
                                      sentinel_announced(this_sentinel, from), from_port,
                                      sentinel_announced(this_sentinel, to), to_port, NULL});
}
static void crash(void *context) {
    sentinel_file_settle();
    log_warning("Sentinel CRASH because of SENTINEL simulate-failure");
    _exit(EXIT_SIMULATED_CRASH);
}
const struct sentinel_effects sentinel_effects = {.random = random_number,
                                                  .resolve = resolve,
                                                  .own_address = sentinel_links_own_address,
                                                  .dial = sentinel_links_dial,
                                                  .close = sentinel_links_close,
                                                  .send = sentinel_links_send,
                                                  .save = save,
                                                  .settle = settle,
                                                  .log = write_log,
                                                  .failover_delayed = failover_delayed,
                                                  .event = event,
                                                  .reconfig_script = reconfig_script,
                                                  .crash = crash};

/* --- Mode --- */

bool sentinel_mode_wanted(int argc, char **argv) {
    if (strstr(argv[0], "valkey-sentinel") || strstr(argv[0], "redis-sentinel")) return true;
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--sentinel") == 0) return true;
    return false;
}

/* With words after it, it is also a directive: `--sentinel resolve-hostnames yes`. */
static bool is_directive(int argc, char **argv, int i) {
    return i > 1 && i + 1 < argc && argv[i + 1][0] != '-';
}
int sentinel_arguments(int argc, char **argv) {
    int kept = 0;
    for (int i = 0; i < argc; i++) {
        if (i == 0 || strcmp(argv[i], "--sentinel") != 0 || is_directive(argc, argv, i))
            argv[kept++] = argv[i];
        else
            mem_free(argv[i]); /* a copy of process_keep_arguments() */
    }
    argv[kept] = NULL;
    return kept;
}

bool sentinel_offers_section(const char *name) {
    static const char *const sections[] = {"server", "clients", "cpu", "stats", "sentinel", "rdma", "listeners"};
    for (size_t i = 0; i < sizeof sections / sizeof *sections; i++)
        if (strcmp(name, sections[i]) == 0) return true;
    return false;
}
bool sentinel_offers_command(const char *container, const char *name) {
    static const char *const commands[] = {"acl",  "auth",     "client",   "command",     "hello",
                                           "info", "ping",     "publish",  "subscribe",   "psubscribe",
                                           "role", "sentinel", "shutdown", "unsubscribe", "punsubscribe"};
    static const char *const of_client[] = {"caching", "getname",  "getredir",     "help",    "id",     "info",
                                            "kill",    "list",     "no-evict",     "pause",   "reply",  "setinfo",
                                            "setname", "tracking", "trackinginfo", "unblock", "unpause"};
    const char *const *list = commands;
    size_t count = sizeof commands / sizeof *commands;
    if (container && strcmp(container, "client") == 0)
        list = of_client, count = sizeof of_client / sizeof *of_client;
    else if (container)
        return true;
    for (size_t i = 0; i < count; i++)
        if (strcmp(list[i], name) == 0) return true;
    return false;
}

void sentinel_mode_begin(void) {
    static const struct { const char *name, *value; } defaults[] = {{"port", "26379"}, {"protected-mode", "no"}};
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        struct slice value = slice_of(defaults[i].value);
        config_assign(defaults[i].name, 1, &value);
    }
    server.mode = "sentinel";
    log_set_role('X');
    pubsub_replace_publish(sentinel_publish_run);
    sentinel_options = (struct sentinel_options){.announce_ip = mem_strdup(""),
                                                 .user = mem_strdup(""),
                                                 .password = mem_strdup(""),
                                                 .deny_scripts_reconfig = true};
}
static void check_file(void) {
    if (!*config_file()) {
        log_warning("Sentinel needs config file on disk to save state. Exiting...");
        exit(1);
    }
    if (access(config_file(), W_OK) != 0) {
        log_warning("Sentinel config file %s is not writable: %s. Exiting...", config_file(), strerror(errno));
        exit(1);
    }
    char directory[4096];
    snprintf(directory, sizeof directory, "%s", config_file());
    char *slash = strrchr(directory, '/');
    if (slash) *(slash == directory ? slash + 1 : slash) = 0;
    if (slash && access(directory, W_OK) != 0) {
        log_warning("Sentinel cannot replace its config file: directory %s is not writable: %s. Exiting...", directory,
                    strerror(errno));
        exit(1);
    }
}

/* --- Life --- */

/* Random periods keep Sentinels from starting elections at the same moment, again and again. */
static int random_hz(void) {
    return HZ + (int)random_below(HZ);
}
static uint64_t tick(struct event_timer *fired) {
    sentinel_tick(this_sentinel, sentinel_now());
    scripts_tick();
    return 1000000 / (uint64_t)random_hz();
}

static void configured(void) {
    clock_update();
    this_sentinel = sentinel_new("", &sentinel_effects, NULL, sentinel_now());
    check_file();
    int number;
    char *line;
    const char *reason = sentinel_file_read(&number, &line);
    if (reason) config_fatal_line(number, slice_of(line), reason);
}
static void this_sentinel_start(void) {
    log_set_role('X');
    sentinel_waits_for_names = false;
    sentinel_file_start();
    each_group(group) sentinel_monitored(this_sentinel, group);
    event_timer_set(server.loop, &timer, 1000000 / (uint64_t)random_hz(), tick);
}
static void this_sentinel_before_wait(void) {
    sentinel_file_turn();
}
static void this_sentinel_stop(void) {
    sentinel_file_stop();
    scripts_stop();
}

static const struct server_part sentinel_part = {.name = "sentinel",
                                                 .configured = configured,
                                                 .start = this_sentinel_start,
                                                 .before_wait = this_sentinel_before_wait,
                                                 .stop = this_sentinel_stop};

const struct feature sentinel_feature = {.name = "sentinel",
                                         .directives = DIRECTIVES(sentinel_directives),
                                         .commands = COMMANDS(sentinel_commands),
                                         .sections = SECTIONS(sentinel_sections),
                                         .parts = PARTS(&sentinel_part)};
