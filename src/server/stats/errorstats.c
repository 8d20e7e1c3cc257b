/* errorstats.c: see errorstats.h. The server has few error codes, but scripts may use any number of them: beyond
 * CODES_MAX all new codes of scripts count under one name. A sorted array is enough: it is small and errors are rare.
 */
#include "server/stats/errorstats.h"
#include "lib/system/memory.h"

enum { CODES_MAX = 128, CODE_LEN_MAX = 64 };
static struct code {
    char *name;
    size_t len;
    uint64_t count;
} * codes;
static size_t codes_count, codes_capacity;
/* The code counted last is often the next one, too: a client with an old map of a cluster gets one MOVED after the
 * other. A short one is compared in one step, together with the space behind it. */
static struct {
    struct code *code;        /* NULL: none, or it is long */
    uint64_t beginning, mask; /* of a text with this code */
} last;
static uint64_t total;
static const struct slice overflow = {"ERRORSTATS_OVERFLOW", 19};

static size_t code_position(struct slice name, bool *found) {
    size_t low = 0, high = codes_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        int order = slice_compare((struct slice){codes[middle].name, codes[middle].len}, name);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    *found = false;
    return low;
}

static void code_count(struct slice name, bool invented) {
    bool found;
    size_t at = code_position(name, &found);
    if (!found && codes_count >= CODES_MAX && invented) {
        code_count(overflow, false);
        return;
    }
    if (!found) {
        mem_grow(codes, codes_count, codes_capacity, 16);
        memmove(&codes[at + 1], &codes[at], (codes_count - at) * sizeof *codes);
        codes[at] = (struct code){mem_strndup(name.data, name.len), name.len, 0};
        codes_count++;
    }
    codes[at].count++;
    last.code = NULL;
    if (codes[at].len >= sizeof last.beginning) return;
    last.code = &codes[at];
    last.beginning = last.mask = 0;
    memset(&last.mask, 0xff, codes[at].len + 1);
    memcpy(&last.beginning, codes[at].name, codes[at].len);
    memset((char *)&last.beginning + codes[at].len, ' ', 1);
}

static bool is_last(struct slice text) {
    uint64_t beginning;
    if (!last.code || text.len < sizeof beginning) return false;
    memcpy(&beginning, text.data, sizeof beginning);
    return (beginning & last.mask) == last.beginning;
}

static void error_count(struct slice text, bool invented) {
    total++;
    if (is_last(text)) {
        last.code->count++;
        return;
    }
    const char *space = memchr(text.data, ' ', text.len);
    size_t len = space ? (size_t)(space - text.data) : text.len;
    code_count((struct slice){text.data, len > CODE_LEN_MAX ? CODE_LEN_MAX : len}, invented);
}

void errorstats_count(struct reply *reply, struct slice text) {
    error_count(text, false);
}

void errorstats_count_invented(struct reply *reply, struct slice text) {
    error_count(text, true);
}

uint64_t errorstats_total(void) {
    return total;
}

void errorstats_reset(void) {
    for (size_t i = 0; i < codes_count; i++) mem_free(codes[i].name);
    codes_count = 0;
    last.code = NULL;
    total = 0;
}

void errorstats_each(void (*visit)(struct slice code, uint64_t count, void *context), void *context) {
    for (size_t i = 0; i < codes_count; i++)
        visit((struct slice){codes[i].name, codes[i].len}, codes[i].count, context);
}
