/* member_table.h: a table of members of sets and sorted sets, with one score each: for a result under construction, or
 * as an index of a packed structure that avoids a linear search per lookup.
 *
 * The table does not copy texts: their memory must stay valid while the table exists. A text that is an integer and the
 * integer are the same member. The members form an array in insertion order; adding one may move them. Not
 * thread-safe. */
#pragma once
#include "lib/structures/listpack.h"

struct member {
    struct listpack_value value;
    double score;
    uint64_t hash; /* hash for the lookup */
};
struct member_table {
    struct member *members;
    size_t count, capacity;
    uint32_t *slots; /* number of a member from 1, or 0; NULL until the first lookup */
    size_t mask;
};

void member_table_init(struct member_table *table, size_t expected);
void member_table_free(struct member_table *table);
/* Adds a member that is known to be new. */
void member_table_append(struct member_table *table, const struct listpack_value *value, double score);
/* Returns the existing member, or adds it with that score. */
struct member *member_table_find_or_add(struct member_table *table, const struct listpack_value *value, double score,
                                        bool *added);
const struct member *member_table_find(struct member_table *table,
                                       const struct listpack_value *value); /* NULL: not found */
/* Sorts by score, then by bytes, as in a sorted set. Lookups are not possible afterwards. */
void member_table_sort(struct member_table *table);

/* Lookups in a structure that needs a linear search: after a few of them, a table of its members is built and used for
 * the rest. Zero it first. */
struct member_index {
    unsigned questions;
    bool made;
    struct member_table table;
};
/* Call before each lookup. True: use the table. `fill` adds the `len` members to it; it receives the context. */
bool member_index_wanted(struct member_index *index, size_t len,
                         void (*fill)(const void *context, struct member_table *table), const void *context);
void member_index_free(struct member_index *index);
