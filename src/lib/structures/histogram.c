/* histogram.c: see histogram.h. */
#include "lib/structures/histogram.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"

struct histogram *histogram_new(unsigned bits, uint64_t highest) {
    struct histogram probe = {.bits = bits};
    uint32_t buckets = histogram_bucket(&probe, highest) + 1;
    struct histogram *h = mem_calloc(1, sizeof *h + buckets * sizeof *h->counts);
    h->bits = bits;
    h->highest = highest;
    h->buckets = buckets;
    h->min = UINT64_MAX;
    return h;
}

void histogram_free(struct histogram *h) {
    mem_free(h);
}

void histogram_merge(struct histogram *into, const struct histogram *from) {
    must_equal(into->bits, from->bits);
    must_equal(into->buckets, from->buckets);
    into->count += from->count;
    into->sum += from->sum;
    if (from->min < into->min) into->min = from->min;
    if (from->max > into->max) into->max = from->max;
    for (uint32_t i = 0; i < from->buckets; i++) into->counts[i] += from->counts[i];
}

uint64_t histogram_percentile(const struct histogram *h, double percent) {
    if (h->count == 0) return 0;
    uint64_t wanted = (uint64_t)(percent / 100 * (double)h->count + 0.5);
    if (wanted == 0) wanted = 1;
    uint64_t seen = 0;
    for (uint32_t i = 0; i < h->buckets; i++) {
        seen += h->counts[i];
        if (seen < wanted) continue;
        uint64_t top = histogram_bucket_top(h, i);
        return top < h->max ? top : h->max;
    }
    return h->max;
}

uint64_t histogram_count_up_to(const struct histogram *h, uint64_t value) {
    uint32_t last = histogram_bucket(h, value < h->highest ? value : h->highest);
    uint64_t seen = 0;
    for (uint32_t i = 0; i <= last; i++) seen += h->counts[i];
    return seen;
}
