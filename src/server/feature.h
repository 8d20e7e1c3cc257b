/* feature.h: what a feature adds to the server.
 *
 * A feature has one constant `struct feature`, beside its code, and one line in the list of main.c. Its members are
 * lists of tables, most of which a feature leaves out:
 *
 *     const struct feature role_feature = {
 *         .name = "role",
 *         .options = OPTIONS(role_options),
 *         .commands = COMMANDS(role_commands),
 *     };
 *
 * The server registers the options of all features first, then all directives, commands and subcommands; then it calls
 * each init(), which finds all commands; then it registers the subcommands of DEBUG, the sections of INFO and the
 * parts. Each of these steps follows the order of the list in main.c, which is also the order in which hooks of parts
 * are called. */
#pragma once
struct command_spec;     /* command/command.h */
struct config_directive; /* config/config.h */
struct config_option;    /* config/config.h */
struct debug_subcommand; /* debug/debug.h */
struct info_section;     /* stats/info.h */
struct server_part;      /* server.h */

/* Each list ends with NULL, each table with an element without a name. */
struct feature {
    const char *name;
    const struct config_option *const *options;
    const struct config_directive *const *directives;
    const struct command_spec *const *commands;
    struct {
        const char *container; /* a command of another feature */
        const struct command_spec *specs;
    } subcommands;
    void (*init)(void); /* before the configuration is read */
    const struct debug_subcommand *const *debug;
    const struct info_section *const *sections;
    const struct server_part *const *parts; /* hooks of the server's life, in the order of their calls */
};
#define FEATURE_LIST(type, ...)                                                                                        \
    (const type *const[]) {                                                                                            \
        __VA_ARGS__, NULL                                                                                              \
    }
#define OPTIONS(...)           FEATURE_LIST(struct config_option, __VA_ARGS__)
#define DIRECTIVES(...)        FEATURE_LIST(struct config_directive, __VA_ARGS__)
#define COMMANDS(...)          FEATURE_LIST(struct command_spec, __VA_ARGS__)
#define DEBUG_SUBCOMMANDS(...) FEATURE_LIST(struct debug_subcommand, __VA_ARGS__)
#define SECTIONS(...)          FEATURE_LIST(struct info_section, __VA_ARGS__)
#define PARTS(...)             FEATURE_LIST(struct server_part, __VA_ARGS__)

/* The features of server/ itself. */
extern const struct feature blocking_feature, clients_feature, command_feature, commandlog_feature, config_feature,
    debug_feature, defrag_feature, info_feature, io_threads_feature, latency_feature, lolwut_feature, maxmemory_feature,
    memory_feature, monitor_feature, process_feature, rdma_feature, role_feature, server_feature, stats_feature,
    tls_feature, transactions_feature;
