/* cli_cluster.c: valkey-cli --cluster: its options, the table of subcommands, and those that need little code. */
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "tools/cli_cluster.h"
#include "tools/cli_cluster_options.h"
#include "tools/cli_format.h"
#include <stdlib.h>
#include <unistd.h>

enum { NODE_TIMEOUT_MIN_MS = 100, PIPELINE_DEFAULT = 10, MIGRATE_TIMEOUT_MS = 60 * 1000, THRESHOLD_DEFAULT = 2 };

/* --- Options --- */

static const struct {
    const char *name;
    size_t offset;
} flags[] =
    {
        {"yes", offsetof(struct cli_cluster_options, yes)},
        {"search-multiple-owners", offsetof(struct cli_cluster_options, search_owners)},
        {"fix-with-unreachable-primaries", offsetof(struct cli_cluster_options, fix_unreachable)},
        {"fix-with-unreachable-masters", offsetof(struct cli_cluster_options, fix_unreachable)},
        {"replace", offsetof(struct cli_cluster_options, replace)},
        {"copy", offsetof(struct cli_cluster_options, copy)},
        {"use-empty-primaries", offsetof(struct cli_cluster_options, use_empty)},
        {"use-empty-masters", offsetof(struct cli_cluster_options, use_empty)},
        {"simulate", offsetof(struct cli_cluster_options, simulate)},
        {"replica", offsetof(struct cli_cluster_options, replica)},
        {"slave", offsetof(struct cli_cluster_options, replica)},
        {"only-primaries", offsetof(struct cli_cluster_options, only_primaries)},
        {"only-masters", offsetof(struct cli_cluster_options, only_primaries)},
        {"only-replicas", offsetof(struct cli_cluster_options, only_replicas)},
        {"use-atomic-slot-migration", offsetof(struct cli_cluster_options, atomic)},
        {"no-atomic-slot-migration", offsetof(struct cli_cluster_options, not_atomic)},
        {"from-askpass", offsetof(struct cli_cluster_options, from_askpass)},
},
  texts[] =
      {
          {"from", offsetof(struct cli_cluster_options, from)},
          {"to", offsetof(struct cli_cluster_options, to)},
          {"primary-id", offsetof(struct cli_cluster_options, primary_id)},
          {"primaries-id", offsetof(struct cli_cluster_options, primary_id)},
          {"master-id", offsetof(struct cli_cluster_options, primary_id)},
          {"from-user", offsetof(struct cli_cluster_options, from_user)},
          {"from-pass", offsetof(struct cli_cluster_options, from_password)},
},
  numbers[] = {
      {"replicas", offsetof(struct cli_cluster_options, replicas)},
      {"slots", offsetof(struct cli_cluster_options, slots)},
      {"timeout", offsetof(struct cli_cluster_options, timeout_ms)},
      {"pipeline", offsetof(struct cli_cluster_options, pipeline)},
};

void cluster_options_init(struct cli_cluster_options *o) {
    *o = (struct cli_cluster_options){
        .timeout_ms = MIGRATE_TIMEOUT_MS, .pipeline = PIPELINE_DEFAULT, .threshold = THRESHOLD_DEFAULT};
}

/* How many of the arguments from i on are no options. */
static int words_count(int argc, char **argv, int i) {
    int count = 0;
    while (i + count < argc && argv[i + count][0] != '-') count++;
    return count;
}

static int number_option(struct cli_cluster_options *o, size_t k, const char *name, const char *value) {
    int64_t *field = (int64_t *)((char *)o + numbers[k].offset);
    bool positive = field == &o->timeout_ms || field == &o->pipeline;
    if (parse_int64(slice_of(value), field) && *field >= positive && *field <= INT32_MAX) return 2;
    fprintf(stderr, "Invalid number for %s.\n", name);
    return -2;
}

