/* copied_entries.h: copies of entries, by which a test compares what a reader of the data set gave with what was there
 * when the reader began. */
#pragma once
#include "lib/structures/hashtable.h"
#include "lib/text/output.h"
#include "store/entry.h"

struct copied {
    size_t key_len, len;
    bool seen;
    char bytes[]; /* the number of the database, the key, the entry */
};

/* A hashtable of copies, which it owns. */
extern const struct hashtable_type copies_type;

/* How an entry is written: as in an RDB file, or in a form that does not depend on its encoding. */
void copied_write_exactly(struct output *out, const struct entry *entry);
void copied_write_value(struct output *out, const struct entry *entry);

/* The caller frees the copy with mem_free(). */
struct copied *copied_new(int db, const struct entry *entry,
                          void (*write)(struct output *out, const struct entry *entry));
struct slice copied_key(const void *copied);
bool copied_same(const struct copied *a, const struct copied *b);
