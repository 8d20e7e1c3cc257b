/* lzf.c: see lzf.h. */
#include "lib/lzf.h"
#include <limits.h>
#include <lzf.h>

size_t lzf_pack(struct slice from, char *to, size_t room) {
    if (from.len == 0 || room == 0 || from.len > UINT_MAX) return 0;
    return lzf_compress(from.data, (unsigned)from.len, to, room > UINT_MAX ? UINT_MAX : (unsigned)room);
}

bool lzf_unpack(struct slice from, char *to, size_t len) {
    if (from.len == 0 || len == 0 || from.len > UINT_MAX || len > UINT_MAX) return false;
    return lzf_decompress(from.data, (unsigned)from.len, to, (unsigned)len) == len;
}
