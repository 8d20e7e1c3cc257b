/* The hash commands: changes, propagation and notifications. tests/integration/hashes.tcl tests all forms of replies.
 */
#include "commands_fixture.h"

FIXTURE_TEST(setting_notifies_and_counts) {
    does("HSET h a 1 b 2", ":2\r\n", 2, "HSET h a 1 b 2\n", "new(h) hset(h) ");
    does("HSET h a 1 c 3", ":1\r\n", 2, "HSET h a 1 c 3\n", "hset(h) ");
    does("HMSET h a 1", OK, 1, "HMSET h a 1\n", "hset(h) ");
    does("HSETNX h a 5", ":0\r\n", 0, "", "");
    does("HSETNX h d 5", ":1\r\n", 1, "HSETNX h d 5\n", "hset(h) ");
    does("HSETNX other d 5", ":1\r\n", 1, "HSETNX other d 5\n", "new(other) hset(other) ");
    unchanged("HSET h a", "-ERR wrong number of arguments for 'hset' command\r\n");
    unchanged("HSET none a b c", "-ERR wrong number of arguments for 'hset' command\r\n");
}
FIXTURE_TEST(deleting_the_last_field_deletes_the_key) {
    run("HSET h a 1 b 2 c 3");
    does("HDEL h none", ":0\r\n", 0, "", "");
    does("HDEL h a none", ":1\r\n", 1, "HDEL h a none\n", "hdel(h) ");
    does("HDEL h b c d", ":2\r\n", 2, "HDEL h b c d\n", "hdel(h) del(h) ");
    does("HDEL h b", ":0\r\n", 0, "", "");
    replies("EXISTS h", ":0\r\n");
}
FIXTURE_TEST(float_increments_are_propagated_as_their_result) {
    does("HINCRBY h n 5", ":5\r\n", 1, "HINCRBY h n 5\n", "new(h) hincrby(h) ");
    does("HINCRBYFLOAT h n 0.1", "$3\r\n5.1\r\n", 1, "HSET h n 5.1\n", "hincrbyfloat(h) ");
    unchanged("HINCRBY h n 1", "-ERR hash value is not an integer\r\n");
    unchanged("HINCRBY none n x", NOT_INTEGER);
    unchanged("HINCRBYFLOAT none n x", "-ERR value is not a valid float\r\n");
    replies("EXISTS none", ":0\r\n");
}
FIXTURE_TEST(reads_notify_only_misses) {
    does("HGET none f", NIL, 0, "", "keymiss(none) ");
    run("HSET h f v");
    does("HGET h none", NIL, 0, "", "");
    does("HGETALL h", "*2\r\n$1\r\nf\r\n$1\r\nv\r\n", 0, "", "");
}
FIXTURE_TEST(binary_fields_survive_both_encodings) {
    replies("HSET h \"\\x00\\r\\n\" \"\\xff\\x00\" 007 -0 7 12", ":3\r\n");
    replies("HGET h 007", "$2\r\n-0\r\n");
    replies("HGET h 7", "$2\r\n12\r\n");
    run("HSET h long xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    replies("OBJECT ENCODING h", "$9\r\nhashtable\r\n");
    replies("HGET h 007", "$2\r\n-0\r\n");
    replies("HGET h 7", "$2\r\n12\r\n");
    run("HGET h \"\\x00\\r\\n\"");
    assert_memory_equal(memory_output_slice(&reply_memory).data, "$2\r\n\xff\x00\r\n", 8);
}
FIXTURE_TEST(values_grow_and_shrink_in_a_table) {
    run("HSET h long xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx");
    char *value = mem_alloc(5000);
    memset(value, 'v', 5000);
    char name[400];
    memset(name, 'n', sizeof name);
    for (size_t field = 1; field <= sizeof name; field += 133)
        for (size_t i = 0; i < 300; i++) {
            size_t len = i * 977 % 3000;
            struct slice set[] = {SLICE("HSET"), SLICE("h"), {name, field}, {value, len}};
            run_words(4, set);
            struct slice get[] = {SLICE("HGET"), SLICE("h"), {name, field}};
            run_words(3, get);
            struct slice reply = memory_output_slice(&reply_memory);
            assert_true(reply.len > len + 4 && memcmp(reply.data + reply.len - len - 2, value, len) == 0);
            struct slice strlen_words[] = {SLICE("HSTRLEN"), SLICE("h"), {name, field}};
            char expected[32];
            snprintf(expected, sizeof expected, ":%zu\r\n", len);
            assert_string_equal(run_words(3, strlen_words), expected);
        }
    mem_free(value);
    replies("COPY h copy", ":1\r\n");
    replies("HLEN copy", ":5\r\n");
    replies("DEL h", ":1\r\n");
    replies("HSTRLEN copy long", ":85\r\n");
}
