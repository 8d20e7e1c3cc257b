/* APPEND, SETRANGE, GETRANGE, STRLEN; counters; commands on several strings. */
#include "commands_fixture.h"

FIXTURE_TEST(append_adds_to_the_end) {
    does("APPEND k hello", ":5\r\n", 1, "APPEND k hello\n", "new(k) append(k) ");
    does("APPEND k \" world\"", ":11\r\n", 1, "APPEND k  world\n", "append(k) ");
    does("APPEND k \"\"", ":11\r\n", 1, "APPEND k \n", "append(k) ");
    replies("GET k", "$11\r\nhello world\r\n");
    does("APPEND n \"\"", ":0\r\n", 1, "APPEND n \n", "new(n) append(n) ");
    replies("EXISTS n", ":1\r\n");
    replies("SET i 12", OK);
    replies("APPEND i 34", ":4\r\n");
    replies("INCR i", ":1235\r\n");
    replies("SETEX e 10 v", OK);
    replies("APPEND e w", ":2\r\n");
    replies("TTL e", ":10\r\n");
}

FIXTURE_TEST(append_grows_past_every_representation) {
    size_t len = 0;
    for (size_t step = 1; len < 200000; step = step * 3 / 2 + 1) {
        char *piece = mem_alloc(step);
        memset(piece, 'a' + (int)(step % 26), step);
        len += step;
        char expected[32];
        snprintf(expected, sizeof expected, ":%zu\r\n", len);
        assert_string_equal(run_words(3, (struct slice[]){SLICE("APPEND"), SLICE("k"), {piece, step}}), expected);
        mem_free(piece);
    }
    char text[STRING_NUMBER_TEXT];
    struct slice value = entry_string(db_find(client->db, SLICE("k"), 0), text);
    assert_int_equal(value.len, len);
    size_t at = 0;
    for (size_t step = 1; at < len; step = step * 3 / 2 + 1) {
        assert_int_equal(value.data[at], 'a' + (int)(step % 26));
        assert_int_equal(value.data[at + step - 1], 'a' + (int)(step % 26));
        at += step;
    }
}

FIXTURE_TEST(setrange_overwrites_and_fills_up) {
    does("SETRANGE k 3 \"\"", ":0\r\n", 0, "", "");
    replies("EXISTS k", ":0\r\n");
    does("SETRANGE k 2 ab", ":4\r\n", 1, "SETRANGE k 2 ab\n", "new(k) setrange(k) ");
    run("GET k");
    assert_memory_equal(reply_memory.data, "$4\r\n\0\0ab\r\n", 10);
    does("SETRANGE k 1 XYZ", ":4\r\n", 1, "SETRANGE k 1 XYZ\n", "setrange(k) ");
    does("SETRANGE k 0 _", ":4\r\n", 1, "SETRANGE k 0 _\n", "setrange(k) ");
    replies("GET k", "$4\r\n_XYZ\r\n");
    does("SETRANGE k 1 \"\"", ":4\r\n", 0, "", "");
    replies("SET i 1234", OK);
    replies("SETRANGE i 2 99", ":4\r\n");
    replies("GET i", "$4\r\n1299\r\n");
}

