/* set_command.c: SENTINEL SET, SENTINEL CONFIG and SENTINEL DEBUG. */
#include "lib/system/memory.h"
#include "lib/text/glob.h"
#include "lib/text/number.h"
#include "sentinel/sentinel_file.h"
#include "server/command/dispatch.h"
#include "sentinel/this_sentinel.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- SET --- */

/* The options before an invalid one stay set, as in Valkey. */

static void announce_set(struct instance *group, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void announce_set(struct instance *group, const char *format, ...) {
    char value[512], text[SENTINEL_TEXT_MAX];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(value, sizeof value, format, arguments);
    va_end(arguments);
    snprintf(text, sizeof text, "master %s %s %d %s", group->name, sentinel_announced(this_sentinel, &group->address),
             group->address.port, value);
    sentinel_effects.event(NULL, LOG_LEVEL_WARNING, "+set", text, group);
}

enum set_result { SET_OK, SET_UNKNOWN, SET_INVALID, SET_DENIED };

static void set_secret(char **text, struct slice value) {
    if (value.len) {
        sentinel_set_text(text, value);
    } else {
        mem_free(*text);
        *text = NULL;
    }
}
static enum set_result set_script(char **script, struct slice path) {
    if (sentinel_options.deny_scripts_reconfig) return SET_DENIED;
    if (path.len) {
        char *text = mem_strndup(path.data, path.len);
        bool usable = access(text, X_OK) == 0;
        mem_free(text);
        if (!usable) return SET_INVALID;
    }
    set_secret(script, path);
    return SET_OK;
}
/* Texts that the file could not keep, or with which it would become too large to be read. */
enum { VALUE_MAX = 1024 * 1024 };
static bool is_unfit(struct slice text) {
    return text.len > VALUE_MAX || (text.len && memchr(text.data, 0, text.len));
}
static enum set_result set_renamed(struct instance *group, struct slice from, struct slice to, struct slice *bad) {
    if (!from.len || is_unfit(from) || !to.len || is_unfit(to)) {
        *bad = from.len && !is_unfit(from) ? to : from;
        return SET_INVALID;
    }
    struct renamed_command **at = &group->options.renamed;
    while (*at && !slice_is(from, (*at)->from)) at = &(*at)->next;
    if (*at) {
        struct renamed_command *old = *at;
        *at = old->next;
        mem_free(old->from);
        mem_free(old->to);
        mem_free(old);
    }
    if (slice_compare(from, to) == 0) return SET_OK; /* its own name again */
    sentinel_rename_command(group, from, to);
    return SET_OK;
}

static enum set_result set_option(struct instance *group, struct slice option, struct slice value, struct slice more,
                                  bool has_more, int *used, struct slice *bad) {
    int64_t number;
    bool is_number = parse_int64(value, &number);
    *bad = value;
    *used = 2;
    if (is_unfit(value)) return SET_INVALID;
    if (slice_is(option, "down-after-milliseconds")) {
        if (!is_number || number <= 0) return SET_INVALID;
        sentinel_set_down_after(group, number);
    } else if (slice_is(option, "failover-timeout")) {
        if (!is_number || number <= 0) return SET_INVALID;
        group->options.failover_timeout_ms = sentinel_limit_ms(number);
    } else if (slice_is(option, "parallel-syncs")) {
        if (!is_number || number <= 0 || number > INT32_MAX) return SET_INVALID;
        group->options.parallel_syncs = (unsigned)number;
    } else if (slice_is(option, "notification-script")) {
        enum set_result result = set_script(&group->options.notification_script, value);
        if (result) return result;
    } else if (slice_is(option, "client-reconfig-script")) {
        enum set_result result = set_script(&group->options.reconfig_script, value);
        if (result) return result;
    } else if (slice_is(option, "auth-pass")) {
        set_secret(&group->options.auth_pass, value);
    } else if (slice_is(option, "auth-user")) {
        set_secret(&group->options.auth_user, value);
    } else if (slice_is(option, "quorum")) {
        if (!is_number || number <= 0 || number > INT32_MAX) return SET_INVALID;
        group->options.quorum = (unsigned)number;
    } else if (slice_is(option, "rename-command") && has_more) {
        *used = 3;
        enum set_result result = set_renamed(group, value, more, bad);
        if (result) return result;
    } else if (slice_is(option, "primary-reboot-down-after-period") ||
               slice_is(option, "master-reboot-down-after-period")) {
        if (!is_number || number < 0) return SET_INVALID;
        group->options.reboot_down_after_ms = sentinel_limit_ms(number);
    } else {
        return SET_UNKNOWN;
    }
    return SET_OK;
}

void sentinel_set_run(struct call *call) {
    struct instance *group = sentinel_find_group(this_sentinel, call->argv[2]);
    if (!group) {
        sentinel_no_such_group(call);
        return;
    }
    enum set_result result = SET_OK;
    int at = 3, used;
    struct slice bad = {"", 0};
    bool changed = false, credentials = false;
    for (; at < call->argc && result == SET_OK; at += result == SET_OK ? used : 0) {
        struct slice option = call->argv[at];
        if (at + 1 >= call->argc) {
            result = SET_UNKNOWN;
            break;
        }
        bool has_more = at + 2 < call->argc;
        result =
            set_option(group, option, call->argv[at + 1], has_more ? call->argv[at + 2] : bad, has_more, &used, &bad);
        if (result) break;
        changed = true;
        credentials |= slice_is(option, "auth-pass") || slice_is(option, "auth-user");
        bool secret = slice_is(option, "auth-pass");
        if (secret) call_redact(call, at + 1);
        struct slice value = call->argv[at + 1];
        if (used == 3)
            announce_set(group, "%.*s %.*s %.*s", (int)option.len, option.data, (int)value.len, value.data,
                         (int)call->argv[at + 2].len, call->argv[at + 2].data);
        else if (secret)
            announce_set(group, "%.*s ******", (int)option.len, option.data);
        else
            announce_set(group, "%.*s %.*s", (int)option.len, option.data, (int)value.len, value.data);
    }
    if (changed && result) sentinel_file_flush();
    if (credentials) sentinel_reconnect_servers(this_sentinel, group); /* connections authenticate when they open */
    struct slice option = at < call->argc ? call->argv[at] : bad;
    int option_len = (int)(option.len > 128 ? 128 : option.len), bad_len = (int)(bad.len > 128 ? 128 : bad.len);
    switch (result) {
    case SET_OK: sentinel_reply_saved(call); break;
    case SET_UNKNOWN:
        reply_error_format(call->reply, "ERR Unknown option or number of arguments for SENTINEL SET '%.*s'", option_len,
                           option.data);
        break;
    case SET_INVALID:
        reply_error_format(call->reply, "ERR Invalid argument '%.*s' for SENTINEL SET '%.*s'", bad_len, bad.data,
                           option_len, option.data);
        break;
    case SET_DENIED:
        reply_error(call->reply, "ERR Reconfiguration of scripts path is denied for security reasons. Check the "
                                 "deny-scripts-reconfig configuration directive in your Sentinel configuration");
        break;
    }
}

/* --- CONFIG --- */

static const char *const log_levels[] = {"debug", "verbose", "notice", "warning", "nothing"};

enum parameter {
    RESOLVE_HOSTNAMES,
    ANNOUNCE_HOSTNAMES,
    ANNOUNCE_IP,
    ANNOUNCE_PORT,
    SENTINEL_USER,
    SENTINEL_PASS,
    LOGLEVEL,
    RDMA,
    PARAMETERS
};
static const char *const parameters[PARAMETERS] = {
    "resolve-hostnames", "announce-hostnames", "announce-ip", "announce-port",
    "sentinel-user",     "sentinel-pass",      "loglevel",    "rdma"};
static int parameter_of(struct slice name) {
    for (int i = 0; i < PARAMETERS; i++)
        if (slice_is(name, parameters[i])) return i;
    return PARAMETERS;
}

static bool addresses_are_known(void) {
    each_group(group) if (!*sentinel_primary_address(group)->ip) return false;
    return true;
}
static bool parameter_is_valid(int parameter, struct slice value) {
    int64_t number;
    if (is_unfit(value)) return false;
    switch (parameter) {
    case RESOLVE_HOSTNAMES:
        /* Without it, the file could not be read again with a group that has a name only. */
        return slice_is(value, "yes") || (slice_is(value, "no") && addresses_are_known());
    case ANNOUNCE_HOSTNAMES:
    case RDMA: return slice_is(value, "yes") || slice_is(value, "no");
    case ANNOUNCE_PORT: return parse_int64(value, &number) && number >= 0 && number <= 65535;
    case ANNOUNCE_IP: return value.len < SENTINEL_HOST_MAX;
    case LOGLEVEL:
        for (size_t i = 0; i < sizeof log_levels / sizeof *log_levels; i++)
            if (slice_is(value, log_levels[i])) return true;
        return false;
    default: return true;
    }
}
static void parameter_set(int parameter, struct slice value) {
    struct sentinel_settings *settings = &this_sentinel->settings;
    int64_t number = 0;
    switch (parameter) {
    case RESOLVE_HOSTNAMES: settings->resolve_hostnames = slice_is(value, "yes"); break;
    case ANNOUNCE_HOSTNAMES: settings->announce_hostnames = slice_is(value, "yes"); break;
    case RDMA: sentinel_options.rdma = slice_is(value, "yes"); break;
    case ANNOUNCE_IP: sentinel_set_text(&sentinel_options.announce_ip, value); break;
    case ANNOUNCE_PORT:
        if (parse_int64(value, &number)) sentinel_options.announce_port = (int)number;
        break;
    case SENTINEL_USER: sentinel_set_text(&sentinel_options.user, value); break;
    case SENTINEL_PASS: sentinel_set_text(&sentinel_options.password, value); break;
    case LOGLEVEL:
        for (size_t i = 0; i < sizeof log_levels / sizeof *log_levels; i++)
            if (slice_is(value, log_levels[i])) log_level = (enum log_level)i;
        config_assign("loglevel", 1, &value);
        break;
    }
}
static const char *parameter_text(int parameter) {
    static char port[12];
    const struct sentinel_settings *settings = &this_sentinel->settings;
    switch (parameter) {
    case RESOLVE_HOSTNAMES: return settings->resolve_hostnames ? "yes" : "no";
    case ANNOUNCE_HOSTNAMES: return settings->announce_hostnames ? "yes" : "no";
    case RDMA: return sentinel_options.rdma ? "yes" : "no";
    case ANNOUNCE_IP: return sentinel_options.announce_ip;
    case ANNOUNCE_PORT: snprintf(port, sizeof port, "%d", sentinel_options.announce_port); return port;
    case SENTINEL_USER: return sentinel_options.user;
    case SENTINEL_PASS: return sentinel_options.password;
    default: return log_levels[log_level];
    }
}

static void config_set(struct call *call) {
    bool seen[PARAMETERS] = {false};
    for (int i = 3; i < call->argc; i += 2) {
        struct slice name = call->argv[i], value = i + 1 < call->argc ? call->argv[i + 1] : SLICE("");
        int parameter = parameter_of(name), name_len = (int)(name.len > 128 ? 128 : name.len);
        if (parameter == PARAMETERS) {
            reply_error_format(call->reply, "ERR Invalid argument '%.*s' to SENTINEL CONFIG SET", name_len, name.data);
            return;
        }
        if (seen[parameter]) {
            reply_error_format(call->reply, "ERR Duplicate argument '%.*s' to SENTINEL CONFIG SET", name_len,
                               name.data);
            return;
        }
        if (i + 1 == call->argc) {
            reply_error_format(call->reply, "ERR Missing argument '%.*s' value", name_len, name.data);
            return;
        }
        seen[parameter] = true;
        if (parameter == SENTINEL_PASS) call_redact(call, i + 1);
        if (parameter_is_valid(parameter, value)) continue;
        reply_error_format(call->reply, "ERR Invalid value '%.*s' to SENTINEL CONFIG SET '%.*s'",
                           (int)(value.len > 128 ? 128 : value.len), value.data, name_len, name.data);
        return;
    }
    for (int i = 3; i + 1 < call->argc; i += 2) parameter_set(parameter_of(call->argv[i]), call->argv[i + 1]);
    /* Connections to other Sentinels and servers must use the new user, password and address. */
    if (seen[SENTINEL_USER] || seen[SENTINEL_PASS]) sentinel_reconnect(this_sentinel, INSTANCE_SENTINEL);
    sentinel_reply_saved(call);
}
static void config_get(struct call *call) {
    struct reply_deferred deferred;
    size_t count = 0;
    reply_deferred_begin(call->reply, &deferred);
    bool given[PARAMETERS] = {false};
    for (int i = 3; i < call->argc; i++)
        for (int parameter = 0; parameter < PARAMETERS; parameter++) {
            if (given[parameter] || !glob_match(call->argv[i], slice_of(parameters[parameter]), true)) continue;
            given[parameter] = true;
            reply_bulk_text(call->reply, parameters[parameter]);
            reply_bulk_text(call->reply, parameter_text(parameter));
            count++;
        }
    reply_deferred_end(call->reply, &deferred, REPLY_MAP, count);
}
void sentinel_config_run(struct call *call) {
    if (slice_is(call->argv[2], "set") && call->argc > 4)
        config_set(call);
    else if (slice_is(call->argv[2], "get"))
        config_get(call);
    else
        reply_error(call->reply, "ERR Only SENTINEL CONFIG GET <param> [<param> <param> ...] / SET <param> <value> "
                                 "[<param> <value> ...] are supported.");
}

/* --- DEBUG --- */

struct timer_name {
    const char *name;
    size_t offset;
};
#define TIMER(text, field)                                                                                             \
    { text, offsetof(struct sentinel_timers, field) }
static const struct timer_name timer_names[] = {TIMER("info-period", info_period),
                                                TIMER("ping-period", ping_period),
                                                TIMER("ask-period", ask_period),
                                                TIMER("publish-period", publish_period),
                                                TIMER("default-down-after", default_down_after),
                                                TIMER("default-failover-timeout", default_failover_timeout),
                                                TIMER("tilt-trigger", tilt_trigger),
                                                TIMER("tilt-period", tilt_period),
                                                TIMER("slave-reconf-timeout", reconf_timeout),
                                                TIMER("min-link-reconnect-period", min_link_reconnect),
                                                TIMER("election-timeout", election_timeout),
                                                TIMER("script-max-runtime", script_max_runtime),
                                                TIMER("script-retry-delay", script_retry_delay)};
enum { TIMERS = sizeof timer_names / sizeof *timer_names };
static int64_t *timer_at(size_t n) {
    return (int64_t *)(void *)((char *)&this_sentinel->settings.timers + timer_names[n].offset);
}

void sentinel_debug_run(struct call *call) {
    if (call->argc == 2) {
        reply_map(call->reply, TIMERS);
        for (size_t n = 0; n < TIMERS; n++) {
            char upper[40];
            size_t len = 0;
            for (const char *c = timer_names[n].name; *c; c++)
                upper[len++] = (char)(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c);
            reply_bulk(call->reply, slice_make(upper, len));
            reply_bulk_integer(call->reply, *timer_at(n));
        }
        return;
    }
    for (int i = 2; i < call->argc; i += 2) {
        struct slice name = call->argv[i];
        int64_t value;
        size_t n = 0;
        while (n < TIMERS && !slice_is(name, timer_names[n].name)) n++;
        if (n == TIMERS || i + 1 >= call->argc) {
            reply_error_format(call->reply, "ERR Unknown option or number of arguments for SENTINEL DEBUG '%.*s'",
                               (int)(name.len > 128 ? 128 : name.len), name.data);
            return;
        }
        struct slice text = call->argv[i + 1];
        if (!parse_int64(text, &value) || value <= 0) {
            reply_error_format(call->reply, "ERR Invalid argument '%.*s' for SENTINEL DEBUG '%.*s'",
                               (int)(text.len > 128 ? 128 : text.len), text.data, (int)name.len, name.data);
            return;
        }
        *timer_at(n) = sentinel_limit_ms(value);
        if (slice_is(name, "tilt-period")) this_sentinel->settings.tilt_period_set = true;
    }
    reply_ok(call->reply);
}
