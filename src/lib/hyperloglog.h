/* hyperloglog.h: estimates how many different elements were added, in 12 KiB or less, with a standard error of 0.81 %.
 * The bytes are those of Valkey, so they go into files, to replicas, and come from clients.
 *
 *   offset  size  field
 *        0     4  "HYLL"
 *        4     1  0: dense, 1: sparse
 *        5     3  unused, zero
 *        8     8  the last count, little-endian; the highest bit of byte 15 set: it is out of date
 *       16     …  16384 registers
 *
 * An element's hash is MurmurHash64A with the seed 0xadc83b19. Its low 14 bits choose the register, which keeps the
 * greatest of the positions of the lowest one bit in the rest, counted from 1.
 *
 * Dense: 6 bits a register, one after the other, from the lowest bit of each byte up: 12288 bytes.
 * Sparse: runs of registers
 *
 *   00xxxxxx            xxxxxx + 1 registers are 0
 *   01xxxxxx yyyyyyyy   xxxxxxyyyyyyyy + 1 registers are 0
 *   1vvvvvxx            xx + 1 registers are vvvvv + 1
 *
 * which must be exactly 16384 in all. A sparse one becomes dense when it grows beyond a size of the caller's choice, or
 * a register beyond 32.
 *
 * The count is Otmar Ertl's improved raw estimator ("New cardinality estimation algorithms for HyperLogLog sketches",
 * 2017). Bytes come from anybody: hll_is_valid looks at header and length, and what reads the runs checks them. Any
 * thread. */
#ifndef LIB_HYPERLOGLOG_H
#define LIB_HYPERLOGLOG_H
#include "lib/slice.h"
#include <stdint.h>

enum {
    HLL_REGISTERS = 16384,
    HLL_HEADER = 16,
    HLL_DENSE_SIZE = HLL_HEADER + HLL_REGISTERS * 6 / 8,
    HLL_SPARSE_EMPTY_SIZE = HLL_HEADER + 2,
    HLL_GROWTH_MAX = 3
};

void hll_make_empty(char bytes[static HLL_SPARSE_EMPTY_SIZE]); /* sparse */
bool hll_is_valid(struct slice bytes);
bool hll_is_dense(struct slice bytes);

/* Adds an element. 1: a register has grown; 0: nothing changed; -1: the bytes are corrupt; -2: a sparse one that must
 * become dense first (hll_to_dense, and again). There is room for HLL_GROWTH_MAX bytes behind *len, which changes.
 * `sparse_max` bounds the length of a sparse one. */
enum { HLL_MUST_BE_DENSE = -2 };
int hll_add(char *bytes, size_t *len, size_t sparse_max, struct slice element);
/* The same for a register. Several are set in ascending order: then `place`, zeroed at first, spares looking for each
 * from the beginning of a sparse one. */
struct hll_place {
    size_t offset;
    unsigned first; /* register there */
};
int hll_set(char *bytes, size_t *len, size_t sparse_max, unsigned index, uint8_t count, struct hll_place *place);
bool hll_to_dense(struct slice sparse, char dense[static HLL_DENSE_SIZE]); /* false: corrupt */

/* The registers, a byte each; those already in `registers` stay where they are greater. False: corrupt. */
bool hll_merge(struct slice bytes, uint8_t registers[static HLL_REGISTERS]);
void hll_pack(const uint8_t registers[static HLL_REGISTERS],
              char dense[static HLL_DENSE_SIZE]); /* the registers of a dense one; the header is left */
uint64_t hll_estimate(const uint8_t registers[static HLL_REGISTERS]);

/* The count that the header keeps. False: out of date. */
bool hll_cached(struct slice bytes, uint64_t *count);
void hll_cache(char *bytes, uint64_t count);
void hll_invalidate(char *bytes);
/* Calls `seen` (may be NULL) for each run of a sparse one, however many registers they are. False: corrupt. */
bool hll_runs(struct slice bytes,
              void (*seen)(void *context, char kind /* 'z', 'Z', 'v' */, unsigned length, unsigned value),
              void *context);
#endif
