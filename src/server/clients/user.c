/* user.c: see user.h. */
#include "server/clients/user.h"

struct user user_default = {.name = "default", .flags = USER_ENABLED | USER_ALL_RIGHTS};

struct user *user_find(struct slice name) {
    return slice_equal(name, slice_of(user_default.name)) ? &user_default : NULL;
}

bool user_accepts(const struct user *user, struct slice password) {
    if (!(user->flags & USER_ENABLED)) return false;
    if (!user_needs_password(user)) return true;
    size_t len = strlen(user->password);
    unsigned difference = len != password.len;
    for (size_t i = 0; i < password.len; i++)
        difference |= (unsigned char)password.data[i] ^ (unsigned char)user->password[i % len];
    return difference == 0;
}
