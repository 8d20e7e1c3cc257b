/* rights.c: see rights.h. */
#include "acl/rights.h"
#include "lib/system/memory.h"
#include "lib/text/glob.h"
#include "server/command/command_names.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

int acl_channels_default;

/* The error texts of Valkey. */
const char acl_unknown_command[] = "Unknown command or category name in ACL";
static const char syntax_error[] = "Syntax error";
static const char key_after_all[] =
    "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any effect. Try "
    "'resetkeys' to start with an empty list of patterns";
static const char channel_after_all[] =
    "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any effect. Try "
    "'resetchannels' to start with an empty list of channels";
static const char no_such_password[] = "The password you are trying to remove from the user does not exist";
static const char bad_hash[] =
    "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters";
static const char first_of_subcommand[] = "Allowing first-arg of a subcommand is not supported";
static const char database_range[] = "The provided database ID is out of range";

static char *lower_copy(struct slice text) {
    char *copy = mem_strndup(text.data, text.len);
    for (size_t i = 0; i < text.len; i++) copy[i] = (char)tolower((unsigned char)copy[i]);
    return copy;
}

/* --- Patterns --- */

static void pattern_set(struct acl_pattern *pattern, struct slice text, uint32_t access) {
    size_t plain = 0;
    while (plain < text.len && !strchr("*?[\\", text.data[plain])) plain++;
    *pattern = (struct acl_pattern){.text = {mem_strndup(text.len ? text.data : "", text.len), text.len},
                                    .plain = plain,
                                    .kind = PATTERN_GLOB,
                                    .access = access};
    size_t head = plain < sizeof pattern->head ? plain : sizeof pattern->head;
    if (head) memcpy(&pattern->head, text.data, head);
    memset(&pattern->mask, 0xff, head);
    if (plain == text.len)
        pattern->kind = PATTERN_EXACT;
    else if (plain + 1 == text.len && text.data[plain] == '*')
        pattern->kind = PATTERN_PREFIX;
}

bool pattern_glob_matches(const struct acl_pattern *pattern, struct slice text) {
    return glob_match(pattern->text, text, false);
}

static struct acl_pattern *patterns_find(const struct acl_patterns *patterns, struct slice text) {
    for (size_t i = 0; i < patterns->count; i++)
        if (slice_equal(patterns->items[i].text, text)) return &patterns->items[i];
    return NULL;
}

static void patterns_add(struct acl_patterns *patterns, struct slice text, uint32_t access) {
    struct acl_pattern *present = patterns_find(patterns, text);
    if (present) {
        present->access |= access;
        return;
    }
    patterns->items = mem_realloc(patterns->items, (patterns->count + 1) * sizeof *patterns->items);
    pattern_set(&patterns->items[patterns->count++], text, access);
}

static void patterns_clear(struct acl_patterns *patterns, bool all) {
    for (size_t i = 0; i < patterns->count; i++) mem_free((char *)(uintptr_t)patterns->items[i].text.data);
    mem_free(patterns->items);
    *patterns = (struct acl_patterns){.all = all};
}

static void patterns_copy(struct acl_patterns *to, const struct acl_patterns *from) {
    *to = (struct acl_patterns){.all = from->all};
    for (size_t i = 0; i < from->count; i++) patterns_add(to, from->items[i].text, from->items[i].access);
}

/* A pattern must be a single word in the aclfile. */
static bool pattern_ok(struct slice text) {
    for (size_t i = 0; i < text.len; i++)
        if (!text.data[i] || isspace((unsigned char)text.data[i])) return false;
    return true;
}

/* --- Commands --- */

static void shortcuts_drop(struct acl_selector *selector) {
    mem_free(selector->shortcuts.commands);
    selector->shortcuts = (struct acl_shortcuts){0};
}

static void bitmap_grow(struct acl_selector *selector, uint32_t id) {
    size_t words = (size_t)id / 64 + 1;
    if (words <= selector->words) return;
    selector->commands = mem_realloc(selector->commands, words * sizeof *selector->commands);
    memset(selector->commands + selector->words, selector->others ? 0xff : 0, (words - selector->words) * 8);
    selector->words = words;
}

