/* function_commands.c: FUNCTION, FCALL and FCALL_RO. */
#include "commands/flush_mode.h"
#include "formats/rdb.h"
#include "formats/rdb_opcodes.h"
#include "formats/source.h"
#include "lib/hash/crc64.h"
#include "lib/system/memory.h"
#include "lib/text/glob.h"
#include "script/function.h"
#include "script/script.h"
#include "script/script_run.h"
#include "server/clients/client.h"
#include "server/clients/monitor.h"
#include "server/clients/reply_barrier.h"
#include "server/command/help.h"
#include "server/command/spec.h"
#include "server/config/settings.h"
#include <endian.h>
#include <stdio.h>

/* --- FCALL --- */

static void fcall(struct call *call, bool read_only) {
    struct script_run run;
    struct lua_arguments arguments;
    monitor_show(call);
    struct function *function = function_find(call->argv[1]);
    if (!function) {
        reply_error(call->reply, "ERR Function not found");
        return;
    }
    if (!lua_arguments_read(call, "ERR Bad number of keys provided", &arguments)) return;
    if (!script_begin(&run, call, function->name, function->flags, read_only)) return;
    run.is_function = true;
    struct script_engine *engine = function->library->engine;
    run.of_module = !script_engine_is_lua(engine);
    if (!run.of_module)
        lua_vm_run(function_vm(), LUA_VM_FUNCTIONS, function->reference, &arguments, call);
    else
        engine->run(engine, LUA_VM_FUNCTIONS, function->handle, &arguments, call);
    script_end(&run);
}
static void fcall_run(struct call *call) {
    fcall(call, false);
}
static void fcall_ro_run(struct call *call) {
    fcall(call, true);
}

/* --- Changes --- */

static void refuse_arguments(struct call *call) {
    enum { SHOWN_MAX = 128 };
    struct slice name = call->argv[1];
    reply_error_format(call->reply,
                       "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try FUNCTION HELP.",
                       (int)(name.len < SHOWN_MAX ? name.len : SHOWN_MAX), name.data);
}

static void load_run(struct call *call) {
    bool replaces = false;
    struct library *library;
    for (int i = 2; i < call->argc - 1; i++) {
        if (!slice_is(call->argv[i], "replace")) {
            reply_error_format(call->reply, "ERR Unknown option given: %.*s", (int)call->argv[i].len,
                               call->argv[i].data);
            return;
        }
        replaces = true;
    }
    const char *error =
        library_load(call->argv[call->argc - 1], replaces, !client_must_be_obeyed(call->client), &library);
    if (error) {
        reply_error(call->reply, error);
        return;
    }
    call->dirty++;
    reply_bulk(call->reply, library->name);
}

static void delete_run(struct call *call) {
    if (!library_delete(call->argv[2])) {
        reply_error(call->reply, "ERR Library not found");
        return;
    }
    call->dirty++;
    reply_ok(call->reply);
}

