/* stream_id.c: see stream_id.h. */
#include "store/stream_id.h"
#include "lib/text/number.h"
#include <endian.h>

enum { TEXT_MAX = 127 };

bool stream_id_increment(struct stream_id *id) {
    if (++id->seq == 0) id->ms++;
    return !stream_id_is_zero(*id);
}
bool stream_id_decrement(struct stream_id *id) {
    bool there = !stream_id_is_zero(*id);
    if (id->seq-- == 0) id->ms--;
    return there;
}

bool stream_id_parse(struct slice text, unsigned syntax, uint64_t missing_seq, struct stream_id *id, bool *chosen) {
    char copy[TEXT_MAX + 1];
    if (chosen) *chosen = false;
    if (text.len > TEXT_MAX) return false;
    if (text.len) memcpy(copy, text.data, text.len);
    copy[text.len] = '\0';
    if (syntax & STREAM_ID_EDGES && (strcmp(copy, "-") == 0 || strcmp(copy, "+") == 0)) {
        *id = copy[0] == '-' ? STREAM_ID_MIN : STREAM_ID_MAX;
        return true;
    }
    char *seq = strchr(copy, '-');
    if (seq) *seq++ = '\0';
    id->seq = missing_seq;
    if (!parse_uint64_loosely(copy, &id->ms)) return false;
    if (!seq) return true;
    if (syntax & STREAM_ID_PARTIAL && strcmp(seq, "*") == 0) {
        *chosen = true;
        id->seq = 0;
        return true;
    }
    return parse_uint64_loosely(seq, &id->seq);
}

size_t stream_id_format(char text[static STREAM_ID_TEXT], struct stream_id id) {
    size_t len = format_uint64(text, id.ms);
    text[len++] = '-';
    return len + format_uint64(text + len, id.seq);
}

void stream_id_encode(char bytes[static STREAM_ID_BYTES], struct stream_id id) {
    uint64_t big[2] = {htobe64(id.ms), htobe64(id.seq)};
    memcpy(bytes, big, sizeof big);
}
struct stream_id stream_id_decode(const char bytes[static STREAM_ID_BYTES]) {
    uint64_t big[2];
    memcpy(big, bytes, sizeof big);
    return (struct stream_id){be64toh(big[0]), be64toh(big[1])};
}
