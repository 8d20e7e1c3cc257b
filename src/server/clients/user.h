/* user.h: the user that a client acts as. A client points to a user, which alone holds the permissions.
 *
 * The default user always exists: a connection that need not authenticate acts as it from the start. It has all rights,
 * so the path of a request checks nothing. Users live as long as the process; clients keep plain pointers. Main thread
 * only. */
#ifndef SERVER_USER_H
#define SERVER_USER_H
#include "lib/slice.h"
#include <stdbool.h>
#include <stdint.h>

enum user_flag {
    USER_ENABLED = 1 << 0,   /* clients may authenticate as the user */
    USER_ALL_RIGHTS = 1 << 1 /* every command, key and channel */
};
struct user {
    const char *name;
    uint32_t flags;
    char *password; /* for the default user: the option requirepass. NULL or empty: no password */
};
extern struct user user_default;

struct user *user_find(struct slice name); /* NULL: no user has this name */
/* Must a client give a password to act as the user? */
static inline bool user_needs_password(const struct user *user) {
    return user->password && user->password[0];
}
/* Does this password authenticate the user? Compares in constant time. */
bool user_accepts(const struct user *user, struct slice password);
#endif
