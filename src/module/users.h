/* users.h: ValkeyModuleUser: users that modules create, or those of the server that they name. */
#pragma once
#include "module/context.h"
#include "server/clients/user.h"

struct ValkeyModuleUser {
    struct user *user;
    struct list_link link; /* not linked: the user is the module's own, and ACL LIST does not show it */
};
/* The user of the context's client; in a thread's context that answers no client the default user. NULL: none, as in a
 * command that a call without 'C' runs. */
struct user *context_client_user(const struct ValkeyModuleCtx *ctx);
/* The user that calls with the modifier 'C' run as. NULL: none is attached. */
struct user *context_user(struct ValkeyModuleCtx *ctx);
void module_users_start(void);
