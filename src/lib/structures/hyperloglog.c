/* hyperloglog.c: see hyperloglog.h. */
#include "lib/structures/hyperloglog.h"
#include <endian.h>
#include <math.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
    INDEX_BITS = 14,
    RANK_MAX = 64 - INDEX_BITS + 1,
    SPARSE_VALUE_MAX = 32,
    SPARSE_VALUE_RUN = 4,
    ZERO_RUN = 64,
    MERGE_REACH = 5
};
static const uint64_t HASH_SEED = 0xadc83b19;

/* --- Hashing (MurmurHash64A, by Austin Appleby, public domain) --- */

static uint64_t hash_of(struct slice element) {
    const uint64_t m = UINT64_C(0xc6a4a7935bd1e995);
    const char *p = element.data, *end = p + (element.len & ~(size_t)7);
    uint64_t h = HASH_SEED ^ (element.len * m);
    for (; p != end; p += 8) {
        uint64_t k;
        memcpy(&k, p, 8);
        k = le64toh(k) * m;
        k = (k ^ k >> 47) * m;
        h = (h ^ k) * m;
    }
    size_t rest = element.len & 7;
    if (rest) {
        uint64_t k = 0;
        memcpy(&k, p, rest);
        h = (h ^ le64toh(k)) * m;
    }
    h = (h ^ h >> 47) * m;
    return h ^ h >> 47;
}

/* --- The header --- */

void hll_make_empty(char bytes[static HLL_SPARSE_EMPTY_SIZE]) {
    memcpy(bytes, "HYLL\1\0\0\0\0\0\0\0\0\0\0\200\177\377", HLL_SPARSE_EMPTY_SIZE);
}

bool hll_is_valid(struct slice bytes) {
    if (bytes.len < HLL_HEADER || memcmp(bytes.data, "HYLL", 4) != 0) return false;
    return bytes.data[4] == 0 ? bytes.len == HLL_DENSE_SIZE : bytes.data[4] == 1;
}
bool hll_is_dense(struct slice bytes) {
    return bytes.data[4] == 0;
}

bool hll_cached(struct slice bytes, uint64_t *count) {
    memcpy(count, bytes.data + 8, 8);
    *count = le64toh(*count);
    return !(*count >> 63);
}
void hll_cache(char *bytes, uint64_t count) {
    count = htole64(count);
    memcpy(bytes + 8, &count, 8);
}
void hll_invalidate(char *bytes) {
    bytes[15] |= (char)0x80;
}

/* --- Dense registers --- */

static unsigned dense_get(const unsigned char *registers, unsigned index) {
    unsigned bit = index * 6, shift = bit & 7, low = registers[bit / 8] >> shift;
    return (shift > 2 ? low | (unsigned)registers[bit / 8 + 1] << (8 - shift) : low) & 63;
}
static void dense_put(unsigned char *registers, unsigned index, unsigned value) {
    unsigned bit = index * 6, shift = bit & 7;
    unsigned char *at = registers + bit / 8;
    at[0] = (unsigned char)((at[0] & ~(63u << shift)) | value << shift);
    if (shift > 2) at[1] = (unsigned char)((at[1] & ~(63u >> (8 - shift))) | value >> (8 - shift));
}

