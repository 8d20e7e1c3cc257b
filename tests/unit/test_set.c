/* The set commands: changes, propagation and notifications. tests/integration/sets.tcl tests all forms of replies. */
#include "commands_fixture.h"

FIXTURE_TEST(adding_and_removing) {
    does("SADD s a b a", ":2\r\n", 2, "SADD s a b a\n", "new(s) sadd(s) ");
    does("SADD s a b", ":0\r\n", 0, "", "");
    does("SREM s none", ":0\r\n", 0, "", "");
    does("SREM s a none", ":1\r\n", 1, "SREM s a none\n", "srem(s) ");
    does("SREM s b a", ":1\r\n", 1, "SREM s b a\n", "srem(s) del(s) ");
    replies("EXISTS s", ":0\r\n");
}
FIXTURE_TEST(popping_is_propagated_as_removal) {
    run("SADD s a");
    does("SPOP s", "$1\r\na\r\n", 1, "SREM s a\n", "spop(s) del(s) ");
    run("SADD s 1 2 3");
    does("SPOP s 3", "*3\r\n$1\r\n1\r\n$1\r\n2\r\n$1\r\n3\r\n", 3, "UNLINK s\n", "spop(s) del(s) ");
    run("SADD s 1 2 3");
    run("SPOP s 2");
    assert_dirty(2);
    assert_events("spop(s) ");
    assert_int_equal(strlen(heard(&propagated_memory)), strlen("SREM s 1 2\n"));
    replies("SCARD s", ":1\r\n");
    unchanged("SPOP s 0", "*0\r\n");
    unchanged("SPOP s -1", "-ERR value is out of range, must be positive\r\n");
    does("SPOP none", NIL, 0, "", "");
}
FIXTURE_TEST(popping_thousands_is_propagated_in_pieces) {
    for (int i = 0; i < 3000; i++) {
        char line[32];
        snprintf(line, sizeof line, "SADD s m%d", i);
        run(line);
    }
    run("SPOP s 2500");
    assert_dirty(2500);
    size_t lines = 0, words = 0;
    for (const char *p = heard(&propagated_memory); *p; p++) lines += *p == '\n', words += *p == ' ';
    assert_int_equal(words, 2500 + lines);
    assert_int_equal(lines, 3);
    replies("SCARD s", ":500\r\n");
}
FIXTURE_TEST(moving) {
    run("SADD a x y");
    does("SMOVE a b x", ":1\r\n", 2, "SMOVE a b x\n", "srem(a) new(b) sadd(b) ");
    does("SMOVE a b y", ":1\r\n", 2, "SMOVE a b y\n", "srem(a) del(a) sadd(b) ");
    does("SMOVE a b y", ":0\r\n", 0, "", "");
    run("SADD a x");
    does("SMOVE a b x", ":1\r\n", 1, "SMOVE a b x\n", "srem(a) del(a) ");
    does("SMOVE b b x", ":1\r\n", 0, "", "");
}
FIXTURE_TEST(storing_results) {
    run("SADD a 1 2 3");
    run("SADD b 2 3 4");
    does("SINTERSTORE d a b", ":2\r\n", 1, "SINTERSTORE d a b\n", "new(d) sinterstore(d) ");
    does("SUNIONSTORE d a b", ":4\r\n", 1, "SUNIONSTORE d a b\n", "sunionstore(d) ");
    does("SDIFFSTORE d a b", ":1\r\n", 1, "SDIFFSTORE d a b\n", "sdiffstore(d) ");
    does("SDIFFSTORE d a a", ":0\r\n", 1, "SDIFFSTORE d a a\n", "del(d) ");
    does("SDIFFSTORE d a a", ":0\r\n", 0, "", "");
    does("SINTERSTORE a a b", ":2\r\n", 1, "SINTERSTORE a a b\n", "sinterstore(a) ");
    replies("SMEMBERS a", "*2\r\n$1\r\n2\r\n$1\r\n3\r\n");
}
FIXTURE_TEST(reads_notify_only_misses) {
    does("SMEMBERS none", "*0\r\n", 0, "", "keymiss(none) ");
    run("SADD s a");
    does("SINTER s none", "*0\r\n", 0, "", "keymiss(none) ");
    does("SRANDMEMBER s 5", "*1\r\n$1\r\na\r\n", 0, "", "");
}
