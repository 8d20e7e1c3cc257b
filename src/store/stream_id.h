/* stream_id.h: ids of stream entries: milliseconds and a sequence number, ordered by both.
 *
 * Text form: "MS-SEQ", both unsigned 64-bit numbers. Byte form (keys of radix trees, RDB files): both big-endian, so
 * that byte order is id order. */
#pragma once
#include "lib/text/slice.h"
#include <stdint.h>

enum { STREAM_ID_TEXT = 48, STREAM_ID_BYTES = 16 };
struct stream_id {
    uint64_t ms, seq;
};
#define STREAM_ID_MIN ((struct stream_id){0, 0})
#define STREAM_ID_MAX ((struct stream_id){UINT64_MAX, UINT64_MAX})

static inline int stream_id_compare(struct stream_id a, struct stream_id b) {
    return a.ms != b.ms ? (a.ms > b.ms) - (a.ms < b.ms) : (a.seq > b.seq) - (a.seq < b.seq);
}
static inline bool stream_id_equal(struct stream_id a, struct stream_id b) {
    return a.ms == b.ms && a.seq == b.seq;
}
static inline bool stream_id_is_zero(struct stream_id id) {
    return !id.ms && !id.seq;
}
/* The next or previous id. False: none exists, and *id wraps around. */
bool stream_id_increment(struct stream_id *id);
bool stream_id_decrement(struct stream_id *id);

/* The forms accepted in addition to "MS-SEQ" and "MS", which stands for MS-missing_seq. */
enum stream_id_syntax {
    STREAM_ID_EDGES = 1,   /* "-" and "+": the smallest and the greatest id */
    STREAM_ID_PARTIAL = 2, /* "MS-*": the server chooses the sequence number; *chosen becomes true, otherwise false */
};
/* False: invalid id. Numbers follow strtoull(): leading zeros, blanks and a sign are allowed. `chosen` may be NULL
 * without STREAM_ID_PARTIAL. */
bool stream_id_parse(struct slice text, unsigned syntax, uint64_t missing_seq, struct stream_id *id, bool *chosen);
size_t stream_id_format(char text[static STREAM_ID_TEXT], struct stream_id id); /* returns the length; writes no NUL */

void stream_id_encode(char bytes[static STREAM_ID_BYTES], struct stream_id id);
struct stream_id stream_id_decode(const char bytes[static STREAM_ID_BYTES]);
