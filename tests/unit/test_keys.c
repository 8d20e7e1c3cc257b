/* Keys, their expiry, scanning, OBJECT, whole databases. */
#include "commands_fixture.h"

FIXTURE_TEST(deleting_counts_what_was_there) {
    replies("MSET a 1 b 2 c 3", OK);
    does("DEL a b none", ":2\r\n", 2, "DEL a b none\n", "del(a) del(b) ");
    unchanged("DEL a", ":0\r\n");
    does("UNLINK c c", ":1\r\n", 1, "UNLINK c c\n", "del(c) ");
    replies("SET e v PX 5", OK);
    time_set(NOW + 6);
    does("DEL e", ":0\r\n", 0, "", "expired(e) ");
}

FIXTURE_TEST(existence_touch_and_type) {
    replies("SET a 1", OK);
    does("EXISTS a a none", ":2\r\n", 0, "", "keymiss(none) ");
    does("TOUCH a a none", ":2\r\n", 0, "", "keymiss(none) ");
    replies("TYPE a", "+string\r\n");
    does("TYPE none", "+none\r\n", 0, "", "keymiss(none) ");
}

FIXTURE_TEST(touch_ignores_client_no_touch) {
    replies("SET a 1", OK);
    time_set(NOW + 100000);
    client->flags |= CLIENT_NO_TOUCH;
    replies("GET a", "$1\r\n1\r\n");
    run("OBJECT IDLETIME a");
    assert_true(atoi(reply_memory.data + 1) >= 90);
    replies("TOUCH a", ":1\r\n");
    replies("OBJECT IDLETIME a", ":0\r\n");
}

FIXTURE_TEST(renaming) {
    replies("SET a 1 EX 10", OK);
    does("RENAME a b", OK, 1, "RENAME a b\n", "new(b) rename_from(a) rename_to(b) ");
    replies("TTL b", ":10\r\n");
    unchanged("RENAME a b", "-ERR no such key\r\n");
    unchanged("RENAME b b", OK);
    unchanged("RENAME a a", "-ERR no such key\r\n");
    replies("SET c 2", OK);
    unchanged("RENAMENX b c", ":0\r\n");
    unchanged("RENAMENX b b", ":0\r\n");
    unchanged("RENAMENX none c", "-ERR no such key\r\n");
    does("RENAMENX b d", ":1\r\n", 1, "RENAMENX b d\n", "new(d) rename_from(b) rename_to(d) ");
    does("RENAME d c", OK, 1, "RENAME d c\n", "new(c) rename_from(d) rename_to(c) ");
    replies("GET c", "$1\r\n1\r\n");
    replies("TTL c", ":10\r\n");
    replies("DBSIZE", ":1\r\n");
}

FIXTURE_TEST(moving) {
    replies("SET a 1 EX 10", OK);
    does("MOVE a 1", ":1\r\n", 1, "MOVE a 1\n", "1:new(a) move_from(a) 1:move_to(a) ");
    unchanged("MOVE a 1", ":0\r\n");
    replies("SET a 2", OK);
    unchanged("MOVE a 1", ":0\r\n");
    unchanged("MOVE a 0", "-ERR source and destination objects are the same\r\n");
    unchanged("MOVE a 99", "-ERR DB index is out of range\r\n");
    unchanged("MOVE a -1", "-ERR DB index is out of range\r\n");
    unchanged("MOVE a x", NOT_INTEGER);
    unchanged("MOVE a 2147483648", "-ERR value is out of range, value must between -2147483648 and 2147483647\r\n");
    client->db = keyspace_db(server.keyspace, 1);
    replies("GET a", "$1\r\n1\r\n");
    replies("TTL a", ":10\r\n");
}

FIXTURE_TEST(copying) {
    replies("SET a 1 EX 10", OK);
    does("COPY a b", ":1\r\n", 1, "COPY a b\n", "new(b) copy_to(b) ");
    replies("TTL b", ":10\r\n");
    unchanged("COPY a b", ":0\r\n");
    replies("SET a 2", OK);
    does("COPY a b REPLACE", ":1\r\n", 1, "COPY a b REPLACE\n", "new(b) copy_to(b) ");
    replies("GET b", "$1\r\n2\r\n");
    replies("TTL b", ":-1\r\n");
    does("COPY a a DB 3", ":1\r\n", 1, "COPY a a DB 3\n", "3:new(a) 3:copy_to(a) ");
    does("COPY none b", ":0\r\n", 0, "", "keymiss(none) ");
    unchanged("COPY a a", "-ERR source and destination objects are the same\r\n");
    unchanged("COPY a a DB 0 REPLACE", "-ERR source and destination objects are the same\r\n");
    unchanged("COPY a b DB", SYNTAX);
    unchanged("COPY a b DB 16", "-ERR DB index is out of range\r\n");
    unchanged("COPY a b DB x", NOT_INTEGER);
    unchanged("COPY a b FOO", SYNTAX);
    /* Writing to one copy leaves the other. */
    char *large = mem_calloc(1, 100000);
    memset(large, 'x', 100000);
    run_words(3, (struct slice[]){SLICE("SET"), SLICE("l"), {large, 100000}});
    mem_free(large);
    replies("COPY l m", ":1\r\n");
    replies("SETRANGE l 0 abc", ":100000\r\n");
    replies("GETRANGE l 0 3", "$4\r\nabcx\r\n");
    replies("GETRANGE m 0 3", "$4\r\nxxxx\r\n");
}

