/* commands.h: the data commands. Each family has a file with a table of specs, which data_feature lists. */
#pragma once
#include "server/command/command.h"
#include "server/config/config.h"
#include "server/debug/debug.h"
#include "server/feature.h"

extern const struct command_spec string_commands[], string_edit_commands[], string_multi_commands[],
    string_increment_commands[], lcs_commands[];
extern const struct command_spec key_commands[], scan_commands[], expire_commands[], object_commands[],
    database_commands[];
extern const struct command_spec hash_commands[], hash_expire_commands[], set_commands[], set_algebra_commands[],
    list_commands[], list_blocking_commands[];
extern const struct command_spec bitmap_commands[], bitfield_commands[], hyperloglog_commands[];
extern const struct command_spec zset_commands[], zset_range_commands[], zset_algebra_commands[],
    zset_blocking_commands[];
extern const struct command_spec stream_commands[], stream_add_commands[], stream_read_commands[],
    stream_group_commands[], stream_pending_commands[], stream_claim_commands[], stream_info_commands[];
extern const struct command_spec migrate_commands[], dump_commands[], geo_commands[], geo_search_commands[],
    sort_commands[];
extern const struct config_option hyperloglog_options[], dump_options[];
extern const struct config_option type_options[];              /* encoding limits of the types */
extern const struct debug_subcommand type_debug_subcommands[]; /* DEBUG subcommands that show the types */
void type_debug_register(void);                                /* what DEBUG OBJECT and DEBUG DIGEST show of them */
extern const struct feature data_feature;
