/* stream.h: values of type stream: entries of fields and values, appended with ascending ids; see stream_id.h for ids
 * and stream_group.h for consumer groups.
 *
 * The only encoding is ENCODING_STREAM. Entries are packed into nodes (stream_node.h), listpacks in a radix tree whose
 * keys are the first ids of the nodes. A node without live entries is removed. A new entry goes into the last node,
 * unless its texts would make the node reach stream-node-max-bytes or the node has stream-node-max-entries entries,
 * deleted ones included.
 *
 * A stream may be empty; its key stays until it is deleted. A structure moves only during active defragmentation. The
 * caller reports a change with db_changed(), once per command. Slices passed in must not point into the stream. */
#pragma once
#include "lib/structures/radix_tree.h"
#include "store/keyspace.h"
#include "store/stream_node.h"

/* All code may read the members; only store/ and rdb_stream.c write them. Exception: XSETID sets last_id (not below an
 * entry), max_deleted_id and entries_added. */
struct stream {
    uint64_t length;                 /* live entries */
    struct stream_id last_id;        /* the greatest id ever added, or set; no entry is above it. 0-0: never used */
    struct stream_id first_id;       /* id of the first live entry; 0-0: none */
    struct stream_id max_deleted_id; /* the greatest id deleted individually (not by trimming), or set; 0-0: none */
    uint64_t entries_added;          /* entries ever added; at least length, at most INT64_MAX */
    struct radix_tree *nodes;        /* master id as bytes → listpack */
    struct radix_tree *groups;       /* name → struct stream_group; NULL: never had a group */
    uint8_t *tail;                   /* the last node; NULL: not cached */
    struct stream_id tail_id;        /* its master id */
};
static inline struct stream *stream_of(const struct entry *entry) {
    return entry_value(entry);
}
struct entry *stream_create(struct db *db, struct slice key); /* an empty stream; the key must not exist */
struct stream *stream_new(void);
void stream_free(struct stream *stream);
size_t stream_node_count(const struct stream *stream); /* number of listpacks */
size_t stream_tree_nodes(
    const struct stream *stream); /* radix tree nodes as XINFO STREAM counts them; compressed runs count separately */

/* Insertion. */
enum stream_id_form { STREAM_ID_GIVEN, STREAM_ID_MS_GIVEN /* MS-* */, STREAM_ID_CHOSEN /* * */ };
/* Computes the id of the next entry. False: the id would not be above last_id (STREAM_ID_CHOSEN: no id is left). Only
 * STREAM_ID_CHOSEN uses now_ms. */
bool stream_next_id(const struct stream *stream, enum stream_id_form form, int64_t now_ms, struct stream_id *id);
/* Appends an entry of field, value, field, value …; `pairs` >= 1. The id must be above last_id. False: too large, no
 * change. */
bool stream_append(struct stream *stream, struct stream_id id, const struct slice *texts, size_t pairs);
bool stream_fits(const struct slice *texts, size_t pairs); /* false: too large to add */

/* Removal. */
bool stream_delete(struct stream *stream, struct stream_id id); /* false: no such entry. Updates max_deleted_id */
struct stream_trim {
    enum stream_trim_by { STREAM_TRIM_NOTHING, STREAM_TRIM_LENGTH, STREAM_TRIM_ID } by;
    bool approximate;     /* remove whole nodes only */
    uint64_t length;      /* entries to keep */
    struct stream_id min; /* remove entries below this id */
    uint64_t limit;       /* maximum number of entries to remove; 0: no limit */
};
uint64_t
stream_trim(struct stream *stream,
            const struct stream_trim *trim); /* returns the number of entries removed; does not change max_deleted_id */
/* The limit of an approximate removal that was given none: the entries of a hundred nodes, so that one call does not
 * block other clients for long. */
uint64_t stream_trim_limit(void);

/* Lookup. */
bool stream_contains(const struct stream *stream, struct stream_id id);
bool stream_last_entry(const struct stream *stream, struct stream_id *id); /* id of the last live entry; false: none */
/* Counts the live entries from `first` to `last`, at most `limit` (0: all). Uses the counters of the nodes inside the
 * range instead of iterating over them. */
uint64_t stream_count(const struct stream *stream, struct stream_id first, struct stream_id last, uint64_t limit);
/* True: the greatest id deleted individually is between the two ids (inclusive). With STREAM_ID_MAX as `last` it means
 * that entries from `first` on may have been deleted. Trimmed entries do not count: they were below all others. */
bool stream_has_gaps(const struct stream *stream, struct stream_id first, struct stream_id last);

/* For rdb_stream.c: appends a valid node with `count` live entries after the existing ones; takes over the listpack. */
void stream_add_node(struct stream *stream, struct stream_id master, uint8_t *lp, uint64_t count);

/* Iterates over the entries from `first` to `last`, inclusive, upwards, or downwards from `last` to `first`. The stream
 * must not change meanwhile. */
struct stream_iterator {
    struct radix_iterator at; /* current node */
    struct stream_node node;
    struct stream_entry entry; /* the entry of the last stream_next() */
    const uint8_t *next;       /* the entry to examine next; NULL: none in this node */
    const uint8_t *text; /* the element that stream_field() reads next, and the number of elements left in the entry */
    const uint8_t *master_field;
    size_t left;
    struct stream_id first, last;
    bool down, done, begun;
    char field_text[LISTPACK_TEXT], value_text[LISTPACK_TEXT];
};
void stream_iterate(struct stream_iterator *it, const struct stream *stream, struct stream_id first,
                    struct stream_id last, bool down);
bool stream_next(struct stream_iterator *it, struct stream_id *id,
                 size_t *fields); /* the next live entry, and its number of fields */
/* Returns the next field of that entry; may be called up to `fields` times. Slices point into the stream; numbers point
 * into the iterator and are valid until the next call. */
void stream_field(struct stream_iterator *it, struct slice *field, struct slice *value);
void stream_iterate_end(struct stream_iterator *it);
