/* hyperloglog.h: estimates the number of distinct elements in at most 12 KiB, with a standard error of 0.81 %. The byte
 * format is that of Valkey: files, replicas and clients exchange it.
 *
 *   offset  size  field
 *        0     4  "HYLL"
 *        4     1  0: dense, 1: sparse
 *        5     3  unused, zero
 *        8     8  cached cardinality, little-endian; the highest bit of byte 15 marks it as stale
 *       16     …  16384 registers
 *
 * The hash of an element is MurmurHash64A with the seed 0xadc83b19. Its low 14 bits select the register. The register
 * keeps the maximum position, counted from 1, of the lowest one bit in the remaining bits.
 *
 * Dense: 6 bits per register, packed from the lowest bit of each byte up: 12288 bytes. Sparse: runs of registers
 *
 *   00xxxxxx            ZERO: xxxxxx + 1 registers are 0
 *   01xxxxxx yyyyyyyy   XZERO: xxxxxxyyyyyyyy + 1 registers are 0
 *   1vvvvvxx            VAL: xx + 1 registers are vvvvv + 1
 *
 * The runs must add up to exactly 16384 registers. The sparse form becomes dense when it exceeds a size that the caller
 * sets or when a register exceeds 32.
 *
 * The cardinality is Otmar Ertl's improved raw estimator ("New cardinality estimation algorithms for HyperLogLog
 * sketches", 2017). The bytes can come from an untrusted client: hll_is_valid() checks header and length, and every
 * reader of the runs checks them. Any thread may call these functions. */
#pragma once
#include "lib/text/slice.h"
#include <stdint.h>

enum {
    HLL_REGISTERS = 16384,
    HLL_HEADER = 16,
    HLL_DENSE_SIZE = HLL_HEADER + HLL_REGISTERS * 6 / 8,
    HLL_SPARSE_EMPTY_SIZE = HLL_HEADER + 2,
    HLL_GROWTH_MAX = 3
};

/* Enables or disables the CPU's vector instructions in loops over all registers (PFDEBUG). The results are the same.
 * Enabled by default. */
void hll_set_simd(bool enabled);
void hll_make_empty(char bytes[static HLL_SPARSE_EMPTY_SIZE]); /* sparse */
bool hll_is_valid(struct slice bytes);
bool hll_is_dense(struct slice bytes);

/* Adds an element. Returns 1: a register grew; 0: no change; -1: the bytes are corrupt; HLL_MUST_BE_DENSE: the sparse
 * form must become dense first (hll_to_dense(), then try again). The buffer must have HLL_GROWTH_MAX spare bytes past
 * *len, which the call updates. `sparse_max` limits the length of the sparse form. */
enum { HLL_MUST_BE_DENSE = -2 };
int hll_add(char *bytes, size_t *len, size_t sparse_max, struct slice element);
/* Sets one register; returns the same values as the function above. Callers that set registers in ascending order pass
 * a zeroed `cursor` first and keep it, which avoids a search from the start of the sparse form for each. */
struct hll_cursor {
    size_t offset;
    unsigned first; /* number of the register at offset */
};
int hll_set(char *bytes, size_t *len, size_t sparse_max, unsigned index, uint8_t count, struct hll_cursor *cursor);
bool hll_to_dense(struct slice sparse, char dense[static HLL_DENSE_SIZE]); /* false: corrupt */

/* Merges the registers into `registers`, one byte each: each becomes the maximum of both. False: corrupt. */
bool hll_merge(struct slice bytes, uint8_t registers[static HLL_REGISTERS]);
/* Writes the registers of the dense form; leaves the header unchanged. */
void hll_pack(const uint8_t registers[static HLL_REGISTERS], char dense[static HLL_DENSE_SIZE]);
uint64_t hll_estimate(const uint8_t registers[static HLL_REGISTERS]);

/* Reads the cardinality cached in the header. False: it is stale. */
bool hll_cached(struct slice bytes, uint64_t *count);
void hll_cache(char *bytes, uint64_t count);
void hll_invalidate(char *bytes);
/* Calls `visit` (may be NULL) for each run of the sparse form, whatever the total of registers. False: corrupt. */
bool hll_runs(struct slice bytes,
              void (*visit)(void *context, char kind /* 'z', 'Z', 'v' */, unsigned length, unsigned value),
              void *context);
