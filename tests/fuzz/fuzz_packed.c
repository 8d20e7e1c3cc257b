/* Packed forms of values from files and peers: bytes that listpack_validate and intset_validate accept can be iterated
 * over in both directions, searched and changed without accesses outside their memory; LZF data unpacks to its stated
 * length. Input: a byte that selects the test, the bytes. */
#include "fuzz.h"
#include "lib/structures/intset.h"
#include "lib/structures/listpack.h"
#include "lib/system/memory.h"
#include "lib/text/lzf.h"

static void fuzz_listpack(uint8_t *lp, size_t size) {
    listpack_validate(lp, size, false, NULL, NULL);
    if (!listpack_validate(lp, size, true, NULL, NULL)) {
        mem_free(lp);
        return;
    }
    char text[LISTPACK_TEXT];
    size_t count = 0, back = 0;
    const uint8_t *p = listpack_first(lp);
    for (; p; p = listpack_next(lp, p), count++) {
        struct slice bytes = listpack_text(p, text);
        FUZZ_CHECK(listpack_equal(p, bytes), "element %zu is not itself", count);
        const uint8_t *found = listpack_find(lp, listpack_first(lp), bytes, 0);
        FUZZ_CHECK(found && found <= p, "element %zu is not found", count);
    }
    for (p = listpack_last(lp); p; p = listpack_prev(lp, p)) back++;
    FUZZ_CHECK(count == back && count == listpack_count(lp), "%zu forwards, %zu backwards", count, back);
    for (size_t i = 0; i < count && i < 20; i++) {
        uint8_t *at = listpack_seek(lp, (int64_t)i);
        struct slice bytes = listpack_text(at, text);
        char copy[64];
        bytes.len = bytes.len < sizeof copy ? bytes.len : sizeof copy;
        memcpy(copy, bytes.data, bytes.len);
        struct listpack_value value = listpack_text_value((struct slice){copy, bytes.len});
        if (i % 3 == 0)
            lp = listpack_replace(lp, &at, value);
        else if (i % 3 == 1)
            lp = listpack_insert(lp, &at, value);
        else
            lp = listpack_delete(lp, &at, 1);
        FUZZ_CHECK(listpack_validate(lp, listpack_bytes(lp), true, NULL, NULL), "broken by change %zu", i);
    }
    listpack_free(lp);
}

static void fuzz_intset(uint8_t *set, size_t size) {
    intset_validate(set, size, false);
    if (intset_validate(set, size, true)) {
        size_t count = intset_count(set);
        FUZZ_CHECK(intset_bytes(set) == size, "size");
        for (size_t i = 0; i < count; i++)
            FUZZ_CHECK(i == 0 || intset_at(set, i - 1) < intset_at(set, i), "order at %zu", i);
        bool changed;
        int64_t lowest = intset_min(set);
        set = intset_add(set, INT64_MIN, &changed);
        set = intset_remove(set, lowest, &changed);
        FUZZ_CHECK(changed, "the lowest was not there");
    }
    intset_free(set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 3) return 0;
    size_t len = size - 1;
    uint8_t *bytes = mem_alloc(len); /* of the exact size, so that reads past the end are detected */
    memcpy(bytes, data + 1, len);
    switch (data[0] % 3) {
    case 0: fuzz_listpack(bytes, len); break;
    case 1: fuzz_intset(bytes, len); break;
    case 2: {
        size_t capacity = (size_t)(bytes[0] | bytes[1] << 8);
        char *to = mem_alloc(capacity + 1);
        lzf_unpack((struct slice){(const char *)bytes + 2, len - 2}, to, capacity);
        mem_free(to);
        mem_free(bytes);
    }
    }
    return 0;
}
