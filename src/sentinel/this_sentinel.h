/* this_sentinel.h: the server as a Sentinel: valkey-sentinel, or valkey-server --sentinel.
 *
 * protocol/ decides; the files here are its edges:
 *
 *   this_sentinel.c   start, timer, effects
 *   links.h           connections to servers and Sentinels
 *   sentinel_file.h   the directives of the configuration file, and its rewriting
 *   scripts.h         notification and reconfiguration scripts
 *   commands.c        SENTINEL and the other commands of a Sentinel; set_command.c: SENTINEL SET, CONFIG and DEBUG
 *   views.h           instances as replies; INFO
 *   explain.c         SENTINEL EXPLAIN
 *
 * A Sentinel has no keys. main.c registers a second, smaller list of features for it, and only the commands of
 * sentinel_offers_command(). Main thread only. */
#pragma once
#include "sentinel/protocol/sentinel.h"
#include "server/feature.h"
#include "server/command/command.h"

extern struct sentinel *this_sentinel; /* NULL: this server is no Sentinel, or has not read its configuration */
#define each_group(at) each_in(&this_sentinel->groups, at)
extern const struct sentinel_effects sentinel_effects;

/* Options that are not part of the machine. Texts: "" is nothing; owned. */
struct sentinel_options {
    char *announce_ip, *user, *password;
    int announce_port; /* 0: the port it listens on */
    bool deny_scripts_reconfig, rdma;
};
extern struct sentinel_options sentinel_options;
void sentinel_set_text(char **text, struct slice value);

extern bool sentinel_waits_for_names; /* for host names to be resolved, instead of failing and trying again */
int64_t sentinel_now(void);           /* ms of the machine's clock */
/* Is this process a Sentinel, by the name of its program or --sentinel? */
bool sentinel_mode_wanted(int argc, char **argv);
/* Removes --sentinel where it is not a directive; returns the new count. */
int sentinel_arguments(int argc, char **argv);
void sentinel_mode_begin(void); /* before the configuration is read: defaults of a Sentinel */
bool sentinel_offers_command(const char *container, const char *name); /* container NULL: a top-level command */
bool sentinel_offers_section(const char *name);
extern const struct feature sentinel_feature;

/* For the files of this directory. */
extern const struct command_spec sentinel_commands[];
void sentinel_explain(struct call *call, struct instance *group);
void sentinel_publish_run(struct call *call);
void sentinel_set_run(struct call *call);
void sentinel_config_run(struct call *call);
void sentinel_debug_run(struct call *call);
void sentinel_no_such_group(struct call *call);
/* Saves; replies OK, or an error that the change, which stays, is not on disk. */
void sentinel_reply_saved(struct call *call);
