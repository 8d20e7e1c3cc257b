/* module_commands.c: MODULE, lines loadmodule of the configuration, the modules in INFO, and the feature itself. */
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "module/blocked.h"
#include "module/parts.h"
#include "module/module.h"
#include "module/users.h"
#include "server/command/help.h"
#include "server/command/spec.h"
#include "server/config/config.h"
#include "server/config/settings.h"
#include "server/debug/debug.h"
#include "server/feature.h"
#include "server/server_events.h"
#include "server/process/crash.h"
#include "server/script_hooks.h"
#include "server/server.h"
#include "server/stats/info.h"
#include <stdio.h>
#include <stdlib.h>

/* --- loadmodule: libraries are loaded at start, before the data --- */

struct queued_module {
    struct list_link link;
    int argc;
    char *words[]; /* the path first */
};
static struct list queue = LIST_INIT(queue);

/* Valkey can have transports as modules; here they are part of the server. Their lines are accepted, with the arguments
 * of the RDMA module: "loadmodule /path/valkey-rdma.so bind=192.168.1.5 port=6379" sets rdma-bind and rdma-port. */
static const char *set_rdma_argument(struct slice argument) {
    const char *equals = memchr(argument.data, '=', argument.len);
    char name[64];
    size_t name_len = equals ? (size_t)(equals - argument.data) : 0;
    struct slice value = {0};
    if (equals) value = (struct slice){equals + 1, argument.len - name_len - 1};
    if (!name_len || name_len >= sizeof name - sizeof "rdma-") return "Arguments of valkey-rdma.so are NAME=VALUE";
    snprintf(name, sizeof name, "rdma-%.*s", (int)name_len, argument.data);
    if (!config_find(slice_of(name))) return config_reason("There is no option %s", name);
    return config_assign(name, 1, &value);
}

static struct slice file_of(struct slice path) {
    const char *slash = memrchr(path.data, '/', path.len);
    return slash ? (struct slice){slash + 1, path.len - (size_t)(slash + 1 - path.data)} : path;
}
static bool is_tls(struct slice path) {
    return slice_is(file_of(path), "valkey-tls.so");
}
static bool is_rdma(struct slice path) {
    return slice_is(file_of(path), "valkey-rdma.so");
}

static const char *load_line(int count, const struct slice *words) {
    if (is_tls(words[0]) && count == 1) return NULL;
    if (is_rdma(words[0])) {
        for (int i = 1; i < count; i++) {
            const char *reason = set_rdma_argument(words[i]);
            if (reason) return reason;
        }
        return NULL;
    }
    struct queued_module *queued = mem_calloc(1, sizeof *queued + (size_t)count * sizeof *queued->words);
    queued->argc = count;
    for (int i = 0; i < count; i++) queued->words[i] = mem_strndup(words[i].data, words[i].len);
    list_append(&queue, &queued->link);
    return NULL;
}

bool modules_starting;

static void modules_start(void) {
    modules_starting = true;
    list_each(&queue, link) {
        struct queued_module *queued = container_of(link, struct queued_module, link);
        int argc = queued->argc - 1;
        struct slice *arguments = mem_calloc((size_t)queued->argc, sizeof *arguments);
        for (int i = 0; i < argc; i++) arguments[i] = slice_of(queued->words[i + 1]);
        if (!module_load(queued->words[0], argc, arguments, 0, NULL)) {
            log_warning("Can't load module from %s: server aborting", queued->words[0]);
            exit(1);
        }
        mem_free(arguments);
        list_remove(&queue, link);
        for (int i = 0; i < queued->argc; i++) mem_free(queued->words[i]);
        mem_free(queued);
    }
    modules_starting = false;
    module_configs_check_waiting();
}

static void rewrite_word(struct output *out, const char *word) {
    output_write(out, SLICE(" "));
    output_write(out, slice_of(word));
}
/* A rewritten file contains the options that lines of valkey-rdma.so have set, and so no such lines: the argument of
 * one would set an option again that is back at its default. */
static void rewrite_lines(struct output *out) {
    list_each(modules_all(), link) {
        const struct module *module = container_of(link, struct module, link);
        output_write(out, SLICE("loadmodule"));
        rewrite_word(out, module->path);
        for (int i = 0; i < module->argc; i++) rewrite_word(out, module->arguments[i]);
        output_write(out, SLICE("\n"));
    }
}
static const struct config_directive directives[] = {
    {.name = "loadmodule", .min_words = 1, .handle = load_line, .rewrite = rewrite_lines}, {.name = NULL}};

