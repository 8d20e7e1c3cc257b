/* absent_features.h: commands of features that the server does not have, as far as it can answer them truthfully:
 * MODULE LIST. */
#ifndef SERVER_ABSENT_FEATURES_H
#define SERVER_ABSENT_FEATURES_H
#include "server/command/command.h"
void modules_reply(struct reply *reply); /* the array of modules in the replies of MODULE LIST and HELLO */
#endif
