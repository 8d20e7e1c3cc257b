/* cli_options.c: the command line of valkey-cli. */
#include "lib/system/memory.h"
#include "lib/system/version.h"
#include "lib/text/number.h"
#include "tools/cli.h"
#include <limits.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

static const char help[] =
    "valkey-cli " PROJECT_VERSION "\n"
    "\n"
    "Usage: valkey-cli [OPTIONS] [cmd [arg [arg ...]]]\n"
    "\n"
    "Without a command it shows a prompt. If standard input is not a terminal, it reads\n"
    "commands from there, one per line.\n"
    "\n"
    "Connection and authentication:\n"
    "  -h <hostname>      Name or address of the server (default: 127.0.0.1).\n"
    "  -p <port>          Port (default: 6379).\n"
    "  -s <socket>        Unix socket, instead of host and port.\n"
    "  -u <uri>           valkey://user:password@host:port/db; omitted parts keep their\n"
    "                     defaults. rdma:// for RDMA, unix:// for a Unix socket.\n"
    "  --rdma             Connect by RDMA.\n"
    "  --tls              Connect by TLS, like valkeys:// in a URI.\n"
    "  --cacert <file>    Trusted CA certificates (PEM).\n"
    "  --cacertdir <dir>  Directory of trusted CA certificates. Without either option:\n"
    "                     the CA certificates of the system.\n"
    "  --insecure         Do not verify the server's certificate.\n"
    "  --cert <file>      Client certificate (PEM).\n"
    "  --key <file>       Private key of the client certificate.\n"
    "  --sni <host>       Server name for SNI, the TLS extension.\n"
    "  --tls-ciphers <list>  Ciphers of TLS 1.2, see ciphers(1ssl).\n"
    "  --tls-ciphersuites <list>  Cipher suites of TLS 1.3.\n"
    "  --mptcp            Connect by Multipath TCP.\n"
    "  --rdma-base-protocol  Use Valkey over RDMA without protocol extensions.\n"
    "  -t <timeout>       Connect timeout in seconds, decimals allowed (default: 0, which\n"
    "                     is 60 seconds).\n"
    "  -a <password>      Password. It is visible in the list of processes; the environment\n"
    "                     variables VALKEYCLI_AUTH and REDISCLI_AUTH are not.\n"
    "  --pass <password>  The same as -a.\n"
    "  --user <username>  User name (default: the default user).\n"
    "  --askpass          Read the password from the terminal without echo.\n"
    "  --no-auth-warning  Do not warn about a password on the command line.\n"
    "  -n <db>            Database.\n"
    "  -2, -3             Use RESP2 or RESP3.\n"
    "  -c                 Cluster mode: follow -MOVED and -ASK.\n"
    "  -4, -6             Prefer IPv4 or IPv6 addresses of a host name.\n"
    "\n"
    "Sending commands:\n"
    "  -r <repeat>        Execute the command this many times; -1: forever. Does not apply\n"
    "                     to commands from standard input.\n"
    "  -i <interval>      Seconds between repetitions, decimals allowed. With --scan and\n"
    "                     --stat: between rounds. With --bigkeys, --memkeys and --hotkeys:\n"
    "                     after every 100 SCAN commands.\n"
    "  -x                 Read the last argument from standard input.\n"
    "  -X <tag>           Replace the argument <tag> by standard input.\n"
    "  --quoted-input     Arguments may be quoted strings: '\"a\\x00b\"'.\n"
    "  --eval <file>      EVAL the Lua script in the file with keys and arguments, separated\n"
    "                     by a comma between spaces.\n"
    "  --ldb              With --eval: debug the script in a forked process; its changes are\n"
    "                     discarded.\n"
    "  --ldb-sync-mode    With --eval: debug the script in the server, which serves no other\n"
    "                     client until the end; its changes remain.\n"
    "  -e                 Exit with an error if the command fails.\n"
    "\n"
    "Format of replies:\n"
    "  --raw              Raw (the default if the output is not a terminal).\n"
    "  --no-raw           With types and quotes (the default on a terminal).\n"
    "  --csv              CSV.\n"
    "  --json             JSON; uses RESP3 unless -2 is given.\n"
    "  --quoted-json      JSON in ASCII, with strings quoted as by --no-raw.\n"
    "  -d <delimiter>     Delimiter between the elements of a raw reply (default: \\n).\n"
    "  -D <delimiter>     Delimiter after each raw reply (default: \\n).\n"
    " --show-pushes <yn> Show RESP3 push messages (default: yes on a terminal).\n"
    "\n"
    "Modes without a command:\n"
    "  --stat             Statistics of the server, a line every second (-i).\n"
    "  --latency          Measure the latency of PING until interrupted. If the output is not\n"
    "                     a terminal: for one second (-i), and print one line.\n"
    "  --latency-history  The same, with a new line every 15 seconds (-i).\n"
    "  --latency-dist     Show the distribution of latencies in colours, every second (-i).\n"
    "  --intrinsic-latency <sec>  Measure the scheduling latency of this machine.\n"
    "  --scan             List the keys with SCAN.\n"
    "  --bigkeys          Find the keys with the most elements.\n"
    "  --memkeys          Find the keys that use the most memory.\n"
    "  --memkeys-samples <n>  The same with MEMORY USAGE SAMPLES <n>.\n"
    "  --hotkeys          Find the most accessed keys; needs an LFU maxmemory-policy.\n"
    "  --hotkeys-count <n>  The same, with the top <n> keys (default: 16).\n"
    "  --pattern <pat>    Pattern for --scan, --bigkeys, --memkeys, --hotkeys (default: *).\n"
    "  --quoted-pattern <pat>  The same as a quoted string.\n"
    "  --count <count>    COUNT of their SCAN commands (default: 10).\n"
    "  --pipe             Send standard input, which has commands as lines or in RESP, and\n"
    "                     count the replies.\n"
    "  --pipe-timeout <n> Seconds to wait for the last reply (default: 30; 0: forever).\n"
    "  --rdb <filename>   Copy the data set to an RDB file; -: to standard output.\n"
    "  --functions-rdb <filename>  Copy only the functions to an RDB file.\n"
    "  --replica          Show the commands that a primary propagates to its replicas.\n"
    "  --lru-test <keys>  Simulate a cache with an 80-20 access pattern and count the hits.\n"
    "  --test_hint <line>  Print the hint that the prompt shows after this line.\n"
    "  --test_hint_file <file>  Compare hints with those in a file of quoted pairs.\n"
    "  --verbose          More output.\n"
    "  --help, --version\n"
    "\n"
    "Managing a cluster:\n"
    "  --cluster <command>  create, check, info, fix, reshard, rebalance, add-node, del-node,\n"
    "                     call, set-timeout, import, backup, help. help shows the arguments\n"
    "                     and which options each takes.\n"
    "  --cluster-yes      Answer questions with yes, except those of fix about uncovered slots.\n"
    "  --cluster-replicas <n>  create: replicas of each primary (default: 0).\n"
    "  --cluster-from <ids>  reshard: the nodes to take slots from, separated by commas, or all.\n"
    "                     import: the address of the server to copy.\n"
    "  --cluster-to <id>  reshard: the node that receives the slots.\n"
    "  --cluster-slots <n>  reshard: how many slots to move.\n"
    "  --cluster-weight <id=weight>...  rebalance: shares other than 1; 0 empties the node.\n"
    "  --cluster-use-empty-primaries  rebalance: give slots to primaries without slots.\n"
    "  --cluster-threshold <percent>  rebalance: ignore smaller differences (default: 2).\n"
    "  --cluster-simulate  rebalance: show the plan only.\n"
    "  --cluster-use-atomic-slot-migration  The servers move slots as a whole, instead of key by\n"
    "                     key. Default if both know it (Valkey 9) and nothing is to be replaced.\n"
    "  --cluster-no-atomic-slot-migration  The tool moves the slots key by key.\n"
    "  --cluster-timeout <ms>  Time for one MIGRATE (default: 60000).\n"
    "  --cluster-pipeline <n>  Keys in one MIGRATE (default: 10).\n"
    "  --cluster-replace  Replace keys that exist at the target.\n"
    "  --cluster-copy     import: leave the keys at the source.\n"
    "  --cluster-from-user <name>  import: user at the source,\n"
    "  --cluster-from-pass <password>  and the password;\n"
    "  --cluster-from-askpass  ask for it.\n"
    "  --cluster-replica  add-node: the new node is a replica,\n"
    "  --cluster-primary-id <id>  of this primary (default: the one with the fewest replicas).\n"
    "  --cluster-primaries-id <id>  The same.\n"
    "  --cluster-only-primaries  call: call no replicas.\n"
    "  --cluster-only-replicas  call: call no primaries.\n"
    "  --cluster-search-multiple-owners  check, fix: look for slots with several owners, too.\n"
    "  --cluster-fix-with-unreachable-primaries  fix: give away the slots of primaries that\n"
    "                     cannot be reached. Their keys are lost to the cluster.\n"
    "\n"
    "Examples:\n"
    "  valkey-cli --rdma -h 192.168.122.100 ping\n"
    "  valkey-cli -u valkey://default:PASSWORD@localhost:6379/0\n"
    "  cat /etc/passwd | valkey-cli -x set mypasswd\n"
    "  valkey-cli --cluster create 10.0.0.1:6379 10.0.0.2:6379 10.0.0.3:6379\n"
    "  valkey-cli -r 100 -i 1 info | grep used_memory_human:\n"
    "  valkey-cli --scan --pattern '*:12345*' --count 100\n"
    "  valkey-cli --eval myscript.lua key1 key2 , arg1 arg2 arg3\n";

