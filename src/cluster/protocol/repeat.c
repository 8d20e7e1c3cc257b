/* repeat.c: brief headers of PING and PONG between our nodes.
 *
 * A header has 2256 bytes, most of them a bitmap of slots, and an idle cluster repeats it for ever. Between two of our
 * nodes a PING or PONG refers to the last whole header of its link instead, as long as nothing changes but what a brief
 * header has. The receiver puts the header together again, so the rest of the machine does not know the difference.
 *
 * A link begins with whole headers in both directions. They show whether the peer is our server, so that Valkey in its
 * place gets no brief header. A brief header has a digest of the whole one that it refers to. If that was lost (the
 * host may drop messages) the digest differs, the receiver closes the link, and the next link begins with whole
 * headers. */
#include "cluster/protocol/machine.h"
#include "lib/system/memory.h"

/* The slots in the headers of a shard's nodes are those of their primary, so the links share one copy of the last ones.
 * A link whose headers have other slots gets a copy of its own. */
struct repeated_slots {
    struct node_id primary;
    size_t references;
    uint64_t digest;
    struct slot_bitmap slots;
};
struct repeated_header {
    uint64_t digest;
    const struct cluster_node *claimant; /* the node that had these slots when the table had `version`; NULL: none */
    uint64_t version;
    bool forgotten; /* by its link, while it is held */
    struct bus_header header;
    struct repeated_slots *slots;
};

static struct slice slots_key(const void *entry) {
    return slice_make(((const struct repeated_slots *)entry)->primary.text, NODE_ID_LEN);
}
static const struct hashtable_type slots_type = {.key = slots_key};

static struct repeated_slots *slots_take(struct cluster *cluster, const struct bus_header *header) {
    const struct node_id *primary = node_id_is_zero(&header->primary) ? &header->sender : &header->primary;
    const struct slot_bitmap *slots = header->slots ? header->slots : &slot_bitmap_empty;
    const struct slice key = slice_make(primary->text, NODE_ID_LEN);
    if (!cluster->repeats.slots) cluster->repeats.slots = hashtable_new(&slots_type);
    struct repeated_slots *shared = hashtable_find(cluster->repeats.slots, key);
    if (!shared || memcmp(&shared->slots, slots, sizeof *slots) != 0) {
        hashtable_pop(cluster->repeats.slots, key);
        shared = mem_alloc(sizeof *shared);
        *shared = (struct repeated_slots){.primary = *primary, .digest = bus_slots_digest(slots), .slots = *slots};
        hashtable_add(cluster->repeats.slots, shared);
    }
    shared->references++;
    return shared;
}

static void slots_drop(struct cluster *cluster, struct repeated_slots *slots) {
    if (--slots->references > 0) return;
    if (hashtable_find(cluster->repeats.slots, slots_key(slots)) == slots)
        hashtable_pop(cluster->repeats.slots, slots_key(slots));
    mem_free(slots);
}

static void header_free(struct cluster *cluster, struct repeated_header *kept) {
    slots_drop(cluster, kept->slots);
    mem_free(kept);
}

void repeat_forget(struct cluster *cluster, struct cluster_link *link) {
    struct repeated_header *kept = link->received;
    if (!kept) return;
    link->received = NULL;
    if (kept == cluster->repeats.received)
        kept->forgotten = true;
    else
        header_free(cluster, kept);
}

/* Of a header that this node sends: its slots are those of its shard's primary. */
static uint64_t sent_digest(struct cluster *cluster, const struct bus_header *header) {
    struct sent_slots *sent = &cluster->repeats.sent;
    uint64_t version = cluster->slots.version;
    if (!sent->digest || sent->slots != header->slots || sent->version != version)
        *sent = (struct sent_slots){
            .digest = bus_slots_digest(header->slots ? header->slots : &slot_bitmap_empty),
            .slots = header->slots,
            .version = version,
        };
    return bus_header_digest(header, sent->digest);
}

bool repeat_is_possible(struct cluster *cluster, const struct cluster_link *link, const struct bus_message *message) {
    return link->brief && message->header.type != BUS_MEET &&
           link->sent_header == sent_digest(cluster, &message->header) &&
           link->sent_extensions == bus_extensions_digest(&message->extensions);
}

void repeat_sent(struct cluster *cluster, struct cluster_link *link, const struct bus_message *message) {
    link->sent_header = sent_digest(cluster, &message->header);
    link->sent_extensions = message->has_extensions ? bus_extensions_digest(&message->extensions) : 0;
}

void repeat_received(struct cluster *cluster, struct cluster_link *link, const struct bus_header *header) {
    struct own_fields own;
    own_fields_read(header->reserved, &own);
    repeat_forget(cluster, link);
    link->brief = own.features & OWN_FEATURE_BRIEF;
    if (!link->brief) return;
    struct repeated_header *kept = link->received = mem_alloc(sizeof *kept);
    *kept = (struct repeated_header){.header = *header, .slots = slots_take(cluster, header)};
    kept->digest = bus_header_digest(header, kept->slots->digest);
    kept->header.slots = &kept->slots->slots;
}

bool repeat_expand(const struct cluster_link *link, struct bus_header *header) {
    const struct repeated_header *kept = link->received;
    if (!kept || kept->digest != header->digest) return false;
    struct bus_header whole = kept->header;
    whole.type = header->type;
    whole.brief = true;
    whole.digest = header->digest;
    whole.current_epoch = header->current_epoch;
    whole.offset = header->offset;
    whole.flags = header->flags;
    whole.cluster_fails = header->cluster_fails;
    whole.message_flags = header->message_flags;
    *header = whole;
    return true;
}

void repeat_hold(struct cluster *cluster, const struct cluster_link *link) {
    cluster->repeats.received = link->received;
}
void repeat_release(struct cluster *cluster) {
    struct repeated_header *kept = cluster->repeats.received;
    cluster->repeats.received = NULL;
    if (kept && kept->forgotten) header_free(cluster, kept);
}

bool repeat_slots_are_of(struct cluster *cluster, const struct slot_bitmap *slots,
                         const struct cluster_node *claimant) {
    struct repeated_header *kept = cluster->repeats.received;
    uint64_t version = cluster->slots.version;
    if (kept && kept->claimant == claimant && kept->version == version) return true;
    if (memcmp(slots, node_slots(claimant), sizeof *slots) != 0) return false;
    if (kept) {
        kept->claimant = claimant;
        kept->version = version;
    }
    return true;
}