FIXTURE_TEST(setrange_refuses_what_does_not_fit) {
    unchanged("SETRANGE k -1 a", "-ERR offset is out of range\r\n");
    unchanged("SETRANGE k x a", NOT_INTEGER);
    unchanged("SETRANGE k 536870912 a", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n");
    unchanged("SETRANGE k 536870911 ab", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n");
    unchanged("SETRANGE k 9223372036854775807 a", "-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n");
    unchanged("SETRANGE k 536870912 \"\"", ":0\r\n");
    replies("SETRANGE k 1000000 a", ":1000001\r\n");
    replies("STRLEN k", ":1000001\r\n");
    replies("GETRANGE k 1000000 -1", "$1\r\na\r\n");
}

FIXTURE_TEST(getrange_cuts) {
    replies("SET k 12345", OK);
    static const char *const cases[][2] = {
        {"0 -1", "$5\r\n12345\r\n"},
        {"1 2", "$2\r\n23\r\n"},
        {"-2 -1", "$2\r\n45\r\n"},
        {"-1 -2", "$0\r\n\r\n"},
        {"10 20", "$0\r\n\r\n"},
        {"0 -100", "$1\r\n1\r\n"},
        {"-100 1", "$2\r\n12\r\n"},
        {"3 1", "$0\r\n\r\n"},
        {"-100 -50", "$1\r\n1\r\n"},
        {"-50 -100", "$0\r\n\r\n"},
        {"4 9223372036854775807", "$1\r\n5\r\n"},
        {"-9223372036854775808 9223372036854775807", "$5\r\n12345\r\n"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char line[128];
        snprintf(line, sizeof line, "GETRANGE k %s", cases[i][0]);
        replies(line, cases[i][1]);
    }
    replies("SUBSTR k 0 0", "$1\r\n1\r\n");
    does("GETRANGE none 0 -1", "$0\r\n\r\n", 0, "", "keymiss(none) ");
    replies("GETRANGE none x 1", NOT_INTEGER);
    replies("GETRANGE k 0 x", NOT_INTEGER);
}

FIXTURE_TEST(strlen_counts_bytes) {
    does("STRLEN k", ":0\r\n", 0, "", "keymiss(k) ");
    replies("SET k -1234", OK);
    replies("STRLEN k", ":5\r\n");
    replies("SET k \"\\x00\\xff\"", OK);
    replies("STRLEN k", ":2\r\n");
}

FIXTURE_TEST(counters_count) {
    does("INCR k", ":1\r\n", 1, "INCR k\n", "new(k) incrby(k) ");
    does("DECR k", ":0\r\n", 1, "DECR k\n", "incrby(k) ");
    does("INCRBY k 10", ":10\r\n", 1, "INCRBY k 10\n", "incrby(k) ");
    does("DECRBY k 15", ":-5\r\n", 1, "DECRBY k 15\n", "incrby(k) ");
    replies("GET k", "$2\r\n-5\r\n");
    replies("EXPIRE k 10", ":1\r\n");
    replies("INCR k", ":-4\r\n");
    replies("TTL k", ":10\r\n");
}

FIXTURE_TEST(counters_refuse) {
    replies("SET k 9223372036854775807", OK);
    unchanged("INCR k", "-ERR increment or decrement would overflow\r\n");
    unchanged("INCRBY k 9223372036854775807", "-ERR increment or decrement would overflow\r\n");
    unchanged("DECRBY k -1", "-ERR increment or decrement would overflow\r\n");
    unchanged("DECRBY k -9223372036854775808", "-ERR decrement would overflow\r\n");
    unchanged("INCRBY k 9223372036854775808", NOT_INTEGER);
    replies("INCRBY k -9223372036854775808", ":-1\r\n");
    replies("SET k -9223372036854775808", OK);
    unchanged("DECR k", "-ERR increment or decrement would overflow\r\n");
    static const char *const bad[] = {"\" 5\"", "\"5 \"", "05", "+5", "1.5", "abc", "\"\"", "9223372036854775808"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char line[64];
        snprintf(line, sizeof line, "SET k %s", bad[i]);
        replies(line, OK);
        unchanged("INCR k", NOT_INTEGER);
    }
}

FIXTURE_TEST(incrbyfloat_adds_and_is_propagated_as_its_result) {
    does("INCRBYFLOAT k 3.0e3", "$4\r\n3000\r\n", 1, "SET k 3000 KEEPTTL\n", "new(k) incrbyfloat(k) ");
    does("INCRBYFLOAT k 0.5", "$6\r\n3000.5\r\n", 1, "SET k 3000.5 KEEPTTL\n", "incrbyfloat(k) ");
    does("INCRBYFLOAT k -3000.5", "$1\r\n0\r\n", 1, "SET k 0 KEEPTTL\n", "incrbyfloat(k) ");
    replies("INCRBYFLOAT k 1e-20", "$1\r\n0\r\n");
    replies("SET k 5.0e3", OK);
    replies("EXPIRE k 10", ":1\r\n");
    replies("INCRBYFLOAT k 2.0e2", "$4\r\n5200\r\n");
    replies("TTL k", ":10\r\n");
    client->reply.protocol = 3;
    replies("INCRBYFLOAT k 1", "$4\r\n5201\r\n");
}

FIXTURE_TEST(incrbyfloat_refuses) {
    replies("SET k 1", OK);
    unchanged("INCRBYFLOAT k abc", "-ERR value is not a valid float\r\n");
    unchanged("INCRBYFLOAT k nan", "-ERR value is not a valid float\r\n");
    unchanged("INCRBYFLOAT k \" 1\"", "-ERR value is not a valid float\r\n");
    unchanged("INCRBYFLOAT k \"\"", "-ERR value is not a valid float\r\n");
    unchanged("INCRBYFLOAT k inf", "-ERR increment would produce NaN or Infinity\r\n");
    unchanged("INCRBYFLOAT none -inf", "-ERR increment would produce NaN or Infinity\r\n");
    replies("SET k abc", OK);
    unchanged("INCRBYFLOAT k 1", "-ERR value is not a valid float\r\n");
    replies("SET k 1e4932", OK);
    unchanged("INCRBYFLOAT k 1e4932", "-ERR increment would produce NaN or Infinity\r\n");
    run("INCRBYFLOAT k 1");
    assert_memory_equal(reply_memory.data, "$4933\r\n1000", 11);
}

FIXTURE_TEST(mget_returns_what_there_is) {
    replies("MSET a 1 b xyz", OK);
    does("MGET a none b", "*3\r\n$1\r\n1\r\n$-1\r\n$3\r\nxyz\r\n", 0, "", "keymiss(none) ");
    client->reply.protocol = 3;
    replies("MGET none a", "*2\r\n_\r\n$1\r\n1\r\n");
}

FIXTURE_TEST(mset_sets_all) {
    does("MSET a 1 b 2", OK, 2, "MSET a 1 b 2\n", "new(a) set(a) new(b) set(b) ");
    does("MSET a 1 a 2 c 3", OK, 3, "MSET a 1 a 2 c 3\n", "set(a) set(a) new(c) set(c) ");
    replies("GET a", "$1\r\n2\r\n");
    unchanged("MSET a 1 b", "-ERR wrong number of arguments for 'mset' command\r\n");
    replies("EXPIRE a 10", ":1\r\n");
    replies("MSET a 1", OK);
    replies("TTL a", ":-1\r\n");
}

FIXTURE_TEST(msetnx_sets_all_or_none) {
    does("MSETNX a 1 b 2 a 3", ":1\r\n", 3, "MSETNX a 1 b 2 a 3\n", "new(a) set(a) new(b) set(b) set(a) ");
    unchanged("MSETNX c 1 b 2", ":0\r\n");
    replies("EXISTS c", ":0\r\n");
    unchanged("MSETNX a 1 b", "-ERR wrong number of arguments for 'msetnx' command\r\n");
}

FIXTURE_TEST(msetex_sets_all_with_one_time) {
    does("MSETEX 2 a 1 b 2 EX 10", ":1\r\n", 2, "MSETEX 2 a 1 b 2 PXAT 1700000010000\n",
         "new(a) set(a) expire(a) new(b) set(b) expire(b) ");
    replies("PTTL b", ":10000\r\n");
    does("MSETEX 1 a 2 KEEPTTL", ":1\r\n", 1, "MSETEX 1 a 2 KEEPTTL\n", "set(a) ");
    replies("PTTL a", ":10000\r\n");
    does("MSETEX 2 a 1 b 2", ":1\r\n", 2, "MSETEX 2 a 1 b 2\n", "set(a) set(b) ");
    replies("PTTL a", ":-1\r\n");
    unchanged("MSETEX 2 c 1 b 2 NX", ":0\r\n");
    unchanged("MSETEX 2 c 1 b 2 XX PX 100", ":0\r\n");
    does("MSETEX 2 a 3 b 4 XX PX 100", ":1\r\n", 2, "MSETEX 2 a 3 b 4 XX PXAT 1700000000100\n",
         "set(a) expire(a) set(b) expire(b) ");
    does("MSETEX 2 a 3 b 4 PXAT 1", ":1\r\n", 2, "MSETEX 2 a 3 b 4 PXAT 1\n", "set(a) expire(a) set(b) expire(b) ");
    replies("EXISTS a b", ":0\r\n");
}

FIXTURE_TEST(msetex_refuses) {
    unchanged("MSETEX 0 a 1", "-ERR invalid numkeys value or out of range\r\n");
    unchanged("MSETEX -1 a 1", "-ERR invalid numkeys value or out of range\r\n");
    unchanged("MSETEX x a 1", "-ERR invalid numkeys value or out of range\r\n");
    unchanged("MSETEX 2147483648 a 1", "-ERR invalid numkeys value or out of range\r\n");
    unchanged("MSETEX 2 a 1", SYNTAX);
    unchanged("MSETEX 2 a 1 b", SYNTAX);
    unchanged("MSETEX 1 a 1 NX XX", SYNTAX);
    unchanged("MSETEX 1 a 1 EX", SYNTAX);
    unchanged("MSETEX 1 a 1 EX 10 KEEPTTL", SYNTAX);
    unchanged("MSETEX 1 a 1 FOO", SYNTAX);
    unchanged("MSETEX 1 a 1 EX 0", "-ERR invalid expire time in 'msetex' command\r\n");
    unchanged("MSETEX 1 a 1 EX x", NOT_INTEGER);
}

FIXTURE_TEST(keys_of_msetex_are_counted) {
    struct key_position positions[4];
    struct slice words[] = {SLICE("MSETEX"), SLICE("2"), SLICE("a"),  SLICE("1"),
                            SLICE("b"),      SLICE("2"), SLICE("EX"), SLICE("10")};
    assert_int_equal(command_find_keys(command_find(SLICE("msetex")), 8, words, positions, 4), 2);
    assert_int_equal(positions[0].index, 2);
    assert_int_equal(positions[1].index, 4);
}

FIXTURE_TEST(the_longest_common_subsequence_is_found) {
    replies("MSET x ohmytext y mynewtext n 12345", OK);
    unchanged("LCS x y", "$6\r\nmytext\r\n");
    unchanged("LCS x y LEN", ":6\r\n");
    replies("LCS x y IDX", "*4\r\n$7\r\nmatches\r\n*2\r\n*2\r\n*2\r\n:4\r\n:7\r\n*2\r\n:5\r\n:8\r\n*2\r\n*"
                           "2\r\n:2\r\n:3\r\n*2\r\n:0\r\n:1\r\n$3\r\nlen\r\n:6\r\n");
    replies("LCS x y IDX MINMATCHLEN 4 WITHMATCHLEN",
            "*4\r\n$7\r\nmatches\r\n*1\r\n*3\r\n*2\r\n:4\r\n:7\r\n*2\r\n:5\r\n:8\r\n:4\r\n$3\r\nlen\r\n:6\r\n");
    replies("LCS n n", "$5\r\n12345\r\n");
    does("LCS x none", "$0\r\n\r\n", 0, "", "keymiss(none) ");
    replies("LCS x none IDX", "*4\r\n$7\r\nmatches\r\n*0\r\n$3\r\nlen\r\n:0\r\n");
    client->reply.protocol = 3;
    replies("LCS x n IDX", "%2\r\n$7\r\nmatches\r\n*0\r\n$3\r\nlen\r\n:0\r\n");
}

FIXTURE_TEST(lcs_refuses) {
    replies("MSET x abc y abc", OK);
    unchanged("LCS x y LEN IDX", "-ERR If you want both the length and indexes, please just use IDX.\r\n");
    unchanged("LCS x y FOO", SYNTAX);
    unchanged("LCS x y MINMATCHLEN", SYNTAX);
    unchanged("LCS x y MINMATCHLEN x", NOT_INTEGER);
    replies("SETRANGE x 12000 a", ":12001\r\n");
    replies("SETRANGE y 12000 a", ":12001\r\n");
    unchanged("LCS x y LEN", "-ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len\r\n");
}
