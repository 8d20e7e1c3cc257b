/* The command registry, and the work of dispatch around a call: rejection, statistics, propagation, filters. */
#include "unit.h"
#include <stdio.h>

#include "lib/system/ticks.h"
#include "server/clients/auth.h"
#include "server/clients/client.h"
#include "server/clients/user.h"
#include "server/command/dispatch.h"
#include "server/command/propagate.h"
#include "server/config/config.h"
#include "server/server.h"
#include "server/stats/errorstats.h"
#include "server/store_events.h"

static struct client *client;
static struct memory_output replies, heard;

/* --- Commands for these tests --- */

static void ok_run(struct call *call) {
    reply_ok(call->reply);
}
static void fail_run(struct call *call) {
    reply_error(call->reply, "WRONG it is");
}
static void write_run(struct call *call) {
    call->dirty++;
    reply_ok(call->reply);
}
static void twice_run(struct call *call) {
    struct slice first[] = {SLICE("a"), SLICE("1")}, second[] = {SLICE("b")};
    call->dirty += 2;
    call_propagate(call, 2, first);
    call_propagate(call, 1, second);
    reply_ok(call->reply);
}
static void silent_run(struct call *call) {
    call->dirty++;
    call_propagate_nothing(call);
    reply_ok(call->reply);
}
static void rewrite_run(struct call *call) {
    call->dirty++;
    call_propagate(call, 3, (struct slice[]){SLICE("set"), SLICE("key"), call->argv[1]});
    reply_ok(call->reply);
}
static void suicide_run(struct call *call) {
    client_free(call->client);
    reply_ok(call->reply);
}
static void redact_run(struct call *call) {
    call_redact(call, 1);
    reply_ok(call->reply);
}

#define TEST_COMMAND .since = "1.0.0", .summary = "For a test."
static const struct command_spec subcommands[] = {
    {.name = "one", .run = ok_run, .arity = 2, .flags = CMD_NO_DATA | CMD_FAST, TEST_COMMAND},
    {.name = "two", .run = fail_run, .arity = -3, .flags = CMD_NO_DATA, TEST_COMMAND},
    {.name = NULL},
};
static const struct command_spec commands[] = {
    {.name = "ok", .run = ok_run, .arity = -1, .flags = CMD_NO_DATA, TEST_COMMAND},
    {.name = "get",
     .run = ok_run,
     .arity = 2,
     .flags = CMD_READONLY | CMD_FAST,
     .keys = {{KEY_RO | KEY_ACCESS, NULL, BEGIN_INDEX, 1, NULL, FIND_RANGE, 0, 1, 0}},
     TEST_COMMAND},
    {.name = "mset",
     .run = write_run,
     .arity = -3,
     .flags = CMD_WRITE | CMD_DENYOOM,
     .keys = {{KEY_OW | KEY_UPDATE, NULL, BEGIN_INDEX, 1, NULL, FIND_RANGE, -1, 2, 0}},
     TEST_COMMAND},
    {.name = "zunion",
     .run = ok_run,
     .arity = -3,
     .flags = CMD_READONLY,
     .keys = {{KEY_RO | KEY_ACCESS, NULL, BEGIN_INDEX, 1, NULL, FIND_KEYNUM, 0, 1, 1}},
     TEST_COMMAND},
    {.name = "xread",
     .run = ok_run,
     .arity = -4,
     .flags = CMD_READONLY,
     .keys = {{KEY_RO | KEY_ACCESS, NULL, BEGIN_KEYWORD, 1, "STREAMS", FIND_RANGE, -1, 1, 2}},
     TEST_COMMAND},
    {.name = "write", .run = write_run, .arity = -1, .flags = CMD_WRITE, TEST_COMMAND},
    {.name = "twice", .run = twice_run, .arity = -1, .flags = CMD_WRITE, TEST_COMMAND},
    {.name = "silent", .run = silent_run, .arity = -1, .flags = CMD_WRITE, TEST_COMMAND},
    {.name = "rewrite", .run = rewrite_run, .arity = 2, .flags = CMD_WRITE, TEST_COMMAND},
    {.name = "suicide", .run = suicide_run, .arity = -1, .flags = CMD_NO_DATA, TEST_COMMAND},
    {.name = "redact", .run = redact_run, .arity = -1, .flags = CMD_NO_DATA, TEST_COMMAND},
    {.name = "login", .run = ok_run, .arity = -1, .flags = CMD_NO_DATA | CMD_NO_AUTH, TEST_COMMAND},
    {.name = "a-rather-long-name-of-a-command", .run = ok_run, .arity = -1, .flags = CMD_NO_DATA, TEST_COMMAND},
    {.name = "many", .arity = -2, .subcommands = subcommands, TEST_COMMAND},
    {.name = NULL},
};