/* Eight registers are six bytes. The last group is separate because reading past its end is not allowed. */
enum { GROUPS = HLL_REGISTERS / 8 };
static inline uint64_t group_load(const char *at, bool last) {
    uint64_t six = 0;
    memcpy(&six, at, last ? 6 : 8);
    return le64toh(six);
}
static void unpack_plain(const char *dense, uint8_t *registers) {
    for (int i = 0; i < GROUPS; i++, dense += 6, registers += 8) {
        uint64_t six = group_load(dense, i == GROUPS - 1);
        for (int j = 0; j < 8; j++, six >>= 6) registers[j] = six & 63;
    }
}
static void pack_plain(const uint8_t *registers, char *dense) {
    for (int i = 0; i < GROUPS; i++, dense += 6, registers += 8) {
        uint64_t six = 0;
        for (int j = 0; j < 8; j++) six |= (uint64_t)(registers[j] & 63) << (6 * j);
        six = htole64(six);
        memcpy(dense, &six, 6);
    }
}
static void greater_plain(const uint8_t *restrict from, uint8_t *restrict to) {
    for (int i = 0; i < HLL_REGISTERS; i++) to[i] = to[i] < from[i] ? from[i] : to[i];
}
#if defined(__x86_64__)
static const uint64_t SIX_OF_EIGHT = UINT64_C(0x3f3f3f3f3f3f3f3f);
__attribute__((target("bmi2"))) static void unpack_bmi2(const char *dense, uint8_t *registers) {
    for (int i = 0; i < GROUPS; i++, dense += 6, registers += 8) {
        uint64_t eight = _pdep_u64(group_load(dense, i == GROUPS - 1), SIX_OF_EIGHT);
        memcpy(registers, &eight, 8);
    }
}
__attribute__((target("bmi2"))) static void pack_bmi2(const uint8_t *registers, char *dense) {
    for (int i = 0; i < GROUPS; i++, dense += 6, registers += 8) {
        uint64_t eight;
        memcpy(&eight, registers, 8);
        eight = _pext_u64(eight, SIX_OF_EIGHT);
        memcpy(dense, &eight, 6);
    }
}
__attribute__((target("avx2"))) static void greater_avx2(const uint8_t *restrict from, uint8_t *restrict to) {
    for (int i = 0; i < HLL_REGISTERS; i++) to[i] = to[i] < from[i] ? from[i] : to[i];
}
static bool simd = true;
void hll_set_simd(bool enabled) {
    simd = enabled;
}
static void hyperloglog_unpack(const char *dense, uint8_t *registers) {
    if (simd && __builtin_cpu_supports("bmi2"))
        unpack_bmi2(dense, registers);
    else
        unpack_plain(dense, registers);
}
static void pack(const uint8_t *registers, char *dense) {
    if (simd && __builtin_cpu_supports("bmi2"))
        pack_bmi2(registers, dense);
    else
        pack_plain(registers, dense);
}
static void greater(const uint8_t *from, uint8_t *to) {
    if (simd && __builtin_cpu_supports("avx2"))
        greater_avx2(from, to);
    else
        greater_plain(from, to);
}
#else
void hll_set_simd(bool enabled) {}
#define hyperloglog_unpack unpack_plain
#define pack               pack_plain
#define greater            greater_plain
#endif

void hll_pack(const uint8_t registers[static HLL_REGISTERS], char dense[static HLL_DENSE_SIZE]) {
    pack(registers, dense + HLL_HEADER);
}

/* --- Sparse runs --- */

struct register_run {
    unsigned size; /* bytes of the opcode */
    unsigned length, value;
};
static bool is_value(unsigned char byte) {
    return byte & 0x80;
}
static bool is_long_zero(unsigned char byte) {
    return (byte & 0xc0) == 0x40;
}
static unsigned char value_run(unsigned value, unsigned length) {
    return (unsigned char)(0x80 | (value - 1) << 2 | (length - 1));
}

/* Reads the run at `at`. False: truncated. */
static bool run_read(const unsigned char *at, const unsigned char *end, struct register_run *run) {
    if (at >= end) return false;
    if (is_value(*at)) {
        *run = (struct register_run){1, (*at & 3u) + 1, (*at >> 2 & 31u) + 1};
    } else if (is_long_zero(*at)) {
        if (end - at < 2) return false;
        *run = (struct register_run){2, ((*at & 63u) << 8 | at[1]) + 1, 0};
    } else {
        *run = (struct register_run){1, (*at & 63u) + 1, 0};
    }
    return true;
}

bool hll_runs(struct slice bytes, void (*seen)(void *, char, unsigned, unsigned), void *context) {
    const unsigned char *at = (const unsigned char *)bytes.data + HLL_HEADER,
                        *end = (const unsigned char *)bytes.data + bytes.len;
    size_t registers = 0;
    for (struct register_run run; at < end; at += run.size, registers += run.length) {
        if (!run_read(at, end, &run)) return false;
        if (seen) seen(context, run.value ? 'v' : run.size == 2 ? 'Z' : 'z', run.length, run.value);
    }
    return registers == HLL_REGISTERS;
}

