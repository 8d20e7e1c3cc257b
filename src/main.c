/* main.c: the list of features, and the start of the server. Adding a feature takes one line in `features`. */
#include "acl/acl.h"
#include "blob/blob.h"
#include "cluster/this_node.h"
#include "commands/commands.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/ticks.h"
#include "module/module.h"
#include "persistence/persistence.h"
#include "persistence/loading.h"
#include "pubsub/pubsub.h"
#include "repl/history.h"
#include "repl/repl.h"
#include "script/script.h"
#include "sentinel/this_sentinel.h"
#include "server/clients/listeners.h"
#include "server/clients/open_files.h"
#include "server/lifecycle.h"
#include "server/role_commands.h"
#include "server/config/config.h"
#include "server/config/settings.h"
#include "server/feature.h"
#include "server/register_features.h"
#include "server/process/crash.h"
#include "server/process/memory_test.h"
#include "server/process/process.h"
#include "server/process/process_title.h"
#include "server/process/restart.h"
#include "server/script_hooks.h"
#include "server/server.h"
#include "tracking/tracking.h"
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The hooks of parts (server.h) are called in the order of this list. The order matters for these features:
 *   - tracking and io_threads come before persistence and replication: their hooks run before the writes of a turn
 *     reach the append-only file and the replicas.
 *   - cluster comes before replication: nodes.conf gives the role with which replication starts. A message of the
 *     cluster bus may also change keys; these changes are written and sent in the same turn.
 *   - persistence comes before replication: a write is in the append-only file before replicas receive it.
 *   - the users of the ACL come last: their rules may name commands of modules.
 *   - persistence and replication have several parts, whose order is explained in their own lists.
 * A Sentinel has no keys. It accepts the options of features that only a server has, without effect. */
enum program { SERVER = 1, SENTINEL = 2, BOTH = SERVER | SENTINEL };
static const struct {
    const struct feature *feature;
    enum program program;
} features[] = {
    {&config_feature, BOTH},    {&server_feature, BOTH},        {&command_feature, BOTH},  {&clients_feature, BOTH},
    {&tracking_feature, BOTH},  {&transactions_feature, BOTH},  {&blocking_feature, BOTH}, {&monitor_feature, SERVER},
    {&role_feature, SERVER},    {&memory_feature, BOTH},        {&acl_feature, BOTH},      {&io_threads_feature, BOTH},
    {&maxmemory_feature, BOTH}, {&defrag_feature, SERVER},      {&process_feature, BOTH},  {&stats_feature, BOTH},
    {&info_feature, BOTH},      {&commandlog_feature, BOTH},    {&latency_feature, BOTH},  {&rdma_feature, BOTH},
    {&tls_feature, BOTH},       {&sentinel_feature, SENTINEL},  {&debug_feature, SERVER},  {&lolwut_feature, SERVER},
    {&data_feature, SERVER},    {&blob_feature, SERVER},        {&pubsub_feature, BOTH},   {&script_feature, SERVER},
    {&cluster_feature, SERVER}, {&persistence_feature, SERVER}, {&repl_feature, SERVER},   {&module_feature, SERVER},
    {&acl_users_feature, BOTH},
};
enum { FEATURES = sizeof features / sizeof features[0] };

static void register_features(enum program program) {
    const struct feature *in_use[FEATURES + 1] = {NULL}, *unused[FEATURES + 1] = {NULL};
    for (size_t i = 0, used = 0; i < FEATURES; i++)
        *(features[i].program & program ? &in_use[used++] : &unused[i - used]) = features[i].feature;
    if (program == SENTINEL)
        features_register_mode(&(struct feature_mode){.features = in_use,
                                                      .settings_only = unused,
                                                      .offers_command = sentinel_offers_command,
                                                      .offers_section = sentinel_offers_section});
    else
        features_register(in_use);
}

static void help_print(FILE *to, const char *program) {
    fprintf(to,
            "Usage: %s [/path/to/valkey.conf] [options] [-]\n"
            "       %s - (read the configuration from standard input)\n"
            "       %s -v or --version\n"
            "       %s -h or --help\n"
            "       %s --test-memory MEGABYTES [PASSES]\n"
            "       %s /path/to/sentinel.conf --sentinel\n"
            "       %s --check-system [DIRECTORY] (check kernel settings and RDMA; DIRECTORY: root of proc and sys)\n"
            "\n"
            "Options are those of the configuration file, with two dashes before their name:\n"
            "       %s --port 7777\n"
            "       %s /etc/valkey/valkey.conf --loglevel verbose\n"
            "       %s --port 7777 --rdma-bind 192.168.1.5 --rdma-port 7777\n"
            "       echo 'maxmemory 128mb' | %s -\n"
            "\n"
            "valkey.conf, which comes with the server, explains every option.\n",
            program, program, program, program, program, program, program, program, program, program, program);
}