static void cli_options_fail(const char *format, const char *text) {
    fprintf(stderr, format, text);
    fputc('\n', stderr);
    exit(1);
}

struct text_option {
    const char *name;
    size_t offset;
};
struct cli_number_option {
    const char *name;
    size_t offset;
    int64_t min;
};
struct mode_option {
    const char *name;
    enum cli_mode mode;
};

static const struct text_option texts[] = {
    {"-d", offsetof(struct cli_options, bulk_delimiter)},
    {"-D", offsetof(struct cli_options, command_delimiter)},
    {"-X", offsetof(struct cli_options, stdin_tag)},
    {"--pattern", offsetof(struct cli_options, pattern)},
    {"--rdb", offsetof(struct cli_options, file)},
    {"--functions-rdb", offsetof(struct cli_options, file)},
    {"--eval", offsetof(struct cli_options, eval_file)},
    {"--test_hint", offsetof(struct cli_options, hint)},
    {"--test_hint_file", offsetof(struct cli_options, file)},
};
static const struct text_option flags[] = {
    {"-x", offsetof(struct cli_options, stdin_last)},
    {"-c", offsetof(struct cli_options, cluster)},
    {"-e", offsetof(struct cli_options, exit_on_error)},
    {"--quoted-input", offsetof(struct cli_options, quoted_input)},
    {"--no-auth-warning", offsetof(struct cli_options, no_auth_warning)},
    {"--verbose", offsetof(struct cli_options, verbose)},
    {"--askpass", offsetof(struct cli_options, ask_password)},
    {"--ldb", offsetof(struct cli_options, debug)},
    {"--ldb-sync-mode", offsetof(struct cli_options, debug_sync)},
};
static const struct cli_number_option numbers[] = {
    {"--pipe-timeout", offsetof(struct cli_options, pipe_timeout_s), 0},
    {"--count", offsetof(struct cli_options, count), 1},
    {"--memkeys-samples", offsetof(struct cli_options, memkeys_samples), 0},
    {"--hotkeys-count", offsetof(struct cli_options, hotkeys_count), 1},
    {"--lru-test", offsetof(struct cli_options, lru_keys), 1},
    {"--intrinsic-latency", offsetof(struct cli_options, intrinsic_s), 1},
};
static const struct mode_option modes[] = {
    {"--stat", MODE_STAT},
    {"--scan", MODE_SCAN},
    {"--latency", MODE_LATENCY},
    {"--latency-history", MODE_LATENCY_HISTORY},
    {"--latency-dist", MODE_LATENCY_DIST},
    {"--intrinsic-latency", MODE_INTRINSIC_LATENCY},
    {"--bigkeys", MODE_BIGKEYS},
    {"--memkeys", MODE_MEMKEYS},
    {"--memkeys-samples", MODE_MEMKEYS},
    {"--hotkeys", MODE_HOTKEYS},
    {"--hotkeys-count", MODE_HOTKEYS},
    {"--pipe", MODE_PIPE},
    {"--rdb", MODE_RDB},
    {"--functions-rdb", MODE_FUNCTIONS_RDB},
    {"--replica", MODE_REPLICA},
    {"--lru-test", MODE_LRU_TEST},
    {"--eval", MODE_EVAL},
    {"--test_hint", MODE_HINT},
    {"--test_hint_file", MODE_HINT_FILE},
};

