/* lua_debug.c: the debugger of Lua scripts, within a session (script_debug.h).
 *
 * A hook is called for each line of the script. It stops the script if the script is stepping or the line has a
 * breakpoint; then it executes the client's commands until one of them continues the script. The debugger ignores lines
 * of code that the script compiled with loadstring().
 *
 * The hook is also called every HOOK_INTERVAL instructions. A script that has run for busy-reply-threshold milliseconds
 * since its last stop stops at its next line, so that an endless loop can be examined. Code of the command `eval` that
 * runs for as long is aborted: it runs in a thread (coroutine) of its own, because a hook is not called within a hook
 * of the same thread. */
#include "lib/system/memory.h"
#include "lib/system/ticks.h"
#include "lib/text/number.h"
#include "resp/reply_reader.h"
#include "script/lua_vm.h"
#include "script/script_debug.h"
#include "script/script_run.h"
#include <lauxlib.h>
#include <limits.h>
#include <stdio.h>

enum {
    BREAKPOINTS_MAX = 64,
    CONTEXT = 5,      /* lines that `list` shows before and after a line */
    NESTING_MAX = 10, /* maximum nesting of tables that are shown */
    LINE_MIN = 60,    /* `maxlen` */
    LINE_INITIAL = 256,
    LINE_LIMIT = 4 * 1024 * 1024, /* without maxlen */
    HOOK_INTERVAL = 100000,
    STACK_NEEDED = 8
};
static const char chunk_name[] = "@user_script";

static struct {
    struct slice *lines;
    int line_count;
    int breakpoints[BREAKPOINTS_MAX], breakpoint_count;
    int current;          /* the line at which the script is stopped */
    bool step;            /* stop at the next line */
    bool at_breakpoint;   /* redis.breakpoint() was called */
    bool too_long;        /* stop at the next line: the script has run for too long */
    bool detached;        /* the client is gone: run to the end */
    bool aborted, hinted; /* aborted: by `abort`; hinted: the hint about `maxlen` was shown */
    bool evaluating;
    size_t maxlen; /* 0: none */
    uint64_t resumed;
} debugger;

static uint64_t milliseconds_since(uint64_t ticks) {
    return ticks_to_us(ticks_now() - ticks) / 1000;
}

/* --- Showing values --- */

static size_t shown_max(void) {
    return debugger.maxlen ? debugger.maxlen : LINE_LIMIT;
}

/* Adds a line, trimmed to `maxlen`. */
static void show_line(struct memory_output *line) {
    struct slice text = memory_output_slice(line);
    bool trimmed = text.len > shown_max();
    if (trimmed) {
        line->out.pos = line->data + shown_max();
        output_write(&line->out, SLICE(" ..."));
    }
    script_session_line(memory_output_slice(line));
    if (trimmed && debugger.maxlen && !debugger.hinted) {
        debugger.hinted = true;
        script_session_format("<hint> The above reply was trimmed. Use 'maxlen 0' to disable trimming.");
    }
    memory_output_free(line);
}

static void lua_debug_write_text(struct output *out, const char *text) {
    output_write(out, slice_of(text));
}

static void write_value(lua_State *lua, struct memory_output *line, int nesting);

/* Writes the table on top of the stack: {1; 2; } or {[key]=value; }. */
static void write_table(lua_State *lua, struct memory_output *line, int nesting) {
    int table = lua_gettop(lua);
    lua_Number expected = 1;
    bool is_list = true;
    if (lua_push_protected(lua, table)) lua_replace(lua, table);
    for (lua_pushnil(lua); is_list && lua_next(lua, table); lua_pop(lua, 1))
        is_list = lua_type(lua, -2) == LUA_TNUMBER && lua_tonumber(lua, -2) == expected++;
    lua_settop(lua, table);
    lua_debug_write_text(&line->out, "{");
    for (lua_pushnil(lua); lua_next(lua, table); lua_pop(lua, 1)) {
        if (memory_output_slice(line).len > shown_max()) break; /* the rest is not shown */
        if (!is_list) {
            lua_debug_write_text(&line->out, "[");
            lua_pushvalue(lua, -2);
            write_value(lua, line, nesting + 1);
            lua_pop(lua, 1);
            lua_debug_write_text(&line->out, "]=");
        }
        write_value(lua, line, nesting + 1);
        lua_debug_write_text(&line->out, "; ");
    }
    lua_settop(lua, table);
    lua_debug_write_text(&line->out, "}");
}

