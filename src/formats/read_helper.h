/* read_helper.h: reads pieces of a file into blobs with two threads, the caller's and a background thread
 * (BACKGROUND_READ).
 *
 * Loading large values spends its time in the kernel: each page of a new value causes a page fault, and its bytes are
 * copied from the page cache. Two threads are twice as fast. The number of pieces that are not read yet is limited: at
 * the limit the caller reads a piece itself.
 *
 * The pieces of a file have gaps between them, which the caller reads. It passes the CRC-64 of each gap, so that the
 * helper can combine the CRC-64s of gaps and pieces.
 *
 * A helper belongs to one thread. */
#pragma once
#include "lib/text/blob.h"
#include <stdint.h>
#include <sys/types.h>

struct read_helper;
/* Creates a helper for a regular file, whose file position is neither used nor changed. NULL: there is no background
 * thread, or only one CPU is available. `checksum`: compute CRC-64s. */
struct read_helper *read_helper_new(int fd, bool checksum);
void read_helper_free(struct read_helper *helper); /* NULL is allowed; waits for pieces that are being read */

/* Reads `len` bytes of the file at `offset` to `to`, an address in the blob. The read may complete as late as in
 * read_helper_finish(); until then the helper holds a reference to the blob. `gap` and `gap_len`: CRC-64 and length of
 * the bytes between the previous piece and this one. */
void read_helper_add(struct read_helper *helper, struct blob *blob, char *to, size_t len, off_t offset, uint64_t gap,
                     uint64_t gap_len);
/* Waits for all pieces. Returns the number of bytes from the start of the first gap to the end of the last piece; *crc
 * is their CRC-64. A negative errno: reading failed at *failed_at; -ENODATA: the file ended there. The missing bytes
 * are set to zero. */
int64_t read_helper_finish(struct read_helper *helper, uint64_t *crc, off_t *failed_at);
