/* A set that many processes add to and one empties: which queue pairs of a completion queue have something to
 * poll, which queues of a channel have fired.
 *
 * Two levels of words: `leaf` holds the members, `summary` which leaves are worth reading. Adding is at most
 * two atomic ORs and usually none, because a member that is in already costs two loads. The owner clears the
 * summary bit first and takes the leaf second; an adder sets the leaf first and looks at the summary second:
 * one of them sees the other.
 *
 * A caller that adds after publishing something must put a full fence between (see doorbell in send.c). */
#pragma once

#include "wire.h"

static inline void ready_add(struct ready_set *set, uint32_t member) {
    uint32_t leaf = member / 64;
    uint64_t bit = 1ull << (member % 64), mark = 1ull << (leaf % 64);
    if (!(load_relaxed(&set->leaf[leaf]) & bit)) atomic_fetch_or(&set->leaf[leaf], bit);
    if (unlikely(!(load_relaxed(&set->summary[leaf / 64]) & mark))) atomic_fetch_or(&set->summary[leaf / 64], mark);
}

static inline void ready_remove(struct ready_set *set, uint32_t member) {
    atomic_fetch_and(&set->leaf[member / 64], ~(1ull << (member % 64)));
}

/* Takes a whole leaf out. */
static inline uint64_t ready_take_leaf(struct ready_set *set, uint32_t leaf) {
    atomic_fetch_and(&set->summary[leaf / 64], ~(1ull << (leaf % 64)));
    return atomic_exchange(&set->leaf[leaf], 0);
}

/* The first leaf at or after `from` that is marked, going round once; -1: none. `leaves` is how many are in
 * use. */
static inline int ready_next_leaf(struct ready_set *set, uint32_t from, uint32_t leaves) {
    uint32_t words = (leaves + 63) / 64, word = from / 64;
    if (word >= words) word = from = 0;
    uint64_t bits = load_relaxed(&set->summary[word]) & (~0ull << (from % 64));
    for (uint32_t i = 0; i <= words; i++) {
        if (bits) return (int)(word * 64 + (uint32_t)__builtin_ctzll(bits));
        if (++word >= words) word = 0;
        bits = load_relaxed(&set->summary[word]);
    }
    return -1;
}

/* Takes one member; -1: the set is empty. For sets where speed does not matter. */
static inline int ready_take_one(struct ready_set *set) {
    for (int leaf; (leaf = ready_next_leaf(set, 0, READY_LEAVES)) >= 0;) {
        uint64_t bits = ready_take_leaf(set, (uint32_t)leaf);
        if (!bits) continue;
        uint32_t first = (uint32_t)__builtin_ctzll(bits);
        for (uint64_t rest = bits & (bits - 1); rest; rest &= rest - 1)
            ready_add(set, (uint32_t)leaf * 64 + (uint32_t)__builtin_ctzll(rest));
        return leaf * 64 + (int)first;
    }
    return -1;
}
