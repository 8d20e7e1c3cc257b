/* requests_ahead() and request_ahead() find the same as the reader, and stop safely at anything else. */
#include "unit.h"
#include "lib/system/random.h"
#include "resp/request_ahead.h"
#include <stdio.h>
#include <stdlib.h>

static const char pipeline[] = "*2\r\n$3\r\nGET\r\n$4\r\nkey1\r\n"
                               "*1\r\n$4\r\nPING\r\n"
                               "*3\r\n$3\r\nSET\r\n$0\r\n\r\n$2\r\n\r\n\r\n"
                               "*2\r\n$3\r\nGET\r\n$4\r\nkey2\r\n";

TEST(keys_of_whole_requests_are_found) {
    struct slice keys[8], all = SLICE(pipeline);
    size_t seen;
    assert_int_equal(requests_ahead(all, keys, 8, &seen), 3);
    assert_int_equal(seen, all.len);
    assert_true(slice_equal(keys[0], SLICE("key1")));
    assert_int_equal(keys[1].len, 0);
    assert_true(slice_equal(keys[2], SLICE("key2")));
    assert_int_equal(requests_ahead(all, keys, 2, &seen), 1);
    assert_int_equal(seen, 37);
}

TEST(arguments_of_the_first_request_are_found) {
    struct slice argv[3], rest = SLICE(pipeline);
    size_t size;
    assert_int_equal(request_ahead(rest, argv, 1, &size), 0);
    for (int i = 0; i < 4; i++) {
        static const int counts[] = {2, 1, 3, 2};
        assert_int_equal(request_ahead(rest, argv, 3, &size), counts[i]);
        rest = (struct slice){rest.data + size, rest.len - size};
        if (i != 2) continue;
        assert_true(slice_equal(argv[0], SLICE("SET")));
        assert_int_equal(argv[1].len, 0);
        assert_true(slice_equal(argv[2], SLICE("\r\n")));
    }
    assert_int_equal(rest.len, 0);
    assert_int_equal(request_ahead(rest, argv, 3, &size), 0);
}

TEST(an_incomplete_request_is_not_scanned) {
    struct slice keys[8];
    size_t seen;
    for (size_t len = 0; len < sizeof(pipeline) - 1; len++) {
        char *copy = malloc(len + 1); /* of exactly this size, so that a sanitizer detects reads past the end */
        memcpy(copy, pipeline, len);
        char *tight = realloc(copy, len ? len : 1);
        size_t count = requests_ahead((struct slice){tight, len}, keys, 8, &seen);
        assert_int_equal(count, (len >= 23) + (len >= 64));
        assert_true(seen <= len);
        struct slice argv[3];
        assert_int_equal(request_ahead((struct slice){tight, len}, argv, 3, &seen), len >= 23 ? 2 : 0);
        free(tight);
    }
}

TEST(anything_unusual_ends_the_scan) {
    static const char *const odd[] = {"GET key\r\n",
                                      "*0\r\n",
                                      "*-1\r\n",
                                      "*2\r\n$-1\r\n",
                                      "*2\r\n$3\r\nGET\r\n$999999999\r\n",
                                      "*2\r\n+GET\r\n",
                                      "*\r\n",
                                      "*2x\n$3\r\n",
                                      "*99999999999999999999\r\n",
                                      "*2\r\n$3\r\nGET\r\n$\r\n"};
    struct slice keys[4];
    size_t seen;
    for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
        assert_int_equal(requests_ahead(slice_of(odd[i]), keys, 4, &seen), 0);
        assert_int_equal(seen, 0);
        struct slice argv[4];
        assert_int_equal(request_ahead(slice_of(odd[i]), argv, 4, &seen), 0);
    }
}

TEST(random_bytes_do_no_harm) {
    static const char alphabet[] = "*$0123\r\nGa";
    struct slice keys[4];
    random_seed(1);
    for (int round = 0; round < 100000; round++) {
        size_t len = random_below(40), seen;
        char *text = malloc(len + 1);
        for (size_t i = 0; i < len; i++) text[i] = alphabet[random_below(sizeof(alphabet) - 1)];
        size_t count = requests_ahead((struct slice){text, len}, keys, 4, &seen);
        assert_true(seen <= len);
        for (size_t i = 0; i < count; i++)
            assert_true(keys[i].data >= text && keys[i].data + keys[i].len + 2 <= text + len);
        struct slice argv[4];
        int argc = request_ahead((struct slice){text, len}, argv, 4, &seen);
        for (int i = 0; i < argc; i++)
            assert_true(argv[i].data >= text && argv[i].data + argv[i].len + 2 <= text + len);
        free(text);
    }
}