static void command_heard(struct propagation_listener *self, const struct propagation *propagation) {
    for (int i = 0; i < propagation->argc; i++) {
        if (i) output_write(&heard.out, SLICE(" "));
        output_write(&heard.out, propagation->argv[i]);
    }
    output_write(&heard.out, SLICE(";"));
}
static void begin_heard(struct propagation_listener *self, int db) {
    output_write(&heard.out, SLICE("("));
}
static void end_heard(struct propagation_listener *self) {
    output_write(&heard.out, SLICE(")"));
}
static struct propagation_listener listener = {.command = command_heard, .begin = begin_heard, .end = end_heard};

static int set_up(void **state) {
    static bool once;
    if (!once) {
        ticks_start();
        config_register(auth_options);
        commands_register(commands);
        server.keyspace = keyspace_new(2, &store_events);
        memory_output_init(&replies);
        memory_output_init(&heard);
        once = true;
    }
    client = client_new(NULL);
    client->reply.out = &replies.out;
    memory_output_clear(&replies);
    memory_output_clear(&heard);
    propagate_listen(&listener);
    return 0;
}

static int tear_down(void **state) {
    propagate_unlisten(&listener);
    if (client) client_free(client);
    return 0;
}

/* Runs words separated by single spaces; returns the reply. */
static const char *run(const char *line) {
    struct slice argv[64];
    int argc = 0;
    for (const char *p = line; argc < 64;) {
        const char *end = strchr(p, ' ');
        argv[argc++] = (struct slice){p, end ? (size_t)(end - p) : strlen(p)};
        if (!end) break;
        p = end + 1;
    }
    memory_output_clear(&replies);
    memory_output_clear(&heard);
    client_execute(client, argc, argv);
    *output_reserve(&replies.out, 1) = 0;
    *output_reserve(&heard.out, 1) = 0;
    return replies.data;
}

static struct command *found(const char *name) {
    return command_find(slice_of(name));
}

/* --- Lookup --- */

#define FIXTURE_TEST(name) TEST_WITH(name, set_up, tear_down)

FIXTURE_TEST(names_are_found_in_any_case) {
    assert_string_equal(run("ok"), "+OK\r\n");
    assert_string_equal(run("OK"), "+OK\r\n");
    assert_string_equal(run("oK x"), "+OK\r\n");
    assert_string_equal(run("A-Rather-LONG-name-of-a-command"), "+OK\r\n");
    assert_non_null(found("MANY|one"));
    assert_null(found("many|three"));
    assert_null(found("one"));
}

FIXTURE_TEST(names_that_look_alike_are_not_taken_for_each_other) {
    /* The last byte of each differs from the correct one in the bit of ASCII case. */
    static const char *const wrong[] = {
        "o", "okk", "ko", "ge", "gett", "a\rrather-long-name-of-a-command", "a-rather-long-nbme-of-a-command"};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        run("ok"); /* the lookup is cached */
        assert_memory_equal(run(wrong[i]), "-ERR unknown command", 20);
    }
    struct slice empty = {"", 0};
    assert_null(command_lookup(1, &empty, NULL));
}

