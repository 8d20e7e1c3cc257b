/* checksum.h: the CRC-32C of values. It is computed once, when it is first asked for, kept beside the value (blob.h),
 * and dropped when the value changes. That of a large value is computed by a background thread, while the client waits.
 * Main thread. */
#pragma once
#include "lib/text/blob.h"
#include "server/command/command.h"

/* Whether the checksum is known now: *crc. If not, the client waits, and the call ends without a reply. The command is
 * called again when the checksum is there, and looks the key up again: what it found before may have been replaced, and
 * the client may have been told so. */
bool checksum_find(struct call *call, struct blob *blob, uint32_t *crc);
/* The same for a command whose transfer of the value need not wait for the checksum: only its reply does, which is
 * about this blob whatever the key has meanwhile.
 * checksum_begin(): begins to compute it, and the client waits. False: it is known, or is computed at once.
 * checksum_state(): whether the command waits, or has waited, and is called again: then *length and *crc. */
enum checksum_state { CHECKSUM_NONE, CHECKSUM_WAITS, CHECKSUM_THERE };
bool checksum_begin(struct call *call, struct blob *blob);
enum checksum_state checksum_state(struct call *call, uint64_t *length, uint32_t *crc);
uint64_t checksums_computed(uint64_t *bytes);