/* --- MODULE --- */

static void reply_row(struct reply *reply, const char *name, int version, const char *path, int argc,
                      char *const *arguments) {
    reply_map(reply, 4);
    reply_field_text(reply, "name", name);
    reply_field_integer(reply, "ver", version);
    reply_field_text(reply, "path", path);
    reply_bulk_text(reply, "args");
    reply_array(reply, (size_t)argc);
    for (int i = 0; i < argc; i++) reply_bulk_text(reply, arguments[i]);
}
static size_t named_modules(void) {
    size_t count = 0;
    list_each(modules_all(), link) count += container_of(link, struct module, link)->name != NULL;
    return count;
}
static void reply_modules(struct reply *reply) {
    reply_array(reply, named_modules() + (script_hooks != NULL));
    list_each(modules_all(), link) {
        const struct module *module = container_of(link, struct module, link);
        if (module->name)
            reply_row(reply, module->name, module->version, module->path, module->argc, module->arguments);
    }
    if (script_hooks) reply_row(reply, SCRIPT_MODULE, SCRIPT_MODULE_VERSION, SCRIPT_MODULE, 0, NULL);
}

static void list_run(struct call *call) {
    reply_modules(call->reply);
}
static bool is_permitted(struct call *call) {
    return debug_permitted(call, server_settings.module_command, "MODULE", "enable-module-command");
}
static void reply_loaded(struct call *call, bool loaded) {
    if (loaded)
        reply_ok(call->reply);
    else
        reply_error(call->reply, "ERR Error loading the extension. Please check the server logs.");
}
static char *path_of(struct slice argument) {
    return mem_strndup(argument.data, argument.len);
}
/* MODULE LOAD of a transport fails as in Valkey, which loads one only at start. */
static bool is_transport(struct call *call) {
    if (!is_tls(call->argv[2]) && !is_rdma(call->argv[2])) return false;
    log_warning("Module %.*s is a part of this server, with the options %s.", (int)(call->argv[2].len & 0xffff),
                call->argv[2].data, is_tls(call->argv[2]) ? "tls-port and tls-*" : "rdma-port and rdma-*");
    reply_loaded(call, false);
    return true;
}
static void load_run(struct call *call) {
    if (!is_permitted(call) || is_transport(call)) return;
    char *path = path_of(call->argv[2]);
    reply_loaded(call, module_load(path, call->argc - 3, call->argv + 3, 0, NULL));
    mem_free(path);
}
/* MODULE LOADEX path [CONFIG name value]… [ARGS …] */
static void loadex_run(struct call *call) {
    if (!is_permitted(call) || is_transport(call)) return;
    struct slice *pairs = mem_alloc((size_t)call->argc * sizeof(*pairs));
    int options = 0, at = 3;
    bool valid = true;
    while (at < call->argc && slice_is(call->argv[at], "config")) {
        if (at + 2 >= call->argc) {
            log_notice("CONFIG specified without name value pair");
            valid = false;
            break;
        }
        pairs[2 * options] = call->argv[at + 1];
        pairs[2 * options + 1] = call->argv[at + 2];
        options++;
        at += 3;
    }
    if (valid && at < call->argc && !slice_is(call->argv[at], "args")) {
        log_notice("Syntax Error from arguments to loadex around %.*s.", (int)(call->argv[at].len & 0xffff),
                   call->argv[at].data);
        valid = false;
    } else if (at < call->argc) {
        at++;
    }
    char *path = path_of(call->argv[2]);
    reply_loaded(call, valid && module_load(path, call->argc - at, call->argv + at, options, pairs));
    mem_free(path);
    mem_free(pairs);
}
static void unload_run(struct call *call) {
    if (!is_permitted(call)) return;
    char *name = path_of(call->argv[2]);
    const char *reason = module_unload(call->argv[2]);
    if (!reason) {
        reply_ok(call->reply);
    } else {
        log_warning("Error unloading module %s: %s", name, reason);
        reply_error_format(call->reply, "ERR Error unloading module: %s", reason);
    }
    mem_free(name);
}
static const char *const unordered[] = {"nondeterministic_output_order", NULL};
enum { CHANGES = CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT | CMD_NO_ASYNC_LOADING };
static const struct command_spec subcommands[] = {
    {HELP_ROW(help_handler, "LIST", "    Return a list of loaded modules.", "LOAD <path> [<arg> ...]",
              "    Load a module library from <path>, passing to it any optional arguments.",
              "LOADEX <path> [[CONFIG NAME VALUE] [CONFIG NAME VALUE]] [ARGS ...]",
              "    Load a module library from <path>, while passing it module configurations and optional arguments.",
              "UNLOAD <name>", "    Unload a module."),
     .group = GROUP_SERVER, .since = "5.0.0"},
    {COMMAND("list", list_run, 2, CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT, .group = GROUP_SERVER, "4.0.0"),
     .complexity = "O(N) where N is the number of modules", .summary = "Lists the loaded modules.", .tips = unordered},
    {COMMAND("load", load_run, -3, CHANGES, .group = GROUP_SERVER, "4.0.0"), .complexity = "O(1)",
     .syntax = "path:string [arg:string]...", .summary = "Loads a module."},
    {COMMAND("loadex", loadex_run, -3, CHANGES, .group = GROUP_SERVER, "7.0.0"), .complexity = "O(1)",
     .syntax = "path:string [CONFIG configs{name:string value:string}]... [ARGS args:string...]",
     .summary = "Loads a module, with values of its options."},
    {COMMAND("unload", unload_run, 3, CHANGES, .group = GROUP_SERVER, "4.0.0"), .complexity = "O(1)",
     .syntax = "name:string", .summary = "Unloads a module."},
    {.name = NULL},
};
static const struct command_spec commands[] = {
    {COMMAND("module", NULL, -2, 0, .group = GROUP_SERVER, "4.0.0"), .complexity = "Depends on the subcommand.",
     .summary = "A container for commands about modules.", .subcommands = subcommands},
    {.name = NULL},
};