FIXTURE_TEST(keys_are_found) {
    struct key_position keys[8];
    struct slice get[] = {SLICE("get"), SLICE("a")};
    assert_int_equal(command_find_keys(found("get"), 2, get, keys, 8), 1);
    assert_int_equal(keys[0].index, 1);
    struct slice mset[] = {SLICE("mset"), SLICE("a"), SLICE("1"), SLICE("b"), SLICE("2")};
    assert_int_equal(command_find_keys(found("mset"), 5, mset, keys, 8), 2);
    assert_int_equal(keys[1].index, 3);
    assert_int_equal(command_find_keys(found("mset"), 5, mset, keys, 1), 1);
    struct slice zunion[] = {SLICE("zunion"), SLICE("2"), SLICE("a"), SLICE("b"), SLICE("weights")};
    assert_int_equal(command_find_keys(found("zunion"), 5, zunion, keys, 8), 2);
    assert_int_equal(keys[1].index, 3);
    static const char *const bad_counts[] = {"4", "-1", "x", "99999999999999999999", "2147483647"};
    for (size_t i = 0; i < sizeof bad_counts / sizeof *bad_counts; i++) {
        zunion[1] = slice_of(bad_counts[i]);
        assert_int_equal(command_find_keys(found("zunion"), 5, zunion, keys, 8), -1);
    }
    struct slice xread[] = {SLICE("xread"), SLICE("count"), SLICE("streams"), SLICE("a"),
                            SLICE("b"),     SLICE("0"),     SLICE("1")};
    assert_int_equal(command_find_keys(found("xread"), 7, xread, keys, 8), 2);
    assert_int_equal(keys[0].index, 3);
    assert_int_equal(keys[1].index, 4);
    assert_int_equal(command_find_keys(found("xread"), 3, xread, keys, 8), 0);
}

FIXTURE_TEST(a_renamed_command_has_its_new_name_only) {
    assert_null(command_rename(SLICE("silent"), SLICE("Quiet")));
    assert_memory_equal(run("silent"), "-ERR unknown command", 20);
    assert_string_equal(run("quiet"), "+OK\r\n");
    assert_non_null(command_rename(SLICE("silent"), SLICE("x")));
    assert_non_null(command_rename(SLICE("quiet"), SLICE("get")));
    size_t count = commands_count();
    assert_null(command_rename(SLICE("quiet"), SLICE("")));
    assert_memory_equal(run("quiet"), "-ERR unknown command", 20);
    assert_int_equal(commands_count(), count - 1);
}

/* --- Rejection --- */

FIXTURE_TEST(refusals_have_valkeys_texts) {
    assert_string_equal(run("foo a b"), "-ERR unknown command 'foo', with args beginning with: 'a' 'b' \r\n");
    assert_string_equal(run("foo"), "-ERR unknown command 'foo', with args beginning with: \r\n");
    assert_string_equal(run("get"), "-ERR wrong number of arguments for 'get' command\r\n");
    assert_string_equal(run("get a b"), "-ERR wrong number of arguments for 'get' command\r\n");
    assert_string_equal(run("many"), "-ERR wrong number of arguments for 'many' command\r\n");
    assert_string_equal(run("many three"), "-ERR unknown subcommand 'three'. Try MANY HELP.\r\n");
    assert_string_equal(run("many two"), "-ERR wrong number of arguments for 'many|two' command\r\n");
}

FIXTURE_TEST(an_unknown_command_is_shown_in_part) {
    char line[2048], expected[512];
    memset(line, 'x', 600);
    line[200] = line[400] = ' ';
    line[600] = 0;
    snprintf(expected, sizeof expected, "-ERR unknown command '%.128s', with args beginning with: '%.128s' \r\n", line,
             line + 201);
    assert_string_equal(run(line), expected);
}

FIXTURE_TEST(an_unauthenticated_client_may_run_few_commands) {
    struct slice words[] = {SLICE("secret")}, none[] = {SLICE("")};
    assert_null(config_assign("requirepass", 1, words));
    client->authenticated = false;
    assert_string_equal(run("ok"), "-NOAUTH Authentication required.\r\n");
    assert_string_equal(run("get"), "-NOAUTH Authentication required.\r\n");
    assert_string_equal(run("login"), "+OK\r\n");
    assert_false(auth_login(client, SLICE("default"), SLICE("secre")));
    assert_false(auth_login(client, SLICE("default"), SLICE("secretsecret")));
    assert_false(auth_login(client, SLICE("default"), SLICE("")));
    assert_false(auth_login(client, SLICE("other"), SLICE("secret")));
    assert_true(auth_login(client, SLICE("default"), SLICE("secret")));
    assert_string_equal(run("ok"), "+OK\r\n");
    client->authenticated = false;
    assert_null(config_assign("requirepass", 1, none));
    assert_string_equal(run("ok"), "+OK\r\n");
}

