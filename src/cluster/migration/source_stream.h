/* source_stream.h: the changes of the slots of an export, for its target. See source_stream.c. */
#pragma once
#include "cluster/migration/protocol/migration_machine.h"

struct client_report;

void source_stream_start(void); /* once */
void source_stream_begin(struct slot_export *export);
void source_stream_end(struct slot_export *export);
void source_stream_slot(struct slot_export *export, unsigned slot); /* its changes go into the stream from now on */
size_t source_output(const struct slot_export *export);             /* bytes that wait for the target */
void source_report(const struct slot_export *export, struct client_report *report);
/* Effects of the machine. */
void source_send_changes(void *context, struct slot_export *export);
size_t source_flush(void *context, struct slot_export *export);
