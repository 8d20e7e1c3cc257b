/* absent_features.h: commands of features that the server does not have, as far as it can answer them
 * truthfully: MODULE LIST, CLUSTER KEYSLOT and similar ones. */
#ifndef SERVER_ABSENT_FEATURES_H
#define SERVER_ABSENT_FEATURES_H
#include "server/command/command.h"
extern const struct command_spec absent_features_commands[];
#endif