/* --- Filters --- */

static enum filter_answer answer;
static int asked;
static enum filter_answer ask(struct client *who, const struct command *command, int argc, const struct slice *argv,
                              const char **error) {
    asked++;
    *error = "CODE no";
    return answer;
}

FIXTURE_TEST(a_filter_rejects_commands) {
    struct command_filter filter = {.order = FILTER_MEMORY, .flags = CMD_WRITE, .ask = ask};
    uint64_t rejected = found("write")->rejected, calls = found("write")->calls;
    dispatch_add_filter(&filter);
    asked = 0;
    answer = FILTER_REFUSE;
    assert_string_equal(run("ok"), "+OK\r\n");
    assert_int_equal(asked, 0);
    assert_string_equal(run("write"), "-CODE no\r\n");
    assert_int_equal(found("write")->rejected, rejected + 1);
    assert_int_equal(found("write")->calls, calls);
    answer = FILTER_TAKEN;
    assert_string_equal(run("write"), "");
    answer = FILTER_HOLD;
    struct slice argv[] = {SLICE("write")};
    assert_false(dispatch_request(client, 1, argv));
    answer = FILTER_PASS;
    assert_string_equal(run("write"), "+OK\r\n");
    dispatch_remove_filter(&filter);
}

static enum filter_answer first_ask(struct client *who, const struct command *command, int argc,
                                    const struct slice *argv, const char **error) {
    *error = "FIRST no";
    return FILTER_REFUSE;
}

FIXTURE_TEST(filters_run_in_order) {
    struct command_filter late = {.order = FILTER_LOADING, .ask = ask}, early = {.order = FILTER_ACL, .ask = first_ask};
    answer = FILTER_REFUSE;
    dispatch_add_filter(&late);
    dispatch_add_filter(&early);
    assert_string_equal(run("ok"), "-FIRST no\r\n");
    dispatch_remove_filter(&early);
    assert_string_equal(run("ok"), "-CODE no\r\n");
    dispatch_remove_filter(&late);
}

/* --- Around the call --- */

FIXTURE_TEST(calls_and_failures_are_counted) {
    struct command *two = found("many|two");
    uint64_t calls = two->calls, failed = two->failed, total = dispatch_commands, errors = errorstats_total();
    run("many two x");
    assert_int_equal(two->calls, calls + 1);
    assert_int_equal(two->failed, failed + 1);
    assert_int_equal(dispatch_commands, total + 1);
    assert_int_equal(errorstats_total(), errors + 1);
    assert_non_null(two->latency);
    commands_reset_stats();
    assert_int_equal(two->calls, 0);
    assert_null(two->latency);
}

FIXTURE_TEST(errors_are_counted_by_their_code) {
    struct reply none = {0};
    errorstats_reset();
    for (int i = 0; i < 200; i++) {
        char text[32];
        snprintf(text, sizeof text, "C%d x", i);
        errorstats_count(&none, slice_of(text));
    }
    errorstats_count(&none, SLICE("C5"));
    assert_int_equal(errorstats_total(), 201);
    run("foo");
    assert_int_equal(errorstats_total(), 202);
}

FIXTURE_TEST(a_write_is_propagated_once) {
    uint64_t dirty = server.dirty;
    run("ok");
    assert_string_equal(heard.data, "");
    run("write x y");
    assert_string_equal(heard.data, "(write x y;)");
    assert_int_equal(server.dirty, dirty + 1);
    run("twice");
    assert_string_equal(heard.data, "(a 1;b;)");
    assert_int_equal(server.dirty, dirty + 3);
}

/* A listener that records everything it receives. */
static struct propagation last_seen;
static struct blob *last_blob;
static void detail_heard(struct propagation_listener *self, const struct propagation *propagation) {
    last_seen = *propagation;
    if (last_blob) blob_release(last_blob);
    struct blob *blob = propagation_blob(propagation, propagation->argc - 1);
    last_blob = blob ? blob_hold(blob) : NULL;
}
static struct propagation_listener detail_listener = {.command = detail_heard};

