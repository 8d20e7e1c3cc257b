/* cli_debug.c: --ldb and --ldb-sync-mode, the script debugger.
 *
 * A session starts with SCRIPT DEBUG and EVAL on a new connection. Then the lines of the prompt go to the server's
 * debugger, whose replies are arrays of lines. The line "<endsession>" is followed by the reply to EVAL. Then the
 * server closes the connection, and the prompt accepts commands again. */
#include "tools/cli_format.h"
#include "tools/cli_repl.h"
#include <string.h>

struct colour {
    const char *prefix;
    int bold, colour;
};
enum { RED = 31, GREEN, YELLOW, BLUE, MAGENTA, CYAN, WHITE };

static struct colour colour_of(const char *line) {
    static const struct colour colours[] = {{"<debug>", 1, WHITE},    {"<command>", 0, GREEN}, {"<reply>", 0, CYAN},
                                            {"<error>", 0, RED},      {"<hint>", 1, CYAN},     {"<value>", 0, MAGENTA},
                                            {"<retval>", 0, MAGENTA}, {"->", 0, YELLOW},       {"  #", 1, WHITE}};
    for (size_t i = 0; i < sizeof colours / sizeof *colours; i++)
        if (strncmp(line, colours[i].prefix, strlen(colours[i].prefix)) == 0) return colours[i];
    return (struct colour){"", 0, WHITE};
}

/* Prints the lines of a reply. Returns whether the session has ended. */
static bool show_lines(const struct resp_value *reply) {
    bool ended = false;
    for (size_t i = 0; i < reply->count; i++) {
        const char *line = reply->children[i].text.data;
        if (!line) continue;
        if (strcmp(line, "<endsession>") == 0) {
            ended = true;
            continue;
        }
        struct colour colour = colour_of(line);
        printf("\033[%d;%d;49m%s\033[0m\n", colour.bold, colour.colour, line);
    }
    fflush(stdout);
    return ended;
}

static void show_value(const struct cli *cli, const struct resp_value *value) {
    struct memory_output text = MEMORY_OUTPUT_INIT;
    format_reply(&text.out, value, &cli->options, CLI_FORMATTED);
    cli_show(&text);
}

static void session_failed(struct cli *cli) {
    fflush(stdout);
    if (cli_interrupted)
        printf("\nThe debugging session was interrupted.\n");
    else
        fprintf(stderr, "Error: %s\n", cli->session.error);
    cli_interrupted = false;
    cli->debugging = false;
    session_close(&cli->session);
}

/* Prints the reply to EVAL, which follows the last lines. */
static void session_ended(struct cli *cli, bool began) {
    struct resp_value *value = session_read(&cli->session, -1);
    cli->debugging = false;
    if (!value) {
        session_failed(cli);
        return;
    }
    printf(began ? "\n" : "\nEval debugging session can't start:\n");
    show_value(cli, value);
    if (began)
        printf("\n(Lua debugging session ended%s)\n\n",
               cli->options.debug_sync ? "" : " -- dataset changes rolled back");
    fflush(stdout);
    cli_connect(cli, true, true);
}

int debug_start(struct cli *cli) {
    struct slice *argv;
    cli->debugging = false;
    int argc = cli_eval_arguments(&cli->options, &argv), result = -1;
    if (cli_connect(cli, true, true) != 0) goto done;
    printf("Lua debugging session started, please use:\n"
           "quit    -- End the session.\n"
           "restart -- Restart the script in debug mode again.\n"
           "help    -- Show Lua script debugging commands.\n\n");
    struct resp_value *reply = session_call_words(
        &cli->session, 3, (const char *const[]){"SCRIPT", "DEBUG", cli->options.debug_sync ? "sync" : "yes"});
    if (reply && reply->type != RESP_ERROR) reply = session_call(&cli->session, argc, argv);
    if (!reply) {
        session_failed(cli);
    } else if (reply->type == RESP_ERROR) { /* the server refuses to debug */
        printf("\nEval debugging session can't start:\n");
        show_value(cli, reply);
    } else if (show_lines(reply)) {
        session_ended(cli, false);
    } else {
        cli->debugging = true;
        result = 0;
    }
done:
    cli_eval_free(argv);
    return result;
}

bool debug_eval(struct cli *cli, const char *line) {
    while (*line == ' ') line++;
    const char *code = strchr(line, ' ');
    struct slice name = {line, code ? (size_t)(code - line) : 0};
    if (!code || (!slice_is(name, "e") && !slice_is(name, "eval"))) return false;
    while (*code == ' ') code++;
    if (!*code) return false;
    debug_line(cli, 2, (struct slice[]){SLICE("eval"), slice_of(code)});
    return true;
}

bool debug_line(struct cli *cli, int argc, const struct slice *argv) {
    if (argc == 1 && (slice_is(argv[0], "quit") || slice_is(argv[0], "exit"))) return false;
    if (argc == 1 && slice_is(argv[0], "restart")) {
        printf("\n");
        debug_start(cli);
        return true;
    }
    struct resp_value *reply = session_call(&cli->session, argc, argv);
    if (!reply) {
        session_failed(cli);
    } else if (reply->type == RESP_ERROR) { /* the session's process has failed, or the request is not valid RESP */
        show_value(cli, reply);
        session_failed(cli);
    } else if (show_lines(reply)) {
        session_ended(cli, true);
    }
    return true;
}
