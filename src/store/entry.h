/* entry.h: one key of the keyspace: key, expiry and value.
 *
 * One allocation holds the key, the expiry time if there is one, and a small value:
 *
 *     header 8 bytes | [expiry int64] | [word] | key bytes | [value bytes]
 *
 * The header determines the form of the value: an int64 in the word (ENCODING_INT); a string of up to ENTRY_EMBED_MAX
 * bytes at the end; or a pointer in the word, to a blob (longer strings) or to the structure of another type. An entry
 * may move when its value changes size or when it gains or loses an expiry: the functions of keyspace.h that change an
 * entry return its new address and invalidate earlier pointers.
 *
 * OBJECT ENCODING of a string (raw, embstr) follows Valkey's rules, which are independent of the memory layout here.
 *
 * Entries and structures are not reference counted: a structure belongs to exactly one entry. */
#pragma once
#include "lib/system/relocate.h"
#include "lib/text/blob.h"
#include "lib/text/slice.h"
#include <stdint.h>

enum value_type {
    TYPE_STRING,
    TYPE_LIST,
    TYPE_SET,
    TYPE_ZSET,
    TYPE_HASH,
    TYPE_STREAM,
    TYPE_EXTENSION, /* registered at run time: extension.h */
    VALUE_TYPES
};
enum value_encoding {
    ENCODING_RAW,
    ENCODING_INT,
    ENCODING_EMBSTR,
    ENCODING_LISTPACK,
    ENCODING_QUICKLIST,
    ENCODING_INTSET,
    ENCODING_HASHTABLE,
    ENCODING_SKIPLIST,
    ENCODING_STREAM,
    /* From here on the store has work when a value leaves its key (db_value_leaves()). */
    ENCODING_EXPIRING_HASHTABLE, /* a hash with field expiration */
    ENCODING_EXTENSION
};
const char *value_type_name(enum value_type type);             /* "string", "list", …, "extension" */
const char *value_encoding_name(enum value_encoding encoding); /* "int", "embstr", "listpack", … */

struct entry; /* members are private to store/ */
struct slice entry_key(const struct entry *entry);
enum value_type entry_type(const struct entry *entry);
const char *entry_type_name(const struct entry *entry);        /* as reported by TYPE */
enum value_encoding entry_encoding(const struct entry *entry); /* as reported by OBJECT ENCODING */
int64_t entry_expire_at(const struct entry *entry);            /* ms since the epoch, -1: never */
void *entry_value(const struct entry *entry);                  /* the structure of a type other than string */
void entry_prefetch_value(const struct entry *entry);          /* prefetches the memory that the entry points to */
/* About the number of allocations that a value consists of, as for lazy freeing; 1 for strings and extensions. */
size_t entry_allocations(const struct entry *entry);
size_t entry_header_size(void); /* bytes of an entry without its key and value */
/* As reported by MEMORY USAGE. `db`: the number of its database. */
size_t entry_memory(const struct entry *entry, int db, size_t samples);
/* The access field (24 bits): LRU clock or LFU counter, depending on maxmemory-policy. */
uint32_t entry_idle_seconds(const struct entry *entry);
uint8_t entry_frequency(const struct entry *entry); /* with decay applied */
void entry_set_idle_seconds(struct entry *entry, uint32_t seconds);
void entry_set_frequency(struct entry *entry, uint8_t frequency);
/* RESTORE, RDB: sets the one that maxmemory-policy uses, unless it is negative: not given. */
void entry_set_access(struct entry *entry, int64_t idle_seconds, int64_t frequency);

/* Strings. */
enum { STRING_NUMBER_TEXT = 24, ENTRY_EMBED_MAX = 1024 };
/* Returns the bytes of a string. A number is formatted into `text`; otherwise the slice points into the entry or its
 * blob. Valid until the entry changes. */
struct slice entry_string(const struct entry *entry, char text[static STRING_NUMBER_TEXT]);
size_t entry_string_len(const struct entry *entry);
struct blob *entry_blob(const struct entry *entry); /* NULL: the string is not in a blob; adds no reference */
bool entry_string_int64(const struct entry *entry, int64_t *value); /* same result as parse_int64() of the text */

/* The operations of a type other than string; each type registers them at startup. */
struct value_ops {
    void (*free)(void *value, enum value_encoding encoding);
    size_t (*free_effort)(const void *value,
                          enum value_encoding encoding); /* number of allocations to free; above 64, lazy freeing uses
                                                            the background thread */
    void *(*copy)(const void *value, enum value_encoding encoding);
    size_t (*memory)(const void *value, enum value_encoding encoding, size_t samples);
    /* Relocates blocks of a value (lib/system/relocate.h) and updates *value if the value itself moves. One call
     * examines about r->limit blocks from the cursor on; 0 is the beginning. Returns the cursor of the next call; 0:
     * done. The value may change or be replaced by another value between calls: any cursor is valid for any value. A
     * NULL function: values of this type do not move. */
    uint64_t (*relocate)(void **value, enum value_encoding encoding, uint64_t cursor, struct relocation *r);
};
void value_ops_register(enum value_type type, const struct value_ops *ops);