static void firsts_drop(struct acl_selector *selector, uint32_t id) {
    size_t kept = 0;
    for (size_t i = 0; i < selector->first_count; i++) {
        if (selector->firsts[i].command == id)
            mem_free(selector->firsts[i].text);
        else
            selector->firsts[kept++] = selector->firsts[i];
    }
    selector->first_count = kept;
}

static void command_set(struct acl_selector *selector, const struct command *command, bool on) {
    bitmap_grow(selector, command->id);
    uint64_t bit = UINT64_C(1) << command->id % 64, *word = &selector->commands[command->id / 64];
    *word = on ? *word | bit : *word & ~bit;
    firsts_drop(selector, command->id);
}

static bool command_allowed(const struct acl_selector *selector, uint32_t id) {
    size_t word = id / 64;
    return word < selector->words ? selector->commands[word] >> id % 64 & 1 : selector->others;
}

bool selector_has_command(const struct acl_selector *selector, const struct command *command, int argc,
                          const struct slice *argv) {
    if (__builtin_expect(command_allowed(selector, command->id), 1) || command->spec->flags & CMD_NO_AUTH) return true;
    for (size_t i = 0; argc > 1 && i < selector->first_count; i++)
        if (selector->firsts[i].command == command->id && slice_is(argv[1], selector->firsts[i].text)) return true;
    return false;
}

struct commands_change {
    struct acl_selector *selector;
    const struct command *parent; /* NULL: by category */
    uint32_t category;
    bool on;
};
static void change_one(struct command *command, void *context) {
    const struct commands_change *change = context;
    if (change->parent ? command->parent == change->parent : command->categories & change->category)
        command_set(change->selector, command, change->on);
}

static void all_commands_set(struct acl_selector *selector, bool on) {
    for (size_t i = 0; i < selector->first_count; i++) mem_free(selector->firsts[i].text);
    for (size_t i = 0; i < selector->rule_count; i++) mem_free(selector->rules[i]);
    selector->first_count = selector->rule_count = 0;
    if (selector->words) memset(selector->commands, on ? 0xff : 0, selector->words * sizeof *selector->commands);
    selector->others = selector->all_commands_first = on;
}

/* Appends a rule and removes the rules that it overrides: those with the same name, and for a whole command those of
 * its subcommands and first arguments. */
static void rule_keep(struct acl_selector *selector, char sign, struct slice name) {
    char *rule = mem_alloc(name.len + 2);
    rule[0] = sign;
    for (size_t i = 0; i < name.len; i++) rule[i + 1] = (char)tolower((unsigned char)name.data[i]);
    rule[name.len + 1] = 0;
    size_t kept = 0;
    for (size_t i = 0; i < selector->rule_count; i++) {
        const char *old = selector->rules[i] + 1;
        bool begins = strncmp(old, rule + 1, name.len) == 0;
        if (begins && (old[name.len] == 0 || old[name.len] == '|'))
            mem_free(selector->rules[i]);
        else
            selector->rules[kept++] = selector->rules[i];
    }
    selector->rules = mem_realloc(selector->rules, (kept + 1) * sizeof *selector->rules);
    selector->rules[kept] = rule;
    selector->rule_count = kept + 1;
}

static const char *apply_category(struct acl_selector *selector, bool on, struct slice name) {
    struct slice category = {name.data + 1, name.len - 1};
    if (slice_is(category, "all")) {
        all_commands_set(selector, on);
        return NULL;
    }
    struct commands_change change = {.selector = selector, .on = on, .category = command_category_by_name(category)};
    if (!change.category) return acl_unknown_command;
    commands_each_all(change_one, &change);
    rule_keep(selector, on ? '+' : '-', name);
    return NULL;
}

