/* histogram.h: a histogram of values (latencies) with constant relative precision in a fixed amount of memory. The
 * width of a bucket grows with its value.
 *
 * With `bits` of precision a bucket is at most 2^-bits of its value wide: 10 bits keep three decimal digits, 7 bits
 * two. Values below 2^(bits+1) are exact. The layout is that of HdrHistogram. The unit is the caller's choice. */
#pragma once
#include <stdint.h>

struct histogram {
    uint64_t count, sum, min, max; /* of the recorded values; min is UINT64_MAX while empty */
    uint64_t highest;              /* larger values are recorded as this one */
    uint32_t bits, buckets;
    uint64_t counts[];
};

struct histogram *histogram_new(unsigned bits, uint64_t highest);
void histogram_free(struct histogram *h);
void histogram_merge(struct histogram *into,
                     const struct histogram *from); /* both must have the same bits and highest */

static inline uint32_t histogram_bucket(const struct histogram *h, uint64_t value) {
    int shift = 63 - __builtin_clzll(value | 1) - (int)h->bits;
    if (shift < 0) shift = 0;
    return ((uint32_t)shift << h->bits) + (uint32_t)(value >> shift);
}
/* The largest value of a bucket. */
static inline uint64_t histogram_bucket_top(const struct histogram *h, uint32_t bucket) {
    if (bucket < 2u << h->bits) return bucket;
    uint32_t shift = (bucket >> h->bits) - 1;
    return ((((uint64_t)bucket & ((1u << h->bits) - 1)) + (UINT64_C(1) << h->bits) + 1) << shift) - 1;
}
static inline void histogram_record(struct histogram *h, uint64_t value, uint64_t times) {
    if (value > h->highest) value = h->highest;
    h->count += times;
    h->sum += value * times;
    if (value < h->min) h->min = value;
    if (value > h->max) h->max = value;
    h->counts[histogram_bucket(h, value)] += times;
}

/* The value at rank percent / 100 * count, rounded to the nearest rank; 0 if the histogram is empty. */
uint64_t histogram_percentile(const struct histogram *h, double percent);
/* The number of values up to `value`, with the precision of a bucket. */
uint64_t histogram_count_up_to(const struct histogram *h, uint64_t value);
