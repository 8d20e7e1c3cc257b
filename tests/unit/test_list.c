/* The list commands: changes, propagation and notifications. tests/integration/lists.tcl tests all forms of replies. */
#include "commands_fixture.h"
#include "store/types.h"

FIXTURE_TEST(pushing) {
    does("RPUSH l a b", ":2\r\n", 2, "RPUSH l a b\n", "new(l) rpush(l) ");
    does("LPUSH l c", ":3\r\n", 1, "LPUSH l c\n", "lpush(l) ");
    does("LPUSHX l c d", ":5\r\n", 2, "LPUSHX l c d\n", "lpush(l) ");
    does("RPUSHX none c", ":0\r\n", 0, "", "");
    does("LINSERT l BEFORE a x", ":6\r\n", 1, "LINSERT l BEFORE a x\n", "linsert(l) ");
    does("LINSERT l BEFORE none x", ":-1\r\n", 0, "", "");
    does("LSET l 0 y", OK, 1, "LSET l 0 y\n", "lset(l) ");
    unchanged("LSET l 100 y", "-ERR index out of range\r\n");
}
FIXTURE_TEST(popping) {
    run("RPUSH l 1 2 3 4 5 6");
    does("LPOP l", "$1\r\n1\r\n", 1, "LPOP l\n", "lpop(l) ");
    does("RPOP l 2", "*2\r\n$1\r\n6\r\n$1\r\n5\r\n", 2, "RPOP l 2\n", "rpop(l) ");
    does("LPOP l 0", "*0\r\n", 0, "", "");
    does("LMPOP 2 none l LEFT", "*2\r\n$1\r\nl\r\n*1\r\n$1\r\n2\r\n", 1, "LPOP l 1\n", "lpop(l) ");
    does("LMPOP 1 l RIGHT COUNT 9", "*2\r\n$1\r\nl\r\n*2\r\n$1\r\n4\r\n$1\r\n3\r\n", 2, "RPOP l 2\n",
         "rpop(l) del(l) ");
    does("LPOP l", NIL, 0, "", "");
    does("LPOP l 1", "*-1\r\n", 0, "", "");
}
FIXTURE_TEST(moving) {
    run("RPUSH a 1 2 3");
    does("RPOPLPUSH a b", "$1\r\n3\r\n", 1, "RPOPLPUSH a b\n", "new(b) lpush(b) rpop(a) ");
    does("LMOVE a b LEFT RIGHT", "$1\r\n1\r\n", 1, "LMOVE a b LEFT RIGHT\n", "rpush(b) lpop(a) ");
    does("RPOPLPUSH b b", "$1\r\n1\r\n", 1, "RPOPLPUSH b b\n", "lpush(b) rpop(b) ");
    does("LMOVE a b LEFT RIGHT", "$1\r\n2\r\n", 1, "LMOVE a b LEFT RIGHT\n", "rpush(b) lpop(a) del(a) ");
    run("DEL b");
    run("RPUSH one x");
    does("RPOPLPUSH one one", "$1\r\nx\r\n", 1, "RPOPLPUSH one one\n", "lpush(one) rpop(one) ");
    replies("LRANGE one 0 -1", "*1\r\n$1\r\nx\r\n");
}
FIXTURE_TEST(trimming_and_removing) {
    run("RPUSH l a b c b d b");
    does("LTRIM l 0 -1", OK, 0, "", "ltrim(l) ");
    does("LREM l -1 b", ":1\r\n", 1, "LREM l -1 b\n", "lrem(l) ");
    does("LREM l 0 none", ":0\r\n", 0, "", "");
    does("LTRIM l 1 2", OK, 3, "LTRIM l 1 2\n", "ltrim(l) ");
    replies("LRANGE l 0 -1", "*2\r\n$1\r\nb\r\n$1\r\nc\r\n");
    does("LTRIM l 5 1", OK, 2, "LTRIM l 5 1\n", "ltrim(l) del(l) ");
    does("LTRIM l 5 1", OK, 0, "", "");
}
/* Nodes of three elements, compressed except at the ends: reads and changes in the middle decompress them. */
FIXTURE_TEST(packed_nodes_read_as_they_were) {
    encoding_limits.list_listpack_size = 3, encoding_limits.list_compress_depth = 1;
    char line[256], expected[300];
    for (int i = 0; i < 300; i++) {
        snprintf(line, sizeof line, "RPUSH l %d-aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", i);
        run(line);
    }
    for (int i = 0; i < 300; i += 7) {
        snprintf(line, sizeof line, "LSET l %d %d-bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
                 i, i);
        replies(line, OK);
    }
    replies("COPY l copy", ":1\r\n");
    replies("DEL l", ":1\r\n");
    encoding_limits.list_listpack_size = -2, encoding_limits.list_compress_depth = 0;
    for (int i = 299; i >= 0; i--) {
        char letters[67];
        memset(letters, i % 7 ? 'a' : 'b', 66);
        letters[66] = '\0';
        snprintf(line, sizeof line, "%d-%s", i, letters);
        snprintf(expected, sizeof expected, "$%zu\r\n%s\r\n", strlen(line), line);
        char command[64];
        snprintf(command, sizeof command, "LINDEX copy %d", i);
        replies(command, expected);
    }
    run("RPOP copy 250");
    replies("LLEN copy", ":50\r\n");
    replies("OBJECT ENCODING copy", "$9\r\nquicklist\r\n");
}
