/* rdb_fragment.c: writes fragments; see rdb_fragment.h. rdb_load.c reads them.
 *
 * The bytes are built in a block of fixed size. A value that does not fit is noticed when the block is full, and its
 * other bytes are discarded, so that a large value needs no memory. */
#include "formats/rdb_fragment.h"
#include "formats/rdb.h"
#include "formats/rdb_opcodes.h"
#include "lib/hash/crc32c.h"
#include "store/hash.h"
#include "store/list_type.h"
#include "store/set.h"
#include "store/stream.h"
#include "store/zset.h"
#include <endian.h>

enum { TRAILER = 5 /* bytes of the end and the checksum */ };

static void overflow(struct output *out, size_t len) {
    struct rdb_fragment *fragment = (struct rdb_fragment *)out;
    fragment->overflow = true;
    output_discard(out);
}

static void go_to(struct rdb_fragment *fragment, size_t at) {
    fragment->out.pos = fragment->bytes + at;
    fragment->out.end = fragment->bytes + fragment->size - TRAILER;
    fragment->overflow = false;
}

/* Not compressed, since its reader would have to undo it. */
static void fragment_string(struct output *out, struct slice text, struct blob *blob) {
    rdb_write_length(out, text.len);
    output_write(out, text);
}

static void rdb_fragment_begin(struct rdb_fragment *fragment) {
    fragment->db = -1;
    go_to(fragment, 0);
}

void rdb_fragment_init(struct rdb_fragment *fragment, char *memory, size_t size) {
    static const struct output_ops ops = {.make_space = overflow, .string = fragment_string};
    *fragment = (struct rdb_fragment){.out.ops = &ops, .bytes = memory, .size = size};
    rdb_fragment_begin(fragment);
}

bool rdb_fragment_takes(const struct entry *entry) {
    struct set set;
    struct zset zset;
    switch (entry_type(entry)) {
    case TYPE_STRING: return entry_string_len(entry) <= RDB_FRAGMENT_STRING;
    case TYPE_LIST: return list_type_len(entry) <= RDB_FRAGMENT_ITEMS;
    case TYPE_SET: set = set_of(entry); return set_len(&set) <= RDB_FRAGMENT_ITEMS;
    case TYPE_ZSET: zset = zset_of(entry); return zset_len(&zset) <= RDB_FRAGMENT_ITEMS;
    case TYPE_HASH: return hash_len(entry) <= RDB_FRAGMENT_ITEMS;
    case TYPE_STREAM: return stream_of(entry)->length <= RDB_FRAGMENT_ITEMS;
    default: return false;
    }
}

bool rdb_fragment_add(struct rdb_fragment *fragment, int db, const struct entry *entry, unsigned slot_number,
                      const struct db_slot_size *slot) {
    if (!rdb_fragment_takes(entry)) return false;
    struct output *out = &fragment->out;
    size_t before = rdb_fragment_len(fragment);
    if (db != fragment->db) {
        output_write_byte(out, RDB_OPCODE_SELECTDB);
        rdb_write_length(out, (uint64_t)db);
    }
    if (slot) {
        output_write_byte(out, RDB_OPCODE_SLOT_INFO);
        rdb_write_length(out, slot_number);
        rdb_write_length(out, slot->keys);
        rdb_write_length(out, slot->expires);
    }
    rdb_write_key(out, entry, db, RDB_ACCESS_NONE, RDB_VERSION);
    if (fragment->overflow) {
        go_to(fragment, before);
        return false;
    }
    fragment->db = db;
    return true;
}

size_t rdb_fragment_len(const struct rdb_fragment *fragment) {
    return (size_t)(fragment->out.pos - fragment->bytes);
}

struct slice rdb_fragment_end(struct rdb_fragment *fragment) {
    fragment->out.end += TRAILER;
    output_write_byte(&fragment->out, RDB_OPCODE_EOF);
    size_t len = rdb_fragment_len(fragment);
    uint32_t sum = htole32(crc32c(0, fragment->bytes, len));
    memcpy(fragment->bytes + len, &sum, sizeof sum);
    len += sizeof sum;
    rdb_fragment_begin(fragment);
    return slice_make(fragment->bytes, len);
}
