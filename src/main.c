/* main.c: registers all parts and starts the server. Adding a feature takes one line in parts_register(). */
#include "acl/acl.h"
#include "commands/commands.h"
#include "durability/aof.h"
#include "durability/durability.h"
#include "durability/loading.h"
#include "lib/background.h"
#include "lib/log.h"
#include "lib/memory.h"
#include "pubsub/pubsub.h"
#include "repl/link_transport.h"
#include "repl/repl.h"
#include "script/script.h"
#include "server/clients/auth.h"
#include "server/clients/blocking.h"
#include "server/clients/client.h"
#include "server/clients/client_commands.h"
#include "server/absent_features.h"
#include "server/stats/commandlog.h"
#include "server/config/config.h"
#include "server/debug/debug.h"
#include "server/debug/debug_clients.h"
#include "server/process/crash.h"
#include "server/process/memory_test.h"
#include "server/defrag.h"
#include "server/eviction.h"
#include "server/stats/info.h"
#include "server/clients/io_threads.h"
#include "server/stats/latency_monitor.h"
#include "server/clients/listeners.h"
#include "server/clients/monitor.h"
#include "server/stats/memory_report.h"
#include "server/process/process.h"
#include "server/process/process_title.h"
#include "server/debug/rdma_debug.h"
#include "server/stats/rdma_info.h"
#include "server/config/rdma_options.h"
#include "server/config/tls_options.h"
#include "server/role.h"
#include "server/server.h"
#include "server/config/settings.h"
#include "server/process/restart.h"
#include "server/process/shutdown.h"
#include "server/stats/stats.h"
#include "server/clients/transactions.h"
#include "tracking/tracking.h"
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void options_register(void) {
    config_register(config_options_server);
    config_register(config_options_unbuilt);
    config_register_directives(config_directives_basic);
    config_register(server_options);
    config_register(client_options);
    config_register(client_eviction_options);
    config_register(eviction_options);
    config_register(defrag_options);
    config_register(auth_options);
    config_register(acl_options);
    config_register_directives(acl_directives);
    config_register(role_options);
    config_register(io_threads_options);
    config_register(listener_options);
    config_register(rdma_options);
    config_register(tls_options);
    config_register(process_options);
    config_register(process_title_options);
    config_register(shutdown_options);
    config_register(stats_options);
    config_register(commandlog_options);
    config_register(latency_options);
    config_register(notification_options);
    config_register(hyperloglog_options);
    config_register(dump_options);
    config_register(type_options);
    config_register(durability_options);
    config_register(aof_options);
    config_register(repl_replica_options);
    config_register(repl_primary_options);
    config_register(wait_options);
    config_register(link_transport_options);
    config_register(script_options);
    config_register(tracking_options);
}

static void all_commands_register(void) {
    commands_register(connection_commands);
    commands_register(client_commands);
    commands_register(commandlog_commands);
    commands_register(latency_commands);
    commands_register(monitor_commands);
    commands_register(transaction_commands);
    commands_register(role_commands);
    commands_register(server_commands);
    commands_register(command_commands);
    commands_register(config_commands);
    commands_register(info_commands);
    commands_register(memory_commands);
    commands_register(lolwut_commands);
    commands_register(debug_commands);
    commands_register(snapshot_commands);
    commands_register(aof_commands);
    commands_register(pubsub_commands);
    commands_register(repl_replica_commands);
    commands_register(repl_primary_commands);
    commands_register(wait_commands);
    commands_register(failover_commands);
    commands_register(acl_commands);
    commands_register(absent_features_commands);
    commands_register(script_commands);
    commands_register(function_commands);
    commands_register_subcommands("client", tracking_commands);
    data_commands_register();
}

