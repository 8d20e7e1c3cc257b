/* user.h: the user that a client acts as. A client points at one; what the user may do is asked of the user alone.
 *
 * There is the default user: a connection that need not authenticate acts as it from the start. It has all rights, so
 * nothing is asked of it on the path of a request. Users live as long as the process; clients keep plain pointers.
 * Main thread only. */
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
    char *password; /* of the default user it is the option requirepass. NULL or empty: none is needed */
};
extern struct user user_default;

struct user *user_find(struct slice name); /* NULL: there is none of that name */
/* Must a client give a password before it acts as the user? */
static inline bool user_needs_password(const struct user *user) {
    return user->password && user->password[0];
}
/* May a client that gives this password act as the user? Takes as long for a wrong password as for a nearly right one.
 */
bool user_accepts(const struct user *user, struct slice password);
#endif
