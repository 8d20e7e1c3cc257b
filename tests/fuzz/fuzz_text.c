/* Parsers of text: words in the syntax of files are read back unchanged; a pattern with all characters of a text
 * escaped matches the text, alone and between stars; a number that was written is read back unchanged. Input: a byte
 * that selects the test, the text. */
#include "fuzz.h"
#include "lib/system/memory.h"
#include "lib/text/glob.h"
#include "lib/text/number.h"
#include "lib/text/output.h"
#include "resp/request.h"
#include "server/config/config_engine.h"

void config_server_start(void) {} /* this program has no server */

static void fuzz_words(struct slice text) {
    struct slice *words, *again;
    int count = words_split(text, &words);
    if (count < 0) {
        FUZZ_CHECK(words == NULL, "words of a line that has none");
        return;
    }
    struct memory_output line;
    memory_output_init(&line);
    for (int i = 0; i < count; i++) {
        if (i) output_write(&line.out, SLICE(" "));
        word_write(&line.out, words[i], i & 1);
    }
    int read = words_split(memory_output_slice(&line), &again);
    FUZZ_CHECK(read == count, "%d words became %d", count, read);
    for (int i = 0; i < count; i++) FUZZ_CHECK(slice_equal(words[i], again[i]), "word %d changed", i);
    words_free(words, count);
    words_free(again, read);
    memory_output_free(&line);
}

static void fuzz_glob(struct slice text, size_t pattern_len) {
    if (pattern_len > text.len) pattern_len = text.len;
    struct slice pattern = {text.data, pattern_len}, rest = {text.data + pattern_len, text.len - pattern_len};
    bool exact = glob_match(pattern, rest, false);
    if (exact && !memchr(pattern.data, '[', pattern.len)) /* ranges then have another meaning */
        FUZZ_CHECK(glob_match(pattern, rest, true), "matches, but not without regard to case");
    struct memory_output escaped;
    memory_output_init(&escaped);
    output_write(&escaped.out, SLICE("*"));
    for (size_t i = 0; i < rest.len; i++) {
        char pair[2] = {'\\', rest.data[i]};
        output_write(&escaped.out, (struct slice){pair, 2});
    }
    struct slice stars = memory_output_slice(&escaped), alone = {stars.data + 1, stars.len - 1};
    FUZZ_CHECK(glob_match(alone, rest, false) && glob_match(alone, rest, true), "the escaped text");
    FUZZ_CHECK(glob_match(stars, text, false), "a star before it");
    output_write(&escaped.out, SLICE("*"));
    FUZZ_CHECK(glob_match(memory_output_slice(&escaped), text, false), "between stars");
    memory_output_free(&escaped);
}

static void fuzz_numbers(struct slice text) {
    char shown[DOUBLE_TEXT_MAX];
    int64_t number, again;
    uint64_t natural, natural_again;
    if (parse_int64(text, &number)) {
        size_t len = format_int64(shown, number);
        FUZZ_CHECK(slice_equal(text, (struct slice){shown, len}), "an integer that is not canonical");
        FUZZ_CHECK(parse_int64((struct slice){shown, len}, &again) && again == number, "integer");
    }
    if (parse_uint64(text, &natural)) {
        size_t len = format_uint64(shown, natural);
        FUZZ_CHECK(parse_uint64((struct slice){shown, len}, &natural_again) && natural == natural_again,
                   "unsigned integer");
    }
    double real, real_again;
    if (parse_double(text, &real)) {
        size_t len = format_double(shown, real);
        FUZZ_CHECK(len < 40 && parse_double((struct slice){shown, len}, &real_again) && real == real_again,
                   "double %.*s", (int)len, shown);
    }
    long double wide;
    if (parse_long_double(text, &wide)) FUZZ_CHECK(format_long_double(shown, wide) <= sizeof shown, "long double");
    parse_memory(text, &natural);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size < 2) return 0;
    char *text = mem_alloc(size - 1); /* of the exact size, so that reads past the end are detected */
    memcpy(text, data + 1, size - 1);
    struct slice slice = {text, size - 1};
    switch (data[0] % 3) {
    case 0: fuzz_words(slice); break;
    case 1: fuzz_glob(slice, data[0] / 3); break;
    case 2: fuzz_numbers(slice); break;
    }
    mem_free(text);
    return 0;
}