/* Executes a request whose last argument was received into a blob. */
static void run_large(const char *name, struct blob *blob) {
    static struct request_large large;
    struct request_reader *reader = &client->reader;
    reader->argv[0] = slice_of(name);
    reader->argv[1] = blob_slice(blob);
    reader->argc = 2;
    large = (struct request_large){.index = 1, .blob = blob};
    reader->larges = &large;
    reader->larges_count = 1;
    client_execute(client, reader->argc, reader->argv);
    reader->larges = NULL;
    reader->larges_count = 0;
}

FIXTURE_TEST(large_arguments_are_propagated_by_reference) {
    propagate_listen(&detail_listener);
    struct blob *blob = blob_new(REQUEST_LARGE_MIN, REQUEST_LARGE_MIN);
    memset(blob->data, 'x', blob->len);
    run_large("write", blob);
    assert_ptr_equal(last_blob, blob);
    assert_ptr_equal(last_seen.argv[1].data, blob->data);
    assert_true(blob_is_shared(blob));
    run_large("rewrite", blob);
    assert_int_equal(last_seen.argc, 3);
    assert_ptr_equal(last_blob, blob);
    run("write small");
    assert_null(last_blob);
    assert_false(blob_is_shared(blob));
    blob_release(blob);
    propagate_unlisten(&detail_listener);
}

FIXTURE_TEST(the_propagation_offset_counts_commands) {
    uint64_t before = propagation_offset();
    propagate_listen(&detail_listener);
    run("write x");
    assert_int_equal(propagation_offset(), before + 1);
    assert_int_equal(last_seen.offset, before + 1);
    run("twice");
    assert_int_equal(propagation_offset(), before + 3);
    run("ok");
    assert_int_equal(propagation_offset(), before + 3);
    propagate_unlisten(&detail_listener);
}

FIXTURE_TEST(the_origin_of_a_command_is_reported) {
    propagate_listen(&detail_listener);
    run("write x");
    assert_int_equal(last_seen.origin, PROPAGATION_LOCAL);
    client->flags |= CLIENT_PRIMARY;
    run("write x");
    assert_int_equal(last_seen.origin, PROPAGATION_PRIMARY);
    client->flags &= ~(uint32_t)CLIENT_PRIMARY;
    run("write x");
    assert_int_equal(last_seen.origin, PROPAGATION_LOCAL);
    client->flags |= CLIENT_LOADER;
    uint64_t before = propagation_offset();
    run("write x");
    run("twice");
    assert_int_equal(propagation_offset(), before);
    client->flags &= ~(uint32_t)CLIENT_LOADER;
    assert_true(propagate_wanted());
    propagate_unlisten(&detail_listener);
}

FIXTURE_TEST(a_listener_added_within_a_transaction_gets_whole_multi_exec_pairs) {
    propagate_unlisten(&listener);
    propagate_begin();
    propagate(0, 1, (struct slice[]){SLICE("a")}, NULL);
    propagate_listen(&listener);
    propagate_end();
    assert_ptr_equal(heard.out.pos, heard.data);
    propagate_unlisten(&listener);
    propagate_begin();
    propagate_listen(&listener);
    propagate(0, 1, (struct slice[]){SLICE("b")}, NULL);
    propagate_end();
    *output_reserve(&heard.out, 1) = 0;
    assert_string_equal(heard.data, "(b;)");
}

FIXTURE_TEST(a_user_decides_which_password_it_accepts) {
    struct user user = {.name = "somebody", .flags = USER_ENABLED};
    unsigned char secret[SHA256_SIZE], other[SHA256_SIZE];
    sha256_digest(SLICE("secret"), secret);
    sha256_digest(SLICE("other"), other);
    assert_false(user_accepts(&user, SLICE("secret")));
    user_add_password(&user, secret);
    user_add_password(&user, other);
    user_add_password(&user, secret);
    assert_int_equal(user.password_count, 2);
    assert_true(user_accepts(&user, SLICE("secret")));
    assert_true(user_accepts(&user, SLICE("other")));
    assert_false(user_accepts(&user, SLICE("secre")));
    assert_false(user_accepts(&user, SLICE("Secret")));
    assert_false(user_accepts(&user, SLICE("")));
    assert_true(user_remove_password(&user, other));
    assert_false(user_remove_password(&user, other));
    assert_false(user_accepts(&user, SLICE("other")));
    user.flags = 0;
    assert_false(user_accepts(&user, SLICE("secret")));
    user.flags = USER_ENABLED | USER_NO_PASSWORD;
    assert_true(user_accepts(&user, SLICE("anything")));
    user_clear_passwords(&user);
    assert_false(user_accepts(&user, SLICE("anything")));
}