static const char *apply_first_argument(struct acl_selector *selector, struct slice name) {
    const char *bar = memrchr(name.data, '|', name.len);
    struct slice first = {bar ? bar + 1 : NULL, bar ? (size_t)(name.data + name.len - bar - 1) : 0};
    struct command *command = bar ? command_find_original((struct slice){name.data, (size_t)(bar - name.data)}) : NULL;
    if (!command) return acl_unknown_command;
    if (command->parent) return first_of_subcommand;
    if (!first.len) return syntax_error;
    if (command->subcommands) return acl_unknown_command;
    if (!pattern_ok(first)) return syntax_error;
    rule_keep(selector, '+', name);
    for (size_t i = 0; i < selector->first_count; i++)
        if (selector->firsts[i].command == command->id && slice_is(first, selector->firsts[i].text)) return NULL;
    size_t size = (selector->first_count + 1) * sizeof *selector->firsts;
    selector->firsts = mem_realloc(selector->firsts, size);
    selector->firsts[selector->first_count++] =
        (struct acl_first_argument){.command = command->id, .text = lower_copy(first)};
    return NULL;
}

static const char *apply_command(struct acl_selector *selector, bool on, struct slice name) {
    if (!name.len) return acl_unknown_command;
    if (name.data[0] == '@') return apply_category(selector, on, name);
    struct command *command = command_find_original(name);
    if (!command) return on ? apply_first_argument(selector, name) : acl_unknown_command;
    command_set(selector, command, on);
    struct commands_change change = {.selector = selector, .on = on, .parent = command};
    commands_each_all(change_one, &change);
    rule_keep(selector, on ? '+' : '-', name);
    return NULL;
}

struct rule_replay {
    struct acl_selector *selector;
    bool on;
    uint32_t category;
    struct slice name; /* of a command or a container, if the category is 0 */
};
static void rule_replay_one(struct command *command, void *context) {
    const struct rule_replay *rule = context;
    const struct command *container = command->parent;
    bool concerned = rule->category ? command->categories & rule->category
                                    : slice_equal(rule->name, slice_of(command->full_name)) ||
                                          (container && slice_equal(rule->name, slice_of(container->full_name)));
    if (!concerned) return;
    bitmap_grow(rule->selector, command->id);
    uint64_t bit = UINT64_C(1) << command->id % 64, *word = &rule->selector->commands[command->id / 64];
    *word = rule->on ? *word | bit : *word & ~bit;
}

void selector_apply_again(struct acl_selector *selector) {
    selector->others = selector->all_commands_first;
    if (selector->words)
        memset(selector->commands, selector->others ? 0xff : 0, selector->words * sizeof *selector->commands);
    for (size_t i = 0; i < selector->rule_count; i++) {
        const char *text = selector->rules[i];
        struct rule_replay rule = {.selector = selector, .on = text[0] == '+', .name = slice_of(text + 1)};
        if (text[1] == '@') rule.category = command_category_by_name(slice_of(text + 2));
        if (text[1] != '@' || rule.category) commands_each_all(rule_replay_one, &rule);
    }
    shortcuts_drop(selector);
}

/* --- Keys, channels, databases --- */

static const char *apply_key(struct acl_selector *selector, struct slice rule) {
    if (slice_equal(rule, SLICE("~*"))) {
        patterns_clear(&selector->keys, true);
        return NULL;
    }
    if (selector->keys.all) return key_after_all;
    uint32_t access = ACCESS_READ | ACCESS_WRITE;
    size_t at = 1;
    if (rule.data[0] == '%') {
        access = 0;
        for (; at < rule.len && rule.data[at] != '~'; at++) {
            char c = (char)toupper((unsigned char)rule.data[at]);
            uint32_t flag = c == 'R' ? ACCESS_READ : c == 'W' ? ACCESS_WRITE : 0;
            if (!flag || access & flag) return syntax_error;
            access |= flag;
        }
        if (!access) return syntax_error;
        if (at < rule.len) at++;
    }
    struct slice pattern = {rule.data + at, rule.len - at};
    if (!pattern_ok(pattern)) return syntax_error;
    patterns_add(&selector->keys, pattern, access);
    return NULL;
}