/* Writes the value on top of the stack, without popping it. */
static void write_value(lua_State *lua, struct memory_output *line, int nesting) {
    char text[64];
    if (nesting == NESTING_MAX || !lua_checkstack(lua, STACK_NEEDED)) {
        lua_debug_write_text(&line->out, "<max recursion level reached! Nested table?>");
        return;
    }
    switch (lua_type(lua, -1)) {
    case LUA_TSTRING: {
        size_t len;
        const char *bytes = lua_tolstring(lua, -1, &len);
        output_write(&line->out, (struct slice){bytes, len});
        return;
    }
    case LUA_TNUMBER: snprintf(text, sizeof text, "%g", lua_tonumber(lua, -1)); break;
    case LUA_TBOOLEAN: snprintf(text, sizeof text, "%s", lua_toboolean(lua, -1) ? "true" : "false"); break;
    case LUA_TNIL: snprintf(text, sizeof text, "nil"); break;
    case LUA_TTABLE:
        lua_pushvalue(lua, -1);
        write_table(lua, line, nesting);
        lua_pop(lua, 1);
        return;
    default: snprintf(text, sizeof text, " \"%s@%p\"", luaL_typename(lua, -1), lua_topointer(lua, -1));
    }
    lua_debug_write_text(&line->out, text);
}

/* Shows the value on top of the stack: "<label> name = value", or without a name. */
static void show_value(lua_State *lua, const char *label, const char *name) {
    struct memory_output line = MEMORY_OUTPUT_INIT;
    lua_debug_write_text(&line.out, label);
    lua_debug_write_text(&line.out, " ");
    if (name) {
        lua_debug_write_text(&line.out, name);
        lua_debug_write_text(&line.out, " = ");
    }
    write_value(lua, &line, 0);
    show_line(&line);
}

/* --- Showing commands and replies --- */

static void write_quoted(struct output *out, const char *prefix, struct slice text) {
    output_write(out, SLICE("\""));
    lua_debug_write_text(out, prefix);
    for (size_t i = 0; i < text.len; i++) {
        static const char plain[] = "\\\"\n\r\t\a\b", letters[] = "\\\"nrtab";
        unsigned char c = (unsigned char)text.data[i];
        const char *found = c ? strchr(plain, c) : NULL;
        char escaped[8];
        int len = found ? snprintf(escaped, sizeof escaped, "\\%c", letters[found - plain])
                        : snprintf(escaped, sizeof escaped, c >= ' ' && c <= '~' ? "%c" : "\\x%02x", c);
        output_write(out, (struct slice){escaped, (size_t)len});
    }
    output_write(out, SLICE("\""));
}

static void write_reply(struct memory_output *line, const struct resp_value *value);

static void write_elements(struct memory_output *line, const struct resp_value *value, const char *open,
                           const char *close, bool pairs) {
    lua_debug_write_text(&line->out, open);
    for (size_t i = 0; i < value->count && memory_output_slice(line).len <= shown_max(); i++) {
        if (i) lua_debug_write_text(&line->out, pairs && i % 2 ? " => " : ",");
        write_reply(line, &value->children[i]);
    }
    lua_debug_write_text(&line->out, close);
}