FIXTURE_TEST(expiring) {
    replies("SET a 1", OK);
    does("EXPIRE a 100", ":1\r\n", 1, "PEXPIREAT a 1700000100000\n", "expire(a) ");
    does("PEXPIRE a 100", ":1\r\n", 1, "PEXPIREAT a 1700000000100\n", "expire(a) ");
    does("EXPIREAT a 1700000001", ":1\r\n", 1, "PEXPIREAT a 1700000001000\n", "expire(a) ");
    does("PEXPIREAT a 1700000002000", ":1\r\n", 1, "PEXPIREAT a 1700000002000\n", "expire(a) ");
    replies("TTL a", ":2\r\n");
    replies("PTTL a", ":2000\r\n");
    replies("EXPIRETIME a", ":1700000002\r\n");
    replies("PEXPIRETIME a", ":1700000002000\r\n");
    unchanged("EXPIRE none 100", ":0\r\n");
    does("PERSIST a", ":1\r\n", 1, "PERSIST a\n", "persist(a) ");
    unchanged("PERSIST a", ":0\r\n");
    unchanged("PERSIST none", ":0\r\n");
    replies("TTL a", ":-1\r\n");
    replies("EXPIRETIME a", ":-1\r\n");
    does("PTTL none", ":-2\r\n", 0, "", "keymiss(none) ");
    replies("PEXPIRETIME none", ":-2\r\n");
}

FIXTURE_TEST(conditions_of_expire) {
    replies("SET a 1", OK);
    unchanged("EXPIRE a 100 XX", ":0\r\n");
    unchanged("EXPIRE a 100 GT", ":0\r\n");
    does("EXPIRE a 100 LT", ":1\r\n", 1, "PEXPIREAT a 1700000100000 LT\n", "expire(a) ");
    unchanged("EXPIRE a 100 NX", ":0\r\n");
    unchanged("EXPIRE a 100 GT", ":0\r\n");
    unchanged("EXPIRE a 100 LT", ":0\r\n");
    does("EXPIRE a 200 xx gt", ":1\r\n", 1, "PEXPIREAT a 1700000200000 xx gt\n", "expire(a) ");
    does("EXPIRE a 150 XX LT", ":1\r\n", 1, "PEXPIREAT a 1700000150000 XX LT\n", "expire(a) ");
    unchanged("EXPIRE a -1 XX GT", ":0\r\n");
    replies("PERSIST a", ":1\r\n");
    does("EXPIRE a 10 NX", ":1\r\n", 1, "PEXPIREAT a 1700000010000 NX\n", "expire(a) ");
    does("EXPIRE a -1 LT", ":1\r\n", 1, "UNLINK a\n", "expired(a) ");
}

FIXTURE_TEST(expire_refuses) {
    replies("SET a 1", OK);
    unchanged("EXPIRE a 10 NX XX", "-ERR NX and XX, GT or LT options at the same time are not compatible\r\n");
    unchanged("EXPIRE a 10 GT NX", "-ERR NX and XX, GT or LT options at the same time are not compatible\r\n");
    unchanged("EXPIRE none 10 LT GT", "-ERR GT and LT options at the same time are not compatible\r\n");
    unchanged("EXPIRE a 10 foo", "-ERR Unsupported option foo\r\n");
    unchanged("EXPIRE none x bar", "-ERR Unsupported option bar\r\n");
    unchanged("EXPIRE a x", NOT_INTEGER);
    unchanged("EXPIRE a 9223372036854775807", "-ERR invalid expire time in 'expire' command\r\n");
    unchanged("EXPIRE a 9223372036854775", "-ERR invalid expire time in 'expire' command\r\n");
    unchanged("EXPIRE a -9223372036854775807", "-ERR invalid expire time in 'expire' command\r\n");
    unchanged("PEXPIRE a 9223372036854775807", "-ERR invalid expire time in 'pexpire' command\r\n");
    unchanged("EXPIREAT a 9223372036854775807", "-ERR invalid expire time in 'expireat' command\r\n");
    replies("PEXPIREAT a 9223372036854775807", ":1\r\n");
    replies("EXPIRETIME a", ":9223372036854776\r\n");
    replies("TTL a", ":9223370336854776\r\n");
}

