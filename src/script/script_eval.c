/* script_eval.c: EVAL, EVALSHA, their read-only forms, and SCRIPT.
 *
 * The cache holds every script that was executed or loaded, in compiled form. A script is found by its digest or by its
 * text, so EVAL of a cached script computes no digest. Of the scripts from EVAL at most EVAL_SCRIPTS_MAX are kept;
 * beyond that the least recently executed one is evicted. Scripts of SCRIPT LOAD are never evicted, because clients
 * rely on their digests. */
#include "commands/flush_mode.h"
#include "lib/hash/sha1.h"
#include "lib/structures/hashtable.h"
#include "lib/system/background.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "script/lua_vm.h"
#include "script/script.h"
#include "script/script_debug.h"
#include "script/script_engine.h"
#include "script/script_run.h"
#include "script/script_shebang.h"
#include "server/clients/monitor.h"
#include "server/command/help.h"
#include "server/command/spec.h"
#include <lauxlib.h>
#include <stdio.h>

enum { EVAL_SCRIPTS_MAX = 500, DIGEST_TEXT = SHA1_SIZE * 2 };

struct eval_script {
    char digest[DIGEST_TEXT + 1];
    uint32_t flags;
    struct script_engine *engine;
    int reference;         /* in the interpreter; of Lua */
    void *handle;          /* of another engine */
    bool loaded;           /* by SCRIPT LOAD: never evicted */
    struct list_link used; /* unless loaded: in the list ordered by last execution */
    size_t len;
    char text[];
};

static lua_State *vm;
static struct hashtable *by_digest, *by_text;
static struct list evictable = LIST_INIT(evictable);
static struct script_cache_stats stats;

static struct slice script_digest(const void *entry) {
    return (struct slice){((const struct eval_script *)entry)->digest, DIGEST_TEXT};
}
static struct slice script_text(const void *entry) {
    const struct eval_script *script = entry;
    return (struct slice){script->text, script->len};
}
/* by_digest owns the scripts. */
static const struct hashtable_type digest_type = {.key = script_digest, .ignore_case = true, .free_entry = mem_free};
static const struct hashtable_type text_type = {.key = script_text};

void script_cache_stats(struct script_cache_stats *out) {
    *out = stats;
}
void script_cache_reset_stats(void) {
    stats.evicted = 0;
}
lua_State *script_vm(void) {
    return vm;
}

static void open_vm(void) {
    if (vm) return;
    vm = lua_vm_new(LUA_VM_EVAL);
    by_digest = hashtable_new(&digest_type);
    by_text = hashtable_new(&text_type);
}

/* --- The cache --- */

static void code_release(const struct eval_script *script) {
    if (script_engine_is_lua(script->engine))
        lua_vm_release(vm, script->reference);
    else
        script->engine->release(script->engine, LUA_VM_EVAL, script->handle);
}
static void script_remove(struct eval_script *script) {
    hashtable_pop(by_digest, script_digest(script));
    hashtable_pop(by_text, script_text(script));
    if (!script->loaded) list_remove(&evictable, &script->used);
    code_release(script);
    must(stats.count > 0);
    must_within(mem_size(script), stats.bytes);
    stats.count--;
    stats.bytes -= mem_size(script);
    mem_free(script);
}

/* Evicts scripts until the cache is within its limit. */
static void make_space(void) {
    while (evictable.len >= EVAL_SCRIPTS_MAX) {
        script_remove(container_of(list_first(&evictable), struct eval_script, used));
        stats.evicted++;
    }
}

