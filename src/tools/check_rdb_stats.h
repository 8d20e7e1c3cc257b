/* check_rdb_stats.h: statistics of an RDB file: keys and elements of each type in each database. */
#pragma once
#include "store/entry.h"
#include "tools/check_rdb.h"

struct check_rdb_stats;
struct check_rdb_stats *check_rdb_stats_new(void);
void check_rdb_stats_free(struct check_rdb_stats *stats);
void check_rdb_stats_add(struct check_rdb_stats *stats, uint64_t database, const struct entry *entry, bool expires,
                         bool expired);
/* A value of a module, whose elements are unknown: counts as one element of this size. */
void check_rdb_stats_add_module(struct check_rdb_stats *stats, uint64_t database, size_t key_len, uint64_t bytes,
                                bool expires, bool expired);
void check_rdb_stats_print(const struct check_rdb_stats *stats, enum check_rdb_format format, FILE *output);