static void write_reply(struct memory_output *line, const struct resp_value *value) {
    char number[48];
    struct output *out = &line->out;
    switch (value->type) {
    case RESP_STATUS: write_quoted(out, "+", value->text); break;
    case RESP_ERROR: write_quoted(out, "-", value->text); break;
    case RESP_BULK:
    case RESP_BIG_NUMBER:
    case RESP_VERBATIM: write_quoted(out, "", value->text); break;
    case RESP_INTEGER: output_write(out, (struct slice){number, format_int64(number, value->integer)}); break;
    case RESP_DOUBLE:
        lua_debug_write_text(out, "(double) ");
        output_write(out, value->text);
        break;
    case RESP_BOOLEAN: lua_debug_write_text(out, value->integer ? "#true" : "#false"); break;
    case RESP_NULL: lua_debug_write_text(out, script_protocol() == 2 ? "NULL" : "(null)"); break;
    case RESP_MAP: write_elements(line, value, "{", "}", true); break;
    case RESP_SET: write_elements(line, value, "~(", ")", false); break;
    default: write_elements(line, value, "[", "]", false);
    }
}

static void show_command(int argc, const struct slice *argv) {
    struct memory_output line = MEMORY_OUTPUT_INIT;
    lua_debug_write_text(&line.out, "<command>");
    for (int i = 0; i < argc && memory_output_slice(&line).len <= LINE_LIMIT; i++) {
        lua_debug_write_text(&line.out, " ");
        output_write(&line.out, argv[i]);
    }
    script_session_line(memory_output_slice(&line));
    memory_output_free(&line);
}

void lua_debug_show_reply(struct slice reply) {
    struct reply_reader reader;
    size_t used;
    reply_reader_init(&reader);
    if (reply_read(&reader, reply, &used) == REPLY_READY) {
        const struct resp_value *value = &reader.value;
        struct memory_output line = MEMORY_OUTPUT_INIT;
        lua_debug_write_text(&line.out, "<reply> ");
        write_reply(&line, value);
        show_line(&line);
        if (value->type == RESP_ERROR) script_session_format("<error> -%.*s", (int)value->text.len, value->text.data);
    }
    reply_reader_free(&reader);
}

/* The error without the code ERR, which has no information. */
static const char *without_code(const char *error) {
    return strncmp(error, "ERR ", 4) == 0 ? error + 4 : error;
}

static void show_call(int argc, const struct slice *argv, struct slice reply, const char *error) {
    if (argc) show_command(argc, argv);
    if (error && argc) script_session_format("<reply> \"-%s\"", error);
    if (error)
        script_session_format("<error> %s", without_code(error));
    else
        lua_debug_show_reply(reply);
}

void lua_debug_called(int argc, const struct slice *argv, struct slice reply, const char *error) {
    if (debugger.step && !debugger.evaluating) show_call(argc, argv, reply, error);
}

/* --- Source lines --- */

static bool has_breakpoint(int line) {
    for (int i = 0; i < debugger.breakpoint_count; i++)
        if (debugger.breakpoints[i] == line) return true;
    return false;
}

static void show_source(int number) {
    if (number < 1 || number > debugger.line_count) return;
    char head[32];
    struct memory_output line = MEMORY_OUTPUT_INIT;
    snprintf(head, sizeof head, "%s%s%-3d ", number == debugger.current ? "->" : "  ",
             has_breakpoint(number) ? "#" : " ", number);
    lua_debug_write_text(&line.out, head);
    output_write(&line.out, debugger.lines[number - 1]);
    script_session_line(memory_output_slice(&line));
    memory_output_free(&line);
}

static void show_sources(int64_t around, int64_t context) {
    int64_t first = around - context, last = around + context;
    if (first < 1) first = 1;
    if (last > debugger.line_count) last = debugger.line_count;
    for (int64_t line = first; line <= last; line++) show_source((int)line);
}

static void split_lines(struct slice text) {
    while (text.len && text.data[text.len - 1] == '\n') text.len--;
    int count = text.len != 0;
    for (size_t i = 0; i < text.len; i++) count += text.data[i] == '\n';
    debugger.lines = mem_alloc((size_t)(count ? count : 1) * sizeof *debugger.lines);
    debugger.line_count = count;
    for (int i = 0; i < count; i++) debugger.lines[i] = slice_take_line(&text);
}

/* --- The commands --- */

