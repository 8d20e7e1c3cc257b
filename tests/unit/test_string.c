/* SET, GET and their variants. */
#include "commands_fixture.h"

FIXTURE_TEST(set_stores_and_get_returns) {
    does("SET k v", OK, 1, "SET k v\n", "new(k) set(k) ");
    does("SET k w", OK, 1, "SET k w\n", "set(k) ");
    does("GET k", "$1\r\nw\r\n", 0, "", "");
    does("GET none", NIL, 0, "", "keymiss(none) ");
    replies("SET k \"\"", OK);
    replies("GET k", "$0\r\n\r\n");
    replies("SET k 12345", OK);
    replies("GET k", "$5\r\n12345\r\n");
}

FIXTURE_TEST(binary_values_and_keys_survive) {
    replies("SET \"\\x00k\\r\\n\" \"\\x00\\xff\\r\\n\"", OK);
    run("GET \"\\x00k\\r\\n\"");
    assert_memory_equal(memory_output_slice(&reply_memory).data, "$4\r\n\x00\xff\r\n\r\n", 10);
}

FIXTURE_TEST(get_in_resp3_is_null) {
    client->reply.protocol = 3;
    replies("GET none", "_\r\n");
    replies("SET k v NX GET", "_\r\n");
    replies("SET k v NX", "_\r\n");
}

FIXTURE_TEST(conditions_of_set) {
    does("SET k 1 XX", NIL, 0, "", "");
    does("SET k 1 NX", OK, 1, "SET k 1 NX\n", "new(k) set(k) ");
    does("SET k 2 NX", NIL, 0, "", "");
    does("SET k 2 xx", OK, 1, "SET k 2 xx\n", "set(k) ");
    unchanged("SET k 1 NX XX", SYNTAX);
    unchanged("SET k 1 XX NX", SYNTAX);
    unchanged("SET k 1 NX NX", NIL);
}

FIXTURE_TEST(get_option_replies_with_the_old_value) {
    does("SET k 1 GET", NIL, 1, "SET k 1\n", "keymiss(k) new(k) set(k) ");
    does("SET k 2 GET GET", "$1\r\n1\r\n", 1, "SET k 2\n", "set(k) ");
    does("SET k 3 NX GET", "$1\r\n2\r\n", 0, "", "");
    does("SET other 3 XX GET", NIL, 0, "", "keymiss(other) ");
    does("SET other 3 KEEPTTL NX GET", NIL, 1, "SET other 3 KEEPTTL NX\n", "keymiss(other) new(other) set(other) ");
    replies("GET k", "$1\r\n2\r\n");
}

FIXTURE_TEST(ifeq_sets_only_where_equal) {
    does("SET k 2 IFEQ 1", NIL, 0, "", "");
    replies("SET k 1", OK);
    does("SET k 2 IFEQ 0", NIL, 0, "", "");
    does("SET k 2 IFEQ 1", OK, 1, "SET k 2 IFEQ 1\n", "set(k) ");
    does("SET k 3 IFEQ 2 GET", "$1\r\n2\r\n", 1, "SET k 3 IFEQ 2\n", "set(k) ");
    does("SET k 4 IFEQ 2 GET", "$1\r\n3\r\n", 0, "", "");
    does("SET k 4 GET IFEQ 3 EX 10", "$1\r\n3\r\n", 1, "SET k 4 PXAT 1700000010000\n", "set(k) expire(k) ");
    does("SET k 5 IFEQ 4 KEEPTTL", OK, 1, "SET k 5 IFEQ 4 KEEPTTL\n", "set(k) ");
    replies("PTTL k", ":10000\r\n");
    does("SET k 6 IFEQ 5 PXAT 1700000020000", OK, 1, "SET k 6 IFEQ 5 PXAT 1700000020000\n", "set(k) expire(k) ");
    unchanged("SET k 4 IFEQ 3 NX", SYNTAX);
    unchanged("SET k 4 XX IFEQ 3", SYNTAX);
    unchanged("SET k 4 IFEQ", SYNTAX);
    unchanged("SET k 4 IFEQ 1 IFEQ 2", SYNTAX);
    /* The comparison may look like an option. */
    replies("SET k get", OK);
    does("SET k NX IFEQ get", OK, 1, "SET k NX IFEQ get\n", "set(k) ");
}

