/* cli.h: options and connection of valkey-cli, which all of its parts use.
 *
 *   cli.c            the program: parses options, then runs a command, a mode, or the prompt
 *   cli_options.c    the command line
 *   cli_connection.c connects, follows redirections, sends a command and shows its reply
 *   cli_format.c     replies as text
 *   cli_repl.c       the prompt and its own commands
 *   cli_line.c       line editing, history, hints
 *   cli_docs.c       help, completion and hints from the server's COMMAND DOCS
 *   cli_syntax.c     the arguments of a command, and which of them may follow on a line
 *   cli_hints.c      --test_hint, --test_hint_file
 *   cli_modes.c      --stat, --scan, --latency …
 *   cli_keys.c       --bigkeys, --memkeys, --hotkeys
 *   cli_transfer.c   --pipe, --rdb, --replica
 *   cli_debug.c      --ldb: the prompt of the script debugger
 *   cli_cluster.c    --cluster: cli_cluster.h lists its parts
 *
 * Each of them but cli_options.c and cli_connection.c has a header of its own. */
#pragma once
#include "resp/request.h"
#include "tools/cli_cluster_options.h"
#include "tools/session.h"
#include <stdio.h>

/* --- Options --- */

enum cli_output { CLI_FORMATTED, CLI_RAW, CLI_CSV, CLI_JSON, CLI_QUOTED_JSON };
enum cli_mode {
    MODE_NONE,
    MODE_STAT,
    MODE_SCAN,
    MODE_LATENCY,
    MODE_LATENCY_HISTORY,
    MODE_LATENCY_DIST,
    MODE_INTRINSIC_LATENCY,
    MODE_BIGKEYS,
    MODE_MEMKEYS,
    MODE_HOTKEYS,
    MODE_PIPE,
    MODE_RDB,
    MODE_FUNCTIONS_RDB,
    MODE_REPLICA,
    MODE_LRU_TEST,
    MODE_EVAL,
    MODE_HINT,
    MODE_HINT_FILE,
    MODE_CLUSTER,
};
struct cli_options {
    struct endpoint endpoint;
    enum cli_output output;
    enum cli_mode mode;
    int64_t repeat; /* -1: forever */
    int64_t interval_us;
    int db, protocol; /* 0: the server's initial one */
    bool protocol_given;
    uint32_t timeout_ms;
    char *bulk_delimiter, *command_delimiter;
    bool tty_output /* or FAKETTY is set */, stdin_last, cluster, exit_on_error, quoted_input, no_auth_warning, verbose,
        password_from_options, ask_password, show_pushes, debug, debug_sync;
    char *stdin_tag, *pattern, *file, *eval_file, *hint;
    int64_t pipe_timeout_s, count, memkeys_samples, hotkeys_count, lru_keys, intrinsic_s;
    struct cli_cluster_options manager; /* --cluster */
    int argc;                           /* the command, or the arguments of a mode */
    char **argv;
};
void cli_options_parse(struct cli_options *o, int argc, char **argv);

/* --- The connection --- */

struct cli {
    struct cli_options options;
    struct session session;
    int db;       /* currently selected; options.db is for a new connection */
    int protocol; /* current RESP version */
    bool in_transaction, subscribed, tty, interactive, debugging /* a --ldb session is running */;
    size_t queued;         /* commands of the transaction */
    struct queued_select { /* the SELECT commands among them */
        size_t position;
        int db;
    } * queued_selects;
    size_t queued_selects_count;
    int64_t subscriptions, shard_subscriptions;
    struct line_editor *editor; /* of the prompt */
    char last_error[256];
    struct cli_docs *docs;
    bool hints;
};
/* Connects, unless there is a connection and `again` is false. Returns 0; 1 if AUTH, SELECT or HELLO failed, after it
 * has printed the error; -1 if it could not connect, after it has printed the error if `loud`. After 1 the prompt still
 * sends the user's command; a mode sends nothing. */
int cli_connect(struct cli *cli, bool again, bool loud);
/* Sends a command and shows the reply, `repeat` times. Returns 0, or -1 if the connection failed (or the command failed
 * and -e was given). */
int cli_command(struct cli *cli, int argc, const struct slice *argv, int64_t repeat);
/* For the modes: connects, or sends a command and returns its reply, also an error. Exits if the connection fails, or
 * AUTH, SELECT or HELLO after it. */
void cli_connect_or_exit(struct cli *cli);
struct resp_value *cli_call(struct cli *cli, int argc, const struct slice *argv);
#define CLI_CALL(cli, ...)                                                                                             \
    cli_call_words((cli), (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *)),                         \
                   (const char *[]){__VA_ARGS__})
struct resp_value *cli_call_words(struct cli *cli, int count, const char *const *words);
/* Writes the text to standard output and frees it. */
void cli_show(struct memory_output *text);
/* Text of a bulk or status reply; prints an error reply and exits. */
struct slice cli_text(const struct resp_value *reply);
_Noreturn void cli_refused(const char *what, const struct resp_value *reply); /* prints "what: error" and exits */
void cli_prompt(const struct cli *cli, char *text, size_t size);
/* Set by SIGINT during a wait; code that waits checks it. */
extern volatile bool cli_interrupted;
void cli_catch_interrupt(struct cli *cli, bool on);
/* Reads all of standard input. */
struct slice cli_read_stdin(void);
