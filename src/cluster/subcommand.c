/* subcommand.c: see subcommand.h. */
#include "cluster/subcommand.h"
#include "cluster/this_node.h"
#include "lib/text/number.h"

bool cluster_is_disabled(struct call *call) {
    if (this_cluster) return false;
    reply_error(call->reply, "ERR This instance has cluster support disabled");
    return true;
}

void cluster_reply_usage(struct call *call) {
    struct slice name = call->argv[1];
    reply_error_format(call->reply, "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try CLUSTER HELP.",
                       (int)name.len, name.data);
}

bool cluster_slot_read(struct call *call, int index, unsigned *slot) {
    int64_t value;
    if (!parse_int64(call->argv[index], &value) || value < 0 || value >= HASH_SLOTS)
        return reply_error(call->reply, "ERR Invalid or out of range slot");
    *slot = (unsigned)value;
    return true;
}
