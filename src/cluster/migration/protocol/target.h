/* target.h: the target's end of a migration, for migration_machine.c. */
#pragma once
#include "cluster/migration/protocol/jobs.h"

void import_end(struct migration_machine *m, struct slot_import *import, enum slot_finish how, const char *text);
void import_step(struct migration_machine *m, struct slot_import *import);
void import_tick(struct migration_machine *m, struct slot_import *import);
void import_track(struct migration_machine *m, const struct slot_message *establish);
bool import_track_take(struct migration_machine *m, struct slice name);
void import_lead(struct migration_machine *m, struct slot_import *import);