static const char *apply_channel(struct acl_selector *selector, struct slice rule) {
    struct slice pattern = {rule.data + 1, rule.len - 1};
    if (slice_equal(pattern, SLICE("*"))) {
        patterns_clear(&selector->channels, true);
        return NULL;
    }
    if (selector->channels.all) return channel_after_all;
    if (!pattern_ok(pattern)) return syntax_error;
    patterns_add(&selector->channels, pattern, 0);
    return NULL;
}

static void databases_set(struct acl_selector *selector, bool all, int *databases, size_t count) {
    mem_free(selector->databases);
    selector->databases = databases;
    selector->database_count = count;
    selector->all_databases = all;
}

static int compare_ints(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

static const char *database_parse(struct slice text, int *db) {
    char number[32], *end;
    if (!text.len || text.len >= sizeof number || memchr(text.data, 0, text.len)) return syntax_error;
    memcpy(number, text.data, text.len);
    number[text.len] = 0;
    errno = 0;
    long value = strtol(number, &end, 10);
    if (*end || end == number) return syntax_error;
    if (errno || value < 0 || value > INT_MAX) return database_range;
    *db = (int)value;
    return NULL;
}

static const char *apply_databases(struct acl_selector *selector, struct slice list) {
    if (list.len && list.data[list.len - 1] == ',') return syntax_error;
    size_t count = 0, commas = 0;
    for (size_t i = 0; i < list.len; i++) commas += list.data[i] == ',';
    int *databases = mem_alloc((commas + 1) * sizeof *databases);
    for (;;) {
        const char *comma = list.len ? memchr(list.data, ',', list.len) : NULL;
        size_t len = comma ? (size_t)(comma - list.data) : list.len;
        const char *reason = database_parse((struct slice){list.data, len}, &databases[count]);
        if (reason) {
            mem_free(databases);
            return reason;
        }
        count++;
        if (!comma) break;
        list = (struct slice){comma + 1, list.len - len - 1};
    }
    qsort(databases, count, sizeof *databases, compare_ints);
    size_t unique = 1;
    for (size_t i = 1; i < count; i++)
        if (databases[i] != databases[unique - 1]) databases[unique++] = databases[i];
    databases_set(selector, false, databases, unique);
    return NULL;
}

bool selector_has_channel(const struct acl_selector *selector, struct slice channel, bool is_pattern) {
    if (selector->channels.all) return true;
    for (size_t i = 0; i < selector->channels.count; i++) {
        const struct acl_pattern *pattern = &selector->channels.items[i];
        /* A channel pattern must be equal to the permitted pattern: inclusion of patterns is not computed. */
        if (is_pattern ? slice_equal(pattern->text, channel) : pattern_matches(pattern, channel)) return true;
    }
    return false;
}

bool selector_has_database(const struct acl_selector *selector, int db) {
    if (!selector->database_count) return selector->all_databases;
    return bsearch(&db, selector->databases, selector->database_count, sizeof *selector->databases, compare_ints);
}

/* --- Selectors --- */

static const char *selector_apply(struct acl_selector *selector, struct slice rule) {
    if (!rule.len) return NULL;
    shortcuts_drop(selector);
    char sign = rule.data[0];
    if (slice_is(rule, "allkeys"))
        patterns_clear(&selector->keys, true);
    else if (slice_is(rule, "resetkeys"))
        patterns_clear(&selector->keys, false);
    else if (slice_is(rule, "allchannels"))
        patterns_clear(&selector->channels, true);
    else if (slice_is(rule, "resetchannels"))
        patterns_clear(&selector->channels, false);
    else if (slice_is(rule, "alldbs"))
        databases_set(selector, true, NULL, 0);
    else if (slice_is(rule, "resetdbs"))
        databases_set(selector, false, NULL, 0);
    else if (slice_is(rule, "allcommands"))
        all_commands_set(selector, true);
    else if (slice_is(rule, "nocommands"))
        all_commands_set(selector, false);
    else if (rule.len > 3 && strncasecmp(rule.data, "db=", 3) == 0)
        return apply_databases(selector, (struct slice){rule.data + 3, rule.len - 3});
    else if (sign == '~' || sign == '%')
        return apply_key(selector, rule);
    else if (sign == '&')
        return apply_channel(selector, rule);
    else if (sign == '+' || sign == '-')
        return apply_command(selector, sign == '+', (struct slice){rule.data + 1, rule.len - 1});
    else
        return syntax_error;
    return NULL;
}

static void selector_init(struct acl_selector *selector) {
    *selector = (struct acl_selector){.all_databases = true, .channels.all = acl_channels_default != 0};
}

static void selector_free(struct acl_selector *selector) {
    all_commands_set(selector, false);
    patterns_clear(&selector->keys, false);
    patterns_clear(&selector->channels, false);
    mem_free(selector->commands);
    mem_free(selector->databases);
    mem_free(selector->firsts);
    mem_free(selector->rules);
    shortcuts_drop(selector);
}

static void *copy_of(const void *from, size_t size) {
    if (!size) return NULL;
    void *to = mem_alloc(size);
    memcpy(to, from, size);
    return to;
}

static void selector_copy(struct acl_selector *to, const struct acl_selector *from) {
    *to = *from;
    to->shortcuts = (struct acl_shortcuts){0};
    to->commands = copy_of(from->commands, from->words * sizeof *from->commands);
    to->databases = copy_of(from->databases, from->database_count * sizeof *from->databases);
    to->firsts = copy_of(from->firsts, from->first_count * sizeof *from->firsts);
    for (size_t i = 0; i < to->first_count; i++) to->firsts[i].text = mem_strdup(from->firsts[i].text);
    to->rules = copy_of(from->rules, from->rule_count * sizeof *from->rules);
    for (size_t i = 0; i < to->rule_count; i++) to->rules[i] = mem_strdup(from->rules[i]);
    patterns_copy(&to->keys, &from->keys);
    patterns_copy(&to->channels, &from->channels);
}

static bool selector_is_all(const struct acl_selector *selector) {
    bool all = selector->others && selector->keys.all && selector->channels.all && selector->all_databases;
    for (size_t i = 0; all && i < selector->words; i++) all = selector->commands[i] == UINT64_MAX;
    return all;
}

struct acl_rights *rights_new(void) {
    struct acl_rights *rights = mem_alloc(sizeof *rights);
    *rights = (struct acl_rights){.count = 1, .selectors = mem_alloc(sizeof *rights->selectors)};
    selector_init(rights->selectors);
    return rights;
}

static struct acl_rights *rights_copy(const struct acl_rights *from) {
    struct acl_rights *rights = mem_alloc(sizeof *rights);
    *rights = (struct acl_rights){.count = from->count, .selectors = mem_alloc(from->count * sizeof *from->selectors)};
    for (size_t i = 0; i < from->count; i++) selector_copy(&rights->selectors[i], &from->selectors[i]);
    return rights;
}

static void rights_clear_selectors(struct acl_rights *rights) {
    for (size_t i = 1; i < rights->count; i++) selector_free(&rights->selectors[i]);
    rights->count = 1;
}

static void rights_free(struct acl_rights *rights) {
    if (!rights) return;
    rights_clear_selectors(rights);
    selector_free(&rights->selectors[0]);
    mem_free(rights->selectors);
    mem_free(rights);
}

bool rights_are_all(const struct acl_rights *rights) {
    for (size_t i = 0; i < rights->count; i++)
        if (selector_is_all(&rights->selectors[i])) return true;
    return false;
}

static const char *rights_add_selector(struct acl_rights *rights, struct slice rules) {
    struct acl_selector selector;
    selector_init(&selector);
    while (rules.len) {
        const char *space = memchr(rules.data, ' ', rules.len);
        size_t len = space ? (size_t)(space - rules.data) : rules.len;
        const char *reason = selector_apply(&selector, (struct slice){rules.data, len});
        if (reason) {
            selector_free(&selector);
            return reason;
        }
        len += space != NULL;
        rules = (struct slice){rules.data + len, rules.len - len};
    }
    rights->selectors = mem_realloc(rights->selectors, (rights->count + 1) * sizeof *rights->selectors);
    rights->selectors[rights->count++] = selector;
    return NULL;
}

/* --- Users --- */

void user_free_rights(struct user *user) {
    rights_free(user->rights);
    user->rights = NULL;
}

void user_copy_rights(struct user *to, const struct user *from) {
    user_free_rights(to);
    user_clear_passwords(to);
    to->flags = from->flags;
    to->password_count = from->password_count;
    to->passwords = copy_of(from->passwords, from->password_count * sizeof *from->passwords);
    to->rights = rights_copy(from->rights);
}

void user_reset(struct user *user) {
    user_free_rights(user);
    user_clear_passwords(user);
    user->flags = 0;
    user->rights = rights_new();
}

void user_password_hex(const unsigned char digest[static SHA256_SIZE], char text[static 2 * SHA256_SIZE]) {
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < SHA256_SIZE; i++) {
        text[2 * i] = digits[digest[i] >> 4];
        text[2 * i + 1] = digits[digest[i] & 15];
    }
}

