/* user.h: users: names, passwords, and the interface to their permissions. A client points to the user that it acts as.
 *
 * The default user always exists; a connection that need not authenticate acts as this user from the start. src/acl
 * knows the permissions of users and installs `user_hooks`. A user with USER_ALL_RIGHTS is never checked; while all
 * users have it, the path of a request checks nothing. The clients of a removed user are closed. Main thread only. */
#pragma once
#include "lib/hash/sha256.h"
#include "lib/text/slice.h"
#include <stdint.h>

struct acl_rights;
struct client;
struct command;

enum user_flag {
    USER_ENABLED = 1 << 0,     /* clients may authenticate as the user */
    USER_NO_PASSWORD = 1 << 1, /* any password authenticates */
    USER_ALL_RIGHTS = 1 << 2   /* every command, key, channel and database */
};
struct user {
    const char *name; /* allocated, except for the default user's */
    uint32_t flags;
    unsigned password_count;
    unsigned char (*passwords)[SHA256_SIZE]; /* digests */
    struct acl_rights *rights;               /* of src/acl; NULL without USER_ALL_RIGHTS: none at all */
};
extern struct user user_default;
/* The user of what this server executes on its own account: the stream of its primary, calls of modules. It has all
 * rights, whatever those of the default user are, is in no table, and never changes. */
extern struct user user_superuser;

struct user *user_find(struct slice name); /* NULL: no user has this name */
struct user *user_add(struct slice name);  /* the name must be new and without NUL bytes */
/* Removes a user, whose rights the caller has freed, and closes its clients. Not for the default user. */
void user_remove(struct user *user);
/* Called before a user is removed, for what points to it besides clients. NULL: not wanted. */
extern void (*user_removing)(struct user *user);
/* A user is about to be freed: the clients without a connection that act as the user have no rights from here on. */
void user_leave_internal(const struct user *user);
size_t users_count(void);
struct user *user_at(size_t index); /* sorted by name */
/* Closes a client whose user changed. The client whose command runs is closed by user_close_caller(), which a command
 * that changes users calls after it has replied. */
void user_close_client(struct client *client);
void user_close_caller(struct client *caller);

/* Does this password authenticate the user? The time does not depend on the password. */
bool user_accepts(const struct user *user, struct slice password);
void user_add_password(struct user *user, const unsigned char digest[static SHA256_SIZE]);    /* ends NO_PASSWORD */
bool user_remove_password(struct user *user, const unsigned char digest[static SHA256_SIZE]); /* false: not there */
void user_clear_passwords(struct user *user);                                                 /* ends NO_PASSWORD */

/* Why a user may not run a command, or could not log in. If several rules deny it for different reasons, the reply
 * names the one that comes last here. */
enum user_denial { USER_ALLOWED, USER_DENIED_DATABASE, USER_DENIED_COMMAND, USER_DENIED_KEY, USER_DENIED_CHANNEL };
struct user_hooks {
    /* May the client's user run this command in the client's database? *at: the argument that is denied; 0: the command
     * itself. Not called for users with all rights. */
    enum user_denial (*check)(const struct client *client, const struct command *command, int argc,
                              const struct slice *argv, int *at);
    /* Counts and logs the denial of argument `at`. */
    void (*denied)(struct client *client, enum user_denial denial, const struct command *command,
                   const struct slice *argv, int at);
    void (*login_failed)(struct client *client, struct slice name);
    /* The certificate names no enabled user; `name` is the last of its names. */
    void (*certificate_denied)(struct client *client, struct slice name);
    /* May the user read every key with this command? */
    bool (*reads_all_keys)(const struct user *user, const struct command *command, int argc, const struct slice *argv);
};
extern const struct user_hooks *user_hooks; /* NULL: all users have all rights */

/* The NOPERM error with which the client's request is refused, which is then counted and logged. Static, valid until
 * the next call. NULL: it is allowed. */
const char *user_refusal(struct client *client, const struct command *command, int argc, const struct slice *argv);
/* The same for a command that was queued when it was allowed. */
const char *user_refusal_at_exec(struct client *client, const struct command *command, int argc,
                                 const struct slice *argv);
/* The argument for which a command was denied last; 0: the command itself. */
int user_denied_argument(void);
bool user_may(const struct client *client, const struct command *command, int argc, const struct slice *argv);
bool user_reads_all_keys(const struct client *client, const struct command *command, int argc,
                         const struct slice *argv);
