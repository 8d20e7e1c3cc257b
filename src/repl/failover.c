/* failover.c: a primary hands its role to one of its replicas. */
#include "repl/primary.h"
#include "server/role.h"

bool repl_failover_running(void) {
    return false;
}

const char *repl_failover_state(void) {
    return "no-failover";
}

bool repl_failover_asked(struct call *call) {
    if (role_is_replica()) return true;
    reply_error(call->reply, "ERR PSYNC FAILOVER can't be sent to a master.");
    return false;
}