FIXTURE_TEST(users_are_found_by_name_in_order) {
    static const char *const names[] = {"zoe", "amy", "default2", "", "Default"};
    for (size_t i = 0; i < 5; i++) assert_null(user_find(slice_of(names[i])));
    for (size_t i = 0; i < 5; i++) assert_string_equal(user_add(slice_of(names[i]))->name, names[i]);
    static const char *const sorted[] = {"", "Default", "amy", "default", "default2", "zoe"};
    assert_int_equal(users_count(), 6);
    for (size_t i = 0; i < 6; i++) assert_string_equal(user_at(i)->name, sorted[i]);
    for (size_t i = 0; i < 5; i++) user_remove(user_find(slice_of(names[i])));
    assert_int_equal(users_count(), 1);
    assert_ptr_equal(user_find(SLICE("default")), &user_default);
}

FIXTURE_TEST(a_client_acts_as_the_user_it_logged_in_as) {
    assert_ptr_equal(client->user, &user_default);
    assert_ptr_equal(user_find(SLICE("default")), &user_default);
    assert_null(user_find(SLICE("Default")));
    assert_null(config_assign("requirepass", 1, &SLICE("secret")));
    uint64_t denied = auth_denied();
    assert_false(auth_login(client, SLICE("default"), SLICE("wrong")));
    assert_false(auth_login(client, SLICE("nobody"), SLICE("secret")));
    assert_int_equal(auth_denied(), denied + 2);
    client->user = NULL;
    assert_true(auth_login(client, SLICE("default"), SLICE("secret")));
    assert_ptr_equal(client->user, &user_default);
    assert_null(config_assign("requirepass", 1, &SLICE("")));
    assert_false(auth_required());
}

static void slow_unregister_run(struct call *call);
static const struct command_spec passing_subcommands[] = {
    {.name = "sub", .run = ok_run, .arity = -2, .flags = CMD_NO_DATA, TEST_COMMAND},
    {.name = NULL},
};
static const struct command_spec passing[] = {
    {.name = "passing", .run = ok_run, .arity = -1, .flags = CMD_NO_DATA, TEST_COMMAND},
    {.name = "passing-many", .arity = -2, .subcommands = passing_subcommands, TEST_COMMAND},
    {.name = "passing-away", .run = slow_unregister_run, .arity = 1, .flags = CMD_NO_DATA, TEST_COMMAND},
    {.name = NULL},
};
static void slow_unregister_run(struct call *call) {
    commands_unregister(passing);
    reply_ok(call->reply);
}

FIXTURE_TEST(commands_can_be_removed_and_registered_again) {
    size_t before = commands_count();
    for (int i = 0; i < 3; i++) {
        commands_register(passing);
        assert_int_equal(commands_count(), before + 3);
        assert_string_equal(run("passing"), "+OK\r\n");
        assert_string_equal(run("passing"), "+OK\r\n");
        assert_string_equal(run("passing-many sub"), "+OK\r\n");
        struct command *held = command_find(SLICE("passing")), *held_sub = command_find(SLICE("passing-many|sub"));
        commands_unregister(passing);
        assert_int_equal(commands_count(), before);
        assert_null(command_find(SLICE("passing")));
        assert_null(command_find(SLICE("passing-many|sub")));
        /* Also for the client that has just called it. */
        assert_string_equal(run("passing x"), "-ERR unknown command 'passing', with args beginning with: 'x' \r\n");
        /* A caller that kept a pointer to the command cannot call it any more. */
        memory_output_clear(&replies);
        dispatch_call(client, held, 1, (struct slice[]){SLICE("passing")}, -1);
        dispatch_call(client, held_sub, 1, (struct slice[]){SLICE("passing-many")}, -1);
        *output_reserve(&replies.out, 1) = 0;
        assert_string_equal(replies.data,
                            "-ERR unknown command 'passing'\r\n-ERR unknown command 'passing-many|sub'\r\n");
    }
    commands_unregister(passing); /* none is registered */
    assert_string_equal(run("ok"), "+OK\r\n");
}