/* An argument as a number; 0: it is not a number. */
static int64_t lua_debug_number_of(struct slice text) {
    int64_t number;
    return parse_int64(text, &number) ? number : 0;
}

static void command_help(void) {
    static const char *const lines[] = {
        "LUA debugger help:",
        "[h]elp               Show this help.",
        "[max]len [len]       Trim values and replies to len bytes, at least 60.",
        "                     0: do not trim. Without len: show the present one.",
        "[s]tep               Run the current line and stop again.",
        "[n]ext               Alias for step.",
        "[c]ontinue           Run until the next breakpoint.",
        "[l]ist [line] [ctx]  Show the source around a line, by default the",
        "                     current one, with ctx lines before and after it.",
        "[w]hole              Show all of the source.",
        "[p]rint [var]        Show the value of a local variable, of KEYS or",
        "                     ARGV. Without var: show all local variables.",
        "[b]reak [line|-line] Add or remove a breakpoint. Without a line: show",
        "                     all breakpoints. 0: remove all of them.",
        "[t]race              Show a backtrace.",
        "[e]val <code>        Run Lua code. It does not see local variables.",
        "[v]alkey <cmd>       Execute a command, also as [r]edis or server.",
        "[a]bort              Stop the script. In sync mode the changes that",
        "                     it has made so far stay.",
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) script_session_line(slice_of(lines[i]));
}

static void command_maxlen(int argc, const struct slice *argv) {
    int64_t wanted;
    if (argc == 1) {
        script_session_format("Current maxlen is %zu", debugger.maxlen);
        return;
    }
    if (!parse_int64(argv[1], &wanted) || wanted < 0 || wanted > INT_MAX) {
        script_session_format("<error> Invalid maxlen value.");
        return;
    }
    debugger.hinted = true; /* the user knows the command */
    debugger.maxlen = wanted && wanted < LINE_MIN ? LINE_MIN : (size_t)wanted;
    if (debugger.maxlen)
        script_session_format("<value> replies are truncated at %zu bytes.", debugger.maxlen);
    else
        script_session_format("<value> replies are not truncated.");
}

static void command_list(int argc, const struct slice *argv) {
    int64_t around = argc > 1 ? lua_debug_number_of(argv[1]) : 0,
            context = argc > 2 ? lua_debug_number_of(argv[2]) : CONTEXT;
    if (around <= 0) around = debugger.current;
    if (around > INT_MAX) around = INT_MAX;
    if (context < 0) context = 0;
    if (context > INT_MAX) context = INT_MAX;
    show_sources(around, context);
}

static void breakpoint_change(int64_t line) {
    if (line == 0) {
        debugger.breakpoint_count = 0;
        script_session_format("All breakpoints removed.");
    } else if (line < 0) {
        for (int i = 0; i < debugger.breakpoint_count; i++) {
            if (line + debugger.breakpoints[i]) continue;
            debugger.breakpoint_count--;
            for (; i < debugger.breakpoint_count; i++) debugger.breakpoints[i] = debugger.breakpoints[i + 1];
            script_session_format("Breakpoint removed.");
            return;
        }
        script_session_format("No breakpoint in the specified line.");
    } else if (line > debugger.line_count || has_breakpoint((int)line)) {
        script_session_format("Wrong line number.");
    } else if (debugger.breakpoint_count == BREAKPOINTS_MAX) {
        script_session_format("Too many breakpoints set.");
    } else {
        debugger.breakpoints[debugger.breakpoint_count++] = (int)line;
        show_sources(line, 1);
    }
}

static void command_break(int argc, const struct slice *argv) {
    int64_t line;
    if (argc > 1) {
        if (parse_int64(argv[1], &line))
            breakpoint_change(line);
        else
            script_session_format("Invalid argument:'%.*s'", (int)(argv[1].len < 256 ? argv[1].len : 256),
                                  argv[1].data);
        return;
    }
    if (!debugger.breakpoint_count) {
        script_session_format("No breakpoints set. Use 'b <line>' to add one.");
        return;
    }
    script_session_format("%d breakpoints set:", debugger.breakpoint_count);
    for (int i = 0; i < debugger.breakpoint_count; i++) show_source(debugger.breakpoints[i]);
}

