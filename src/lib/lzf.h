/* lzf.h: the fast, light compression of RDB files, DUMP and the inner nodes of long lists, in the format of liblzf.
 *
 * What is compressed carries no length and no check: whoever keeps it keeps both lengths. */
#ifndef LIB_LZF_H
#define LIB_LZF_H
#include "lib/slice.h"
/* Compresses into `to`; 0: it does not fit into `room` bytes, so it is not worth it (or it is longer than 4 GiB). */
size_t lzf_pack(struct slice from, char *to, size_t room);
/* Unpacks exactly `len` bytes into `to`. False: `from` is damaged, or holds less or more. Reads and writes nothing
 * beyond. */
bool lzf_unpack(struct slice from, char *to, size_t len);
#endif