int cluster_option(struct cli_cluster_options *o, int argc, char **argv, int i) {
    const char *name = argv[i];
    if (strcmp(name, "--cluster") == 0) {
        int count = words_count(argc, argv, i + 1);
        if (count == 0) return -1;
        o->command = argv[i + 1];
        o->args = argv + i + 2;
        o->args_count = count - 1;
        return count + 1;
    }
    if (strncmp(name, "--cluster-", 10) != 0) return 0;
    name += 10;
    for (size_t k = 0; k < sizeof flags / sizeof *flags; k++) {
        if (strcmp(name, flags[k].name) != 0) continue;
        *(bool *)((char *)o + flags[k].offset) = true;
        return 1;
    }
    if (i + 1 >= argc) return -1;
    if (strcmp(name, "weight") == 0) {
        o->weights = argv + i + 1;
        o->weights_count = words_count(argc, argv, i + 1);
        return o->weights_count ? o->weights_count + 1 : -1;
    }
    if (strcmp(name, "threshold") == 0) {
        if (parse_double(slice_of(argv[i + 1]), &o->threshold) && o->threshold >= 0) return 2;
        fprintf(stderr, "Invalid number for %s.\n", argv[i]);
        return -2;
    }
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        if (strcmp(name, texts[k].name) != 0) continue;
        *(char **)((char *)o + texts[k].offset) = argv[i + 1];
        return 2;
    }
    for (size_t k = 0; k < sizeof numbers / sizeof *numbers; k++)
        if (strcmp(name, numbers[k].name) == 0) return number_option(o, k, argv[i], argv[i + 1]);
    return -1;
}

/* --- Small subcommands --- */

static int fix_run(struct cli_cluster *c) {
    if (!cluster_show_summary(c)) return 1;
    cli_catch_interrupt(c->cli, true);
    unsigned problems = cluster_check(c, true, true);
    cli_catch_interrupt(c->cli, false);
    return problems != 0;
}

static int call_run(struct cli_cluster *c, int argc, char **argv) {
    struct slice *words = mem_alloc((size_t)argc * sizeof *words);
    bool complete = true;
    cluster_say(c, TONE_STEP, ">>> Calling");
    for (int i = 0; i < argc; i++) {
        words[i] = slice_of(argv[i]);
        printf(" %s", argv[i]);
    }
    printf("\n");
    for (int i = 0; i < c->count; i++) {
        struct cli_node *node = c->nodes[i];
        if (node_is_primary(node) ? c->options->only_replicas : c->options->only_primaries) continue;
        const struct resp_value *reply = cluster_try(node, argc, words, -1);
        complete &= reply != NULL;
        if (!reply) continue;
        struct memory_output m = MEMORY_OUTPUT_INIT;
        format_reply(&m.out, reply, &c->cli->options, c->cli->options.output);
        struct slice text = memory_output_slice(&m);
        printf("%s: %.*s", node->name, (int)text.len, text.data);
        memory_output_free(&m);
    }
    mem_free(words);
    return !complete;
}

static int set_timeout_run(struct cli_cluster *c, const char *timeout) {
    int done = 0, failed = 0;
    cluster_say(c, TONE_STEP, ">>> Reconfiguring node timeout in every cluster node...\n");
    for (int i = 0; i < c->count; i++) {
        struct cli_node *node = c->nodes[i];
        const struct resp_value *reply = CLUSTER_TRY(node, "CONFIG", "SET", "cluster-node-timeout", timeout);
        if (reply && reply->type != RESP_ERROR) reply = CLUSTER_TRY(node, "CONFIG", "REWRITE");
        if (reply && reply->type != RESP_ERROR) {
            cluster_say(c, TONE_WARNING, "*** New timeout set for %s\n", node->name);
            done++;
            continue;
        }
        cluster_say(c, TONE_ERROR, "ERR setting node-timeout for %s: %s\n", node->name,
                    reply ? reply->text.data : node->session.error);
        failed++;
    }
    cluster_say(c, TONE_STEP, ">>> New node timeout set. %d OK, %d ERR.\n", done, failed);
    return 0;
}

/* --- The table --- */

