/* users.h: ValkeyModuleUser: users that modules create, or those of the server that they name. */
#ifndef MODULE_USERS_H
#define MODULE_USERS_H
#include "module/context.h"
#include "server/clients/user.h"

struct ValkeyModuleUser {
    struct user *user;
    bool is_own; /* the module has created the user: ACL LIST does not show it */
};
/* The user that calls with the modifier 'C' run as; NULL: none is attached. */
struct user *context_user(struct ValkeyModuleCtx *ctx);
void module_users_start(void);
#endif
