/* script_run.h: a running script: its permissions, the commands that it calls, and how it is stopped. Independent of
 * the script language: lua_*.c calls it; script_eval.c and function_commands.c begin and end a run.
 *
 * One script runs at a time. Its commands are calls of an internal client, which takes database, user and role from the
 * client that called the script. They pass the same filters and run in the same way as commands of clients, nested in
 * the call of EVAL or FCALL. So their effects are propagated as one group, and all of them see the time of that call.
 *
 * A script that has run for busy-reply-threshold milliseconds is busy: from then on script_poll() serves the event
 * loop. Clients get the error BUSY, except for commands with the flag allow_busy. The server does not read from the
 * calling client until the script ends. SCRIPT KILL and FUNCTION KILL end a script that has not written anything. Main
 * thread only. */
#pragma once
#include "server/command/command.h"
#include "server/debug/debug.h"

enum script_flag {
    SCRIPT_NO_WRITES = 1 << 0,
    SCRIPT_ALLOW_OOM = 1 << 1,
    SCRIPT_ALLOW_STALE = 1 << 2,
    SCRIPT_NO_CLUSTER = 1 << 3,
    SCRIPT_ALLOW_CROSS_SLOT = 1 << 4,
    SCRIPT_WITHOUT_SHEBANG = 1 << 5 /* no declared flags: each command is checked separately */
};
/* The flag with this name, as in a shebang line; 0: unknown. */
uint32_t script_flag_parse(struct slice name);
/* Calls `visit` with the name of each flag that is set. */
void script_flags_each(uint32_t flags, void (*visit)(void *context, const char *name), void *context);

struct script_run {
    struct call *call;  /* of EVAL or FCALL */
    const char *name;   /* digest or function: for the log and FUNCTION STATS */
    struct db *db;      /* the caller's database at the start of the run */
    int slot;           /* of its keys so far, in cluster mode; -1: none */
    uint32_t flags;     /* script_flag */
    bool is_function;   /* FUNCTION KILL stops it, not SCRIPT KILL */
    bool of_module;     /* its engine is a module's */
    bool read_only;     /* its writes are rejected */
    bool out_of_memory; /* the server was above maxmemory when the script began */
    bool wrote;         /* it called a command that writes, so it can no longer be killed */
    bool busy, killed;
    bool redirected; /* script_set_targets() was called */
    int targets;     /* the targets before that call, which the end of the script restores */
    uint64_t started;
};
extern struct script_run *script_running; /* NULL: none */

/* Begins a run; `read_only_command` is true for the _RO commands. False: the script may not run now; replied with an
 * error. */
bool script_begin(struct script_run *run, struct call *call, const char *name, uint32_t flags, bool read_only_command);
void script_end(struct script_run *run);

/* Calls a command for the running script. Returns NULL and sets *reply, which is valid until the next call. If the
 * command is rejected before it runs, returns the complete error text, which is already counted in the error
 * statistics. */
const char *script_call(int argc, const struct slice *argv, struct slice *reply);
bool script_denies(const struct command *command);  /* no script may call it */
bool script_is_caller(const struct client *client); /* it calls the commands of scripts */
/* Checks whether the caller of the running script may run this command: 1: yes; 0: no; -1: no such command. */
int script_may_call(int argc, const struct slice *argv);
void script_set_protocol(int protocol); /* of the replies to commands: 2, the default, or 3 */
int script_protocol(void);
void script_set_targets(int targets); /* where the following effects are propagated to: bits of propagation_target */

/* Called periodically while a script runs, at points where any client may be served. True: the script was killed and
 * must end. */
bool script_poll(void);
/* SCRIPT KILL (function false) and FUNCTION KILL. */
void script_kill(struct call *call, bool function);
uint64_t script_running_ms(void); /* since the script began */

extern const struct debug_subcommand script_debug_subcommands[];

struct script_settings {
    int64_t busy_threshold_ms; /* 0: never busy */
    bool insecure_api;
};
extern struct script_settings script_settings;