static bool hex_parse(struct slice text, unsigned char digest[static SHA256_SIZE]) {
    if (text.len != 2 * SHA256_SIZE) return false;
    memset(digest, 0, SHA256_SIZE);
    for (size_t i = 0; i < text.len; i++) {
        char c = text.data[i];
        int value = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (value < 0) return false;
        digest[i / 2] = (unsigned char)(digest[i / 2] << 4 | value);
    }
    return true;
}

static const char *apply_password(struct user *user, struct slice rule) {
    struct slice text = {rule.data + 1, rule.len - 1};
    char sign = rule.data[0];
    unsigned char digest[SHA256_SIZE];
    if (sign == '>' || sign == '<')
        sha256_digest(text, digest);
    else if (!hex_parse(text, digest))
        return bad_hash;
    if (sign == '>' || sign == '#')
        user_add_password(user, digest);
    else if (!user_remove_password(user, digest))
        return no_such_password;
    return NULL;
}

const char *user_apply_rule(struct user *user, struct slice rule) {
    if (!rule.len) return NULL;
    if (slice_is(rule, "on")) {
        user->flags |= USER_ENABLED;
    } else if (slice_is(rule, "off")) {
        user->flags &= ~(uint32_t)USER_ENABLED;
    } else if (slice_is(rule, "nopass")) {
        user_clear_passwords(user);
        user->flags |= USER_NO_PASSWORD;
    } else if (slice_is(rule, "resetpass")) {
        user_clear_passwords(user);
    } else if (slice_is(rule, "clearselectors")) {
        rights_clear_selectors(user->rights);
    } else if (slice_is(rule, "reset")) {
        user_reset(user);
    } else if (slice_is(rule, "sanitize-payload") || slice_is(rule, "skip-sanitize-payload")) {
        return NULL; /* accepted and ignored: RESTORE always checks its payload */
    } else if (strchr("><#!", rule.data[0]) && rule.data[0]) {
        return apply_password(user, rule);
    } else if (rule.len > 1 && rule.data[0] == '(' && rule.data[rule.len - 1] == ')') {
        return rights_add_selector(user->rights, (struct slice){rule.data + 1, rule.len - 2});
    } else {
        return selector_apply(&user->rights->selectors[0], rule);
    }
    return NULL;
}

