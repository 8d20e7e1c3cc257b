/* stream_node.h: a node of a stream: some entries in one listpack (lib/listpack.h), byte for byte what RDB files and
 * DUMP hold.
 *
 * Entries of equal fields are what streams are made for: they do not repeat them.
 *
 *     master entry   COUNT  DELETED  FIELDS  field 1 … field n  0
 *     entries        FLAGS  MS  SEQ  value 1 … value n                                  ELEMENTS     with SAMEFIELDS
 *                    FLAGS  MS  SEQ  FIELDS  field 1  value 1  …  field n  value n      ELEMENTS     without
 *
 *     COUNT, DELETED   entries that live, and that are deleted but still there
 *     FIELDS           how many fields follow; those of the master entry are the ones of the entry that began the node
 *     0                the end of the master entry: where other entries have ELEMENTS
 *     FLAGS            1: deleted, 2: SAMEFIELDS: the fields are those of the master entry, in that order
 *     MS, SEQ          what the id is above the node's master id, each part for itself, so that SEQ may be negative;
 * signed integers of 64 bits, which wrap around ELEMENTS         how many elements of the entry stand before this one,
 * by which it can be walked backwards: 3 + n, or 4 + 2n
 *
 * Texts are elements of their own kind or integers, whichever the listpack chose. Ids of living entries ascend, and are
 * not below the master id, which is that of the entry that began the node. Each entry was, when it was added, above all
 * that lived then, so the last one is not below any living one, even if it is deleted itself.
 *
 * Functions trust the bytes: what comes from outside has to pass stream_node_validate(). */
#ifndef STORE_STREAM_NODE_H
#define STORE_STREAM_NODE_H
#include "lib/listpack.h"
#include "store/stream_id.h"

enum {
    STREAM_NODE_BYTES_MAX =
        1 << 30 /* the most that stream-node-max-bytes means, and the most that texts of an entry may have */
};

struct stream_node {
    const uint8_t *lp;
    struct stream_id master;
    uint64_t count, deleted;
    size_t fields;
    const uint8_t *field; /* the first of the master entry */
    const uint8_t *mark;  /* the end of the master entry */
};
struct stream_entry {
    const uint8_t *flags; /* where it begins */
    const uint8_t *texts; /* its first value, or field; where it has none, ELEMENTS */
    struct stream_id id;
    bool deleted, same_fields;
    size_t fields;
};

void stream_node_open(struct stream_node *node, const uint8_t *lp, struct stream_id master);
/* Entries: the one that begins at `flags`, which is what the others return; they return NULL where there is no more. */
void stream_entry_read(struct stream_entry *entry, const struct stream_node *node, const uint8_t *flags);
const uint8_t *stream_node_first(const struct stream_node *node);
const uint8_t *stream_node_last(const struct stream_node *node);
const uint8_t *stream_entry_before(const struct stream_node *node, const struct stream_entry *entry);
const uint8_t *stream_entry_after(const struct stream_node *node, const struct stream_entry *entry);
/* The same for who has read the texts already, all but `left` elements, and is at `text`. */
const uint8_t *stream_entry_skip(const struct stream_node *node, const uint8_t *text, size_t left);

/* Changing. Texts are field, value, field, value …. Both grow the memory so that many more entries find room, up to
 * `expected` bytes. */
uint8_t *stream_node_new(const struct slice *texts, size_t pairs, size_t expected);
uint8_t *stream_node_append(uint8_t *lp, struct stream_id master, struct stream_id id, const struct slice *texts,
                            size_t pairs, size_t expected);
/* Marks an entry as deleted; *flags is where it is now. COUNT and DELETED are left to stream_node_count_deleted(). */
uint8_t *stream_node_mark(uint8_t *lp, const uint8_t **flags);
uint8_t *stream_node_count_deleted(uint8_t *lp, uint64_t deleted);

/* What a node holds, of bytes from anywhere. False: they are none, or living ids do not ascend from above `after` on;
 * *after is the last living one afterwards. */
bool stream_node_validate(const uint8_t *bytes, size_t size, struct stream_id master, struct stream_id *after,
                          uint64_t *count);
#endif
