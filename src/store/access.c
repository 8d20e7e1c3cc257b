/* access.c: the 24-bit access field: how recently (LRU) or how often (LFU) a key was used.
 *
 * LRU: seconds of the wall clock modulo 2^24, half a year. LFU: 16 bits of minutes, the time of the last decay, and an
 * 8-bit logarithmic counter: a use increments it with probability 1 / ((counter - LFU_START) * lfu_log_factor + 1). New
 * keys start at LFU_START, so that they are not evicted before they can collect uses. Every lfu_decay_time minutes
 * decrement the counter by one. */
#include "lib/system/random.h"
#include "store/entry_layout.h"
#include "store/keyspace.h"

enum { LFU_START = 5, LRU_MASK = 0xffffff };

static uint32_t lru_now(void) {
    return (uint32_t)(clock_ms() / 1000) & LRU_MASK;
}
static uint32_t lfu_minutes(void) {
    return (uint32_t)(clock_ms() / 60000) & 0xffff;
}
static uint32_t lfu_field(uint32_t counter) {
    return lfu_minutes() << 8 | counter;
}

static uint32_t lfu_decayed(uint32_t field) {
    uint32_t counter = field & 0xff, elapsed = (lfu_minutes() - (field >> 8)) & 0xffff;
    if (store_settings.lfu_decay_time <= 0) return counter;
    uint32_t periods = elapsed / (uint32_t)store_settings.lfu_decay_time;
    return periods > counter ? 0 : counter - periods;
}

static uint32_t lfu_incremented(uint32_t counter) {
    if (counter == 255) return 255;
    uint64_t above = counter > LFU_START ? counter - LFU_START : 0;
    uint64_t one_in = above * (uint64_t)(store_settings.lfu_log_factor > 0 ? store_settings.lfu_log_factor : 0) + 1;
    return one_in == 1 || random_below(one_in) == 0 ? counter + 1 : counter;
}

uint32_t access_new(void) {
    return store_settings.lfu ? lfu_field(LFU_START) : lru_now();
}

void entry_touch(struct entry *e) {
    if (store_settings.keep_access || store_settings.lending) return;
    uint32_t field = store_settings.lfu ? lfu_field(lfu_incremented(lfu_decayed(e->access))) : lru_now();
    if (e->access != field) e->access = field & LRU_MASK; /* an unchanged cache line stays clean */
}

uint32_t entry_idle_seconds(const struct entry *e) {
    return (lru_now() - e->access) & LRU_MASK;
}
uint8_t entry_frequency(const struct entry *e) {
    return (uint8_t)lfu_decayed(e->access);
}
void entry_set_idle_seconds(struct entry *e, uint32_t seconds) {
    e->access = (lru_now() - seconds) & LRU_MASK;
}
void entry_set_frequency(struct entry *e, uint8_t frequency) {
    e->access = lfu_field(frequency) & LRU_MASK;
}
void entry_set_access(struct entry *e, int64_t idle_seconds, int64_t frequency) {
    if (store_settings.lfu && frequency >= 0)
        entry_set_frequency(e, (uint8_t)frequency);
    else if (!store_settings.lfu && idle_seconds >= 0)
        entry_set_idle_seconds(e, idle_seconds < UINT32_MAX ? (uint32_t)idle_seconds : UINT32_MAX);
}