/* Returns the number of words from `at` on that form one selector; 0: its parenthesis is not closed. *len: their bytes,
 * with spaces. */
static int selector_span(int count, const struct slice *words, int at, size_t *len) {
    *len = 0;
    for (int i = at; i < count; i++) {
        *len += words[i].len + (i > at);
        if (words[i].len && words[i].data[words[i].len - 1] == ')') return i - at + 1;
    }
    return 0;
}

void rules_free(struct slice *rules, int count) {
    for (int i = 0; i < count; i++) mem_free((char *)(uintptr_t)rules[i].data);
    mem_free(rules);
}

struct slice *rules_join(int count, const struct slice *words, int *rule_count, int *unmatched) {
    struct slice *rules = mem_alloc(((size_t)count + 1) * sizeof *rules);
    int made = 0;
    for (int at = 0, span; at < count; at += span) {
        size_t len = words[at].len;
        bool opens = len && words[at].data[0] == '(';
        span = opens ? selector_span(count, words, at, &len) : 1;
        if (!span) {
            rules_free(rules, made);
            *unmatched = at;
            return NULL;
        }
        char *text = mem_alloc(len + 1), *to = text;
        for (int i = at; i < at + span; i++) {
            if (i > at) *to++ = ' ';
            if (words[i].len) memcpy(to, words[i].data, words[i].len);
            to += words[i].len;
        }
        *to = 0;
        rules[made++] = (struct slice){text, len};
    }
    *rule_count = made;
    return rules;
}

