/* tls_options.h: the options of TLS, the contexts made from them, and their section of INFO. The port is an option of
 * listeners.c. A build without TLS also knows the options, and refuses those that need TLS. */
#pragma once
#include "server/config/config.h"

/* Makes the contexts for listeners, for replication and for the cluster, if any of them is on.
 * Returns false after it has logged the reason; contexts in use then stay. Call it at start, and before a port opens.
 */
bool tls_options_apply(void);
extern bool (*tls_listens)(void); /* listeners need TLS; installed by listeners.c. NULL: they do not */
/* The `check` of options that need TLS: refuses values other than the default if it is not built in. */
const char *tls_option_check(const struct config_option *option, struct slice text);
bool tls_for_replication(void); /* replicas and primaries of this server speak TLS: tls-replication */
bool tls_for_cluster(void);     /* the cluster bus and MIGRATE speak TLS: tls-cluster */