enum subcommand {
    CREATE,
    CHECK,
    INFO,
    FIX,
    RESHARD,
    REBALANCE,
    ADD_NODE,
    DEL_NODE,
    CALL,
    SET_TIMEOUT,
    IMPORT,
    BACKUP,
    HELP
};
enum { ANY = -1 };
static const char one_address[] = "<host:port> or <host> <port> - separated by either colon or space";
static const struct {
    const char *name, *args, *options; /* options: separated by newlines */
    int min, max;                      /* number of arguments; those with one address also take it as two words */
    bool one_address;
} commands[] = {
    [CREATE] = {"create", "host1:port1 ... hostN:portN", "replicas <arg>", 1, ANY, false},
    [CHECK] = {"check", one_address, "search-multiple-owners", 1, ANY, true},
    [INFO] = {"info", one_address, NULL, 1, ANY, true},
    [FIX] = {"fix", one_address, "search-multiple-owners\nfix-with-unreachable-primaries", 1, ANY, true},
    [RESHARD] = {"reshard", one_address,
                 "from <arg>\nto <arg>\nslots <arg>\nyes\ntimeout <arg>\npipeline <arg>\nreplace", 1, ANY, true},
    [REBALANCE] = {"rebalance", one_address,
                   "weight <node1=w1...nodeN=wN>\nuse-empty-primaries\ntimeout <arg>\nsimulate\npipeline <arg>\n"
                   "threshold <arg>\nreplace",
                   1, ANY, true},
    [ADD_NODE] = {"add-node", "new_host:new_port existing_host:existing_port", "replica\nprimaries-id <arg>", 2, 2,
                  false},
    [DEL_NODE] = {"del-node", "host:port node_id", NULL, 2, 2, false},
    [CALL] = {"call", "host:port command arg arg .. arg", "only-primaries\nonly-replicas", 2, ANY, false},
    [SET_TIMEOUT] = {"set-timeout", "host:port milliseconds", NULL, 2, 2, false},
    [IMPORT] = {"import", "host:port", "from <arg>\nfrom-user <arg>\nfrom-pass <arg>\nfrom-askpass\ncopy\nreplace", 1,
                1, false},
    [BACKUP] = {"backup", "host:port backup_directory", NULL, 2, 2, false},
    [HELP] = {"help", "", NULL, 0, ANY, false},
};

static void help_print(void) {
    printf("Cluster Manager Commands:\n");
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        printf("  %-15s%s\n", commands[i].name, commands[i].args);
        for (const char *at = commands[i].options; at && *at;) {
            size_t len = strcspn(at, "\n");
            printf("                 --cluster-%.*s\n", (int)len, at);
            at += len + (at[len] != '\0');
        }
    }
    printf(
        "\nFor check, fix, reshard, del-node, set-timeout, info, rebalance, call, import, backup you can specify the "
        "host and port of any working node in the cluster.\n"
        "\nCluster Manager Options:\n"
        "  --cluster-yes  Automatic yes to cluster commands prompts\n\n");
}

static int wrong_address(void) {
    fprintf(stderr, "[ERR] Invalid arguments: you need to pass either a valid address (ie. 120.0.0.1:7000) or space "
                    "separated IP and port (ie. 120.0.0.1 7000)\n");
    return 1;
}

/* "host:port", or "host" "port" where two words may be one address. */
static bool first_address(const struct cli_cluster_options *o, bool two_words, char host[NODE_HOST_MAX], int *port) {
    int64_t number;
    if (two_words && o->args_count == 2 && parse_int64(slice_of(o->args[1]), &number) && number > 0 &&
        number <= 65535 && strlen(o->args[0]) < NODE_HOST_MAX) {
        snprintf(host, NODE_HOST_MAX, "%s", o->args[0]);
        *port = (int)number;
        return true;
    }
    if (two_words && o->args_count != 1) return false;
    return address_parse(slice_of(o->args[0]), host, port, NULL) && *host && *port;
}

static int command_run(struct cli_cluster *c, enum subcommand command, int argc, char **argv) {
    char host[NODE_HOST_MAX];
    int port;
    switch (command) {
    case CHECK: return !cluster_show_summary(c) || cluster_check(c, true, false) != 0;
    case INFO: return !cluster_show_summary(c);
    case FIX: return fix_run(c);
    case RESHARD: return cluster_reshard(c);
    case REBALANCE: return cluster_rebalance(c);
    case ADD_NODE:
        address_parse(slice_of(argv[0]), host, &port, NULL); /* announce() has checked it */
        return cluster_add_node(c, host, port);
    case DEL_NODE: return cluster_del_node(c, argv[1]);
    case CALL: return call_run(c, argc - 1, argv + 1);
    case SET_TIMEOUT: return set_timeout_run(c, argv[1]);
    case IMPORT: return cluster_import(c);
    case BACKUP: return cluster_backup(c, argv[1]);
    case CREATE:
    case HELP: break;
    }
    return 1;
}

