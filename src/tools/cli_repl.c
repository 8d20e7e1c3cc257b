/* cli_repl.c: the prompt, and valkey-cli's own commands. If standard input is not a terminal, its lines are handled in
 * the same way, without prompt and editing. */
#include "lib/text/number.h"
#include "tools/cli_docs.h"
#include "tools/cli_line.h"
#include "tools/cli_repl.h"
#include <stdlib.h>

static void preference_set(struct cli *cli, int argc, const struct slice *argv, bool from_file) {
    if (slice_is(argv[0], ":get")) {
        bool known = argc == 2 && slice_is(argv[1], "pubsub");
        if (known) printf("%d\n", cli->subscribed);
        if (!known) printf("unknown valkey-cli get option '%s'\n", argc > 1 ? argv[1].data : "");
        return;
    }
    if (argc == 2 && slice_is(argv[0], ":set") && slice_is(argv[1], "hints"))
        cli->hints = true;
    else if (argc == 2 && slice_is(argv[0], ":set") && slice_is(argv[1], "nohints"))
        cli->hints = false;
    else if (!from_file) {
        bool set = slice_is(argv[0], ":set");
        struct slice what = set && argc > 1 ? argv[1] : argv[0];
        printf("unknown valkey-cli %s '%.*s'\n", set ? "preference" : "internal command", (int)what.len, what.data);
    }
}

/* ~/.valkeyclirc: lines like ":set nohints". */
static void preferences_load(struct cli *cli) {
    const char *path = getenv("VALKEYCLI_RCFILE"), *home = getenv("HOME");
    if (!path) path = getenv("REDISCLI_RCFILE");
    char buffer[4096];
    if (!path && home) {
        snprintf(buffer, sizeof buffer, "%s/.valkeyclirc", home);
        path = buffer;
    }
    FILE *file = path && *path ? fopen(path, "r") : NULL;
    if (!file) return;
    char line[1024];
    while (fgets(line, sizeof line, file)) {
        struct slice *argv;
        int argc = words_split(slice_of(line), &argv);
        if (argc > 0) preference_set(cli, argc, argv, true);
        if (argc >= 0) words_free(argv, argc);
    }
    fclose(file);
}

/* Lines with a password are not written to the history file. */
static bool is_secret(int argc, const struct slice *argv) {
    if (slice_is(argv[0], "auth")) return true;
    if (argc < 2) return false;
    if (slice_is(argv[0], "acl") && (slice_is(argv[1], "setuser") || slice_is(argv[1], "deluser"))) return true;
    if (slice_is(argv[0], "config") && slice_is(argv[1], "set")) {
        static const char *const names[] = {"masterauth",
                                            "primaryauth",
                                            "masteruser",
                                            "primaryuser",
                                            "requirepass",
                                            "tls-key-file-pass",
                                            "tls-client-key-file-pass"};
        for (int i = 2; i < argc; i += 2) {
            for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
                if (slice_is(argv[i], names[k])) return true;
            }
        }
    }
    if (slice_is(argv[0], "hello") || slice_is(argv[0], "migrate")) {
        for (int i = 1; i < argc; i++) {
            if (slice_is(argv[i], "auth") || slice_is(argv[i], "auth2")) return true;
        }
    }
    return slice_is(argv[0], "sentinel") && (slice_is(argv[1], "config") || slice_is(argv[1], "set"));
}

static void command_connect(struct cli *cli, const struct slice *argv) {
    int64_t port;
    struct endpoint *e = &cli->options.endpoint;
    text_set(&e->host, argv[1].data);
    if (parse_int64(argv[2], &port) && port >= 0 && port <= 65535) e->port = (int)port;
    text_set(&e->socket, NULL);
    cli_connect(cli, true, true);
}

/* Returns false if the program should exit. */
static bool line_run(struct cli *cli, int argc, struct slice *argv) {
    int64_t repeat = 1;
    if (cli->debugging && !slice_is(argv[0], "clear")) return debug_line(cli, argc, argv);
    if (argc == 1 && (slice_is(argv[0], "quit") || slice_is(argv[0], "exit"))) return false;
    if (argv[0].data[0] == ':') {
        preference_set(cli, argc, argv, false);
    } else if (slice_is(argv[0], "restart")) {
        if (cli->options.debug)
            printf("\n"), debug_start(cli);
        else
            printf("Use 'restart' only in Lua debugging mode.\n");
    } else if (argc == 3 && slice_is(argv[0], "connect")) {
        command_connect(cli, argv);
    } else if (argc == 1 && slice_is(argv[0], "clear")) {
        printf("\033[H\033[2J");
        fflush(stdout);
    } else {
        int64_t number;
        if (argc > 1 && parse_int64(argv[0], &number)) {
            if (number <= 0) {
                printf("Invalid valkey-cli repeat command option value.\n");
                return true;
            }
            repeat = number, argc--, argv++;
        }
        cli_command(cli, argc, argv, repeat);
    }
    return true;
}

int cli_repl(struct cli *cli) {
    cli->interactive = true;
    cli->hints = true;
    cli->options.exit_on_error = false;
    preferences_load(cli);
    if (cli->options.debug) {
        if (debug_start(cli) < 0) return 1;
    } else {
        cli_connect(cli, true, true);
        if (cli->tty && cli->session.conn) cli->docs = docs_load(cli);
    }
    struct line_editor *editor = cli->editor = line_editor_new(cli);
    /* At the prompt SIGINT ends the program; during a wait for the server it ends the wait. */
    if (cli->tty) cli_catch_interrupt(cli, true);
    bool more = true;
    while (more) {
        char prompt[320];
        cli_prompt(cli, prompt, sizeof prompt);
        fflush(stdout);
        const char *line = line_read(editor, prompt);
        if (!line) break;
        if (cli->debugging && debug_eval(cli, line)) {
            line_remember(editor, line);
            continue;
        }
        struct slice *argv;
        int argc = words_split(slice_of(line), &argv);
        if (argc != 0 && (argc < 0 || !is_secret(argc, argv))) line_remember(editor, line);
        if (argc < 0) {
            printf("Invalid argument(s)\n");
            continue;
        }
        cli_interrupted = false;
        if (argc > 0) more = line_run(cli, argc, argv);
        words_free(argv, argc);
        if (cli->tty && !cli->docs && cli->session.conn && !cli->subscribed && !cli->in_transaction && !cli->debugging)
            cli->docs = docs_load(cli);
    }
    line_editor_free(editor);
    docs_free(cli->docs);
    session_close(&cli->session);
    return 0;
}
