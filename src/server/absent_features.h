/* absent_features.h: commands and options of features that the server does not have, as far as it can answer them
 * truthfully: WAIT, min-replicas-to-write, ACL WHOAMI, MODULE LIST, CLUSTER KEYSLOT and similar ones. */
#ifndef SERVER_ABSENT_FEATURES_H
#define SERVER_ABSENT_FEATURES_H
#include "server/command/command.h"
#include "server/config/config.h"
extern const struct command_spec absent_features_commands[];
extern const struct config_option absent_features_options[];
void absent_features_start(void); /* after the configuration has been read */
bool replicas_required(void);     /* min-replicas-to-write is set, so writes are refused while there are no replicas */
#endif