static void flush_run(struct call *call) {
    bool in_background;
    if (call->argc > 3) {
        refuse_arguments(call);
        return;
    }
    if (!flush_mode_read(call, 2, &in_background)) {
        reply_error(call->reply, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
        return;
    }
    libraries_flush(in_background);
    call->dirty++; /* also without libraries: replicas may have some */
    reply_ok(call->reply);
}

/* DUMP and RESTORE. A payload consists of the records of libraries as in an RDB file, the version of the format in 2
 * bytes, and the CRC-64 of both. */

/* True: replied with an error. Operators get the libraries at once or not at all, and no library that may be lost. */
static bool libraries_hidden(struct call *call) {
    if (!reply_barrier_armed || !reply_barrier_guards()) return false;
    const char *error = reply_barrier_refusal();
    bool certain = reply_barrier_may_show();
    if (!error && !certain)
        error = "NOSYNCREPLICAS This server does not know whether it still leads: try again";
    else if (!error && !reply_barrier_is_released(libraries_changed()))
        error = "NOSYNCREPLICAS The libraries have changed, and the change is not safe yet: try again";
    if (error) reply_error(call->reply, error);
    return error != NULL;
}

static void dump_run(struct call *call) {
    if (libraries_hidden(call)) return;
    struct memory_output payload = MEMORY_OUTPUT_INIT;
    uint16_t version = htole16(RDB_VERSION);
    list_each(libraries_all(), link) {
        static const char opcode = (char)RDB_OPCODE_FUNCTION2;
        output_write(&payload.out, slice_make(&opcode, 1));
        rdb_write_string(&payload.out, container_of(link, struct library, link)->code);
    }
    output_write(&payload.out, slice_make(&version, sizeof version));
    struct slice bytes = memory_output_slice(&payload);
    uint64_t sum = htole64(crc64(0, bytes.data, bytes.len));
    output_write(&payload.out, slice_make(&sum, sizeof sum));
    reply_bulk(call->reply, memory_output_slice(&payload));
    memory_output_free(&payload);
}

struct code_list {
    struct slice *items;
    size_t count, capacity;
};
/* Reads the libraries of a payload. False: it is malformed. */
static bool payload_read(struct source *source, struct code_list *list) {
    struct rdb_reader in;
    uint8_t opcode;
    bool good = true;
    rdb_reader_init(&in, source);
    while (good && source_left(source) && source_byte(source, &opcode)) {
        size_t len = 0;
        uint8_t *code = opcode == RDB_OPCODE_FUNCTION2 ? rdb_read_block(&in, &len) : NULL;
        good = code != NULL;
        if (!good) break;
        mem_grow(list->items, list->count, list->capacity, 16);
        list->items[list->count++] = slice_make(code, len);
    }
    rdb_reader_free(&in);
    return good && !source->failed;
}

static bool policy_read(struct call *call, enum library_restore *policy) {
    *policy = LIBRARY_RESTORE_APPEND;
    if (call->argc == 3) return true;
    if (call->argc > 4) {
        refuse_arguments(call);
        return false;
    }
    struct slice word = call->argv[3];
    if (slice_is(word, "append")) return true;
    if (slice_is(word, "replace"))
        *policy = LIBRARY_RESTORE_REPLACE;
    else if (slice_is(word, "flush"))
        *policy = LIBRARY_RESTORE_FLUSH;
    else
        reply_error(call->reply, "ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.");
    return *policy != LIBRARY_RESTORE_APPEND;
}

static void restore_run(struct call *call) {
    enum library_restore policy;
    struct source source;
    struct code_list list = {0};
    if (!policy_read(call, &policy)) return;
    if (!dump_open(call->argv[2], client_must_be_obeyed(call->client), &source)) {
        reply_error(call->reply, "ERR DUMP payload version or checksum are wrong");
        return;
    }
    const char *error = "ERR given type is not a function";
    if (payload_read(&source, &list))
        error = libraries_restore(list.items, list.count, policy, !client_must_be_obeyed(call->client));
    if (error) {
        reply_error(call->reply, error);
    } else {
        call->dirty++;
        reply_ok(call->reply);
    }
    for (size_t i = 0; i < list.count; i++) mem_free((void *)(uintptr_t)list.items[i].data);
    mem_free(list.items);
    source_free(&source);
}

/* --- FUNCTION LIST, STATS and DUMP --- */

static void write_flag(void *context, const char *name) {
    reply_status(context, name);
}
static void count_flag(void *context, const char *name) {
    ++*(size_t *)context;
}

static void reply_text_or_null(struct reply *reply, const char *text, size_t len) {
    if (text)
        reply_bulk(reply, (struct slice){text, len});
    else
        reply_null(reply);
}

static void reply_function(struct reply *reply, const struct function *function) {
    size_t flags = 0;
    script_flags_each(function->flags, count_flag, &flags);
    reply_map(reply, 3);
    reply_field_bulk(reply, "name", (struct slice){function->name, function->name_len});
    reply_bulk_text(reply, "description");
    reply_text_or_null(reply, function->description, function->description_len);
    reply_bulk_text(reply, "flags");
    reply_set(reply, flags);
    script_flags_each(function->flags, write_flag, reply);
}

static void reply_library(struct reply *reply, struct library *library, bool with_code) {
    reply_map(reply, with_code ? 4 : 3);
    reply_field_bulk(reply, "library_name", library->name);
    reply_field_text(reply, "engine", library->engine->name);
    reply_bulk_text(reply, "functions");
    reply_array(reply, library->functions.len);
    list_each(&library->functions, link) reply_function(reply, container_of(link, struct function, link));
    if (!with_code) return;
    reply_field_bulk(reply, "library_code", library->code);
}

static void list_run(struct call *call) {
    if (libraries_hidden(call)) return;
    struct slice pattern = {NULL, 0};
    bool with_code = false;
    for (int i = 2; i < call->argc; i++) {
        struct slice word = call->argv[i];
        if (!with_code && slice_is(word, "withcode")) {
            with_code = true;
        } else if (!pattern.data && slice_is(word, "libraryname")) {
            if (i + 1 >= call->argc) {
                reply_error(call->reply, "ERR library name argument was not given");
                return;
            }
            pattern = call->argv[++i];
        } else {
            reply_error_format(call->reply, "ERR Unknown argument %.*s", (int)word.len, word.data);
            return;
        }
    }
    struct reply_deferred deferred;
    size_t count = 0;
    reply_deferred_begin(call->reply, &deferred);
    list_each_entry(libraries_all(), struct library, link, library) {
        if (pattern.data && !glob_match(pattern, library->name, true)) continue;
        reply_library(call->reply, library, with_code);
        count++;
    }
    reply_deferred_end(call->reply, &deferred, REPLY_ARRAY, count);
}

static void reply_running(struct reply *reply) {
    const struct script_run *run = script_running;
    if (!run || !run->is_function) {
        reply_null(reply);
        return;
    }
    reply_map(reply, 3);
    reply_field_text(reply, "name", run->name);
    reply_bulk_text(reply, "command");
    reply_array(reply, (size_t)run->call->argc);
    for (int i = 0; i < run->call->argc; i++) reply_bulk(reply, run->call->argv[i]);
    reply_field_integer(reply, "duration_ms", (int64_t)script_running_ms());
}

static void reply_engine(void *context, const struct script_engine *engine) {
    struct reply *reply = context;
    int64_t libraries = 0, functions = 0;
    list_each(libraries_all(), link) {
        const struct library *library = container_of(link, struct library, link);
        if (library->engine != engine) continue;
        libraries++;
        functions += (int64_t)library->functions.len;
    }
    reply_bulk_text(reply, engine->name);
    reply_map(reply, 2);
    reply_field_integer(reply, "libraries_count", libraries);
    reply_field_integer(reply, "functions_count", functions);
}

static void stats_run(struct call *call) {
    struct reply *reply = call->reply;
    /* A running EVAL is not shown here. */
    if (script_running && !script_running->is_function) {
        reply_error(
            reply,
            WITH_PRODUCT("BUSY ", " is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."));
        return;
    }
    if (libraries_hidden(call)) return;
    reply_map(reply, 2);
    reply_bulk_text(reply, "running_script");
    reply_running(reply);
    reply_bulk_text(reply, "engines");
    reply_map(reply, script_engines_count());
    script_engines_each(reply_engine, reply);
}

static void kill_run(struct call *call) {
    script_kill(call, true);
}

/* --- Tables --- */

#define CHANGES    (CMD_NOSCRIPT | CMD_WRITE)
#define EVERYWHERE WORDS("request_policy:all_shards", "response_policy:all_succeeded")

static const struct command_spec function_subcommands[] = {
    {COMMAND("delete", delete_run, 3, CHANGES, SCRIPTING, "7.0.0"), .complexity = "O(1)",
     .summary = "Deletes a library and its functions.", .syntax = "library-name:string", .tips = EVERYWHERE},
    {COMMAND("dump", dump_run, 2, CMD_NO_DATA | CMD_NOSCRIPT, SCRIPTING, "7.0.0"),
     .complexity = "O(N) where N is the number of functions", .summary = "Returns all libraries as a binary payload."},
    {COMMAND("flush", flush_run, -2, CHANGES, SCRIPTING, "7.0.0"),
     .complexity = "O(N) where N is the number of functions deleted", .summary = "Deletes all libraries.",
     .syntax = "[flush-type(ASYNC|SYNC)]", .tips = EVERYWHERE},
    {HELP_ROW(
         help_handler, "LOAD [REPLACE] <FUNCTION CODE>",
         "    Create a new library with the given library name and code.", "DELETE <LIBRARY NAME>",
         "    Delete the given library.", "LIST [LIBRARYNAME PATTERN] [WITHCODE]",
         "    Return general information on all the libraries:", "    * Library name",
         "    * The engine used to run the Library", "    * Functions list",
         "    * Library code (if WITHCODE is given)",
         "    It also possible to get only function that matches a pattern using LIBRARYNAME argument.", "STATS",
         "    Return information about the current function running:", "    * Function name",
         "    * Command used to run the function", "    * Duration in MS that the function is running",
         "    If no function is running, return nil", "    In addition, returns a list of available engines.", "KILL",
         "    Kill the current running function.", "FLUSH [ASYNC|SYNC]", "    Delete all the libraries.",
         "    When called without the optional mode argument, the behavior is determined by the",
         "    lazyfree-lazy-user-flush configuration directive. Valid modes are:",
         "    * ASYNC: Asynchronously flush the libraries.", "    * SYNC: Synchronously flush the libraries.", "DUMP",
         "    Return a serialized payload representing the current libraries, can be restored using FUNCTION RESTORE "
         "command",
         "RESTORE <PAYLOAD> [FLUSH|APPEND|REPLACE]",
         "    Restore the libraries represented by the given payload, it is possible to give a restore policy to",
         "    control how to handle existing libraries (default APPEND):",
         "    * FLUSH: delete all existing libraries.",
         "    * APPEND: appends the restored libraries to the existing libraries. On collision, abort.",
         "    * REPLACE: appends the restored libraries to the existing libraries, On collision, replace the old",
         "      libraries with the new libraries (notice that even on this option there is a chance of failure",
         "      in case of functions name collision with another library)."),
     SCRIPTING, .since = "7.0.0"},
    {COMMAND("kill", kill_run, 2, CMD_NO_DATA | CMD_NOSCRIPT | CMD_ALLOW_BUSY, SCRIPTING, "7.0.0"),
     .complexity = "O(1)", .summary = "Stops the running function, if it has written nothing.",
     .tips = WORDS("request_policy:all_shards", "response_policy:one_succeeded")},
    {COMMAND("list", list_run, -2, CMD_NO_DATA | CMD_NOSCRIPT, SCRIPTING, "7.0.0"),
     .complexity = "O(N) where N is the number of functions", .summary = "Lists libraries and their functions.",
     .syntax = "[LIBRARYNAME library-name-pattern:string] [WITHCODE]", .tips = WORDS("nondeterministic_output_order")},
    {COMMAND("load", load_run, -3, CHANGES | CMD_DENYOOM, SCRIPTING, "7.0.0"),
     .complexity = "O(1) (considering compilation time is redundant)", .summary = "Creates a library.",
     .syntax = "[REPLACE] function-code:string", .tips = EVERYWHERE},
    {COMMAND("restore", restore_run, -3, CHANGES | CMD_DENYOOM, SCRIPTING, "7.0.0"),
     .complexity = "O(N) where N is the number of functions on the payload",
     .summary = "Restores libraries from a payload.",
     .syntax = "serialized-value:string [policy(FLUSH|APPEND|REPLACE)]", .tips = EVERYWHERE},
    {COMMAND("stats", stats_run, 2, CMD_NO_DATA | CMD_NOSCRIPT | CMD_ALLOW_BUSY, SCRIPTING, "7.0.0"),
     .complexity = "O(1)", .summary = "Returns the running function, the engines and the number of libraries.",
     .tips = WORDS("nondeterministic_output", "request_policy:all_shards", "response_policy:special")},
    {.name = NULL},
};

const struct command_spec function_commands[] = {
    {COMMAND("fcall", fcall_run, -3, SCRIPT_FLAGS | CMD_RUNS_SCRIPT, SCRIPTING, "7.0.0"),
     .complexity = "Depends on the function that is executed.", .summary = "Calls a function.",
     .syntax = SCRIPT_SYNTAX("function:string"), .keys = SCRIPT_KEYS(KEY_RW | KEY_ACCESS | KEY_UPDATE)},
    {COMMAND("fcall_ro", fcall_ro_run, -3, SCRIPT_FLAGS | CMD_RUNS_SCRIPT | CMD_READONLY, SCRIPTING, "7.0.0"),
     .complexity = "Depends on the function that is executed.", .summary = "Calls a function that writes nothing.",
     .syntax = SCRIPT_SYNTAX("function:string"), .keys = SCRIPT_KEYS(KEY_RO | KEY_ACCESS)},
    {COMMAND("function", NULL, -2, 0, .group = GROUP_SCRIPTING, "7.0.0"), .complexity = "Depends on subcommand.",
     .summary = "A container for commands that manage functions.", .subcommands = function_subcommands},
    {.name = NULL},
};