static void digest_of(struct slice text, char out[static DIGEST_TEXT + 1]) {
    unsigned char digest[SHA1_SIZE];
    sha1_digest(text, digest);
    for (int i = 0; i < SHA1_SIZE; i++) snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

/* What another engine has made of a script: one function. */
struct compiling {
    struct script_engine *engine;
    void *handle;
    uint32_t flags; /* of the function */
    size_t count;
};
static void compiled_add(void *context, const struct script_engine_function *function) {
    struct compiling *compiling = context;
    if (compiling->count++) {
        compiling->engine->release(compiling->engine, LUA_VM_EVAL, function->handle);
    } else {
        compiling->handle = function->handle;
        compiling->flags = function->flags;
    }
}
/* Returns NULL, or the error. */
static const char *script_compile(struct eval_script *script, struct slice code) {
    const char *error = NULL;
    if (script_engine_is_lua(script->engine)) {
        script->reference = lua_vm_compile(vm, code, "@user_script", &error);
        return script->reference == LUA_NOREF ? error : NULL;
    }
    struct compiling compiling = {.engine = script->engine};
    error = script->engine->compile(script->engine, LUA_VM_EVAL, code, 0, compiled_add, &compiling);
    if (!error && compiling.count != 1) error = "a script is one function";
    if (error && compiling.count) script->engine->release(script->engine, LUA_VM_EVAL, compiling.handle);
    script->handle = compiling.handle;
    script->flags |= compiling.flags;
    return error;
}

/* Compiles a script and adds it. Returns NULL after replying with an error. */
static struct eval_script *script_add(struct call *call, struct slice text, bool loaded) {
    struct script_shebang shebang = {.engine = &script_engine_lua, .flags = SCRIPT_WITHOUT_SHEBANG, .code = text};
    const char *error = script_has_shebang(text) ? script_shebang_read(text, &shebang) : NULL;
    if (error) {
        reply_error(call->reply, error);
        return NULL;
    }
    struct eval_script made = {.engine = shebang.engine, .flags = shebang.flags, .loaded = loaded, .len = text.len};
    error = script_compile(&made, shebang.code);
    if (error) {
        reply_error_format(call->reply, "ERR Error compiling script (new function): %s", error);
        return NULL;
    }
    if (!loaded) make_space();
    struct eval_script *script = mem_alloc(sizeof *script + text.len);
    *script = made;
    digest_of(text, script->digest);
    if (text.len) memcpy(script->text, text.data, text.len);
    hashtable_add(by_digest, script);
    hashtable_add(by_text, script);
    if (!loaded) list_append(&evictable, &script->used);
    stats.count++;
    stats.bytes += mem_size(script);
    return script;
}

static void free_vm(void *lua) {
    lua_vm_free(lua);
}

uint32_t script_flags(struct slice text_or_digest, bool is_digest) {
    struct script_shebang shebang;
    if (!is_digest && !script_has_shebang(text_or_digest)) return SCRIPT_WITHOUT_SHEBANG;
    struct eval_script *script = vm ? hashtable_find(is_digest ? by_digest : by_text, text_or_digest) : NULL;
    if (script) return script->flags;
    return is_digest || script_shebang_read(text_or_digest, &shebang) ? SCRIPT_WITHOUT_SHEBANG : shebang.flags;
}

/* Other engines' scripts, of one engine or of all (NULL). */
static void drop_others(const struct script_engine *engine) {
    struct hashtable_iterator it;
    struct eval_script *found;
    do {
        found = NULL;
        hashtable_iterator_open(&it, by_digest);
        for (struct eval_script *script; !found && (script = hashtable_iterator_next(&it));)
            if (!script_engine_is_lua(script->engine) && (!engine || script->engine == engine)) found = script;
        hashtable_iterator_close(&it);
        if (found) script_remove(found);
    } while (found);
}
void script_cache_drop(const struct script_engine *engine) {
    if (vm) drop_others(engine);
}

void script_cache_flush(bool in_background) {
    if (vm) drop_others(NULL);
    script_engines_reset(LUA_VM_EVAL, in_background);
    if (!vm) return;
    hashtable_free(by_text);
    hashtable_free(by_digest);
    list_init(&evictable);
    stats.count = stats.bytes = 0;
    if (in_background)
        background_submit(BACKGROUND_LAZY_FREE, free_vm, vm);
    else
        lua_vm_free(vm);
    vm = NULL;
}

/* --- EVAL --- */

static bool arguments_read(struct call *call, struct lua_arguments *arguments) {
    return lua_arguments_read(call, "ERR value is not an integer or out of range", arguments);
}

static void script_eval_run(struct call *call, struct eval_script *script, const struct lua_arguments *arguments,
                            bool read_only) {
    struct script_run run;
    if (!script->loaded && script->used.next != &evictable.head) {
        list_remove(&evictable, &script->used);
        list_append(&evictable, &script->used);
    }
    if (!script_begin(&run, call, script->digest, script->flags, read_only)) return;
    run.of_module = !script_engine_is_lua(script->engine);
    if (!run.of_module)
        lua_vm_run(vm, LUA_VM_EVAL, script->reference, arguments, call);
    else
        script->engine->run(script->engine, LUA_VM_EVAL, script->handle, arguments, call);
    script_end(&run);
}

static void eval_run(struct call *call);
static void eval_ro_run(struct call *call);

static void eval(struct call *call, bool read_only) {
    struct lua_arguments arguments;
    if (script_debug_takes(call, read_only ? eval_ro_run : eval_run)) return;
    monitor_show(call);
    if (!arguments_read(call, &arguments)) return;
    open_vm();
    struct eval_script *script = hashtable_find(by_text, call->argv[1]);
    if (!script) script = script_add(call, call->argv[1], false);
    if (script) script_eval_run(call, script, &arguments, read_only);
}

static void evalsha(struct call *call, bool read_only) {
    struct lua_arguments arguments;
    monitor_show(call);
    if (script_debug_is_on(call)) {
        reply_error(call->reply, "ERR Please use EVAL instead of EVALSHA for debugging");
        return;
    }
    struct slice digest = call->argv[1];
    struct eval_script *script = vm && digest.len == DIGEST_TEXT ? hashtable_find(by_digest, digest) : NULL;
    if (digest.len != DIGEST_TEXT) {
        reply_error(call->reply, "NOSCRIPT No matching script.");
        return;
    }
    if (!arguments_read(call, &arguments)) return;
    if (script)
        script_eval_run(call, script, &arguments, read_only);
    else
        reply_error(call->reply, "NOSCRIPT No matching script.");
}

static void eval_run(struct call *call) {
    eval(call, false);
}
static void eval_ro_run(struct call *call) {
    eval(call, true);
}
static void evalsha_run(struct call *call) {
    evalsha(call, false);
}
static void evalsha_ro_run(struct call *call) {
    evalsha(call, true);
}

/* --- SCRIPT --- */

static void load_run(struct call *call) {
    struct slice text = call->argv[2];
    open_vm();
    struct eval_script *script = hashtable_find(by_text, text);
    if (!script) script = script_add(call, text, true);
    if (!script) return;
    if (!script->loaded) {
        list_remove(&evictable, &script->used);
        script->loaded = true;
    }
    reply_bulk(call->reply, script_digest(script));
}

static void exists_run(struct call *call) {
    reply_array(call->reply, (size_t)call->argc - 2);
    for (int i = 2; i < call->argc; i++)
        reply_integer(call->reply, vm && hashtable_find(by_digest, call->argv[i]) != NULL);
}

static void show_run(struct call *call) {
    struct eval_script *script = vm ? hashtable_find(by_digest, call->argv[2]) : NULL;
    if (script)
        reply_bulk(call->reply, script_text(script));
    else
        reply_error(call->reply, "NOSCRIPT No matching script.");
}

static void flush_run(struct call *call) {
    bool in_background;
    if (!flush_mode_read(call, 2, &in_background)) {
        reply_error(call->reply, "ERR SCRIPT FLUSH only support SYNC|ASYNC option");
        return;
    }
    script_cache_flush(in_background);
    reply_ok(call->reply);
}

static void kill_run(struct call *call) {
    script_kill(call, false);
}

static void debug_run(struct call *call) {
    struct slice mode = call->argv[2];
    if (call->argc > 4) {
        reply_error(call->reply, "ERR unknown subcommand or wrong number of arguments for 'debug'. Try SCRIPT HELP.");
        return;
    }
    struct script_engine *engine = &script_engine_lua;
    if (call->argc == 4 && !slice_is(call->argv[3], "lua")) {
        struct slice name = call->argv[3];
        engine = script_engine_find(name);
        if (!engine) {
            reply_error_format(call->reply, "ERR No scripting engine found with name '%.*s' to enable debug",
                               (int)name.len, name.data);
            return;
        }
        if (!engine->debug_enable) {
            reply_error_format(call->reply,
                               "ERR The scripting engine '%s' does not support interactive script debugging",
                               engine->name);
            return;
        }
    }
    script_debug_set(call, mode, engine);
}

/* --- Tables --- */

#define SUBCOMMAND CMD_NO_DATA | CMD_NOSCRIPT

static const struct command_spec script_subcommands[] = {
    {COMMAND("debug", debug_run, -3, SUBCOMMAND, SCRIPTING, "3.2.0"), .complexity = "O(1)",
     .summary = "Turns the debugger of Lua scripts on or off.", .syntax = "mode(YES|SYNC|NO) [engine:string@9.1.0]"},
    {COMMAND("exists", exists_run, -3, SUBCOMMAND | CMD_STALE, SCRIPTING, "2.6.0"),
     .complexity = "O(N) with N being the number of scripts to check (so checking a single script is an O(1) "
                   "operation).",
     .summary = "Returns which scripts are in the cache.", .syntax = "sha1:string...",
     .tips = WORDS("request_policy:all_shards", "response_policy:agg_logical_and")},
    {COMMAND("flush", flush_run, -2, SUBCOMMAND | CMD_STALE, SCRIPTING, "2.6.0"),
     .complexity = "O(N) with N being the number of scripts in cache", .summary = "Removes all scripts from the cache.",
     .syntax = "[flush-type(ASYNC|SYNC)@6.2.0]",
     .history = WORDS("6.2.0", "Added the `ASYNC` and `SYNC` flushing mode modifiers."),
     .tips = WORDS("request_policy:all_nodes", "response_policy:all_succeeded")},
    {HELP_ROW(help_handler, "DEBUG (YES|SYNC|NO) [<engine_name>]",
              "    Set the debug mode for subsequent scripts executed of the specified engine.",
              "    Default engine name: 'lua'", "EXISTS <sha1> [<sha1> ...]",
              "    Return information about the existence of the scripts in the script cache.", "FLUSH [ASYNC|SYNC]",
              "    Flush the Lua scripts cache. Very dangerous on replicas.",
              "    When called without the optional mode argument, the behavior is determined",
              "     by the lazyfree-lazy-user-flush configuration directive. Valid modes are:",
              "    * ASYNC: Asynchronously flush the scripts cache.",
              "    * SYNC: Synchronously flush the scripts cache.", "KILL",
              "    Kill the currently executing Lua script.", "LOAD <script>",
              "    Load a script into the scripts cache without executing it.", "SHOW <sha1>",
              "    Show a script from the scripts cache."),
     SCRIPTING, .since = "5.0.0"},
    {COMMAND("kill", kill_run, 2, SUBCOMMAND | CMD_ALLOW_BUSY, SCRIPTING, "2.6.0"), .complexity = "O(1)",
     .summary = "Stops the running script, if it has written nothing.",
     .tips = WORDS("request_policy:all_shards", "response_policy:one_succeeded")},
    {COMMAND("load", load_run, 3, SUBCOMMAND | CMD_STALE, SCRIPTING, "2.6.0"),
     .complexity = "O(N) with N being the length in bytes of the script body.",
     .summary = "Adds a script to the cache.", .syntax = "script:string",
     .tips = WORDS("request_policy:all_nodes", "response_policy:all_succeeded")},
    {COMMAND("show", show_run, 3, SUBCOMMAND | CMD_STALE, SCRIPTING, "8.0.0"), .complexity = "O(1).",
     .summary = "Returns the text of a script in the cache.", .syntax = "sha1:string"},
    {.name = NULL},
};

const struct command_spec script_commands[] = {
    {COMMAND("eval", eval_run, -3, SCRIPT_FLAGS | CMD_RUNS_SCRIPT, SCRIPTING, "2.6.0"),
     .complexity = "Depends on the script that is executed.", .summary = "Executes a Lua script.",
     .syntax = SCRIPT_SYNTAX("script:string"), .keys = SCRIPT_KEYS(KEY_RW | KEY_ACCESS | KEY_UPDATE)},
    {COMMAND("eval_ro", eval_ro_run, -3, SCRIPT_FLAGS | CMD_RUNS_SCRIPT | CMD_READONLY, SCRIPTING, "7.0.0"),
     .complexity = "Depends on the script that is executed.", .summary = "Executes a Lua script that writes nothing.",
     .syntax = SCRIPT_SYNTAX("script:string"), .keys = SCRIPT_KEYS(KEY_RO | KEY_ACCESS)},
    {COMMAND("evalsha", evalsha_run, -3, SCRIPT_FLAGS | CMD_RUNS_SCRIPT, SCRIPTING, "2.6.0"),
     .complexity = "Depends on the script that is executed.", .summary = "Executes a Lua script of the cache.",
     .syntax = SCRIPT_SYNTAX("sha1:string"), .keys = SCRIPT_KEYS(KEY_RW | KEY_ACCESS | KEY_UPDATE)},
    {COMMAND("evalsha_ro", evalsha_ro_run, -3, SCRIPT_FLAGS | CMD_RUNS_SCRIPT | CMD_READONLY, SCRIPTING, "7.0.0"),
     .complexity = "Depends on the script that is executed.",
     .summary = "Executes a Lua script of the cache that writes nothing.", .syntax = SCRIPT_SYNTAX("sha1:string"),
     .keys = SCRIPT_KEYS(KEY_RO | KEY_ACCESS)},
    {COMMAND("script", NULL, -2, 0, .group = GROUP_SCRIPTING, "2.6.0"), .complexity = "Depends on subcommand.",
     .summary = "A container for commands that manage scripts.", .subcommands = script_subcommands},
    {.name = NULL},
};