/* Returns the number of arguments used; 0: not in the table; -1: its argument is missing. */
static int table_option(struct cli_options *o, int argc, char **argv, int i) {
    int used = 0;
    for (size_t k = 0; k < sizeof modes / sizeof *modes; k++) {
        if (strcmp(argv[i], modes[k].name) != 0) continue;
        o->mode = modes[k].mode;
        used = 1;
    }
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
        if (strcmp(argv[i], flags[k].name) != 0) continue;
        *(bool *)((char *)o + flags[k].offset) = true;
        return 1;
    }
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        if (strcmp(argv[i], texts[k].name) != 0) continue;
        if (i + 1 >= argc) return -1;
        text_set((char **)((char *)o + texts[k].offset), argv[i + 1]);
        return 2;
    }
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++) {
        if (strcmp(argv[i], numbers[k].name) != 0) continue;
        if (i + 1 >= argc) return -1;
        int64_t *value = (int64_t *)((char *)o + numbers[k].offset);
        if (!parse_int64(slice_of(argv[i + 1]), value) || *value < numbers[k].min)
            cli_options_fail("Invalid number for %s.", argv[i]);
        return 2;
    }
    return used;
}

static bool output_option(struct cli_options *o, const char *name) {
    if (strcmp(name, "--raw") == 0)
        o->output = CLI_RAW;
    else if (strcmp(name, "--no-raw") == 0)
        o->output = CLI_FORMATTED;
    else if (strcmp(name, "--csv") == 0)
        o->output = CLI_CSV;
    else if (strcmp(name, "--json") == 0)
        o->output = CLI_JSON;
    else if (strcmp(name, "--quoted-json") == 0)
        o->output = CLI_QUOTED_JSON;
    else
        return false;
    /* RESP2 does not distinguish maps from arrays. -2 overrides this. */
    if (o->output >= CLI_JSON && !o->protocol_given) o->protocol = 3;
    return true;
}