static unsigned put_zeros(unsigned char *to, unsigned length) {
    if (length <= ZERO_RUN) {
        to[0] = (unsigned char)(length - 1);
        return 1;
    }
    to[0] = (unsigned char)(0x40 | (length - 1) >> 8);
    to[1] = (unsigned char)(length - 1);
    return 2;
}

/* Splits a run whose register `at` (counted from its start) gets another value into up to three runs. Returns their
 * bytes. */
static unsigned split(const struct register_run *run, unsigned at, unsigned value, unsigned char to[static 5]) {
    unsigned size = 0, behind = run->length - 1 - at;
    if (at) {
        if (run->value)
            to[size++] = value_run(run->value, at);
        else
            size += put_zeros(to, at);
    }
    to[size++] = value_run(value, 1);
    if (behind) {
        if (run->value)
            to[size++] = value_run(run->value, behind);
        else
            size += put_zeros(to + size, behind);
    }
    return size;
}

/* Merges adjacent runs of equal value, from a run on as far as the change can reach. */
static void join(unsigned char *at, unsigned char *bytes, size_t *len) {
    for (int reach = MERGE_REACH; at < bytes + *len && reach > 0; reach--) {
        unsigned char *end = bytes + *len;
        if (is_long_zero(*at)) {
            at += 2;
            continue;
        }
        if (is_value(*at) && at + 1 < end && is_value(at[1]) && at[0] >> 2 == at[1] >> 2) {
            unsigned length = (at[0] & 3u) + (at[1] & 3u) + 2;
            if (length <= SPARSE_VALUE_RUN) {
                at[1] = value_run((at[0] >> 2 & 31u) + 1, length);
                memmove(at, at + 1, (size_t)(end - at - 1));
                (*len)--;
                continue; /* the merged run may also merge with the next one */
            }
        }
        at++;
    }
}

/* Returns the run that holds a register, and sets `first` to the number of its first register; the run before it goes
 * into the cursor. NULL: corrupt. A later change may merge the run with the one before it, so the next search starts
 * there, or from the beginning where that is not enough. */
static unsigned char *run_find(unsigned char *bytes, size_t len, unsigned index, struct hll_cursor *cursor,
                               struct register_run *run, unsigned *first, unsigned char **before) {
    struct hll_cursor here = *cursor, last = here, last_but_one = here;
    for (int steps = 0;; steps++) {
        if (!run_read(bytes + HLL_HEADER + here.offset, bytes + len, run)) return NULL;
        if (index < here.first + run->length) {
            if (steps >= 2 || !cursor->offset) break;
            here = last = last_but_one = *cursor = (struct hll_cursor){0, 0};
            steps = -1;
            continue;
        }
        last_but_one = last;
        last = here;
        here.offset += run->size, here.first += run->length;
    }
    *cursor = last_but_one;
    *first = here.first;
    *before = bytes + HLL_HEADER + last.offset;
    return bytes + HLL_HEADER + here.offset;
}

static int sparse_set(unsigned char *bytes, size_t *len, size_t sparse_max, unsigned index, unsigned value,
                      struct hll_cursor *cursor) {
    if (value > SPARSE_VALUE_MAX) return HLL_MUST_BE_DENSE;
    unsigned char *end = bytes + *len, *before;
    unsigned first;
    struct register_run run;
    unsigned char *at = run_find(bytes, *len, index, cursor, &run, &first, &before);
    if (!at) return -1;
    if (run.value >= value) return 0;
    unsigned char replaced[5];
    unsigned size = split(&run, index - first, value, replaced);
    if (size > run.size && *len + size - run.size > sparse_max) return HLL_MUST_BE_DENSE;
    memmove(at + size, at + run.size, (size_t)(end - at) - run.size);
    memcpy(at, replaced, size);
    *len = *len + size - run.size;
    join(before, bytes, len);
    return 1;
}

