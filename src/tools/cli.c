/* cli.c: valkey-cli sends commands to a server and shows the replies. cli.h lists its parts. */
#include "lib/system/memory.h"
#include "tools/cli_modes.h"
#include "tools/cli_repl.h"
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static struct cli cli;
static struct slice *words; /* the command from the command line; never freed */

static void cli_fail(const char *text) {
    fprintf(stderr, "%s\n", text);
    exit(1);
}

/* Builds the command from the arguments: applies --quoted-input, -x and -X. */
static int arguments_make(const struct cli_options *o) {
    struct slice *argv = words = mem_alloc((size_t)(o->argc + 1) * sizeof *argv);
    int argc = o->argc;
    bool tag_found = false;
    for (int i = 0; i < argc; i++) {
        if (o->stdin_tag && strcmp(o->argv[i], o->stdin_tag) == 0 && !tag_found) {
            tag_found = true;
            argv[i] = cli_read_stdin();
        } else if (o->quoted_input) {
            struct slice *unquoted;
            if (words_split(slice_of(o->argv[i]), &unquoted) != 1) {
                puts("Invalid quoted string"); /* on standard output, like Valkey's tool */
                exit(1);
            }
            argv[i] = unquoted[0];
            mem_free(unquoted);
        } else {
            argv[i] = slice_of(o->argv[i]);
        }
    }
    if (o->stdin_tag && !tag_found) cli_fail("Using -X option but stdin tag not match.");
    if (o->stdin_last) argv[argc++] = cli_read_stdin();
    return argc;
}

static struct slice file_read(const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "Can't open file '%s': ", path);
        perror(NULL);
        exit(1);
    }
    size_t len = 0, capacity = 4096, got;
    char *data = mem_alloc(capacity);
    while ((got = fread(data + len, 1, capacity - len, file)) > 0) {
        len += got;
        if (len == capacity) data = mem_realloc(data, capacity *= 2);
    }
    fclose(file);
    return (struct slice){data, len};
}

/* Builds EVAL script numkeys key … arg …; the keys are the arguments before the comma. */
int cli_eval_arguments(const struct cli_options *o, struct slice **result) {
    enum { NUMBER_TEXT = 24 };
    struct slice *argv = *result = mem_alloc((size_t)(o->argc + 3) * sizeof *argv);
    int argc = 3, keys = -1;
    argv[0] = SLICE("EVAL");
    argv[1] = file_read(o->eval_file);
    for (int i = 0; i < o->argc; i++) {
        if (keys < 0 && strcmp(o->argv[i], ",") == 0)
            keys = argc - 3;
        else
            argv[argc++] = slice_of(o->argv[i]);
    }
    char *keys_text = mem_alloc(NUMBER_TEXT);
    snprintf(keys_text, NUMBER_TEXT, "%d", keys < 0 ? argc - 3 : keys);
    argv[2] = slice_of(keys_text);
    return argc;
}

void cli_eval_free(struct slice *argv) {
    mem_free((char *)argv[1].data);
    mem_free((char *)argv[2].data);
    mem_free(argv);
}

static int run_eval(const struct cli_options *o) {
    if (o->debug) return cli_repl(&cli);
    cli_connect_or_exit(&cli);
    struct slice *argv;
    int argc = cli_eval_arguments(o, &argv);
    int result = cli_command(&cli, argc, argv, o->repeat) < 0;
    cli_eval_free(argv);
    return result;
}

/* Modes of the prompt and of --cluster connect by themselves; others without a server need none. */
static bool connects_first(const struct cli_options *o) {
    switch (o->mode) {
    case MODE_NONE:
    case MODE_EVAL:
    case MODE_CLUSTER:
    case MODE_HINT:
    case MODE_HINT_FILE:
    case MODE_INTRINSIC_LATENCY: return false;
    default: return true;
    }
}

static int run_mode(const struct cli_options *o) {
    if (connects_first(o)) cli_connect_or_exit(&cli);
    switch (o->mode) {
    case MODE_STAT: return mode_stat(&cli);
    case MODE_SCAN: return mode_scan(&cli);
    case MODE_LATENCY: return mode_latency(&cli, false);
    case MODE_LATENCY_HISTORY: return mode_latency(&cli, true);
    case MODE_LATENCY_DIST: return mode_latency_dist(&cli);
    case MODE_INTRINSIC_LATENCY: return mode_intrinsic_latency(&cli);
    case MODE_BIGKEYS:
    case MODE_MEMKEYS:
    case MODE_HOTKEYS: return mode_keys(&cli, o->mode);
    case MODE_PIPE: return mode_pipe(&cli);
    case MODE_RDB: return mode_rdb(&cli, false);
    case MODE_FUNCTIONS_RDB: return mode_rdb(&cli, true);
    case MODE_REPLICA: return mode_replica(&cli);
    case MODE_LRU_TEST: return mode_lru_test(&cli);
    case MODE_EVAL: return run_eval(o);
    case MODE_HINT: return hint_print(&cli, o->hint);
    case MODE_HINT_FILE: return hints_check(&cli, o->file);
    case MODE_CLUSTER: return mode_cluster(&cli);
    case MODE_NONE: break;
    }
    return 1;
}

int main(int argc, char **argv) {
    struct cli_options *o = &cli.options;
    signal(SIGPIPE, SIG_IGN);
    cli_options_parse(o, argc, argv);
    session_init(&cli.session);
    cli.tty = isatty(STDIN_FILENO);
    if (o->mode != MODE_NONE) return run_mode(o);
    if (o->argc == 0) return cli_repl(&cli);
    int count = arguments_make(o);
    cli.tty = false;
    return cli_command(&cli, count, words, o->repeat) < 0;
}