FIXTURE_TEST(set_with_a_time_is_propagated_as_an_absolute_one) {
    does("SET k v EX 100", OK, 1, "SET k v PXAT 1700000100000\n", "new(k) set(k) expire(k) ");
    replies("PEXPIRETIME k", ":1700000100000\r\n");
    does("SET k v PX 100", OK, 1, "SET k v PXAT 1700000000100\n", "set(k) expire(k) ");
    does("SET k v EXAT 1700000001", OK, 1, "SET k v PXAT 1700000001000\n", "set(k) expire(k) ");
    does("SET k v pxat 1700000002000", OK, 1, "SET k v pxat 1700000002000\n", "set(k) expire(k) ");
    replies("PTTL k", ":2000\r\n");
    does("SET k v XX GET EX 1", "$1\r\nv\r\n", 1, "SET k v PXAT 1700000001000\n", "set(k) expire(k) ");
    does("SET k w KEEPTTL", OK, 1, "SET k w KEEPTTL\n", "set(k) ");
    replies("PTTL k", ":1000\r\n");
    does("SET k w", OK, 1, "SET k w\n", "set(k) ");
    replies("PTTL k", ":-1\r\n");
    replies("SET k v EX 1 EX 2", OK);
    replies("PTTL k", ":2000\r\n");
}

FIXTURE_TEST(set_refuses_bad_times) {
    static const char *const bad[] = {"EX 0",
                                      "EX -1",
                                      "PX 0",
                                      "EXAT 0",
                                      "PXAT -5",
                                      "EX 9223372036854775807",
                                      "EX 9223372036854776",
                                      "PX 9223372036854775807",
                                      "EXAT 9223372036854775807"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char line[128];
        snprintf(line, sizeof line, "SET k v %s", bad[i]);
        unchanged(line, "-ERR invalid expire time in 'set' command\r\n");
    }
    unchanged("SET k v EX abc", NOT_INTEGER);
    unchanged("SET k v EX 1.5", NOT_INTEGER);
    unchanged("SET k v EX 9223372036854775808", NOT_INTEGER);
    unchanged("SET k v EX", SYNTAX);
    unchanged("SET k v EX 10 PX 10", SYNTAX);
    unchanged("SET k v EX 10 KEEPTTL", SYNTAX);
    unchanged("SET k v KEEPTTL EX 10", SYNTAX);
    unchanged("SET k v PERSIST", SYNTAX);
    unchanged("SET k v FOO", SYNTAX);
    unchanged("SETEX k 0 v", "-ERR invalid expire time in 'setex' command\r\n");
    unchanged("SETEX k -1 v", "-ERR invalid expire time in 'setex' command\r\n");
    unchanged("SETEX k x v", NOT_INTEGER);
    unchanged("PSETEX k 0 v", "-ERR invalid expire time in 'psetex' command\r\n");
    unchanged("PSETEX k 9223372036854775807 v", "-ERR invalid expire time in 'psetex' command\r\n");
}

FIXTURE_TEST(a_time_in_the_past_deletes_the_key) {
    unchanged("SET k v PXAT 1", OK);
    replies("SET k v", OK);
    does("SET k w EXAT 1", OK, 1, "UNLINK k\n", "expired(k) ");
    replies("SET k v", OK);
    store_settings.lazy_expire = false;
    does("SET k w GET PXAT 1699999999999", "$1\r\nv\r\n", 1, "DEL k\n", "expired(k) ");
    store_settings.lazy_expire = true;
    replies("SET k v", OK);
    does("SETEX k 1 w", OK, 1, "SET k w PXAT 1700000001000\n", "set(k) expire(k) ");
    /* The primary decides for its replicas. */
    store_settings.keep_expired = true;
    does("SET k w PXAT 1699999999999", OK, 1, "SET k w PXAT 1699999999999\n", "set(k) expire(k) ");
    store_settings.keep_expired = false;
}

