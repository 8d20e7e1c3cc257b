/* chunk.h: SYNCSLOTS CHUNK job bytes: the keys of a part of a snapshot. See chunk.c. */
#pragma once
#include "cluster/migration/protocol/migration_machine.h"
#include "server/command/command.h"

/* From the source (`import`), the primary or a file. */
void chunk_run(struct call *call, struct slot_import *import);
/* The same with bytes that were fetched. False: they were refused, and the job is to fail. */
bool chunk_load_pulled(struct slot_import *import, struct slice bytes);