FIXTURE_TEST(times_in_the_past_delete) {
    static const char *const lines[] = {"EXPIRE a 0",   "EXPIRE a -1",    "PEXPIRE a -9223372036854775808",
                                        "EXPIREAT a 1", "PEXPIREAT a -1", "PEXPIREAT a 1700000000000"};
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        replies("SET a 1", OK);
        does(lines[i], ":1\r\n", 1, "UNLINK a\n", "expired(a) ");
        replies("EXISTS a", ":0\r\n");
    }
    store_settings.keep_expired = true;
    replies("SET a 1", OK);
    does("PEXPIREAT a -5", ":1\r\n", 1, "PEXPIREAT a -5\n", "expire(a) ");
    replies("EXISTS a", ":0\r\n");
    replies("DBSIZE", ":1\r\n");
    store_settings.keep_expired = false;
}

FIXTURE_TEST(seconds_are_rounded) {
    replies("SET a 1 PX 1500", OK);
    replies("TTL a", ":2\r\n");
    replies("SET a 1 PX 1499", OK);
    replies("TTL a", ":1\r\n");
    replies("SET a 1 PX 400", OK);
    replies("TTL a", ":0\r\n");
    replies("EXPIRETIME a", ":1700000000\r\n");
}

FIXTURE_TEST(scan_visits_every_key) {
    enum { KEYS = 500 };
    for (int i = 0; i < KEYS; i++) {
        char line[32];
        snprintf(line, sizeof line, "SET key:%d x", i);
        replies(line, OK);
    }
    bool seen[KEYS] = {false};
    char cursor[32] = "0";
    int calls = 0;
    do {
        char line[64];
        snprintf(line, sizeof line, "SCAN %s COUNT 20", cursor);
        char *at = strdup(run(line)), *save = NULL;
        strtok_r(at, "\r\n", &save); /* *2 */
        strtok_r(NULL, "\r\n", &save);
        snprintf(cursor, sizeof cursor, "%s", strtok_r(NULL, "\r\n", &save));
        for (char *word; (word = strtok_r(NULL, "\r\n", &save));)
            if (strncmp(word, "key:", 4) == 0) seen[atoi(word + 4)] = true;
        free(at);
        calls++;
    } while (strcmp(cursor, "0") != 0);
    for (int i = 0; i < KEYS; i++) assert_true(seen[i]);
    assert_in_range(calls, 5, 60);
}

FIXTURE_TEST(scan_filters) {
    replies("SET ab v", OK);
    does("SCAN 0", "*2\r\n$1\r\n0\r\n*1\r\n$2\r\nab\r\n", 0, "", "");
    replies("SCAN 0 MATCH a? COUNT 100 TYPE string", "*2\r\n$1\r\n0\r\n*1\r\n$2\r\nab\r\n");
    replies("SCAN 0 MATCH b*", "*2\r\n$1\r\n0\r\n*0\r\n");
    replies("SCAN 0 TYPE list", "*2\r\n$1\r\n0\r\n*0\r\n");
    replies("SCAN 0 COUNT 9223372036854775807", "*2\r\n$1\r\n0\r\n*1\r\n$2\r\nab\r\n");
    replies("SCAN +0", "*2\r\n$1\r\n0\r\n*1\r\n$2\r\nab\r\n");
    replies("SET ab v PX 5", OK);
    time_set(NOW + 6);
    does("SCAN 0", "*2\r\n$1\r\n0\r\n*0\r\n", 0, "", "expired(ab) ");
    replies("DBSIZE", ":0\r\n");
}

FIXTURE_TEST(scan_refuses) {
    static const char *const cursors[] = {"foo", "-1", "18446744073709551616", "0x0", "\"\"", "1.5", "\"0 \""};
    for (size_t i = 0; i < sizeof cursors / sizeof *cursors; i++) {
        char line[64];
        snprintf(line, sizeof line, "SCAN %s COUNT x", cursors[i]);
        unchanged(line, "-ERR invalid cursor\r\n");
    }
    unchanged("SCAN 0 COUNT 0", SYNTAX);
    unchanged("SCAN 0 COUNT -1", SYNTAX);
    unchanged("SCAN 0 COUNT x", NOT_INTEGER);
    unchanged("SCAN 0 COUNT", SYNTAX);
    unchanged("SCAN 0 FOO 1", SYNTAX);
    unchanged("SCAN 0 COUNT 10 NOVALUES", "-ERR NOVALUES option can only be used in HSCAN\r\n");
    unchanged("SCAN 0 TYPE foo", "-ERR unknown type name 'foo'\r\n");
}

