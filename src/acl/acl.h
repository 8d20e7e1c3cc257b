/* acl.h: access control lists: the permissions of users (server/clients/user.h).
 *
 *   rights.h          the permissions of a user, compiled from rules; the language of the rules
 *   acl_check.c       decides whether a user may run a command; the filter in dispatch
 *   acl_log.c         ACL LOG
 *   acl_files.c       the aclfile, and `user` lines of the configuration file
 *   acl_commands.c    ACL
 *
 * While every user has all rights, nothing is checked and no filter is installed. */
#pragma once
#include "server/clients/user.h"
#include "server/command/command.h"
#include "server/config/config.h"
#include "server/server.h"

struct feature;
extern const struct feature acl_feature;
/* Reads the users at start, when all commands are there, those of modules included. */
extern const struct feature acl_users_feature;

/* Tables and functions of acl_feature. */
extern const struct config_option acl_options[];
extern const struct config_directive acl_directives[];
void acl_init(void);

/* --- For modules --- */

/* Users that are in no table, so that the filter of requests considers them, and rules about commands that are
 * registered later are applied to them. The caller keeps the struct until it removes the user. */
void acl_outsider_add(struct user *user);
void acl_outsider_remove(struct user *user);
/* May the user use the key in this way (enum key_flag), keys with this prefix, the channel? */
bool acl_has_key(const struct user *user, struct slice key, uint32_t key_flags);
bool acl_has_prefix(const struct user *user, struct slice prefix, uint32_t key_flags);
bool acl_has_channel(const struct user *user, struct slice channel, bool is_pattern);
/* A rule of a user that names a command for which `concerns` returns true; NULL: there is none. */
const char *acl_rule_on(bool (*concerns)(void *context, struct slice command), void *context);
/* Adds an entry to ACL LOG that a module has made. */
void acl_log_module(struct client *client, enum user_denial denial, struct slice object, struct slice user);

/* --- Shared by the files of this directory --- */

/* Must be called after a user was added, changed or removed. Updates USER_ALL_RIGHTS and the filter, and closes clients
 * of the user (may be NULL) that have subscriptions for which it has no permission any more. */
void acl_user_changed(struct user *user);
/* acl_check.c. `argv` includes the name of the command. */
enum user_denial acl_check(const struct user *user, int db, const struct command *command, int argc,
                           const struct slice *argv, int *at);
/* acl_log.c */
void acl_log_denied(struct client *client, enum user_denial denial, const struct command *command,
                    const struct slice *argv, int at);
void acl_log_failed_login(struct client *client, struct slice name);
void acl_log_denied_certificate(struct client *client, struct slice name);
void acl_log_run(struct call *call);
extern int64_t acl_log_max;
/* acl_files.c. Errors are static texts. */
bool acl_has_file(void);
const char *acl_file_load(void);
int acl_file_save(void); /* 0, or -errno after logging the error */
