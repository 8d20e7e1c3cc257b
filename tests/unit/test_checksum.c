/* CRC-64, CRC-32C and LZF: known results, input in pieces, corruption. */
#include "unit.h"
#include "lib/hash/crc32c.h"
#include "lib/hash/crc64.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "lib/text/lzf.h"

TEST(crc64_of_a_known_text) {
    assert_true(crc64(0, "123456789", 9) == UINT64_C(0xe9c6d914c4b8d9ca));
    assert_true(crc64(0, "", 0) == 0);
}
/* Bit by bit, according to the definition. */
static uint64_t crc64_slowly(uint64_t crc, const uint8_t *p, size_t len) {
    for (; len; p++, len--) {
        crc ^= *p;
        for (int bit = 0; bit < 8; bit++) crc = crc >> 1 ^ (crc & 1 ? UINT64_C(0x95ac9329ac4bc9b5) : 0);
    }
    return crc;
}
TEST(crc64_of_any_length_at_any_place) {
    enum { SIZE = 40000 };
    uint8_t *data = mem_alloc(SIZE);
    random_seed(1);
    for (size_t i = 0; i < SIZE; i++) data[i] = (uint8_t)random_u64();
    for (int i = 0; i < 400; i++) {
        size_t from = random_below(100), len = i < 200 ? (size_t)i : random_below(SIZE - from);
        uint64_t start = i % 3 ? random_u64() : 0;
        assert_true(crc64(start, data + from, len) == crc64_slowly(start, data + from, len));
        assert_true(crc64_portable(start, data + from, len) == crc64_slowly(start, data + from, len));
        size_t cut = len ? random_below(len) : 0;
        assert_true(crc64(crc64(start, data, cut), data + cut, len - cut) == crc64(start, data, len));
        assert_true(crc64_combine(crc64(start, data, cut), crc64(0, data + cut, len - cut), len - cut) ==
                    crc64(start, data, len));
    }
    mem_free(data);
}

TEST(crc32c_of_known_texts) {
    uint8_t bytes[32];
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
    assert_int_equal(crc32c(0, "", 0), 0);
    memset(bytes, 0, sizeof bytes); /* RFC 3720, B.4 */
    assert_int_equal(crc32c(0, bytes, sizeof bytes), 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(crc32c(0, bytes, sizeof bytes), 0x62a8ab43);
}
TEST(crc32c_of_any_length_at_any_place) {
    uint8_t data[20000];
    random_seed(2);
    for (size_t i = 0; i < sizeof data; i++) data[i] = (uint8_t)random_u64();
    for (int i = 0; i < 2000; i++) {
        size_t from = random_below(100), most = i % 4 ? 1200 : sizeof data - from, len = random_below((unsigned)most);
        size_t cut = len ? random_below(len) : 0;
        uint32_t start = i % 3 ? (uint32_t)random_u64() : 0, whole = crc32c(start, data + from, len);
        assert_int_equal(whole, crc32c_portable(start, data + from, len));
        assert_int_equal(whole, crc32c(crc32c(start, data + from, cut), data + from + cut, len - cut));
    }
}

TEST(lzf_packs_and_unpacks) {
    char text[5000], packed[5000], again[5000];
    random_seed(2);
    for (int i = 0; i < 300; i++) {
        size_t len = 20 + random_below(sizeof text - 20);
        for (size_t at = 0; at < len; at++) text[at] = (char)('a' + random_below(1 + (unsigned)i % 5));
        size_t size = lzf_pack((struct slice){text, len}, packed, len - 4);
        if (!size) continue;
        assert_true(size <= len - 4);
        assert_true(lzf_unpack((struct slice){packed, size}, again, len));
        assert_memory_equal(text, again, len);
        assert_false(lzf_unpack((struct slice){packed, size}, again, len - 1));
        if (len < sizeof again) assert_false(lzf_unpack((struct slice){packed, size}, again, len + 1));
        assert_false(lzf_unpack((struct slice){packed, size - 1}, again, len));
    }
}
TEST(lzf_says_when_it_is_not_worth_it) {
    char noise[256], packed[256];
    random_bytes(noise, sizeof noise);
    assert_int_equal(lzf_pack((struct slice){noise, sizeof noise}, packed, sizeof noise - 4), 0);
    assert_int_equal(lzf_pack(SLICE(""), packed, sizeof packed), 0);
    assert_false(lzf_unpack(SLICE(""), packed, 1));
    assert_false(lzf_unpack(SLICE("\xff\xff\xff"), packed, sizeof packed));
}