FIXTURE_TEST(an_expired_key_is_missing) {
    replies("SET k v PX 10", OK);
    time_set(NOW + 10);
    replies("GET k", "$1\r\nv\r\n");
    time_set(NOW + 11);
    does("GET k", NIL, 0, "", "expired(k) keymiss(k) ");
    replies("SET k v PX 10", OK);
    time_set(NOW + 22);
    does("SET k v NX", OK, 1, "SET k v NX\n", "expired(k) new(k) set(k) ");
    replies("TTL k", ":-1\r\n");
    replies("SET k v PX 10", OK);
    time_set(NOW + 33);
    does("SET k v", OK, 1, "SET k v\n", "expired(k) new(k) set(k) ");
}

/* Represents a structure of another type. */
static void free_nothing(void *value, enum value_encoding encoding) {}

FIXTURE_TEST(wrong_types_are_refused_where_the_value_matters) {
    int dummy = 0;
    static const struct value_ops ops = {.free = free_nothing};
    value_ops_register(TYPE_LIST, &ops);
    static const char *const refused[] = {"GET l",       "GETDEL l",       "GETSET l v",     "GETEX l EX 10",
                                          "SET l v GET", "SET l v NX GET", "SET l v IFEQ x", "DELIFEQ l x",
                                          "APPEND l x",  "SETRANGE l 0 x", "GETRANGE l 0 1", "STRLEN l",
                                          "INCR l",      "INCRBYFLOAT l 1"};
    db_add_value(client->db, SLICE("l"), TYPE_LIST, ENCODING_LISTPACK, &dummy);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) unchanged(refused[i], WRONGTYPE);
    replies("TYPE l", "+list\r\n");
    replies("MGET l", "*1\r\n$-1\r\n");
    does("SET l v NX", NIL, 0, "", "");
    does("SET l v", OK, 1, "SET l v\n", "set(l) ");
    replies("TYPE l", "+string\r\n");
}

FIXTURE_TEST(setex_psetex_setnx) {
    does("SETEX k 10 v", OK, 1, "SET k v PXAT 1700000010000\n", "new(k) set(k) expire(k) ");
    does("PSETEX k 10 v", OK, 1, "SET k v PXAT 1700000000010\n", "set(k) expire(k) ");
    unchanged("SETNX k w", ":0\r\n");
    does("SETNX n w", ":1\r\n", 1, "SETNX n w\n", "new(n) set(n) ");
    replies("GET n", "$1\r\nw\r\n");
}

FIXTURE_TEST(getset_and_getdel) {
    does("GETSET k v", NIL, 1, "SET k v\n", "keymiss(k) new(k) set(k) ");
    replies("EXPIRE k 10", ":1\r\n");
    does("GETSET k w", "$1\r\nv\r\n", 1, "SET k w\n", "set(k) ");
    replies("TTL k", ":-1\r\n");
    does("GETDEL k", "$1\r\nw\r\n", 1, "DEL k\n", "del(k) ");
    does("GETDEL k", NIL, 0, "", "keymiss(k) ");
}

