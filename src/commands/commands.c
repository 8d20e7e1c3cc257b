/* commands.c: the list of the command families. */
#include "commands/commands.h"
#include "server/feature.h"
#include "store/types.h"

static void data_init(void) {
    store_types_register();
    type_debug_register();
}

const struct feature data_feature = {
    .name = "data",
    .options = OPTIONS(hyperloglog_options, dump_options, type_options),
    .commands =
        COMMANDS(string_commands, string_edit_commands, string_multi_commands, string_increment_commands, lcs_commands,
                 key_commands, scan_commands, expire_commands, object_commands, database_commands, hash_commands,
                 hash_expire_commands, set_commands, set_algebra_commands, bitmap_commands, bitfield_commands,
                 list_commands, list_blocking_commands, hyperloglog_commands, zset_commands, zset_range_commands,
                 zset_algebra_commands, zset_blocking_commands, dump_commands, migrate_commands, geo_commands,
                 geo_search_commands, sort_commands, stream_commands, stream_add_commands, stream_read_commands,
                 stream_group_commands, stream_pending_commands, stream_claim_commands, stream_info_commands),
    .init = data_init,
    .debug = DEBUG_SUBCOMMANDS(type_debug_subcommands),
};
