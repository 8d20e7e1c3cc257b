/* Rules of users: for a user with any rules, the rules that ACL LIST shows define a user with the same rules and
 * permissions. Input: rules, one per line; lines that begin with '!' are keys and channels to check. */
#include "acl/rights.h"
#include "fuzz.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"

/* This program has no clients. */
struct list *clients_all(void) {
    static struct list none = {.head = {&none.head, &none.head}};
    return &none;
}
struct list *clients_internal(void) {
    return clients_all();
}
void client_free(struct client *client) {}
void client_free_after_reply(struct client *client) {}
const struct call *dispatch_running(void) {
    return NULL;
}
bool dispatch_is_running(const struct client *client) {
    return false;
}

static void run(struct call *call) {}
#define COMMAND(text, flag) .name = text, .run = run, .arity = -2, .flags = flag, .since = "1", .summary = "?"
static const struct command_spec subcommands[] = {
    {COMMAND("get", CMD_READONLY)}, {COMMAND("set", CMD_ADMIN | CMD_NO_DATA)}, {.name = NULL}};
static const struct command_spec commands[] = {{COMMAND("get", CMD_READONLY)},
                                               {COMMAND("set", CMD_WRITE)},
                                               {COMMAND("select", CMD_FAST | CMD_NO_DATA)},
                                               {COMMAND("config", CMD_NO_DATA), .subcommands = subcommands},
                                               {.name = NULL}};

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    commands_register(commands);
    return 0;
}

enum { TRIED_MAX = 8 };
static struct slice tried[TRIED_MAX];
static int tried_count;

static void compare_command(struct command *command, void *context) {
    const struct acl_selector *const *pair = context;
    for (int i = 0; i < tried_count; i++) {
        struct slice argv[] = {slice_of(command->full_name), tried[i]};
        FUZZ_CHECK(selector_has_command(pair[0], command, 2, argv) == selector_has_command(pair[1], command, 2, argv),
                   "%s is allowed to one of them", command->full_name);
    }
}

static bool has_key(const struct acl_selector *selector, struct slice key, uint32_t access) {
    for (size_t i = 0; i < selector->keys.count; i++)
        if ((selector->keys.items[i].access & access) == access && pattern_matches(&selector->keys.items[i], key))
            return true;
    return selector->keys.all;
}

static void compare_selectors(const struct acl_selector *a, const struct acl_selector *b) {
    const struct acl_selector *pair[] = {a, b};
    commands_each_all(compare_command, pair);
    for (int db = 0; db < 20; db++)
        FUZZ_CHECK(selector_has_database(a, db) == selector_has_database(b, db), "one of them has database %d", db);
    for (int i = 0; i < tried_count; i++) {
        for (uint32_t access = 0; access < 4; access++)
            FUZZ_CHECK(has_key(a, tried[i], access) == has_key(b, tried[i], access), "one of them has a key");
        for (int pattern = 0; pattern < 2; pattern++)
            FUZZ_CHECK(selector_has_channel(a, tried[i], pattern) == selector_has_channel(b, tried[i], pattern),
                       "one of them has a channel");
    }
}

static void user_free(struct user *user) {
    user_free_rights(user);
    user_clear_passwords(user);
}

static void read_again(const struct user *user) {
    struct memory_output first, second;
    memory_output_init(&first);
    memory_output_init(&second);
    user_write_rules(user, &first.out);
    struct slice text = memory_output_slice(&first), words[512];
    int count = 0, rule_count, unmatched;
    while (text.len && count < 512) {
        const char *space = memchr(text.data, ' ', text.len);
        size_t len = space ? (size_t)(space - text.data) : text.len;
        words[count++] = (struct slice){text.data, len};
        len += space != NULL;
        text.data += len, text.len -= len;
    }
    struct slice *rules = text.len ? NULL : rules_join(count, words, &rule_count, &unmatched);
    struct user copy = {0};
    user_reset(&copy);
    bool same = rules != NULL;
    for (int i = 0; same && i < rule_count; i++) {
        const char *reason = user_apply_rule(&copy, rules[i]);
        FUZZ_CHECK(!reason, "%.*s: %s", (int)rules[i].len, rules[i].data, reason);
    }
    if (same) {
        user_write_rules(&copy, &second.out);
        FUZZ_CHECK(slice_equal(memory_output_slice(&first), memory_output_slice(&second)), "%.*s became %.*s",
                   (int)memory_output_slice(&first).len, memory_output_slice(&first).data,
                   (int)memory_output_slice(&second).len, memory_output_slice(&second).data);
        FUZZ_CHECK(copy.flags == user->flags, "the flags differ");
        FUZZ_CHECK(copy.rights->count == user->rights->count, "the selectors differ");
        for (size_t i = 0; i < copy.rights->count; i++)
            compare_selectors(&copy.rights->selectors[i], &user->rights->selectors[i]);
        FUZZ_CHECK(rights_are_all(copy.rights) == rights_are_all(user->rights), "one of them has all rights");
        rules_free(rules, rule_count);
    }
    user_free(&copy);
    memory_output_free(&first);
    memory_output_free(&second);
}

/* A pattern in a selector that ends with a parenthesis cannot be distinguished from the end of the selector. */
static bool is_ambiguous(struct slice rule) {
    return rule.len && rule.data[0] == '(' && memchr(rule.data, ')', rule.len) != rule.data + rule.len - 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct slice input = {(const char *)data, size};
    struct user user = {0}, copy = {0};
    user_reset(&user);
    tried_count = 0;
    while (input.len) {
        const char *newline = memchr(input.data, '\n', input.len);
        size_t len = newline ? (size_t)(newline - input.data) : input.len;
        struct slice rule = {input.data, len};
        len += newline != NULL;
        input.data += len, input.len -= len;
        if (rule.len && rule.data[0] == '!' && tried_count < TRIED_MAX)
            tried[tried_count++] = (struct slice){rule.data + 1, rule.len - 1};
        else if (!is_ambiguous(rule))
            user_apply_rule(&user, rule);
    }
    read_again(&user);
    user_copy_rights(&copy, &user);
    read_again(&copy);
    user_free(&user);
    user_free(&copy);
    return 0;
}