/* What can be wrong with the options before any node is asked. 0: nothing. */
static int options_refused(struct cli_cluster *c, struct cli_cluster_options *o, enum subcommand command) {
    char host[NODE_HOST_MAX];
    int port;
    int64_t timeout;
    if (command == SET_TIMEOUT && (!parse_int64(slice_of(o->args[1]), &timeout) || timeout < NODE_TIMEOUT_MIN_MS)) {
        fprintf(stderr, "Setting a node timeout of less than 100 milliseconds is a bad idea.\n");
        return 1;
    }
    if (command == IMPORT) {
        if (!o->from) {
            fprintf(stderr, "[ERR] Option '--cluster-from' is required for subcommand 'import'.\n");
            return 1;
        }
        if (!address_parse(slice_of(o->from), host, &port, NULL) || !*host) {
            fprintf(stderr,
                    "[ERR] Invalid --cluster-from host. You need to pass a valid address (ie. 120.0.0.1:7000).\n");
            return 1;
        }
        if (o->from_askpass) o->from_password = getpass("Please input import source node password: ");
    }
    if (o->atomic && o->not_atomic) {
        fprintf(stderr, "[ERR] --cluster-use-atomic-slot-migration and --cluster-no-atomic-slot-migration exclude each "
                        "other.\n");
        return 1;
    }
    if ((command == FIX || (o->not_atomic && (command == RESHARD || command == REBALANCE) && !o->simulate)) &&
        !cluster_may_move_keys(c))
        return 1;
    return 0;
}

/* What begins, before anything is connected. False: an address is wrong. */
static bool cli_cluster_announce(const struct cli_cluster *c, enum subcommand command, const char *cluster_host,
                                 int cluster_port) {
    const struct cli_cluster_options *o = c->options;
    char host[NODE_HOST_MAX];
    int port;
    if (command == ADD_NODE) {
        if (!address_parse(slice_of(o->args[0]), host, &port, NULL)) return false;
        cluster_say(c, TONE_STEP, ">>> Adding node %s:%d to cluster %s:%d\n", host, port, cluster_host, cluster_port);
    } else if (command == DEL_NODE) {
        cluster_say(c, TONE_STEP, ">>> Removing node %s from cluster %s:%d\n", o->args[1], cluster_host, cluster_port);
    } else if (command == IMPORT) {
        cluster_say(c, TONE_STEP, ">>> Importing data from %s to cluster %s:%d\n", o->from, cluster_host, cluster_port);
    }
    return true;
}

int mode_cluster(struct cli *cli) {
    struct cli_cluster_options *o = &cli->options.manager;
    struct cli_cluster c = {.cli = cli, .options = o};
    char host[NODE_HOST_MAX];
    int port, result = 1;
    size_t k = 0, count = sizeof commands / sizeof *commands;
    while (k < count && strcmp(o->command, commands[k].name) != 0) k++;
    if (k == count) {
        fprintf(stderr, "Unknown --cluster subcommand\n");
        return 1;
    }
    if (o->args_count < commands[k].min || (commands[k].max != ANY && o->args_count > commands[k].max)) {
        fprintf(stderr, "[ERR] Wrong number of arguments for specified --cluster sub command\n");
        return 1;
    }
    if (k == HELP) {
        help_print();
        return 1; /* as Valkey's */
    }
    if (k == CREATE) {
        result = cluster_create(&c, o->args_count, o->args);
    } else {
        struct cli_cluster_options address = *o;
        if (k == ADD_NODE) address.args++; /* the node of the cluster comes second */
        if (!first_address(&address, commands[k].one_address, host, &port)) return wrong_address();
        if (options_refused(&c, o, (enum subcommand)k)) return 1;
        if (!cli_cluster_announce(&c, (enum subcommand)k, host, port)) return wrong_address();
        if (cluster_open(&c, host, port)) result = command_run(&c, (enum subcommand)k, o->args_count, o->args);
    }
    cluster_close(&c);
    return result;
}
