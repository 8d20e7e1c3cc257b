/* config_command.c: CONFIG GET, SET, REWRITE, RESETSTAT, HELP.
 *
 * SET of several options is all or nothing: first every name is checked, then all values are stored, then each apply
 * function is called once. If storing or applying fails, the old values are stored again (from texts saved before) and
 * the functions that had succeeded are called again. */
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/glob.h"
#include "server/clients/client.h"
#include "server/command/command.h"
#include "server/command/dispatch.h"
#include "server/command/help.h"
#include "server/command/spec.h"
#include "server/config/config.h"
#include "server/config/config_engine.h"
#include "server/config/settings.h"
#include "server/feature.h"
#include "server/server.h"
#include "server/stats/info.h"
#include <string.h>

/* --- GET --- */

struct shown {
    struct slice name; /* as in the request, or as in the table */
    struct config_state *state;
};
static bool is_pattern(struct slice text) {
    for (size_t i = 0; i < text.len; i++)
        if (text.data[i] == '*' || text.data[i] == '?' || text.data[i] == '[') return true;
    return false;
}
static void run_get(struct call *call) {
    static uint32_t asked;
    struct shown *shown = mem_alloc(config_names_count() * sizeof *shown);
    size_t count = 0;
    asked++;
    for (int i = 2; i < call->argc; i++) {
        struct slice pattern = call->argv[i];
        if (!is_pattern(pattern)) {
            struct config_name_entry *entry = config_name_find(pattern);
            if (!entry || entry->shown == asked) continue;
            entry->shown = asked;
            shown[count++] = (struct shown){pattern, entry->state};
            continue;
        }
        for (size_t j = 0; j < config_names_count(); j++) {
            struct config_name_entry *entry = config_name_at(j);
            if (entry->shown == asked || entry->state->option->flags & CONFIG_HIDDEN) continue;
            if (!glob_match(pattern, slice_of(entry->name), true)) continue;
            entry->shown = asked;
            shown[count++] = (struct shown){slice_of(entry->name), entry->state};
        }
    }
    struct memory_output text = MEMORY_OUTPUT_INIT;
    reply_map(call->reply, count);
    for (size_t i = 0; i < count; i++) {
        memory_output_clear(&text);
        config_state_text(shown[i].state, &text.out);
        reply_bulk(call->reply, shown[i].name);
        reply_bulk(call->reply, memory_output_slice(&text));
    }
    memory_output_free(&text);
    mem_free(shown);
}

/* --- SET --- */

struct setting {
    struct config_state *state;
    const char *name; /* name or alias of the request, spelled as in the table */
    struct slice value;
    struct slice old; /* as text */
    bool changed;
};
enum { APPLY_MAX = 64 };

static bool may_change_protected(const struct call *call) {
    int allowed = server_settings.protected_configs;
    const struct connection *conn = call->client ? call->client->conn : NULL;
    return allowed == PERMIT_YES || (allowed == PERMIT_LOCAL && (!conn || conn_is_local(conn)));
}
/* A name and its alias may both be set; the later one wins. */
static const char *config_refuse(const struct call *call, const struct config_name_entry *entry,
                                 const struct setting *before, int count) {
    const struct config_option *option = entry->state->option;
    if (option->flags & CONFIG_IMMUTABLE) return "can't set immutable config";
    if (option->flags & CONFIG_PROTECTED && !may_change_protected(call)) return "can't set protected config";
    for (int i = 0; i < count; i++)
        if (before[i].name == entry->name) return "duplicate parameter";
    return NULL;
}
static const char *apply_all(const struct setting *settings, int count, int *failed) {
    const struct config_option *applied[APPLY_MAX];
    int applied_count = 0;
    for (int i = 0; i < count; i++) {
        const struct config_option *option = settings[i].state->option;
        if (!option->apply && !option->apply_with) continue;
        if (!(settings[i].changed || option->flags & CONFIG_VOLATILE)) continue;
        bool done = false;
        for (int j = 0; j < applied_count; j++)
            done |= applied[j]->apply == option->apply && applied[j]->apply_with == option->apply_with &&
                    applied[j]->apply_context == option->apply_context;
        if (done) continue;
        if (applied_count < APPLY_MAX) applied[applied_count++] = option;
        const char *reason = option->apply_with ? option->apply_with(option->apply_context) : option->apply();
        if (!reason) continue;
        *failed = i;
        return reason;
    }
    return NULL;
}
static void put_back(struct setting *settings, int count) {
    for (int i = count; i-- > 0;) {
        const char *reason = config_state_set_text(settings[i].state, settings[i].old, true);
        if (reason)
            log_warning("Option '%s' could not be put back to '%s': %s", settings[i].state->option->name,
                        settings[i].old.data, reason);
    }
}
static void reply_set_failed(struct call *call, const char *name, const char *reason) {
    reply_error_format(call->reply, "ERR CONFIG SET failed (possibly related to argument '%s')%s%s", name,
                       *reason ? " - " : "", reason);
}
/* Returns the number of options in the request, or -1 after replying with an error. */
static int config_collect(struct call *call, struct setting *settings) {
    int count = 0;
    for (int i = 2; i < call->argc; i += 2, count++) {
        struct slice name = call->argv[i];
        struct config_name_entry *entry = config_name_find(name);
        if (!entry) {
            reply_error_format(call->reply, "ERR Unknown option or number of arguments for CONFIG SET - '%.*s'",
                               name.len < 1024 ? (int)name.len : 1024, name.data);
            return -1;
        }
        const char *reason = config_refuse(call, entry, settings, count);
        if (!reason && entry->state->option->flags & CONFIG_DENY_LOADING && server_is_loading()) {
            reply_error(call->reply, WITH_PRODUCT("LOADING ", " is loading the dataset in memory"));
            return -1;
        }
        if (reason) {
            reply_set_failed(call, entry->name, reason);
            return -1;
        }
        settings[count] = (struct setting){.state = entry->state, .name = entry->name, .value = call->argv[i + 1]};
    }
    return count;
}
static bool store_all(struct call *call, struct setting *settings, int count) {
    for (int i = 0; i < count; i++) {
        struct setting *setting = &settings[i];
        setting->old = config_state_text_copy(setting->state);
        const char *reason = config_state_set_text(setting->state, setting->value, false);
        if (reason) {
            reply_set_failed(call, setting->name, reason);
            put_back(settings, i);
            return false;
        }
        struct slice now = config_state_text_copy(setting->state);
        setting->changed = !slice_equal(now, setting->old);
        config_text_free(now);
    }
    return true;
}
static void (*on_change)(int count, const char *const *names);
void config_on_change(void (*changed)(int count, const char *const *names)) {
    on_change = changed;
}
static void tell_changed(const struct setting *settings, int count) {
    if (!on_change) return;
    const char **names = mem_alloc((size_t)count * sizeof *names);
    for (int i = 0; i < count; i++) names[i] = settings[i].name;
    on_change(count, names);
    mem_free(names);
}
static void run_set(struct call *call) {
    for (int i = 2; i + 1 < call->argc; i += 2) {
        const struct config_option *option = config_find(call->argv[i]);
        if (option && (option->flags & CONFIG_SENSITIVE)) call_redact(call, i + 1);
    }
    if (call->argc % 2) {
        reply_syntax_error(call->reply);
        return;
    }
    struct setting *settings = mem_calloc((size_t)call->argc / 2, sizeof *settings);
    int count = config_collect(call, settings), failed = 0, unused;
    if (count > 0 && store_all(call, settings, count)) {
        const char *reason = apply_all(settings, count, &failed);
        if (reason) {
            const char *name = settings[failed].name;
            /* Valkey leaves out the module. */
            if (settings[failed].state->option->apply_with && strchr(name, '.')) name = strchr(name, '.') + 1;
            log_warning(
                "Failed applying new configuration. Possibly related to new %s setting. Restoring previous settings.",
                name);
            reply_set_failed(call, name, reason);
            put_back(settings, count);
            apply_all(settings, failed + 1, &unused);
        } else {
            for (int i = 0; i < count; i++) config_state_log_not_built(settings[i].state);
            tell_changed(settings, count);
            reply_ok(call->reply);
        }
    }
    for (int i = 0; i < count; i++) config_text_free(settings[i].old);
    mem_free(settings);
}

