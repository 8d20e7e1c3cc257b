/* copied_owners.c: see copied_owners.h. The text is "<id> <epoch> <first>-<last> <first>-<last>…," for each primary. */
#include "cluster/copied_owners.h"
#include "cluster/this_node.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "repl/quorum/quorum.h"
#include <string.h>

static const char aux_name[] = "cluster-slot-owners";

struct owner_claim {
    uint64_t epoch;
    struct slot_bitmap slots;
};
/* The slots of primaries that this node does not know, and their epochs (HASH_SLOTS; NULL: there are none). */
static struct slot_bitmap unknown;
static uint64_t *unknown_epochs;
static struct slot_bitmap named; /* the slots that the copy has named */

/* --- The primary --- */

static void write_number(struct output *out, const char *before, uint64_t number) {
    char text[NUMBER_TEXT_MAX];
    output_write(out, slice_of(before));
    output_write(out, (struct slice){text, format_uint64(text, number)});
}

size_t copied_owners_write_aux(struct rdb_aux *field) {
    static struct memory_output text;
    if (!quorum_on) return 0;
    if (!text.out.ops) memory_output_init(&text);
    memory_output_clear(&text);
    for (size_t i = 0; i < this_cluster->nodes.count; i++) {
        const struct cluster_node *node = this_cluster->nodes.list[i];
        unsigned slot = 0, first, last;
        if (!node->slot_count) continue;
        output_write(&text.out, slice_make(node->id.text, NODE_ID_LEN));
        write_number(&text.out, " ", node->config_epoch);
        while (node_slot_range(node, &slot, &first, &last)) {
            write_number(&text.out, " ", first);
            write_number(&text.out, "-", last);
        }
        output_write(&text.out, SLICE(","));
    }
    *field = (struct rdb_aux){slice_of(aux_name), memory_output_slice(&text)};
    return 1;
}

/* --- The replica --- */

/* Removes a number and the separator behind it from *text; false: there is none. */
static bool take_number(struct slice *text, char separator, int64_t most, int64_t *number) {
    const char *end = memchr(text->data, separator, text->len);
    size_t len = end ? (size_t)(end - text->data) : text->len;
    if (!parse_int64((struct slice){text->data, len}, number) || *number < 0 || *number > most) return false;
    *text = (struct slice){text->data + len + (end != NULL), text->len - len - (end != NULL)};
    return true;
}

/* A slot has one owner. Otherwise a short text could name all slots again and again. */
static bool name_slots(int64_t first, int64_t last, struct owner_claim *claim) {
    for (int64_t slot = first; slot <= last; slot++) {
        if (slot_bitmap_has(&named, (unsigned)slot)) return false;
        slot_bitmap_set(&named, (unsigned)slot);
        slot_bitmap_set(&claim->slots, (unsigned)slot);
    }
    return true;
}

static bool read_claim(struct slice text, struct owner_claim *claim) {
    int64_t number, first, last;
    memset(&claim->slots, 0, sizeof claim->slots);
    if (!take_number(&text, ' ', INT64_MAX, &number)) return false;
    claim->epoch = (uint64_t)number;
    while (text.len) {
        if (!take_number(&text, '-', HASH_SLOTS - 1, &first) || !take_number(&text, ' ', HASH_SLOTS - 1, &last) ||
            !name_slots(first, last, claim))
            return false;
    }
    return true;
}

void copied_owner_heard(const struct node_id *id, uint64_t epoch, const struct slot_bitmap *slots) {
    struct cluster_node *node = nodes_find(&this_cluster->nodes, id);
    if (node == this_cluster->myself) return;
    if (node && !node_in_handshake(node) && (node_is_primary(node) || node->config_epoch < epoch)) {
        cluster_hear_claim(this_cluster, node, slots, epoch, cluster_now());
        return;
    }
    if (!unknown_epochs) unknown_epochs = mem_alloc(HASH_SLOTS * sizeof(*unknown_epochs));
    for (unsigned slot = 0; (slot = slot_bitmap_next(slots, slot, true)) < HASH_SLOTS; slot++) {
        slot_bitmap_set(&unknown, slot);
        unknown_epochs[slot] = epoch;
    }
}

void copied_owners_begin(void) {
    mem_free(unknown_epochs);
    unknown_epochs = NULL;
    memset(&unknown, 0, sizeof unknown);
    memset(&named, 0, sizeof named);
}

void copied_owners_read_aux(struct slice name, struct slice value) {
    const char *at = value.data, *end = at + value.len, *comma;
    if (!slice_is(name, aux_name) || !node_is_replica(this_cluster->myself)) return;
    for (; at < end && (comma = memchr(at, ',', (size_t)(end - at))); at = comma + 1) {
        struct owner_claim claim;
        struct node_id id = {{0}};
        struct slice rest = SLICE("");
        if (comma - at > NODE_ID_LEN + 1) {
            memcpy(id.text, at, NODE_ID_LEN);
            rest = slice_make(at + NODE_ID_LEN + 1, (size_t)(comma - at) - NODE_ID_LEN - 1);
        }
        if (!node_id_valid(&id) || !read_claim(rest, &claim)) {
            log_warning(
                "The list of slots and owners in a copy is damaged, or names a slot twice: the rest of it is ignored");
            return;
        }
        copied_owner_heard(&id, claim.epoch, &claim.slots);
    }
}

bool copied_owner_is_unknown(unsigned slot) {
    const struct cluster_node *owner = this_cluster->slots.owner[slot];
    return slot_bitmap_has(&unknown, slot) && (!owner || owner->config_epoch < unknown_epochs[slot]);
}
