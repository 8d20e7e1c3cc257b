/* check_rdb.h: checks RDB files: valkey-check-rdb, and the RDB part of append-only files. */
#pragma once
#include "formats/source.h"
#include <stdio.h>

struct check_rdb_options {
    bool stats;
    enum check_rdb_format { CHECK_RDB_TABLE, CHECK_RDB_INFO, CHECK_RDB_CSV } format;
    FILE *output; /* for the statistics */
};
/* Reads an RDB file up to and including its checksum, and prints the result like valkey-check-rdb of Valkey. Returns
 * false if the file is damaged. */
bool check_rdb(struct source *source, const char *name, const struct check_rdb_options *options);