FIXTURE_TEST(keys_and_randomkey) {
    unchanged("RANDOMKEY", NIL);
    unchanged("KEYS *", "*0\r\n");
    replies("SET hello v", OK);
    unchanged("RANDOMKEY", "$5\r\nhello\r\n");
    unchanged("KEYS *", "*1\r\n$5\r\nhello\r\n");
    unchanged("KEYS h[ae]ll?", "*1\r\n$5\r\nhello\r\n");
    unchanged("KEYS x*", "*0\r\n");
    replies("PEXPIRE hello 5", ":1\r\n");
    time_set(NOW + 6);
    unchanged("KEYS *", "*0\r\n");
    does("RANDOMKEY", NIL, 0, "", "expired(hello) ");
}

FIXTURE_TEST(object_does_not_update_the_access_time) {
    uint64_t hits = store_stats.hits, misses = store_stats.misses;
    unchanged("OBJECT ENCODING none", NIL);
    unchanged("OBJECT REFCOUNT none", NIL);
    unchanged("OBJECT FREQ none", NIL);
    replies("SET a 1", OK);
    time_set(NOW + 60000);
    unchanged("OBJECT ENCODING a", "$3\r\nint\r\n");
    unchanged("OBJECT REFCOUNT a", ":1\r\n");
    run("OBJECT IDLETIME a");
    assert_in_range(atoi(reply_memory.data + 1), 55, 65);
    assert_int_equal(store_stats.hits, hits + 3);
    assert_int_equal(store_stats.misses, misses + 3);
    run("OBJECT FREQ a");
    assert_string_equal(reply_memory.data, "-ERR An LFU maxmemory policy is not selected, access frequency "
                                           "not tracked. Please note that when switching between policies at "
                                           "runtime LRU and LFU data will take some time to adjust.\r\n");
    store_settings.lfu = true;
    run("OBJECT IDLETIME a");
    assert_string_equal(reply_memory.data, "-ERR An LFU maxmemory policy is selected, idle time not tracked. "
                                           "Please note that when switching between policies at runtime LRU "
                                           "and LFU data will take some time to adjust.\r\n");
    replies("SET f 1", OK);
    run("OBJECT FREQ f");
    assert_int_equal(reply_memory.data[0], ':');
    store_settings.lfu = false;
    unchanged("OBJECT FOO", "-ERR unknown subcommand 'FOO'. Try OBJECT HELP.\r\n");
    unchanged("OBJECT ENCODING", "-ERR wrong number of arguments for 'object|encoding' command\r\n");
    run("OBJECT HELP");
    assert_memory_equal(reply_memory.data,
                        "*13\r\n+OBJECT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:\r\n", 70);
}

FIXTURE_TEST(flushing) {
    replies("MSET a 1 b 2", OK);
    client->db = keyspace_db(server.keyspace, 2);
    replies("SET c 3", OK);
    does("FLUSHDB", OK, 1, "2:FLUSHDB\n", "");
    does("FLUSHDB ASYNC", OK, 0, "2:FLUSHDB ASYNC\n", "");
    replies("SET c 3", OK);
    does("FLUSHALL SYNC", OK, 3, "2:FLUSHALL SYNC\n", "");
    does("FLUSHALL", OK, 0, "2:FLUSHALL\n", "");
    unchanged("FLUSHALL FOO", SYNTAX);
    unchanged("FLUSHALL SYNC ASYNC", SYNTAX);
    unchanged("FLUSHDB FOO", SYNTAX);
    client->db = keyspace_db(server.keyspace, 0);
    replies("DBSIZE", ":0\r\n");
}

FIXTURE_TEST(swapping) {
    replies("SET a 1", OK);
    does("SWAPDB 0 1", OK, 1, "SWAPDB 0 1\n", "");
    replies("DBSIZE", ":0\r\n");
    does("SWAPDB 1 1", OK, 1, "SWAPDB 1 1\n", "");
    replies("SWAPDB 1 0", OK);
    replies("GET a", "$1\r\n1\r\n");
    unchanged("SWAPDB x 0", "-ERR invalid first DB index\r\n");
    unchanged("SWAPDB 0 x", "-ERR invalid second DB index\r\n");
    unchanged("SWAPDB 0 2147483648", "-ERR invalid second DB index\r\n");
    unchanged("SWAPDB 0 16", "-ERR DB index is out of range\r\n");
    unchanged("SWAPDB -1 0", "-ERR DB index is out of range\r\n");
}

FIXTURE_TEST(events_reach_only_their_listeners) {
    notify_set_classes(&event_listener, NOTIFY_STRING);
    does("SET a 1 EX 10", OK, 1, "SET a 1 PXAT 1700000010000\n", "set(a) ");
    notify_set_classes(&event_listener, 0);
    does("SET a 1", OK, 1, "SET a 1\n", "");
    notify_set_classes(&event_listener, ~0u);
    assert_int_equal(notify_wanted, ~0u);
}