static const char *const option_names[] = {"handle-io-errors",        "no-implicit-signal-modified",
                                           "handle-repl-async-load",  "allow-nested-keyspace-notifications",
                                           "skip-command-validation", "handle-atomic-slot-migration"};
static void write_modules(struct output *out) {
    list_each(modules_all(), link) {
        struct module *module = container_of(link, struct module, link);
        char options[256] = "";
        for (size_t i = 0; i < sizeof option_names / sizeof *option_names; i++) {
            if (!(module->options >> i & 1)) continue;
            if (options[0]) strcat(options, "|");
            strcat(options, option_names[i]);
        }
        char head[512], tail[sizeof options + 32];
        int head_len =
            snprintf(head, sizeof head, "module:name=%s,ver=%d,api=%d,filters=%zu,usedby=[",
                     module->name ? module->name : "", module->version, module->api_version, module->filters.len);
        output_write(out, (struct slice){head, head_len < (int)sizeof head ? (size_t)head_len : sizeof head - 1});
        module_write_relations(module, false, out);
        output_write(out, SLICE("],using=["));
        module_write_relations(module, true, out);
        snprintf(tail, sizeof tail, "],options=[%s]\r\n", options);
        output_write(out, slice_of(tail));
    }
}
static const struct info_section sections[] = {
    {.name = "modules", .title = "Modules", .order = 80, .write = write_modules}, {.name = NULL}};

static void write_crash(struct output *out) {
    write_modules(out);
    module_info_write_crash(out);
}
static void init(void) {
    modules_reply = reply_modules;
    modules_refuse_direct_load = modules_direct_load_refusal;
    module_configs_start();
    crash_set_modules(write_crash);
    module_events_start();
    module_users_start();
    module_cluster_start();
}
static void modules_before_wait(void) {
    module_jobs_before_wait();
    module_events_before_wait();
    blocked_before_wait();
    messages_before_wait();
}
/* Modules that can be unloaded are, so that they may put away what they hold: the last one first, because it may use
 * functions of others. Those that stay change places with those that have not been asked. */
static void modules_stop(void) {
    struct list *modules = modules_all();
    module_events_shutdown();
    for (size_t left = modules->len; left && modules->len; left--) {
        struct module *module = container_of(modules->head.prev, struct module, link);
        char *name = mem_strdup(module->name);
        const char *reason = module_unload(slice_of(name));
        if (reason) {
            log_warning("Failed to unload module %s: %s", name, reason);
            list_remove(modules, &module->link);
            list_prepend(modules, &module->link);
        }
        mem_free(name);
    }
}
static const struct server_part part = {.name = "modules",
                                        .start = modules_start,
                                        .cron = module_events_cron,
                                        .before_wait = modules_before_wait,
                                        .stop = modules_stop};

const struct feature module_feature = {.name = "module",
                                       .commands = COMMANDS(commands),
                                       .directives = DIRECTIVES(directives),
                                       .sections = SECTIONS(sections),
                                       .init = init,
                                       .parts = PARTS(&part)};
