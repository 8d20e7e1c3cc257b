/* commands.c: the list of the command families. */
#include "commands/commands.h"
#include "store/types.h"

void data_commands_register(void) {
    static const struct command_spec *const families[] = {
        string_commands,
        string_edit_commands,
        string_multi_commands,
        string_increment_commands,
        lcs_commands,
        key_commands,
        scan_commands,
        expire_commands,
        object_commands,
        database_commands,
        hash_commands,
        hash_expire_commands,
        set_commands,
        set_algebra_commands,
        bitmap_commands,
        bitfield_commands,
        list_commands,
        list_blocking_commands,
        hyperloglog_commands,
        zset_commands,
        zset_range_commands,
        zset_algebra_commands,
        zset_blocking_commands,
        dump_commands,
        migrate_commands,
        geo_commands,
        geo_search_commands,
        sort_commands,
        stream_commands,
        stream_add_commands,
        stream_read_commands,
        stream_group_commands,
        stream_pending_commands,
        stream_claim_commands,
        stream_info_commands,
    };
    store_types_register();
    type_debug_register();
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) commands_register(families[i]);
}