FIXTURE_TEST(a_command_can_remove_itself_while_it_runs) {
    commands_register(passing);
    assert_string_equal(run("passing-away"), "+OK\r\n");
    assert_string_equal(run("passing-away"), "-ERR unknown command 'passing-away', with args beginning with: \r\n");
    assert_null(command_find(SLICE("passing")));
}

FIXTURE_TEST(nothing_is_recorded_without_a_listener) {
    propagate_unlisten(&listener);
    run("twice");
    propagate_listen(&listener);
    run("ok");
    assert_string_equal(heard.data, "");
}

FIXTURE_TEST(a_client_may_be_freed_by_its_own_command) {
    /* Without a loop its memory would be freed immediately, so another client's command frees it. */
    struct client *other = client_new(NULL);
    uint64_t id = other->id;
    client_free(other);
    assert_null(client_by_id(id));
    server.loop = event_loop_new();
    run("suicide");
    assert_string_equal(replies.data, ""); /* there is no client to reply to */
    assert_true(client->flags & CLIENT_CLOSING);
    client_free(client); /* a second call has no effect */
    event_loop_free(server.loop);
    server.loop = NULL;
    client = NULL;
}

FIXTURE_TEST(secrets_are_marked) {
    run("redact a b");
    assert_int_equal(client->redacted, 2);
    run("ok");
    assert_int_equal(client->redacted, 0);
}

/* --- State of features --- */

static int first_state = 3, second_state = 4, freed_calls, reset_calls;
static void first_gone(struct client *gone);
static void first_reported(const struct client *shown, struct client_report *report);
static void second_gone(struct client *gone);
static struct client_listener first = {.freed = first_gone, .reset = first_gone, .report = first_reported},
                              second = {.freed = second_gone}, stateless = {.reset = second_gone};

static void first_gone(struct client *gone) {
    freed_calls++;
    client_set_state(gone, &first, NULL);
}
static void second_gone(struct client *gone) {
    reset_calls++;
    client_set_state(gone, &second, NULL);
}
static void first_reported(const struct client *shown, struct client_report *report) {
    report->watched_keys = *(int *)client_state(shown, &first);
}

FIXTURE_TEST(features_keep_their_state_in_slots_of_their_own) {
    struct client_report report;
    assert_null(client_state(client, &first)); /* not even registered */
    client_set_state(client, &first, NULL);
    assert_null(client->states);
    client_set_state(client, &second, &second_state);
    client_set_state(client, &first, &first_state);
    assert_ptr_equal(client_state(client, &first), &first_state);
    assert_ptr_equal(client_state(client, &second), &second_state);
    assert_null(client_state(client, &stateless));
    client_report(client, &report);
    assert_int_equal(report.watched_keys, 3);
    assert_int_equal(report.queued_commands, -1);
    assert_true(report.memory > 0);
    client_set_state(client, &second, NULL);
    assert_ptr_equal(client_state(client, &first), &first_state);
    client_set_state(client, &first, NULL);
    assert_null(client->states); /* a client without state has no table */
    client_report(client, &report);
    assert_int_equal(report.memory, 0);
}

FIXTURE_TEST(closing_and_reset_tell_every_feature) {
    client_listen(&stateless);
    client_set_state(client, &first, &first_state);
    client_set_state(client, &second, &second_state);
    freed_calls = reset_calls = 0;
    client_reset(client);
    assert_int_equal(freed_calls, 1);
    assert_int_equal(reset_calls, 1); /* that of `stateless` */
    assert_null(client->states);
    client_set_state(client, &second, &second_state);
    server.loop = event_loop_new(); /* the client's memory stays until the loop turns */
    client_free(client);
    assert_int_equal(freed_calls, 2);
    assert_int_equal(reset_calls, 2);
    assert_null(client->states);
    event_loop_turn(server.loop, 0);
    event_loop_free(server.loop);
    server.loop = NULL;
    client = NULL;
}