/* Parts are called in this order. */
static void parts_register(void) {
    options_register();
    all_commands_register();
    transactions_init();
    blocking_init();
    pubsub_init();
    script_init();
    tracking_init();
    acl_init();
    debug_register_own();
    debug_register(rdma_debug_subcommands);
    debug_register(debug_reload_subcommands);
    debug_register(restart_debug_subcommands);
    debug_register(debug_client_subcommands);
    debug_register(role_debug_subcommands);
    debug_register(aof_debug_subcommands);
    debug_register(repl_debug_subcommands);
    server_add_part(&memory_report_part);
    info_register(stats_sections);
    info_register(rdma_sections);
    info_register(tls_sections);
    info_register(pubsub_sections);
    info_register(info_sections_basic);
    info_register(persistence_sections);
    info_register(repl_sections);

    server_add_part(&acl_part);
    server_add_part(&io_threads_part);
    server_add_part(&eviction_part);
    server_add_part(&defrag_part);
    server_add_part(&commandlog_part);
    server_add_part(&latency_part);
    server_add_part(&rdma_info_part);
    server_add_part(&tls_part);
    server_add_part(&aof_part); /* its child must be gone before the snapshot that SHUTDOWN may write */
    server_add_part(&snapshot_part);
    server_add_part(&repl_replica_part);
    server_add_part(&replica_expiry_part);
    server_add_part(&failover_part);
    server_add_part(&wait_part); /* asks for acknowledgements before the stream is sent */
    server_add_part(&repl_primary_part);
}

static void version_print(void) {
    printf("Valkey server v=%s sha=00000000:0 malloc=%s bits=%d build=%s\n", SERVER_VERSION, mem_allocator(),
           (int)sizeof(void *) * 8, process_build_id());
}

static void help_print(FILE *to, const char *program) {
    fprintf(to,
            "Usage: %s [/path/to/valkey.conf] [options] [-]\n"
            "       %s - (read the configuration from standard input)\n"
            "       %s -v or --version\n"
            "       %s -h or --help\n"
            "       %s --test-memory MEGABYTES [PASSES]\n"
            "       %s --check-system [DIRECTORY] (what this machine lacks; DIRECTORY: proc and sys are there)\n"
            "\n"
            "Options are those of the configuration file, with two dashes before their name:\n"
            "       %s --port 7777\n"
            "       %s /etc/valkey/valkey.conf --loglevel verbose\n"
            "       %s --port 7777 --rdma-bind 192.168.1.5 --rdma-port 7777\n"
            "       echo 'maxmemory 128mb' | %s -\n"
            "\n"
            "valkey.conf, which comes with the server, explains every option.\n",
            program, program, program, program, program, program, program, program, program, program);
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
    if (strcmp(first, "--sentinel") == 0 || strstr(argv[0], "valkey-sentinel")) {
        fprintf(stderr, "Sentinel mode is not part of this server.\n");
        exit(1);
    }
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
    restart_init(argv); /* first: it changes the environment, which the next call copies */
    process_keep_arguments(argc, argv);
    early_arguments(argc, argv);
    char executable[4096];
    ssize_t len = readlink("/proc/self/exe", executable, sizeof executable - 1);
    if (len < 0) len = snprintf(executable, sizeof executable, "%s", argv[0]);
    executable[len] = 0;
    server_init(executable);
    parts_register();

    log_set_role('C'); /* 'C': the role is not known yet */
    config_load(argc - 1, argv + 1);
    process_daemonize();
    process_check_system_warnings();
    log_notice("oO0OoO0OoO0Oo Valkey is starting oO0OoO0OoO0Oo");
    log_notice("Valkey version=%s, bits=%d, commit=00000000, modified=0, pid=%d, just started", SERVER_VERSION,
               (int)sizeof(void *) * 8, (int)getpid());
    if (argc > 1)
        log_notice("Configuration loaded");
    else
        log_warning("Warning: no config file specified, using the default config. In order to specify a config file "
                    "use %s /path/to/valkey.conf",
                    argv[0]);

    role_start();
    if (server_settings.crash_log) crash_catch_signals();
    process_setup();
    process_adjust_open_files();
    background_start(process_background_setup);
    server_start();
    banner();
    if (!listeners_start()) exit(1);
    process_write_pid_file();
    process_title();
    log_notice("PID: %d", (int)getpid());
    log_notice("Server initialized");
    loading_at_start();
    repl_history_loaded();
    listeners_log_ready();
    process_notify_ready();
    server_run();
    return 0;
}
