/* main.c: the list of features, and the start of the server. Adding a feature takes one line in `features`. */
#include "acl/acl.h"
#include "blob/blob.h"
#include "cluster/cluster_feature.h"
#include "commands/commands.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/ticks.h"
#include "metrics/metrics.h"
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
 *   - persistence and replication have several parts, whose order is explained in their own lists. */
/* clang-format off */
static const struct feature *const features[] = {
    &config_feature,
    &server_feature,
    &command_feature,
    &clients_feature,
    &tracking_feature,
    &transactions_feature,
    &blocking_feature,
    &monitor_feature,
    &role_feature,
    &memory_feature,
    &acl_feature,
    &metrics_feature,
    &io_threads_feature,
    &maxmemory_feature,
    &defrag_feature,
    &process_feature,
    &stats_feature,
    &info_feature,
    &commandlog_feature,
    &latency_feature,
    &rdma_feature,
    &tls_feature,
    &debug_feature,
    &lolwut_feature,
    &data_feature,
    &blob_feature,
    &pubsub_feature,
    &script_feature,
    &cluster_feature,
    &persistence_feature,
    &repl_feature,
    &module_feature,
    &acl_users_feature,
    NULL,
};

/* Of a Sentinel, which has no keys. */
static const struct feature *const sentinel_features[] = {
    &config_feature,
    &server_feature,
    &command_feature,
    &clients_feature,
    &tracking_feature,
    &transactions_feature,
    &blocking_feature,
    &memory_feature,
    &acl_feature,
    &metrics_feature,
    &io_threads_feature,
    &maxmemory_feature,
    &process_feature,
    &stats_feature,
    &info_feature,
    &commandlog_feature,
    &latency_feature,
    &rdma_feature,
    &tls_feature,
    &sentinel_feature,
    &pubsub_feature,
    &acl_users_feature,
    NULL,
};
static const struct feature *const features_without_sentinel[] = {
    &role_feature,
    &monitor_feature,
    &defrag_feature,
    &debug_feature,
    &lolwut_feature,
    &data_feature,
    &blob_feature,
    &script_feature,
    &cluster_feature,
    &persistence_feature,
    &repl_feature,
    &module_feature,
    NULL,
};
/* clang-format on */
static const struct feature_mode sentinel_mode = {.features = sentinel_features,
                                                  .settings_only = features_without_sentinel,
                                                  .offers_command = sentinel_offers_command,
                                                  .offers_section = sentinel_offers_section};

static void version_print(void) {
    printf("Valkey server v=%s sha=%s:%d malloc=%s bits=%d build=%s\n", SERVER_VERSION, git_commit, git_dirty,
           mem_allocator(), (int)sizeof(void *) * 8, process_build_id());
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
        version_print();
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
    if (is_sentinel) {
        features_register_mode(&sentinel_mode);
        sentinel_mode_begin();
        argc = sentinel_arguments(argc, argv);
    } else {
        features_register(features);
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
