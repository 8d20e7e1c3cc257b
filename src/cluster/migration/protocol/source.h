/* source.h: the source's end of a migration, for migration_machine.c. */
#pragma once
#include "cluster/migration/protocol/jobs.h"

/* `decided`: it is known which shard has the slots. */
void export_end(struct migration_machine *m, struct slot_export *export, enum slot_finish how, const char *text,
                bool decided);
void export_step(struct migration_machine *m, struct slot_export *export);
void export_tick(struct migration_machine *m, struct slot_export *export);
void export_track(struct migration_machine *m, const struct slot_message *grant);
void export_lead(struct migration_machine *m, struct slot_export *export);