/* --- Writing --- */

static void rights_write_text(struct output *out, const char *text) {
    output_write(out, slice_of(text));
}

void selector_write_commands(const struct acl_selector *selector, struct output *out) {
    rights_write_text(out, selector->all_commands_first ? "+@all" : "-@all");
    for (size_t i = 0; i < selector->rule_count; i++) {
        rights_write_text(out, " ");
        rights_write_text(out, selector->rules[i]);
    }
}

void selector_write_keys(const struct acl_selector *selector, struct output *out) {
    if (selector->keys.all) rights_write_text(out, "~*");
    for (size_t i = 0; i < selector->keys.count; i++) {
        const struct acl_pattern *pattern = &selector->keys.items[i];
        if (i) rights_write_text(out, " ");
        /* "~*" would be read as allkeys, and no pattern may follow that rule. */
        bool is_star = slice_equal(pattern->text, SLICE("*"));
        rights_write_text(out, pattern->access == ACCESS_READ    ? "%R~"
                               : pattern->access == ACCESS_WRITE ? "%W~"
                               : is_star                         ? "%RW~"
                                                                 : "~");
        output_write(out, pattern->text);
    }
}

void selector_write_channels(const struct acl_selector *selector, struct output *out) {
    if (selector->channels.all) rights_write_text(out, "&*");
    for (size_t i = 0; i < selector->channels.count; i++) {
        rights_write_text(out, i ? " &" : "&");
        output_write(out, selector->channels.items[i].text);
    }
}

void selector_write_databases(const struct acl_selector *selector, struct output *out) {
    if (selector->all_databases) rights_write_text(out, "alldbs");
    for (size_t i = 0; i < selector->database_count; i++) {
        char text[32];
        snprintf(text, sizeof text, "%s%d", i ? "," : "db=", selector->databases[i]);
        rights_write_text(out, text);
    }
}

static void selector_write(const struct acl_selector *selector, struct output *out) {
    if (selector->keys.all || selector->keys.count) {
        selector_write_keys(selector, out);
        rights_write_text(out, " ");
    }
    if (!selector->channels.all) rights_write_text(out, "resetchannels ");
    if (selector->channels.all || selector->channels.count) {
        selector_write_channels(selector, out);
        rights_write_text(out, " ");
    }
    if (!selector->all_databases) {
        if (selector->database_count)
            selector_write_databases(selector, out);
        else
            rights_write_text(out, "resetdbs");
        rights_write_text(out, " ");
    }
    selector_write_commands(selector, out);
}

void user_write_rules(const struct user *user, struct output *out) {
    rights_write_text(out, user->flags & USER_ENABLED ? "on " : "off ");
    if (user->flags & USER_NO_PASSWORD) rights_write_text(out, "nopass ");
    for (unsigned i = 0; i < user->password_count; i++) {
        char text[2 * SHA256_SIZE];
        user_password_hex(user->passwords[i], text);
        rights_write_text(out, "#");
        output_write(out, (struct slice){text, sizeof text});
        rights_write_text(out, " ");
    }
    selector_write(&user->rights->selectors[0], out);
    for (size_t i = 1; i < user->rights->count; i++) {
        rights_write_text(out, " (");
        selector_write(&user->rights->selectors[i], out);
        rights_write_text(out, ")");
    }
}
