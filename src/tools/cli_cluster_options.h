/* cli_cluster_options.h: the options of valkey-cli --cluster. */
#pragma once
#include <stdbool.h>
#include <stdint.h>

struct cli_cluster_options {
    char *command; /* the subcommand; NULL: no --cluster */
    char **args;
    int args_count;
    char **weights; /* id=weight */
    int weights_count;
    char *from, *to, *primary_id, *from_user, *from_password;
    bool yes, search_owners, fix_unreachable, replace, copy, use_empty, simulate, replica, only_primaries,
        only_replicas, atomic, not_atomic, from_askpass;
    int64_t replicas, slots, timeout_ms, pipeline;
    double threshold;
};
void cluster_options_init(struct cli_cluster_options *o);
/* Parses --cluster or --cluster-… at argv[i]. Returns how many arguments it used; 0: it is another option; -1: its
 * argument is missing; -2: it is invalid, with a message. */
int cluster_option(struct cli_cluster_options *o, int argc, char **argv, int i);
struct cli;
int mode_cluster(struct cli *cli);