FIXTURE_TEST(getex_changes_the_expiry) {
    replies("SET k v", OK);
    unchanged("GETEX k", "$1\r\nv\r\n");
    does("GETEX k EX 100", "$1\r\nv\r\n", 1, "PEXPIREAT k 1700000100000\n", "expire(k) ");
    does("GETEX k PX 100", "$1\r\nv\r\n", 1, "PEXPIREAT k 1700000000100\n", "expire(k) ");
    does("GETEX k EXAT 1700000001", "$1\r\nv\r\n", 1, "PEXPIREAT k 1700000001000\n", "expire(k) ");
    does("GETEX k PXAT 1700000002000", "$1\r\nv\r\n", 1, "PEXPIREAT k 1700000002000\n", "expire(k) ");
    replies("PTTL k", ":2000\r\n");
    does("GETEX k PERSIST", "$1\r\nv\r\n", 1, "PERSIST k\n", "persist(k) ");
    unchanged("GETEX k PERSIST", "$1\r\nv\r\n");
    unchanged("GETEX k EX 0", "-ERR invalid expire time in 'getex' command\r\n");
    unchanged("GETEX k EX x", NOT_INTEGER);
    unchanged("GETEX k EX 10 PERSIST", SYNTAX);
    unchanged("GETEX k PERSIST EX 10", SYNTAX);
    unchanged("GETEX k KEEPTTL", SYNTAX);
    unchanged("GETEX k NX", SYNTAX);
    unchanged("GETEX k EX", SYNTAX);
    unchanged("GETEX none EX 0", "-ERR invalid expire time in 'getex' command\r\n");
    unchanged("GETEX none FOO", SYNTAX);
    does("GETEX k PXAT 1", "$1\r\nv\r\n", 1, "UNLINK k\n", "expired(k) ");
    replies("EXISTS k", ":0\r\n");
}

FIXTURE_TEST(delifeq_deletes_only_where_equal) {
    unchanged("DELIFEQ k v", ":0\r\n");
    replies("SET k 12", OK);
    unchanged("DELIFEQ k 1", ":0\r\n");
    does("DELIFEQ k 12", ":1\r\n", 1, "DEL k\n", "del(k) ");
    replies("EXISTS k", ":0\r\n");
}

FIXTURE_TEST(encodings_show) {
    static const char *const cases[][2] = {
        {"SET k 12345", "int"},
        {"SET k 9223372036854775807", "int"},
        {"SET k -9223372036854775808", "int"},
        {"SET k 9223372036854775808", "embstr"},
        {"SET k 12345678901234567890", "embstr"},
        {"SET k 0123", "embstr"},
        {"SET k -0", "embstr"},
        {"SET k 3.0", "embstr"},
        {"SET k \"\"", "embstr"},
        {"SET k 12345678901234567890123456789012345678901234", "embstr"},
        {"SET k 123456789012345678901234567890123456789012345", "embstr"},
        {"GETSET k 10", "int"},
        {"APPEND k \"\"", "raw"},
        {"SET k 10", "int"},
        {"SETRANGE k 0 7", "raw"},
        {"INCR k", "int"},
        {"SETRANGE k 0 \"\"", "int"},
        {"INCRBYFLOAT k 1", "embstr"},
        {"INCR k", "int"},
        {"EXPIRE k 10", "int"},
        {"MSET k abc", "embstr"},
        {"APPEND k x", "raw"},
        {"DEL k", NULL},
        {"APPEND k 123", "int"},
        {"DEL k", NULL},
        {"SETRANGE k 0 123", "raw"},
        {"DEL k", NULL},
        {"INCRBYFLOAT k 3", "embstr"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run(cases[i][0]);
        if (!cases[i][1]) continue;
        char expected[32];
        snprintf(expected, sizeof expected, "$%zu\r\n%s\r\n", strlen(cases[i][1]), cases[i][1]);
        assert_string_equal(run("OBJECT ENCODING k"), expected);
    }
}

FIXTURE_TEST(key_flags_of_set_depend_on_its_options) {
    struct key_position position;
    const struct command *set = command_find(SLICE("set"));
    struct slice plain[] = {SLICE("SET"), SLICE("k"), SLICE("get")},
                 get[] = {SLICE("SET"), SLICE("k"), SLICE("v"), SLICE("get")};
    assert_int_equal(command_find_keys(set, 3, plain, &position, 1), 1);
    assert_int_equal(position.index, 1);
    assert_int_equal(position.flags, KEY_OW | KEY_UPDATE);
    assert_int_equal(command_find_keys(set, 4, get, &position, 1), 1);
    assert_int_equal(position.flags, KEY_RW | KEY_ACCESS | KEY_UPDATE);
}