/* Shows the calls on the stack of a thread, the innermost first. */
static void trace_thread(lua_State *lua, bool innermost) {
    lua_Debug frame;
    for (int level = 0; lua_getstack(lua, level, &frame); level++) {
        lua_getinfo(lua, "nSl", &frame);
        if (strcmp(frame.source, chunk_name) != 0 || frame.currentline < 0) continue;
        script_session_format("%s %s:", innermost && level == 0 ? "In" : "From", frame.name ? frame.name : "top level");
        show_source(frame.currentline);
    }
}

static void command_trace(lua_State *lua, lua_State *script) {
    trace_thread(lua, true);
    if (lua != script) trace_thread(script, false);
}

static void print_all(lua_State *lua) {
    lua_Debug frame;
    const char *name;
    bool any = false;
    lua_getstack(lua, 0, &frame);
    for (int i = 1; (name = lua_getlocal(lua, &frame, i)); i++) {
        if (strcmp(name, "(*temporary)") != 0) {
            show_value(lua, "<value>", name);
            any = true;
        }
        lua_pop(lua, 1);
    }
    if (!any) script_session_format("No local variables in the current context.");
}

/* Pushes the variable with this name that is in scope: the last one of the innermost function that has it. */
static bool push_local(lua_State *lua, struct slice wanted) {
    lua_Debug frame;
    for (int level = 0; lua_getstack(lua, level, &frame); level++) {
        int found = 0;
        const char *name;
        for (int i = 1; (name = lua_getlocal(lua, &frame, i)); i++) {
            if (slice_equal(wanted, slice_of(name))) found = i;
            lua_pop(lua, 1);
        }
        if (found) return lua_getlocal(lua, &frame, found) != NULL;
    }
    return false;
}

static void command_print(lua_State *lua, lua_State *script, int argc, const struct slice *argv) {
    if (argc == 1) {
        print_all(lua);
        return;
    }
    lua_State *holder = lua;
    if (!push_local(lua, argv[1])) {
        holder = script;
        if ((lua == script || !push_local(script, argv[1]))) {
            if (!slice_equal(argv[1], SLICE("KEYS")) && !slice_equal(argv[1], SLICE("ARGV"))) {
                script_session_format("No such variable.");
                return;
            }
            lua_getfield(script, LUA_GLOBALSINDEX, argv[1].data[0] == 'K' ? "KEYS" : "ARGV");
        }
    }
    show_value(holder, "<value>", NULL);
    lua_pop(holder, 1);
}

static uint64_t eval_started;

/* Aborts code that runs for too long; from then on at each instruction, so that it cannot continue by catching the
 * error. */
static void eval_hook(lua_State *lua, lua_Debug *where) {
    int64_t limit = script_settings.busy_threshold_ms;
    if (!script_session_poll() && (!limit || milliseconds_since(eval_started) < (uint64_t)limit)) return;
    lua_sethook(lua, eval_hook, LUA_MASKCOUNT, 1);
    lua_pushliteral(lua, "the code ran for longer than busy-reply-threshold");
    lua_error(lua);
}

/* Compiles the code, as an expression if possible, and pushes the function or the error. */
static int eval_compile(lua_State *lua, int argc, const struct slice *argv) {
    struct memory_output code = MEMORY_OUTPUT_INIT;
    lua_debug_write_text(&code.out, "return ");
    size_t prefix = memory_output_slice(&code).len;
    for (int i = 1; i < argc; i++) {
        if (i > 1) lua_debug_write_text(&code.out, " ");
        output_write(&code.out, argv[i]);
    }
    struct slice text = memory_output_slice(&code);
    int status = lua_load_text(lua, text, "@ldb_eval");
    if (status) {
        lua_pop(lua, 1);
        status = lua_load_text(lua, (struct slice){text.data + prefix, text.len - prefix}, "@ldb_eval");
    }
    memory_output_free(&code);
    return status;
}