static double seconds_parse(const char *text, const char *message) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !(value >= 0) || value > 1e9) cli_options_fail("%s", message);
    return value;
}

/* A mistyped number must not become 0: -n would select another database than the one that was meant. */
static int64_t integer_parse(const char *option, const char *text, int64_t max) {
    int64_t value;
    if (!parse_int64(slice_of(text), &value) || value < -max || value > max)
        cli_options_fail("Invalid number for %s.", option);
    return value;
}

static int other_option(struct cli_options *o, int argc, char **argv, int i) {
    const char *name = argv[i], *value = i + 1 < argc ? argv[i + 1] : NULL;
    if (output_option(o, name)) return 1;
    if (strcmp(name, "-2") == 0 || strcmp(name, "-3") == 0) {
        int protocol = name[1] - '0';
        if (o->protocol_given && o->protocol != protocol)
            cli_options_fail("%s", "Options -2 and -3 are mutually exclusive.");
        o->protocol = protocol;
        o->protocol_given = true;
        return 1;
    }
    if (strcmp(name, "-4") == 0 || strcmp(name, "-6") == 0) {
        o->endpoint.family = name[1] == '4' ? AF_INET : AF_INET6;
        return 1;
    }
    static const char *const with_value[] = {"-r", "-i", "-n", "-t", "--quoted-pattern", "--show-pushes"};
    size_t k = 0, count = sizeof with_value / sizeof *with_value;
    while (k < count && strcmp(name, with_value[k]) != 0) k++;
    if (k == count) return 0;
    if (!value) return -1;
    switch (k) {
    case 0: o->repeat = integer_parse(name, value, INT64_MAX); break;
    case 1: o->interval_us = (int64_t)(seconds_parse(value, "Invalid interval for -i.") * 1e6); break;
    case 2: o->db = (int)integer_parse(name, value, INT_MAX); break;
    case 3: o->timeout_ms = (uint32_t)(seconds_parse(value, "Invalid connection timeout for -t.") * 1000); break;
    case 4: {
        struct slice *words;
        int words_count = words_split(slice_of(value), &words);
        if (words_count != 1) cli_options_fail("Invalid quoted string specified for %s", name);
        text_set(&o->pattern, words[0].data);
        words_free(words, words_count);
        break;
    }
    default:
        if (value[0] == 'y' || value[0] == 'Y')
            o->show_pushes = true;
        else if (value[0] == 'n' || value[0] == 'N')
            o->show_pushes = false;
        else
            fprintf(stderr, "Unknown --show-pushes value '%s' (valid: '[y]es', '[n]o')\n", value);
    }
    return 2;
}

