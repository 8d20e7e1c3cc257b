/* intset.c: see intset.h for the format. */
#include "lib/structures/intset.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/random.h"
#include <string.h>

/* --- Bytes --- */

static inline uint32_t get32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}
static inline void put32(uint8_t *p, uint32_t v) {
    p[0] = (uint8_t)v, p[1] = (uint8_t)(v >> 8), p[2] = (uint8_t)(v >> 16), p[3] = (uint8_t)(v >> 24);
}
static inline size_t width_of(const uint8_t *set) {
    return get32(set);
}
static inline size_t width_for(int64_t v) {
    return v >= INT16_MIN && v <= INT16_MAX ? 2 : v >= INT32_MIN && v <= INT32_MAX ? 4 : 8;
}
static inline int64_t get(const uint8_t *set, size_t width, size_t index) {
    const uint8_t *p = set + INTSET_HEADER_BYTES + index * width;
    if (width == 2) return (int16_t)(p[0] | p[1] << 8);
    if (width == 4) return (int32_t)get32(p);
    return (int64_t)((uint64_t)get32(p) | (uint64_t)get32(p + 4) << 32);
}
static inline void intset_put(uint8_t *set, size_t width, size_t index, int64_t value) {
    uint8_t *p = set + INTSET_HEADER_BYTES + index * width;
    for (size_t i = 0; i < width; i++) p[i] = (uint8_t)((uint64_t)value >> 8 * i);
}

/* Counts the integers below the value. Each step is a conditional addition, not a branch that the CPU could mispredict.
 */
static inline __attribute__((always_inline)) size_t below(const uint8_t *set, size_t width, size_t count,
                                                          int64_t value) {
    size_t low = 0;
    while (count > 1) {
        size_t half = count / 2;
        low += get(set, width, low + half - 1) < value ? half : 0;
        count -= half;
    }
    return low + (count && get(set, width, low) < value);
}
/* Sets *index to the position of the value, or to its insertion point. */
static bool search(const uint8_t *set, int64_t value, size_t *index) {
    size_t width = width_of(set), count = intset_count(set);
    /* Integers often arrive in ascending order. */
    if (count && value > get(set, width, count - 1))
        *index = count;
    else
        *index = width == 2   ? below(set, 2, count, value)
                 : width == 4 ? below(set, 4, count, value)
                              : below(set, 8, count, value);
    return *index < count && get(set, width, *index) == value;
}

/* --- The interface --- */

uint8_t *intset_new(void) {
    uint8_t *set = mem_alloc(INTSET_HEADER_BYTES);
    put32(set, 2);
    put32(set + 4, 0);
    return set;
}
uint8_t *intset_copy(const uint8_t *set) {
    size_t bytes = intset_bytes(set);
    uint8_t *copy = mem_alloc(bytes);
    memcpy(copy, set, bytes);
    return copy;
}
void intset_free(uint8_t *set) {
    mem_free(set);
}
size_t intset_count(const uint8_t *set) {
    return get32(set + 4);
}
size_t intset_bytes(const uint8_t *set) {
    return INTSET_HEADER_BYTES + intset_count(set) * width_of(set);
}
int64_t intset_at(const uint8_t *set, size_t index) {
    must_less(index, intset_count(set));
    return get(set, width_of(set), index);
}
bool intset_has(const uint8_t *set, int64_t value) {
    size_t index;
    return width_for(value) <= width_of(set) && search(set, value, &index);
}
int64_t intset_min(const uint8_t *set) {
    return intset_at(set, 0);
}
int64_t intset_max(const uint8_t *set) {
    return intset_at(set, intset_count(set) - 1);
}
int64_t intset_random(const uint8_t *set) {
    return intset_at(set, random_below(intset_count(set)));
}

bool intset_seek(const uint8_t *set, int64_t value, size_t *index) {
    size_t width = width_of(set), count = intset_count(set), low = *index, step = 1;
    if (low > count || (low && get(set, width, low - 1) >= value)) low = 0;
    for (; low + step <= count && get(set, width, low + step - 1) < value; step *= 2) low += step;
    size_t left = count - low < step ? count - low : step;
    low += below(set + low * width, width, left, value);
    *index = low;
    return low < count && get(set, width, low) == value;
}

/* As with listpacks, memory grows to the size needed and shrinks when less than half of it is used. */
static uint8_t *resize(uint8_t *set, size_t width, size_t count) {
    must_hold(count <= UINT32_MAX, "%zu members", count);
    size_t bytes = INTSET_HEADER_BYTES + width * count, capacity = mem_size(set);
    return bytes > capacity || (capacity > 64 && bytes < capacity / 2) ? mem_realloc(set, bytes) : set;
}

/* The value does not fit the current width, so it becomes the first or the last integer. */
static uint8_t *add_wider(uint8_t *set, int64_t value) {
    size_t count = intset_count(set), old = width_of(set), new = width_for(value), first = value < 0;
    must_less(old, new);
    set = resize(set, new, count + 1);
    for (size_t i = count; i-- > 0;)
        intset_put(set, new, i + first,
                   get(set, old, i)); /* from the end, so that no integer is overwritten before it is read */
    intset_put(set, new, first ? 0 : count, value);
    put32(set, (uint32_t) new);
    put32(set + 4, (uint32_t)(count + 1));
    return set;
}

uint8_t *intset_add(uint8_t *set, int64_t value, bool *added) {
    size_t width = width_of(set), count = intset_count(set), index;
    *added = true;
    if (width_for(value) > width) return add_wider(set, value);
    if (search(set, value, &index)) {
        *added = false;
        return set;
    }
    set = resize(set, width, count + 1);
    uint8_t *p = set + INTSET_HEADER_BYTES + index * width;
    must_within(index, count);
    memmove(p + width, p, (count - index) * width);
    intset_put(set, width, index, value);
    put32(set + 4, (uint32_t)(count + 1));
    return set;
}

uint8_t *intset_remove(uint8_t *set, int64_t value, bool *removed) {
    size_t width = width_of(set), count = intset_count(set), index;
    *removed = width_for(value) <= width && search(set, value, &index);
    if (!*removed) return set;
    uint8_t *p = set + INTSET_HEADER_BYTES + index * width;
    memmove(p, p + width, (count - index - 1) * width);
    put32(set + 4, (uint32_t)(count - 1));
    return resize(set, width, count - 1);
}

bool intset_validate(const uint8_t *bytes, size_t size, bool deep) {
    if (size < INTSET_HEADER_BYTES) return false;
    size_t width = get32(bytes), count = get32(bytes + 4);
    if (width != 2 && width != 4 && width != 8) return false;
    if (count == 0 || (size - INTSET_HEADER_BYTES) / width != count || (size - INTSET_HEADER_BYTES) % width)
        return false;
    for (size_t i = 1; deep && i < count; i++)
        if (get(bytes, width, i - 1) >= get(bytes, width, i)) return false;
    return true;
}