static void command_eval(lua_State *lua, int argc, const struct slice *argv) {
    lua_State *thread = lua_newthread(lua);
    /* The code may resume a coroutine of the script, which stops and evaluates code, and so on. The thread inherits the
     * count of nested C calls, so this recursion fails before the process runs out of stack. */
    lua_setlevel(lua, thread);
    lua_sethook(thread, eval_hook, LUA_MASKCOUNT, HOOK_INTERVAL);
    if (eval_compile(thread, argc, argv)) {
        script_session_format("Error compiling code: %s", lua_tostring(thread, -1));
    } else {
        debugger.evaluating = true;
        eval_started = ticks_now();
        if (lua_pcall(thread, 0, 1, 0)) {
            if (lua_istable(thread, -1)) {
                lua_pushliteral(thread, "err");
                lua_rawget(thread, -2);
            }
            const char *error = lua_type(thread, -1) == LUA_TSTRING ? lua_tostring(thread, -1) : "unknown error";
            script_session_format("<error> %s", without_code(error));
        } else {
            show_value(thread, "<retval>", NULL);
        }
        debugger.evaluating = false;
    }
    lua_pop(lua, 1);
}

static void command_server(int argc, const struct slice *argv) {
    struct slice reply = {NULL, 0};
    const char *error = script_call(argc, argv, &reply);
    show_call(argc, argv, reply, error);
}

enum debug_command {
    COMMAND_UNKNOWN,
    COMMAND_STEP,
    COMMAND_CONTINUE,
    COMMAND_ABORT,
    COMMAND_HELP,
    COMMAND_MAXLEN,
    COMMAND_LIST,
    COMMAND_WHOLE,
    COMMAND_PRINT,
    COMMAND_BREAK,
    COMMAND_TRACE,
    COMMAND_EVAL,
    COMMAND_SERVER
};
static const struct {
    const char *name, *short_name;
    enum debug_command command;
    int argc_min, argc_max;
} commands[] = {{"step", "s", COMMAND_STEP, 1, 1},           {"next", "n", COMMAND_STEP, 1, 1},
                {"continue", "c", COMMAND_CONTINUE, 1, 1},   {"abort", "a", COMMAND_ABORT, 1, 1},
                {"help", "h", COMMAND_HELP, 1, 1},           {"maxlen", "max", COMMAND_MAXLEN, 1, 2},
                {"list", "l", COMMAND_LIST, 1, 3},           {"whole", "w", COMMAND_WHOLE, 1, 1},
                {"print", "p", COMMAND_PRINT, 1, 2},         {"break", "b", COMMAND_BREAK, 1, 2},
                {"trace", "t", COMMAND_TRACE, 1, 1},         {"eval", "e", COMMAND_EVAL, 2, INT_MAX},
                {"valkey", "v", COMMAND_SERVER, 2, INT_MAX}, {"redis", "r", COMMAND_SERVER, 2, INT_MAX},
                {"server", NULL, COMMAND_SERVER, 2, INT_MAX}};

static enum debug_command command_of(int argc, const struct slice *argv) {
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        if (!slice_is(argv[0], commands[i].name) &&
            (!commands[i].short_name || !slice_is(argv[0], commands[i].short_name)))
            continue;
        return argc >= commands[i].argc_min && argc <= commands[i].argc_max ? commands[i].command : COMMAND_UNKNOWN;
    }
    return COMMAND_UNKNOWN;
}

static void command_run(enum debug_command command, lua_State *lua, lua_State *script, int argc,
                        const struct slice *argv) {
    switch (command) {
    case COMMAND_HELP: command_help(); break;
    case COMMAND_MAXLEN: command_maxlen(argc, argv); break;
    case COMMAND_LIST: command_list(argc, argv); break;
    case COMMAND_WHOLE: show_sources(1, INT_MAX); break;
    case COMMAND_PRINT: command_print(lua, script, argc, argv); break;
    case COMMAND_BREAK: command_break(argc, argv); break;
    case COMMAND_TRACE: command_trace(lua, script); break;
    case COMMAND_EVAL: command_eval(lua, argc, argv); break;
    case COMMAND_SERVER: command_server(argc - 1, argv + 1); break;
    default: script_session_format("<error> Unknown debugger command or wrong number of arguments.");
    }
}

