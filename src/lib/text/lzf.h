/* lzf.h: LZF compression, as in RDB files, DUMP payloads and the inner nodes of quicklists, in the format of liblzf.
 *
 * The compressed data has no length and no checksum: the caller stores both lengths. */
#pragma once
#include "lib/text/slice.h"
/* Compresses into `to`. Returns the compressed length; 0: it exceeds `capacity` bytes, or the input is shorter than 4
 * bytes or longer than 4 GiB. */
size_t lzf_pack(struct slice from, char *to, size_t capacity);
/* Decompresses exactly `len` bytes into `to`. False: `from` is corrupt or decompresses to another length. Never reads
 * or writes out of bounds. */
bool lzf_unpack(struct slice from, char *to, size_t len);