static void run_rewrite(struct call *call) {
    if (!*config_file()) {
        reply_error(call->reply, "ERR The server is running without a config file");
        return;
    }
    int result = config_rewrite(false);
    if (result < 0) {
        log_warning("CONFIG REWRITE failed: %s", strerror(-result));
        reply_error_format(call->reply, "ERR Rewriting config file: %s", strerror(-result));
        return;
    }
    log_notice("CONFIG REWRITE executed with success.");
    reply_ok(call->reply);
}
static void run_resetstat(struct call *call) {
    info_reset();
    reply_ok(call->reply);
}
#define ON_ALL_NODES WORDS("request_policy:all_nodes", "response_policy:all_succeeded")
enum { ADMIN_FLAGS = CMD_NO_DATA | CMD_ADMIN | CMD_LOADING | CMD_NOSCRIPT | CMD_STALE };
static const struct command_spec subcommands[] = {
    {COMMAND("get", run_get, -3, ADMIN_FLAGS, .group = GROUP_SERVER, "2.0.0"),
     .complexity = "O(N) where N is how many options are named",
     .summary = "Returns the values of the options whose names match.", .syntax = "parameter:string...",
     .history = WORDS("7.0.0", "Takes several patterns.")},
    {COMMAND("set", run_set, -4, ADMIN_FLAGS, .group = GROUP_SERVER, "2.0.0"),
     .complexity = "O(N) where N is how many options are named",
     .summary = "Changes options while the server runs; all of them or none.",
     .syntax = "data{parameter:string value:string}...", .history = WORDS("7.0.0", "Takes several options."),
     .tips = ON_ALL_NODES},
    {COMMAND("rewrite", run_rewrite, 2, ADMIN_FLAGS, .group = GROUP_SERVER, "2.8.0"), .complexity = "O(1)",
     .summary = "Writes the current configuration to the configuration file.", .tips = ON_ALL_NODES},
    {COMMAND("resetstat", run_resetstat, 2, ADMIN_FLAGS, .group = GROUP_SERVER, "2.0.0"), .complexity = "O(1)",
     .summary = "Resets the counters of INFO.", .tips = ON_ALL_NODES},
    {HELP_ROW(help_handler, "GET <pattern>", "    Show the options whose names match <pattern>, with their values.",
              "SET <directive> <value>", "    Change the option <directive> to <value>.", "RESETSTAT",
              "    Set the counters that INFO reports back to zero.", "REWRITE",
              "    Write the present settings to the configuration file."),
     .group = GROUP_SERVER, .since = "5.0.0"},
    {.name = NULL}};
static const struct command_spec config_commands[] = {
    {COMMAND("config", NULL, -2, 0, .group = GROUP_SERVER, "2.0.0"), .complexity = "Depends on subcommand.",
     .summary = "A container for commands about the configuration.", .subcommands = subcommands},
    {.name = NULL}};

const struct feature config_feature = {
    .name = "config",
    .options = OPTIONS(config_options_server, config_options_unbuilt),
    .directives = DIRECTIVES(config_directives_basic),
    .commands = COMMANDS(config_commands),
};
