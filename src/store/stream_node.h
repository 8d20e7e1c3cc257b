/* stream_node.h: a node of a stream: entries in one listpack (lib/structures/listpack.h), byte for byte as in RDB files
 * and DUMP payloads.
 *
 * Entries of a stream usually have the same fields: these entries share the field names of the master entry.
 *
 *     master entry   COUNT  DELETED  FIELDS  field 1 … field n  0
 *     entries        FLAGS  MS  SEQ  value 1 … value n                                  ELEMENTS     with SAMEFIELDS
 *                    FLAGS  MS  SEQ  FIELDS  field 1  value 1  …  field n  value n      ELEMENTS     without
 *
 *     COUNT, DELETED   live entries, and entries marked as deleted
 *     FIELDS           number of fields; the master entry has the fields of the first entry of the node
 *     0                the end of the master entry, at the position of ELEMENTS in other entries
 *     FLAGS            1: deleted, 2: SAMEFIELDS: the fields of the master entry, in that order
 *     MS, SEQ          difference of the id to the node's master id, separately for both parts, so that SEQ may be
 *                      negative; signed 64-bit integers that wrap around
 *     ELEMENTS         number of elements of the entry before this one, for backward iteration: 3 + n, or 4 + 2n
 *
 * The listpack stores texts as strings or integers as it chooses. Ids of live entries ascend and are not below the
 * master id, which is the id of the first entry of the node. Each entry was above all live entries when it was added,
 * so the last entry, live or deleted, is not below any live entry.
 *
 * Functions trust the bytes: external data must pass stream_node_validate() first. */
#pragma once
#include "lib/structures/listpack.h"
#include "store/stream_id.h"

enum {
    STREAM_NODE_BYTES_MAX = 1 << 30 /* limit of stream-node-max-bytes, and of the texts of one entry */
};

struct stream_node {
    const uint8_t *lp;
    struct stream_id master;
    uint64_t count, deleted;
    size_t fields;
    const uint8_t *field; /* first field of the master entry */
    const uint8_t *mark;  /* end of the master entry */
};
struct stream_entry {
    const uint8_t *flags; /* start of the entry */
    const uint8_t *texts; /* its first value or field; ELEMENTS if it has none */
    struct stream_id id;
    bool deleted, same_fields;
    size_t fields;
};

void stream_node_open(struct stream_node *node, const uint8_t *lp, struct stream_id master);
/* Entries. stream_entry_read() reads the entry at `flags`; the other functions return that position, or NULL at the
 * end. */
void stream_entry_read(struct stream_entry *entry, const struct stream_node *node, const uint8_t *flags);
const uint8_t *stream_node_first(const struct stream_node *node);
const uint8_t *stream_node_last(const struct stream_node *node);
const uint8_t *stream_entry_before(const struct stream_node *node, const struct stream_entry *entry);
const uint8_t *stream_entry_after(const struct stream_node *node, const struct stream_entry *entry);
/* The same after the caller has read the texts up to `text`, with `left` elements remaining. */
const uint8_t *stream_entry_skip(const struct stream_node *node, const uint8_t *text, size_t left);

/* Changes. Texts are field, value, field, value …. Both functions allocate spare memory for later entries, up to
 * `expected` bytes. */
uint8_t *stream_node_new(const struct slice *texts, size_t pairs, size_t expected);
uint8_t *stream_node_append(uint8_t *lp, struct stream_id master, struct stream_id id, const struct slice *texts,
                            size_t pairs, size_t expected);
/* Marks an entry as deleted and sets *flags to its new position. The caller updates COUNT and DELETED with
 * stream_node_count_deleted(). */
uint8_t *stream_node_mark(uint8_t *lp, const uint8_t **flags);
uint8_t *stream_node_count_deleted(uint8_t *lp, uint64_t deleted);

/* Validates untrusted bytes and returns the counts of the node. False: invalid, or the live ids do not ascend above
 * `after`. Sets *after to the last live id. */
bool stream_node_validate(const uint8_t *bytes, size_t size, struct stream_id master, struct stream_id *after,
                          uint64_t *count);
