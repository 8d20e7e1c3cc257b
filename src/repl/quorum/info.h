/* info.h: what INFO replication shows of synchronous replication. */
#ifndef REPL_QUORUM_INFO_H
#define REPL_QUORUM_INFO_H
#include "lib/text/output.h"

void quorum_write_info(struct output *out);
#endif
