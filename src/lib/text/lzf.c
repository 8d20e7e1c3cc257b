/* lzf.c: see lzf.h. The work is liblzf's. */
#include "lib/text/lzf.h"
#include <limits.h>
#include <lzf.h>

enum { LEN_MIN = 4 }; /* the compressor reads the first bytes without looking at the length */

size_t lzf_pack(struct slice from, char *to, size_t capacity) {
    if (from.len < LEN_MIN || from.len > UINT_MAX || capacity == 0) return 0;
    return lzf_compress(from.data, (unsigned)from.len, to, capacity > UINT_MAX ? UINT_MAX : (unsigned)capacity);
}

bool lzf_unpack(struct slice from, char *to, size_t len) {
    if (from.len == 0 || from.len > UINT_MAX || len == 0 || len > UINT_MAX) return false;
    return lzf_decompress(from.data, (unsigned)from.len, to, (unsigned)len) == len;
}
