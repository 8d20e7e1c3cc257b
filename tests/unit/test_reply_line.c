/* The reader of single lines: line ends, incomplete lines, and the longest line. */
#include "unit.h"
#include "lib/system/memory.h"
#include "net/reply_line.h"

enum { MAX = 16 };

/* Reads from a separate block, so that a sanitizer detects reads past its end. */
static void expect(struct slice input, ssize_t used, struct slice text) {
    char *block = mem_alloc(input.len ? input.len : 1);
    struct slice line = SLICE("unchanged");
    if (input.len) memcpy(block, input.data, input.len);
    assert_int_equal(reply_line_read(slice_make(block, input.len), MAX, &line), used);
    if (used > 0) assert_ptr_equal(line.data, block);
    assert_true(slice_equal(line, used > 0 ? text : SLICE("unchanged")));
    mem_free(block);
}

TEST(a_line_ends_with_lf_or_crlf) {
    expect(SLICE("+OK\r\n$5\r\n"), 5, SLICE("+OK"));
    expect(SLICE("+OK\n$5\r\n"), 4, SLICE("+OK"));
    expect(SLICE("a\rb\r\r\n"), 6, SLICE("a\rb\r"));
    expect(SLICE("a\0b\n"), 4, SLICE("a\0b"));
}
TEST(an_empty_line_is_a_line) {
    expect(SLICE("\n"), 1, SLICE(""));
    expect(SLICE("\r\n+OK\r\n"), 2, SLICE(""));
    expect(SLICE("\n\r\n"), 1, SLICE(""));
}
TEST(an_incomplete_line_is_not_read) {
    expect(SLICE(""), 0, SLICE(""));
    expect(slice_make(NULL, 0), 0, SLICE(""));
    expect(SLICE("\r"), 0, SLICE(""));
    expect(SLICE("+FULLRESYNC\r"), 0, SLICE(""));
    expect(SLICE("123456789012345"), 0, SLICE(""));
}
TEST(a_line_has_at_most_its_limit) {
    expect(SLICE("12345678901234\r\n"), MAX, SLICE("12345678901234"));
    expect(SLICE("123456789012345\n"), MAX, SLICE("123456789012345"));
    expect(SLICE("1234567890123456\n"), -EMSGSIZE, SLICE(""));
    expect(SLICE("123456789012345\r\n"), -EMSGSIZE, SLICE(""));
    expect(SLICE("1234567890123456"), -EMSGSIZE, SLICE(""));
}
