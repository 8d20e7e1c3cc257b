/* member_table.h: members of sets and sorted sets that lie elsewhere, with a score each: a result that is being put
 * together, or what a packed structure holds, so that it need not be walked for each question.
 *
 * Texts are not copied: what they lie in must stay as it is while the table lives. A text that is an integer and the
 * integer are the same member. The members stand one after the other in the order in which they came; adding one may
 * move them. Any thread. */
#ifndef STORE_MEMBER_TABLE_H
#define STORE_MEMBER_TABLE_H
#include "lib/listpack.h"

struct member {
    struct listpack_value value;
    double score;
    uint64_t hash; /* where the table is looked up in */
};
struct member_table {
    struct member *members;
    size_t count, capacity;
    uint32_t *slots; /* number of a member, from 1, or 0; NULL until something is looked up */
    size_t mask;
};

void member_table_init(struct member_table *table, size_t expected);
void member_table_free(struct member_table *table);
/* One that is known not to be there yet. */
void member_table_append(struct member_table *table, const struct listpack_value *value, double score);
/* The one that is there, or a new one with that score. */
struct member *member_table_find_or_add(struct member_table *table, const struct listpack_value *value, double score,
                                        bool *added);
const struct member *member_table_find(struct member_table *table,
                                       const struct listpack_value *value); /* NULL: it is not there */
/* In the order of a sorted set: of scores, then of bytes. Nothing can be looked up afterwards. */
void member_table_sort(struct member_table *table);

/* A structure in which a question is answered by walking it: after some questions a table of what it holds is made, and
 * answers the others. Zeroed to begin with. */
struct member_index {
    unsigned questions;
    bool made;
    struct member_table table;
};
/* Asked before each question. True: the table is there and to be asked. `fill` puts the `len` members into it, and is
 * given the context. */
bool member_index_wanted(struct member_index *index, size_t len,
                         void (*fill)(const void *context, struct member_table *table), const void *context);
void member_index_free(struct member_index *index);
#endif
