/* checksum.h: the CRC-32C of values. It is computed once, when it is first asked for, kept beside the value (blob.h),
 * and dropped when the value changes. That of a large value is computed by a background thread, while the client waits.
 */
#ifndef BLOB_CHECKSUM_H
#define BLOB_CHECKSUM_H
#include "lib/text/blob.h"
#include "server/command/command.h"

/* Whether the checksum is known now: *crc. If not, the client waits, and the call ends without a reply. The command is
 * called again when the checksum is there, and looks the key up again: what it found before may have been replaced, and
 * the client may have been told so. */
bool checksum_find(struct call *call, struct blob *blob, uint32_t *crc);
uint64_t checksums_computed(uint64_t *bytes);
#endif
