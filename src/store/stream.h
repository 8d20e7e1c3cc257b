/* stream.h: values of type stream: entries of fields and values, appended under ascending ids; see stream_id.h for
 * those and stream_group.h for consumer groups.
 *
 * ENCODING_STREAM only. Entries are packed into nodes (stream_node.h), listpacks in a radix tree, the key of each its
 * first id. A node without a living entry is removed. An entry goes into the last node unless the bytes of its texts
 * would make the node reach stream-node-max-bytes, or the node has stream-node-max-entries, living or deleted.
 *
 * A stream may be empty; its key stays until somebody deletes it. A structure stays where it is, so nothing is to be
 * written back to its entry; that a key changed is told with db_changed(), once a command. Slices that are passed in
 * must not lie in the stream. */
#ifndef STORE_STREAM_H
#define STORE_STREAM_H
#include "lib/radix_tree.h"
#include "store/keyspace.h"
#include "store/stream_node.h"

/* To be read by everybody, written by store/ and rdb_stream.c; but XSETID may set last_id (not below an entry),
 * max_deleted_id and entries_added. */
struct stream {
    uint64_t length;                 /* living entries */
    struct stream_id last_id;        /* greatest ever added, or set; every entry's is at most that. 0-0 never used */
    struct stream_id first_id;       /* of the first living entry; 0-0: there is none */
    struct stream_id max_deleted_id; /* greatest deleted one by one (not by trimming), or set; 0-0: none */
    uint64_t entries_added;          /* ever; at least length, at most INT64_MAX */
    struct radix_tree *nodes;        /* bytes of the master id → listpack */
    struct radix_tree *groups;       /* name → struct stream_group; NULL: never had any */
    uint8_t *tail;                   /* the last node; NULL: look it up */
    struct stream_id tail_id;        /* its master id */
};
static inline struct stream *stream_of(const struct entry *entry) {
    return entry_value(entry);
}
struct entry *stream_create(struct db *db, struct slice key); /* an empty one, under a key that is missing */
struct stream *stream_new(void);
void stream_free(struct stream *stream);
size_t stream_node_count(const struct stream *stream); /* listpacks */
size_t stream_tree_nodes(const struct stream *stream); /* as XINFO STREAM counts them: nodes of the radix tree,
                                                          compressed runs counted of their own */

/* Adding. */
enum stream_id_form { STREAM_ID_GIVEN, STREAM_ID_MS_GIVEN /* MS-* */, STREAM_ID_CHOSEN /* * */ };
/* The id of an entry that will be added. False: it would not be above last_id (for STREAM_ID_CHOSEN: no id is left).
 * now_ms counts for STREAM_ID_CHOSEN only. */
bool stream_next_id(const struct stream *stream, enum stream_id_form form, int64_t now_ms, struct stream_id *id);
/* Adds an entry of field, value, field, value …; `pairs` >= 1. The id must be above last_id. False: too large, nothing
 * done. */
bool stream_append(struct stream *stream, struct stream_id id, const struct slice *texts, size_t pairs);
bool stream_fits(const struct slice *texts, size_t pairs); /* would it not be too large? */

/* Removing. */
bool stream_delete(struct stream *stream,
                   struct stream_id id); /* false: there is no such entry. Keeps max_deleted_id up to date */
struct stream_trim {
    enum stream_trim_by { STREAM_TRIM_NOTHING, STREAM_TRIM_LENGTH, STREAM_TRIM_ID } by;
    bool approximate;     /* whole nodes only */
    uint64_t length;      /* entries to keep */
    struct stream_id min; /* entries below are removed */
    uint64_t limit;       /* no more than so many are removed; 0: no limit */
};
uint64_t stream_trim(struct stream *stream,
                     const struct stream_trim *trim); /* entries removed. Does not change max_deleted_id */

/* Looking. */
bool stream_contains(const struct stream *stream, struct stream_id id);
bool stream_last_entry(const struct stream *stream,
                       struct stream_id *id); /* of the last living entry; false: there is none */
/* How many living entries there are from `first` to `last`, no more than `limit` (0: all) being counted. Nodes that lie
 * between are not walked. */
uint64_t stream_count(const struct stream *stream, struct stream_id first, struct stream_id last, uint64_t limit);
/* Is the greatest entry that was deleted one by one between the two ids (both included)? With STREAM_ID_MAX as `last`:
 * may an entry be missing from `first` on? What trimming removed is not missing: it was below all others. */
bool stream_has_gaps(const struct stream *stream, struct stream_id first, struct stream_id last);

/* For rdb_stream.c: a valid node behind those that are there, of so many living entries; it is taken
 * over. */
void stream_add_node(struct stream *stream, struct stream_id master, uint8_t *lp, uint64_t count);

/* Walking the entries from `first` to `last`, both included, upwards, or downwards from `last` to `first`. The stream
 * must not change meanwhile. */
struct stream_iterator {
    struct radix_iterator at; /* the node */
    struct stream_node node;
    struct stream_entry entry; /* the one stream_next() came to */
    const uint8_t *next;       /* the one that it looks at next; NULL: none in this node */
    const uint8_t *text;       /* what stream_field() reads next, and how many elements of the entry are left there */
    const uint8_t *master_field;
    size_t left;
    struct stream_id first, last;
    bool down, done, begun;
    char field_text[LISTPACK_TEXT], value_text[LISTPACK_TEXT];
};
void stream_iterate(struct stream_iterator *it, const struct stream *stream, struct stream_id first,
                    struct stream_id last, bool down);
bool stream_next(struct stream_iterator *it, struct stream_id *id,
                 size_t *fields); /* the next living entry, and how many fields it has */
/* The next field of that entry, up to `fields` times; one need not ask for all. Slices lie in the stream, or, numbers,
 * in the iterator until the next call. */
void stream_field(struct stream_iterator *it, struct slice *field, struct slice *value);
void stream_iterate_end(struct stream_iterator *it);
#endif
