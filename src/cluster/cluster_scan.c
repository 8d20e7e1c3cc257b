/* cluster_scan.c: CLUSTERSCAN goes through the keys of a whole cluster.
 *
 * A cursor contains its route: it is FINGERPRINT-{TAG}-POSITION, where TAG hashes to the slot at which the scan
 * continues. The client sends it like a key, and is redirected to the node that serves the slot. The position is that
 * of SCAN in the tables of this node: another node, which has another hash seed and so another fingerprint, begins the
 * slot again. A scan continues from slot to slot on one node; its last cursor there names the first slot after them.
 * The cursor "0" begins a scan: the reply is the first cursor, without keys.
 *
 * The tag of a slot is that of Valkey: the shortest text of digits and letters that hashes to it, and of several the
 * first. */
#include "cluster/commands.h"
#include "cluster/this_node.h"
#include "commands/scan.h"
#include "lib/system/memory.h"
#include <stdio.h>

enum { FINGERPRINT_LEN = 6, FINGERPRINT_BITS = 6, TAG_LEN = 3, CURSOR_MAX = 64 };

static struct slice fingerprint(void) {
    static char text[FINGERPRINT_LEN];
    uint64_t number = hashtable_seed_number();
    for (int i = 0; i < FINGERPRINT_LEN; i++, number >>= FINGERPRINT_BITS)
        text[i] = (char)('0' + (number & ((1 << FINGERPRINT_BITS) - 1)));
    return (struct slice){text, FINGERPRINT_LEN};
}

static const char *slot_tag(unsigned slot) {
    static const char letters[] = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    enum { LETTERS = sizeof(letters) - 1 };
    static char(*tags)[TAG_LEN + 1];
    if (!tags) {
        tags = mem_calloc(HASH_SLOTS, sizeof(*tags));
        for (size_t len = 1, texts = LETTERS; len <= TAG_LEN; len++, texts *= LETTERS) {
            for (size_t i = 0; i < texts; i++) {
                char tag[TAG_LEN];
                for (size_t at = len, rest = i; at-- > 0; rest /= LETTERS) tag[at] = letters[rest % LETTERS];
                char *of_slot = tags[hash_slot((struct slice){tag, len})];
                if (!*of_slot) memcpy(of_slot, tag, len);
            }
        }
    }
    return tags[slot];
}

/* A cursor at the beginning of a slot, or behind the last one. */
static struct slice cursor_at_slot(char *text, unsigned slot) {
    int len =
        slot < HASH_SLOTS ? snprintf(text, CURSOR_MAX, "0-{%s}-0", slot_tag(slot)) : snprintf(text, CURSOR_MAX, "0");
    return (struct slice){text, (size_t)len};
}

static struct slice cursor_within(char *text, uint64_t position) {
    int len = snprintf(text, CURSOR_MAX, "%.*s-{%s}-%llu", FINGERPRINT_LEN, fingerprint().data,
                       slot_tag(position % HASH_SLOTS), (unsigned long long)position);
    return (struct slice){text, (size_t)len};
}

/* Sets the slot and the position in it. The tag is the one that routed the request: hash_slot() finds it. */
static bool cursor_parse(struct slice text, unsigned *slot, uint64_t *position) {
    const char *end = text.data + text.len, *tag = memchr(text.data, '-', text.len);
    const char *close = tag && tag + 1 < end && tag[1] == '{' ? memchr(tag, '}', (size_t)(end - tag)) : NULL;
    if (!close || close + 1 == end || close[1] != '-') return false;
    if (!scan_cursor_parse((struct slice){close + 2, (size_t)(end - close - 2)}, position)) return false;
    *slot = hash_slot(text);
    bool own = slice_equal((struct slice){text.data, (size_t)(tag - text.data)}, fingerprint());
    if (!own || *position % HASH_SLOTS != *slot) *position = *slot;
    return true;
}

/* The next slot with keys that this node serves without a gap from `slot` on; if there is none, the first slot behind
 * them, and *end is set. */
static unsigned next_slot(struct call *call, unsigned slot, bool *end) {
    const struct slot_table *slots = &this_cluster->slots;
    const struct cluster_node *owner = cluster_shard_primary(this_cluster);
    for (; slot < HASH_SLOTS && slots->owner[slot] == owner; slot++)
        if (db_slot_keys(call->db, slot, 1, NULL, NULL)) return slot;
    *end = true;
    return slot;
}

static void scan_from(struct call *call, struct scan *scan, unsigned slot, uint64_t position, bool one_slot) {
    char text[CURSOR_MAX];
    bool end = false;
    scan_begin(call, scan);
    do {
        position = scan_slots(call, scan, (int)slot, position);
        if (position) break;
        if (one_slot)
            slot = HASH_SLOTS, end = true;
        else
            position = slot = next_slot(call, slot + 1, &end);
    } while (!end && !scan_is_full(scan));
    scan_end(call, scan, end ? cursor_at_slot(text, slot) : cursor_within(text, position));
}

void cluster_scan_run(struct call *call) {
    struct slice cursor = call->argv[1];
    bool starts = slice_equal(cursor, SLICE("0"));
    unsigned slot = 0;
    uint64_t position = 0;
    struct scan scan;
    char text[CURSOR_MAX];
    if (cluster_is_disabled(call)) return;
    if (!starts && !cursor_parse(cursor, &slot, &position)) {
        reply_error(call->reply, "ERR Invalid cursor");
        return;
    }
    if (!scan_options_read(call, &scan, true)) return;
    if (!starts && scan.slot >= 0 && scan.slot != (int)slot) {
        reply_error(call->reply, "ERR Cursor slot mismatch with SLOT argument");
        return;
    }
    int wanted = scan.match ? hash_slot_of_pattern(scan.pattern) : -1;
    bool none = wanted >= 0 && (scan.slot >= 0 ? scan.slot : starts ? wanted : (int)slot) != wanted;
    if (none && scan.slot < 0 && (int)slot < wanted) { /* the scan has yet to reach it, perhaps at another node */
        none = false;
        starts = true;
    }
    if (wanted < 0) wanted = scan.slot;
    if (!starts && !none) {
        scan_from(call, &scan, slot, position, wanted >= 0);
        return;
    }
    scan_begin(call, &scan); /* an empty page */
    scan_end(call, &scan, cursor_at_slot(text, none ? HASH_SLOTS : wanted >= 0 ? (unsigned)wanted : 0));
}
