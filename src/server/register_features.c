/* register_features.c: registers the tables of all features. */
#include "server/register_features.h"
#include "server/command/command.h"
#include "server/config/config.h"
#include "server/debug/debug.h"
#include "server/server.h"
#include "server/stats/info.h"

#define each_table(features, member, register)                                                                         \
    for (const struct feature *const *at = (features); *at; at++)                                                      \
        if ((*at)->member)                                                                                             \
            for (size_t i = 0; (*at)->member[i]; i++) register((*at)->member[i]);

static void register_settings(const struct feature *const *features) {
    each_table(features, options, config_register);
    each_table(features, directives, config_register_directives);
}
static void register_rest(const struct feature *const *features) {
    each_table(features, commands, commands_register);
    for (const struct feature *const *at = features; *at; at++)
        if ((*at)->subcommands.specs)
            commands_register_subcommands((*at)->subcommands.container, (*at)->subcommands.specs);
    for (const struct feature *const *at = features; *at; at++)
        if ((*at)->init) (*at)->init();
    each_table(features, debug, debug_register);
    each_table(features, sections, info_register);
    each_table(features, parts, server_add_part);
}

void features_register(const struct feature *const *features) {
    register_settings(features);
    register_rest(features);
}
void features_register_mode(const struct feature_mode *mode) {
    commands_offer(mode->offers_command);
    info_offer(mode->offers_section);
    register_settings(mode->features);
    register_settings(mode->settings_only);
    register_rest(mode->features);
}
