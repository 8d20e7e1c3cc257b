/* aof_manifest.h: the manifest of an append-only file, the list of its files. persistence/aof.h describes their use.
 *
 * It is a text file with a line for each file:
 *
 *     file appendonly.aof.1.base.rdb seq 1 type b
 *     file appendonly.aof.1.incr.aof seq 1 type i startoffset 0
 *
 * `file` is the first key of a line; the other keys may be in any order. Names with blanks or special bytes are in
 * double quotes, with the escapes of a configuration file. Unknown keys are ignored. Lines that begin with # are
 * comments.
 *
 *     b   the base, at most one: read first. Its name ends in .rdb or .aof, but its first bytes determine its format
 *     i   incremental files, read in ascending order of their numbers, which is the order of the lines
 *     h   history: no longer needed, to be deleted
 *
 * Not thread-safe. */
#pragma once
#include "lib/structures/linked_list.h"
#include "lib/text/output.h"
#include <stdint.h>

enum aof_file_type { AOF_BASE = 'b', AOF_INCREMENTAL = 'i', AOF_HISTORY = 'h' };

struct aof_file {
    struct list_link link;
    char *name;
    int64_t sequence;
    enum aof_file_type type;
};
struct aof_manifest {
    struct aof_file *base;   /* NULL: none */
    struct list incremental; /* of struct aof_file, ascending */
    struct list history;
    int64_t base_sequence, incremental_sequence; /* the highest numbers ever used */
    bool changed;                                /* since it was read or written */
};

struct aof_manifest *aof_manifest_new(void);
void aof_manifest_free(struct aof_manifest *manifest); /* NULL is allowed */
struct aof_manifest *aof_manifest_copy(const struct aof_manifest *manifest);

/* Reads the text of a manifest. NULL: it is malformed; *error is the reason, *line the number of the line, from 1, and
 * *at the line. An empty text is malformed as well. */
struct aof_manifest *aof_manifest_parse(struct slice text, const char **error, int *line, struct slice *at);
void aof_manifest_format(const struct aof_manifest *manifest, struct output *out);

/* These functions add a file, whose name is made of `prefix` ("appendonly.aof") and the next number. The manifest owns
 * the returned file. */
struct aof_file *aof_manifest_add_incremental(struct aof_manifest *manifest, const char *prefix);
/* Adds a base; the previous base becomes history. */
struct aof_file *aof_manifest_add_base(struct aof_manifest *manifest, const char *prefix, bool as_rdb);
/* Adds a base with the given name and the number 1: the single file of an older server. */
struct aof_file *aof_manifest_adopt(struct aof_manifest *manifest, const char *name);
/* Makes the incremental files history, except the last `keep` of them. */
void aof_manifest_retire(struct aof_manifest *manifest, size_t keep);
void aof_manifest_drop_history(struct aof_manifest *manifest); /* removes all files of type h */

static inline struct aof_file *aof_file_of(struct list_link *link) {
    return link ? container_of(link, struct aof_file, link) : NULL;
}
struct aof_file *aof_manifest_last(const struct aof_manifest *manifest); /* the last incremental file; NULL: none */
