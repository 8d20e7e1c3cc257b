/* arguments.h: the arguments of the BLOB commands, the texts of their errors, and what a connection must be for a
 * transfer. */
#pragma once
#include "net/placement.h"
#include "server/command/command.h"

enum { BLOB_RANGES_MAX = 256 };

/* The texts that differ between the generations of names. */
struct blob_texts {
    const char *unavailable, *not_hex, *no_address, *established; /* HELLO */
    const char *no_triples, *too_many, *bad_address, *bad_length, *read_failed;
    bool newer; /* the names with RDMA_ and TCP_ */
};
extern const struct blob_texts blob_texts_older, blob_texts_newer;

/* ERR wrong number of arguments, with the name in capitals. */
void reply_blob_arity(struct call *call);
/* Digits, with a plus sign before them or not. */
bool blob_parse_u64(struct slice text, uint64_t *value);
/* Reads the triples argv[first] to argv[end - 1] into `ranges`. Returns their number, or -1: replied with an error.
 * *sum: of the lengths, UINT64_MAX if it is larger. */
int blob_read_ranges(struct call *call, const struct blob_texts *texts, int first, int end,
                     struct placement_range ranges[static BLOB_RANGES_MAX], uint64_t *sum);
/* False: the ranges are too small for a value; replied with the error. */
bool blob_ranges_suffice(struct call *call, const struct blob_texts *texts, uint64_t sum, uint64_t length);
/* False: no transfer is possible for this client, or in this call; replied with an error that names the remedy. */
bool blob_may_transfer(struct call *call);