/* Options that print something and exit without starting a server. */
static void early_arguments(int argc, char **argv) {
    if (argc < 2) return;
    const char *first = argv[1];
    if (strcmp(first, "-v") == 0 || strcmp(first, "--version") == 0) {
        printf("Valkey server v=%s sha=%s:%d malloc=%s bits=%d build=%s\n", SERVER_VERSION, git_commit, git_dirty,
               mem_allocator(), (int)sizeof(void *) * 8, process_build_id());
        exit(0);
    }
    if (strcmp(first, "-h") == 0 || strcmp(first, "--help") == 0) {
        help_print(stdout, argv[0]);
        exit(0);
    }
    if (strcmp(first, "--check-system") == 0) exit(process_check_system(argc > 2 ? argv[2] : ""));
    if (strcmp(first, "--test-memory") == 0)
        exit(memory_test_main(argv[0], argc > 2 ? argv[2] : NULL, argc > 3 ? argv[3] : NULL));
}

static void banner(void) {
    if (!server_settings.always_show_logo && !isatty(STDOUT_FILENO)) {
        log_notice("Running mode=%s, port=%d.", server.mode, listeners_port());
        return;
    }
    printf("\n"
           "   .---------------.\n"
           "   |  o   k => v   |    Valkey %s, %d bit\n"
           "   |     _____     |    Running in %s mode\n"
           "   |    |_____|    |    Port: %d\n"
           "   |    |__|__|    |    PID: %ld\n"
           "   '---------------'\n\n",
           SERVER_VERSION, (int)sizeof(void *) * 8, server.mode, listeners_port(), (long)getpid());
    fflush(stdout);
}

int main(int argc, char **argv) {
    setlocale(LC_COLLATE, "");
    restart_init(argv); /* before process_keep_arguments(), which copies the environment that this changes */
    process_keep_arguments(argc, argv);
    early_arguments(argc, argv);
    char executable[4096];
    ssize_t len = readlink("/proc/self/exe", executable, sizeof executable - 1);
    if (len < 0) len = snprintf(executable, sizeof executable, "%s", argv[0]);
    executable[len] = 0;
    server_init(executable);
    server.git_commit = git_commit;
    server.git_dirty = git_dirty;
    bool is_sentinel = sentinel_mode_wanted(argc, argv);
    register_features(is_sentinel ? SENTINEL : SERVER);
    if (is_sentinel) {
        sentinel_mode_begin();
        argc = sentinel_arguments(argc, argv);
    }

    config_load(argc - 1, argv + 1);
    server_configured();
    if (!is_sentinel) role_start();
    process_daemonize();
    process_check_system_warnings();
    log_notice("oO0OoO0OoO0Oo Valkey is starting oO0OoO0OoO0Oo");
    log_notice("Valkey version=%s, bits=%d, commit=%s, modified=%d, pid=%d, just started", SERVER_VERSION,
               (int)sizeof(void *) * 8, git_commit, git_dirty, (int)getpid());
    if (argc > 1)
        log_notice("Configuration loaded");
    else if (!is_sentinel)
        log_warning("Warning: No config file specified, using the default config. In order to specify a config file "
                    "use %s /path/to/valkey.conf",
                    argv[0]);

    crash_catch_signals();
    process_setup();
    open_files_adjust();
    process_background_start();
    log_notice("monotonic clock: %s", ticks_describe());
    banner();
    server_start();
    if (!is_sentinel) log_debug("Registering a new scripting engine: LUA");
    if (script_hooks) log_notice("Static Module '%s' successfully loaded", SCRIPT_MODULE);
    if (!listeners_start()) exit(1);
    process_write_pid_file();
    process_title();
    if (!is_sentinel) {
        log_notice("Server initialized");
        loading_at_start();
        repl_history_loaded();
        listeners_log_ready();
    }
    process_notify_ready();
    server_run();
    return 0;
}