/* Executes commands until one of them continues the script. */
static void commands_run(lua_State *lua, lua_State *script) {
    const struct slice *argv;
    int argc;
    while ((argv = script_session_read(&argc))) {
        enum debug_command command = command_of(argc, argv);
        debugger.step = command == COMMAND_STEP;
        debugger.aborted = command == COMMAND_ABORT;
        if (command == COMMAND_STEP || command == COMMAND_CONTINUE || command == COMMAND_ABORT) return;
        command_run(command, lua, script, argc, argv);
    }
    debugger.step = false;
    debugger.detached = true;
}

/* --- The hook --- */

static lua_State *script_thread; /* the thread in which the script started */

static void stop_at(lua_State *lua, int line, const char *reason) {
    debugger.current = line;
    debugger.at_breakpoint = debugger.too_long = false;
    script_session_format("* Stopped at %d, stop reason = %s", line, reason);
    show_source(line);
    commands_run(lua, script_thread);
    debugger.resumed = ticks_now();
    if (debugger.aborted) lua_vm_stop(lua, "script aborted for user request");
}

static void interval_passed(lua_State *lua) {
    int64_t limit = script_settings.busy_threshold_ms;
    if (script_session_poll()) lua_vm_stop(lua, "Script killed by user with SCRIPT KILL.");
    if (limit && milliseconds_since(debugger.resumed) >= (uint64_t)limit) debugger.too_long = true;
}

static void hook(lua_State *lua, lua_Debug *where) {
    if (debugger.aborted) lua_vm_stop(lua, "script aborted for user request");
    if (where->event == LUA_HOOKCOUNT) {
        interval_passed(lua);
        return;
    }
    if (debugger.detached || !lua_getinfo(lua, "Sl", where) || strcmp(where->source, chunk_name) != 0) return;
    if (has_breakpoint(where->currentline))
        stop_at(lua, where->currentline, "break point");
    else if (debugger.at_breakpoint)
        stop_at(lua, where->currentline, "server.breakpoint() called");
    else if (debugger.too_long)
        stop_at(lua, where->currentline, "running for longer than busy-reply-threshold");
    else if (debugger.step)
        stop_at(lua, where->currentline, "step over");
    if (script_running->killed) lua_vm_stop(lua, "Script killed by user with SCRIPT KILL.");
}

void lua_debug_begin(lua_State *lua) {
    memset(&debugger, 0, sizeof debugger);
    debugger.step = true;
    debugger.maxlen = LINE_INITIAL;
    debugger.resumed = ticks_now();
    script_thread = lua;
    split_lines(script_session_text());
    lua_sethook(lua, hook, LUA_MASKLINE | LUA_MASKCOUNT, HOOK_INTERVAL);
}

void lua_debug_end(lua_State *lua) {
    mem_free(debugger.lines);
    debugger.lines = NULL;
}

/* --- Functions of the script --- */

void lua_debug_stop_soon(void) {
    debugger.at_breakpoint = true;
}

void lua_debug_show_arguments(lua_State *lua) {
    lua_Debug caller;
    char head[48];
    struct memory_output line;
    int count = lua_gettop(lua), number = -1;
    if (lua_getstack(lua, 1, &caller) && lua_getinfo(lua, "l", &caller)) number = caller.currentline;
    snprintf(head, sizeof head, "<debug> line %d: ", number);
    memory_output_init(&line);
    lua_debug_write_text(&line.out, head);
    for (int i = 1; i <= count && memory_output_slice(&line).len <= LINE_LIMIT; i++) {
        if (i > 1) lua_debug_write_text(&line.out, ", ");
        lua_pushvalue(lua, i);
        write_value(lua, &line, 0);
        lua_pop(lua, 1);
    }
    script_session_line(memory_output_slice(&line));
    memory_output_free(&line);
}
