/* info.h: what INFO replication shows of synchronous replication. */
#pragma once
#include "lib/text/output.h"

void quorum_write_info(struct output *out);