/* Options that print something and exit. */
static void final_option(int argc, char **argv, int i) {
    if (strcmp(argv[i], "--help") == 0 || (strcmp(argv[i], "-h") == 0 && i + 1 == argc)) {
        fputs(help, stdout);
        exit(0);
    }
    if (strcmp(argv[i], "--version") == 0 || strcmp(argv[i], "-v") == 0) {
        puts("valkey-cli " PROJECT_VERSION);
        exit(0);
    }
}

static void options_default(struct cli_options *o) {
    memset(o, 0, sizeof *o);
    endpoint_init(&o->endpoint);
    cluster_options_init(&o->manager);
    o->tty_output = isatty(STDOUT_FILENO) || getenv("FAKETTY");
    o->output = o->tty_output ? CLI_FORMATTED : CLI_RAW;
    o->show_pushes = o->tty_output;
    o->repeat = 1;
    o->pipe_timeout_s = 30, o->count = 10, o->memkeys_samples = -1, o->hotkeys_count = 16;
    o->bulk_delimiter = mem_strdup("\n");
    o->command_delimiter = mem_strdup("\n");
    const char *password = getenv("VALKEYCLI_AUTH");
    if (!password) password = getenv("REDISCLI_AUTH");
    if (password && *password) text_set(&o->endpoint.password, password);
}

static void options_check(struct cli_options *o) {
    const struct endpoint *e = &o->endpoint;
    char error[512];
    if (!endpoint_prepare(e, error, sizeof error)) cli_options_fail("%s", error);
    if (o->stdin_last && o->stdin_tag) cli_options_fail("%s", "Options -x and -X are mutually exclusive.");
    o->debug |= o->debug_sync;
    if (o->debug) o->output = CLI_FORMATTED;
    if (o->debug && !o->eval_file) {
        cli_options_fail("%s", "Options --ldb and --ldb-sync-mode require --eval.\n"
                               "Try valkey-cli --help for more information.");
    }
    if (o->password_from_options && !o->no_auth_warning) {
        fputs("Warning: Using a password with '-a' or '-u' option on the command line interface may not be "
              "safe.\n",
              stderr);
    }
    if (o->ask_password) {
        char *password = getpass("Please input password: ");
        if (password) text_set(&o->endpoint.password, password);
    }
}

void cli_options_parse(struct cli_options *o, int argc, char **argv) {
    options_default(o);
    int i = 1;
    while (i < argc && argv[i][0] == '-') {
        char error[256];
        final_option(argc, argv, i);
        char *password = o->endpoint.password ? mem_strdup(o->endpoint.password) : NULL;
        int used = endpoint_option(&o->endpoint, argc, argv, i, error, sizeof error);
        if (used == -2) cli_options_fail("%s", error);
        if (used > 0 && o->endpoint.password && (!password || strcmp(password, o->endpoint.password) != 0)) {
            o->password_from_options = true;
        }
        mem_free(password);
        if (used > 0 && strcmp(argv[i], "-u") == 0) o->db = o->endpoint.db;
        if (used == 0) used = cluster_option(&o->manager, argc, argv, i);
        if (used == -2) exit(1);
        if (used == 0) used = table_option(o, argc, argv, i);
        if (used == 0) used = other_option(o, argc, argv, i);
        if (used <= 0) cli_options_fail("Unrecognized option or bad number of args for: '%s'", argv[i]);
        i += used;
    }
    if (o->manager.command) o->mode = MODE_CLUSTER;
    o->argc = argc - i;
    o->argv = argv + i;
    options_check(o);
}