bool hll_to_dense(struct slice sparse, char dense[static HLL_DENSE_SIZE]) {
    uint8_t registers[HLL_REGISTERS] = {0};
    if (!hll_merge(sparse, registers)) return false;
    memcpy(dense, sparse.data, HLL_HEADER);
    dense[4] = 0;
    hll_pack(registers, dense);
    return true;
}

/* --- Both encodings --- */

int hll_set(char *bytes, size_t *len, size_t sparse_max, unsigned index, uint8_t count, struct hll_cursor *cursor) {
    int changed;
    if (!hll_is_dense((struct slice){bytes, *len})) {
        changed = sparse_set((unsigned char *)bytes, len, sparse_max, index, count, cursor);
    } else {
        unsigned char *registers = (unsigned char *)bytes + HLL_HEADER;
        changed = count > dense_get(registers, index);
        if (changed) dense_put(registers, index, count);
    }
    if (changed > 0) hll_invalidate(bytes);
    return changed;
}

int hll_add(char *bytes, size_t *len, size_t sparse_max, struct slice element) {
    uint64_t hash = hash_of(element), rest = hash >> INDEX_BITS | UINT64_C(1) << (RANK_MAX - 1);
    return hll_set(bytes, len, sparse_max, (unsigned)(hash & (HLL_REGISTERS - 1)), (uint8_t)(__builtin_ctzll(rest) + 1),
                   &(struct hll_cursor){0, 0});
}

struct merging {
    uint8_t *registers;
    unsigned at;
};
static void merge_run(void *context, char kind, unsigned length, unsigned value) {
    struct merging *merging = context;
    for (unsigned i = 0; kind == 'v' && i < length; i++) {
        uint8_t *reg = &merging->registers[merging->at + i];
        if (*reg < value) *reg = (uint8_t)value;
    }
    merging->at += length;
}

bool hll_merge(struct slice bytes, uint8_t registers[static HLL_REGISTERS]) {
    if (!hll_is_dense(bytes)) {
        if (!hll_runs(bytes, NULL, NULL)) return false;
        return hll_runs(bytes, merge_run, &(struct merging){registers, 0});
    }
    uint8_t unpacked[HLL_REGISTERS];
    hyperloglog_unpack(bytes.data + HLL_HEADER, unpacked);
    greater(unpacked, registers);
    return true;
}

/* --- Estimating --- */

static double sigma(double x) {
    if (x == 1.0) return INFINITY;
    double y = 1, z = x, last;
    do {
        x *= x;
        last = z;
        z += x * y;
        y += y;
    } while (last != z);
    return z;
}

static double tau(double x) {
    if (x == 0.0 || x == 1.0) return 0.0;
    double y = 1.0, z = 1 - x, last;
    do {
        x = sqrt(x);
        last = z;
        y *= 0.5;
        z -= (1 - x) * (1 - x) * y;
    } while (last != z);
    return z / 3;
}

uint64_t hll_estimate(const uint8_t registers[static HLL_REGISTERS]) {
    static const double ALPHA = 0.721347520444481703680; /* 1 / (2 ln 2) */
    const double m = HLL_REGISTERS;
    /* Several rows, so that the increments for equal neighbors do not depend on each other's store. */
    unsigned rows[4][64] = {{0}}, histogram[64];
    unsigned zeros = 0; /* counted eight at a time: with few elements nearly all registers are zero */
    for (int i = 0; i < HLL_REGISTERS; i += 8) {
        uint64_t eight;
        memcpy(&eight, registers + i, sizeof eight);
        if (!eight) {
            zeros += 8;
            continue;
        }
        for (int j = 0; j < 8; j++) rows[j & 3][registers[i + j] & 63]++;
    }
    for (int i = 0; i < 64; i++) histogram[i] = rows[0][i] + rows[1][i] + rows[2][i] + rows[3][i];
    histogram[0] += zeros;
    double z = m * tau((m - histogram[RANK_MAX]) / m);
    for (int j = RANK_MAX - 1; j >= 1; j--) z = (z + histogram[j]) * 0.5;
    z += m * sigma(histogram[0] / m);
    return (uint64_t)llround(ALPHA * m * m / z);
}
