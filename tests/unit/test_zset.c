/* The sorted set commands: changes, propagation and notifications. tests/integration/zsets.tcl tests all forms of
 * replies. */
#include "commands_fixture.h"

FIXTURE_TEST(adding) {
    does("ZADD z 1 a 2 b", ":2\r\n", 2, "ZADD z 1 a 2 b\n", "new(z) zadd(z) ");
    does("ZADD z 1 a", ":0\r\n", 0, "", "");
    does("ZADD z 3 a", ":0\r\n", 1, "ZADD z 3 a\n", "zadd(z) ");
    does("ZADD z CH 4 a 1 c", ":2\r\n", 2, "ZADD z CH 4 a 1 c\n", "zadd(z) ");
    does("ZADD z GT 1 a", ":0\r\n", 0, "", "");
    does("ZADD z NX 1 a", ":0\r\n", 0, "", "");
    does("ZADD none XX 1 a", ":0\r\n", 0, "", "");
    does("ZADD z INCR 1 a", "$1\r\n5\r\n", 1, "ZADD z INCR 1 a\n", "zincr(z) ");
    does("ZINCRBY z 1.5 a", "$3\r\n6.5\r\n", 1, "ZINCRBY z 1.5 a\n", "zincr(z) ");
    does("ZINCRBY z 0 a", "$3\r\n6.5\r\n", 0, "", "");
    does("ZINCRBY other 2 a", "$1\r\n2\r\n", 1, "ZINCRBY other 2 a\n", "new(other) zincr(other) ");
    unchanged("ZADD z nan a", "-ERR value is not a valid float\r\n");
    run("ZADD z inf k");
    unchanged("ZADD z INCR -inf k", "-ERR resulting score is not a number (NaN)\r\n");
    unchanged("ZADD fresh NX XX 1 a", "-ERR XX and NX options at the same time are not compatible\r\n");
    replies("EXISTS fresh", ":0\r\n");
}
FIXTURE_TEST(removing) {
    run("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f 7 g");
    does("ZREM z a none", ":1\r\n", 1, "ZREM z a none\n", "zrem(z) ");
    does("ZREMRANGEBYRANK z 0 0", ":1\r\n", 1, "ZREMRANGEBYRANK z 0 0\n", "zremrangebyrank(z) ");
    does("ZREMRANGEBYSCORE z 3 3", ":1\r\n", 1, "ZREMRANGEBYSCORE z 3 3\n", "zremrangebyscore(z) ");
    does("ZREMRANGEBYSCORE z 100 200", ":0\r\n", 0, "", "");
    does("ZREMRANGEBYLEX z [d [d", ":1\r\n", 1, "ZREMRANGEBYLEX z [d [d\n", "zremrangebylex(z) ");
    does("ZREM z e f g", ":3\r\n", 3, "ZREM z e f g\n", "zrem(z) del(z) ");
}
FIXTURE_TEST(popping) {
    run("ZADD z 1 a 2 b 3 c 4 d 5 e");
    does("ZPOPMIN z", "*2\r\n$1\r\na\r\n$1\r\n1\r\n", 1, "ZPOPMIN z\n", "zpopmin(z) ");
    does("ZPOPMAX z 0", "*0\r\n", 0, "", "");
    does("ZMPOP 1 z MAX COUNT 2", "*2\r\n$1\r\nz\r\n*2\r\n*2\r\n$1\r\ne\r\n$1\r\n5\r\n*2\r\n$1\r\nd\r\n$1\r\n4\r\n", 2,
         "ZPOPMAX z 2\n", "zpopmax(z) ");
    does("ZMPOP 2 none z MIN COUNT 9",
         "*2\r\n$1\r\nz\r\n*2\r\n*2\r\n$1\r\nb\r\n$1\r\n2\r\n*2\r\n$1\r\nc\r\n$1\r\n3\r\n", 2, "ZPOPMIN z 2\n",
         "zpopmin(z) del(z) ");
    does("ZPOPMIN z", "*0\r\n", 0, "", "");
}
FIXTURE_TEST(storing_results) {
    run("ZADD a 1 x 2 y");
    run("ZADD b 3 y 4 w");
    does("ZUNIONSTORE d 2 a b", ":3\r\n", 1, "ZUNIONSTORE d 2 a b\n", "new(d) zunionstore(d) ");
    does("ZINTERSTORE d 2 a b", ":1\r\n", 1, "ZINTERSTORE d 2 a b\n", "zinterstore(d) ");
    does("ZDIFFSTORE d 2 a b", ":1\r\n", 1, "ZDIFFSTORE d 2 a b\n", "zdiffstore(d) ");
    does("ZRANGESTORE d a 0 -1", ":2\r\n", 1, "ZRANGESTORE d a 0 -1\n", "zrangestore(d) ");
    does("ZRANGESTORE d a 5 1", ":0\r\n", 1, "ZRANGESTORE d a 5 1\n", "del(d) ");
    does("ZRANGESTORE d a 5 1", ":0\r\n", 0, "", "");
    does("ZDIFFSTORE a 2 a b", ":1\r\n", 1, "ZDIFFSTORE a 2 a b\n", "zdiffstore(a) ");
    replies("ZRANGE a 0 -1", "*1\r\n$1\r\nx\r\n");
}
