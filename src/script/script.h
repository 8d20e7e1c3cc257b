/* script.h: scripts (EVAL) and functions (FCALL).
 *
 *   script_run.h          a running script: commands, busy scripts, kill
 *   script_eval.c         EVAL, EVALSHA and SCRIPT: the cache of scripts
 *   function.h            libraries of functions; function_commands.c: FUNCTION, FCALL
 *   script_shebang.h      the first line of a script or library
 *   script_options.c      options and INFO
 *   script_debug.h        debugging sessions; lua_debug.c: the debugger
 *   lua_vm.h              the interpreter: sandbox, conversion of values, `redis`, cjson, cmsgpack, struct */
#pragma once
#include "server/command/command.h"

extern const struct command_spec script_commands[], function_commands[];
struct feature;
extern const struct feature script_feature;

/* --- Shared by the files of this directory --- */

/* Shorthands for the tables of commands. */
#define SCRIPTING    .group = GROUP_SCRIPTING, .categories = CAT_SCRIPTING
#define SCRIPT_FLAGS (CMD_NOSCRIPT | CMD_SKIP_MONITOR | CMD_NO_MANDATORY_KEYS | CMD_STALE | CMD_MOVABLE_KEYS)
#define SCRIPT_KEYS(access)                                                                                            \
    {                                                                                                                  \
        {                                                                                                              \
            .flags = (access),                                                                                         \
            .notes = "We cannot tell how the keys will be used so we assume the worst, RW and UPDATE",                 \
            .begin = BEGIN_INDEX, .index = 2, .find = FIND_KEYNUM, .a = 0, .b = 1, .c = 1                              \
        }                                                                                                              \
    }
#define SCRIPT_SYNTAX(script) script " numkeys:integer [key:key]... [arg:string]..."

struct script_cache_stats {
    size_t count, bytes;
    uint64_t evicted;
};
void script_cache_stats(struct script_cache_stats *stats);
void script_cache_reset_stats(void);
typedef struct lua_State lua_State;
lua_State *script_vm(void); /* of EVAL; NULL: there is none */
void script_cache_flush(bool in_background);
/* A set of script_flag; SCRIPT_WITHOUT_SHEBANG for a malformed or unknown script. */
uint32_t script_flags(struct slice text_or_digest, bool is_digest);
