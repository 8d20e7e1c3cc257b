/* acl_files.c: users in files: the aclfile, or `user` lines of the configuration file, but not both.
 *
 * Both have lines of the form "user NAME RULE…", as ACL LIST shows them. The lines of the configuration are checked
 * while the file is read, and applied at startup, after all commands have been renamed. ACL LOAD applies the aclfile as
 * a whole or not at all: it first creates users from all lines, then replaces the permissions of existing users with
 * the same name, so that clients whose permissions are still sufficient stay connected. */
#include "acl/acl.h"
#include "acl/rights.h"
#include "lib/system/file.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "resp/request.h"
#include "server/feature.h"
#include "server/server.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

enum { FILE_SIZE_MAX = 256 * 1024 * 1024, NEW_FILE_MODE = 0600 /* the file has digests of passwords */ };

static char *acl_file;
static const struct config_name channel_defaults[] = {{"allchannels", 1}, {"resetchannels", 0}, {NULL, 0}};

/* --- Users from lines of a file --- */

struct made_users {
    struct user *items; /* with an allocated name each */
    size_t count;
};

static struct user *made_find(const struct made_users *made, struct slice name) {
    for (size_t i = 0; i < made->count; i++)
        if (slice_equal(slice_of(made->items[i].name), name)) return &made->items[i];
    return NULL;
}

static struct user *made_add(struct made_users *made, struct slice name) {
    made->items = mem_realloc(made->items, (made->count + 1) * sizeof *made->items);
    struct user *user = &made->items[made->count++];
    *user = (struct user){.name = mem_strndup(name.data, name.len)};
    user_reset(user);
    return user;
}

static void made_free(struct made_users *made) {
    for (size_t i = 0; i < made->count; i++) {
        user_free_rights(&made->items[i]);
        user_clear_passwords(&made->items[i]);
        mem_free((char *)(uintptr_t)made->items[i].name);
    }
    mem_free(made->items);
    *made = (struct made_users){0};
}

/* Moves the permissions of `from` to `user`. */
static void user_take(struct user *user, struct user *from) {
    user_free_rights(user);
    user_clear_passwords(user);
    user->flags = from->flags;
    user->rights = from->rights;
    user->passwords = from->passwords;
    user->password_count = from->password_count;
    from->rights = NULL;
    from->passwords = NULL;
    from->password_count = 0;
    acl_user_changed(user);
}

static void made_apply(struct made_users *made) {
    for (size_t i = 0; i < made->count; i++) {
        struct slice name = slice_of(made->items[i].name);
        struct user *user = user_find(name);
        user_take(user ? user : user_add(name), &made->items[i]);
    }
}

/* --- Lines of the configuration --- */

struct acl_line {
    struct slice name; /* allocated */
    int count;
    struct slice *rules; /* the arguments of selectors are joined */
};
static struct acl_line *lines;
static size_t line_count;

/* Applies the rules of a line. On failure, *failed is the rule. */
static const char *apply_rules(struct user *user, int count, const struct slice *rules, struct slice *failed) {
    for (int i = 0; i < count; i++) {
        const char *reason = user_apply_rule(user, rules[i]);
        if (!reason) continue;
        *failed = rules[i];
        return reason;
    }
    return NULL;
}

static const char *line_refused(struct slice name, const char *reason) {
    return config_reason("Error in user declaration '%.*s': %s", (int)(name.len < 128 ? name.len : 128), name.data,
                         reason);
}

static const char *line_read(int count, const struct slice *words) {
    struct slice name = words[0], failed;
    if (memchr(name.data, 0, name.len) || memchr(name.data, ' ', name.len))
        return "Spaces not allowed in ACL usernames";
    for (size_t i = 0; i < line_count; i++)
        if (slice_equal(lines[i].name, name))
            return line_refused(name, "Duplicate user found. A user can only be defined once in config files");
    int rules_count, unmatched;
    struct slice *rules = rules_join(count - 1, words + 1, &rules_count, &unmatched);
    if (!rules) return line_refused(name, "Unmatched parenthesis in selector definition");
    struct user tried = {0};
    user_reset(&tried);
    const char *reason = apply_rules(&tried, rules_count, rules, &failed);
    user_free_rights(&tried);
    user_clear_passwords(&tried);
    /* Whether a command exists is known only after the whole file has been read. */
    if (reason && reason != acl_unknown_command) {
        rules_free(rules, rules_count);
        return line_refused(name, reason);
    }
    lines = mem_realloc(lines, (line_count + 1) * sizeof *lines);
    lines[line_count++] = (struct acl_line){{mem_strndup(name.data, name.len), name.len}, rules_count, rules};
    return NULL;
}

/* In a file a selector ends with the first word that ends with ')'. If a pattern in a selector ends with ')', it is
 * written as an equivalent pattern that ends with ']'. */
static void write_pattern(struct slice pattern, struct output *out) {
    bool in_class = false, escaped = false;
    for (size_t i = 0; i + 1 < pattern.len; i++) {
        char c = pattern.data[i];
        if (!escaped && (c == '[' || c == ']')) in_class = c == '[';
        escaped = !escaped && c == '\\';
    }
    if (in_class) { /* an unclosed class ends with the pattern */
        output_write(out, pattern);
        output_write(out, SLICE("]"));
        return;
    }
    output_write(out, (struct slice){pattern.data, pattern.len - 1 - escaped});
    output_write(out, SLICE("[)]"));
}

static bool ends_selector(struct slice word) {
    return word.len && word.data[word.len - 1] == ')';
}

/* A first argument that ends with ')' cannot be expressed, so its rule is omitted. */
static void write_file_rules(const struct user *user, struct output *out) {
    struct memory_output rules = MEMORY_OUTPUT_INIT;
    user_write_rules(user, &rules.out);
    struct slice left = memory_output_slice(&rules);
    bool in_selector = false, first = true;
    while (left.len) {
        const char *space = memchr(left.data, ' ', left.len);
        struct slice word = {left.data, space ? (size_t)(space - left.data) : left.len};
        left.data += word.len + (space != NULL), left.len -= word.len + (space != NULL);
        in_selector |= word.len && word.data[0] == '(';
        /* A rule within a selector cannot begin with '('. */
        bool closes = in_selector && ends_selector(word) && (!left.len || left.data[0] == '(');
        word.len -= closes;
        if (in_selector && ends_selector(word) && word.data[0] == '+') {
            log_warning("The rule '%.*s' of user '%s' is left out of the file, where it would end its selector",
                        (int)word.len, word.data, user->name);
        } else {
            if (!first) output_write(out, SLICE(" "));
            if (in_selector && ends_selector(word))
                write_pattern(word, out);
            else
                output_write(out, word);
        }
        first = false;
        if (!closes) continue;
        output_write(out, SLICE(")"));
        in_selector = false;
    }
    memory_output_free(&rules);
}

/* Quotes a word that the parser of the file would not read unchanged. Digests need no quotes, although they begin like
 * a comment. */
static void write_quoted(struct slice text, struct output *out) {
    while (text.len) {
        const char *space = memchr(text.data, ' ', text.len);
        size_t len = space ? (size_t)(space - text.data) : text.len;
        struct slice word = {text.data, len};
        output_write(out, SLICE(" "));
        if (len && word.data[0] == '#')
            output_write(out, word);
        else
            word_write(out, word, false);
        len += space != NULL;
        text.data += len, text.len -= len;
    }
}

static void lines_rewrite(struct output *out) {
    if (acl_has_file()) return;
    for (size_t i = 0; i < users_count(); i++) {
        struct memory_output rules = MEMORY_OUTPUT_INIT;
        write_file_rules(user_at(i), &rules.out);
        output_write(out, SLICE("user "));
        word_write(out, slice_of(user_at(i)->name), false);
        write_quoted(memory_output_slice(&rules), out);
        output_write(out, SLICE("\n"));
        memory_output_free(&rules);
    }
}

static void lines_apply(void) {
    struct made_users made = {0};
    for (size_t i = 0; i < line_count; i++) {
        struct slice failed;
        struct user *user = made_add(&made, lines[i].name);
        const char *reason = apply_rules(user, lines[i].count, lines[i].rules, &failed);
        if (!reason) {
            mem_free((char *)(uintptr_t)lines[i].name.data);
            rules_free(lines[i].rules, lines[i].count);
            continue;
        }
        log_warning("Error loading ACL rule '%.*s' for the user named '%s': %s", (int)failed.len, failed.data,
                    user->name, reason);
        log_warning("Critical error while loading ACLs. Exiting.");
        exit(1);
    }
    mem_free(lines);
    lines = NULL;
    line_count = 0;
    made_apply(&made);
    made_free(&made);
}

/* --- The aclfile --- */

bool acl_has_file(void) {
    return acl_file[0] != 0;
}

static void complain(struct output *errors, int number, const char *what) {
    char position[32];
    snprintf(position, sizeof position, ":%d", number);
    output_write(errors, slice_of(acl_file));
    output_write(errors, slice_of(position));
    output_write(errors, slice_of(what));
}

/* Words are separated by single spaces, as ACL SAVE writes them: a second space after "user" means an empty name.
 * Between rules additional spaces are ignored. */
static int split_at_spaces(struct slice line, struct slice *words) {
    enum { NAME = 1 };
    int count = 0;
    while (line.len) {
        const char *space = memchr(line.data, ' ', line.len);
        size_t len = space ? (size_t)(space - line.data) : line.len;
        if (len || count == NAME) words[count++] = (struct slice){line.data, len};
        len += space != NULL;
        line.data += len, line.len -= len;
    }
    return count;
}

static void complain_of_rule(struct output *errors, int number, struct slice rule, const char *reason) {
    char text[512] = "", operation[160] = "";
    if (reason == acl_unknown_command)
        snprintf(operation, sizeof operation,
                 "Error in applying operation '%.*s': ", (int)(rule.len < 128 ? rule.len : 128), rule.data);
    snprintf(text, sizeof text, ": %s%s. ", operation, reason);
    complain(errors, number, text);
}

/* Reports every unknown command of the line, but only the first of its other errors. */
static void apply_all_rules(struct user *user, int number, int count, const struct slice *rules,
                            struct output *errors) {
    bool reported = false;
    for (int i = 0; i < count; i++) {
        const char *reason = user_apply_rule(user, rules[i]);
        bool other = reason && reason != acl_unknown_command;
        if (reason && !(other && reported)) complain_of_rule(errors, number, rules[i], reason);
        reported |= other;
    }
}

static bool has_space(struct slice text) {
    for (size_t i = 0; i < text.len; i++)
        if (isspace((unsigned char)text.data[i])) return true;
    return false;
}

static void read_words(struct made_users *made, int number, int count, const struct slice *words,
                       struct output *errors) {
    if (count < 2 || !slice_equal(words[0], SLICE("user"))) {
        complain(errors, number, " should start with user keyword followed by the username. ");
        return;
    }
    if (memchr(words[1].data, 0, words[1].len)) {
        complain(errors, number, ": Usernames can't contain spaces or null characters. ");
        return;
    }
    if (has_space(words[1])) {
        output_write(errors, SLICE("'"));
        complain(errors, number, ": username '");
        output_write(errors, words[1]);
        output_write(errors, SLICE("' contains invalid characters. "));
        return;
    }
    if (made_find(made, words[1])) {
        char text[512];
        snprintf(text, sizeof text, "WARNING: Duplicate user '%.*s' found on line %d. ",
                 (int)(words[1].len < 128 ? words[1].len : 128), words[1].data, number);
        output_write(errors, slice_of(text));
        return;
    }
    int rule_count, unmatched;
    struct slice *rules = rules_join(count - 2, words + 2, &rule_count, &unmatched);
    if (!rules) {
        complain(errors, number, ": Unmatched parenthesis in selector definition.");
        return;
    }
    apply_all_rules(made_add(made, words[1]), number, rule_count, rules, errors);
    rules_free(rules, rule_count);
}

static void read_lines(struct slice content, struct made_users *made, struct output *errors) {
    for (int number = 1; content.len; number++) {
        struct slice line = slice_take_line(&content);
        while (line.len && strchr(" \t\r", line.data[0]) && line.data[0]) line.data++, line.len--;
        while (line.len && strchr(" \t\r", line.data[line.len - 1]) && line.data[line.len - 1]) line.len--;
        if (!line.len) continue;
        struct slice *words = mem_alloc((line.len / 2 + 1) * sizeof *words);
        read_words(made, number, split_at_spaces(line, words), words, errors);
        mem_free(words);
    }
}

static void remove_others(const struct made_users *made) {
    for (size_t i = users_count(); i-- > 0;) {
        struct user *user = user_at(i);
        if (user == &user_default || made_find(made, slice_of(user->name))) continue;
        user_free_rights(user);
        user_remove(user);
    }
}

static void default_user_open(void) {
    static const char *const rules[] = {"on", "nopass", "~*", "&*", "+@all"};
    user_reset(&user_default);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) user_apply_rule(&user_default, slice_of(rules[i]));
    acl_user_changed(&user_default);
}

const char *acl_file_load(void) {
    static struct memory_output errors;
    if (errors.out.ops) memory_output_free(&errors);
    memory_output_init(&errors);
    struct memory_output content = MEMORY_OUTPUT_INIT;
    int result = file_read(acl_file, FILE_SIZE_MAX, &content.out);
    struct made_users made = {0};
    if (result < 0) {
        output_write(&errors.out, SLICE("Error loading ACLs, opening file '"));
        output_write(&errors.out, slice_of(acl_file));
        output_write(&errors.out, SLICE("': "));
        output_write(&errors.out, slice_of(strerror(-result)));
    } else {
        read_lines(memory_output_slice(&content), &made, &errors.out);
        if (memory_output_slice(&errors).len)
            output_write(&errors.out, SLICE("WARNING: ACL errors detected, no change to the previously active ACL "
                                            "rules was performed"));
    }
    memory_output_free(&content);
    bool failed = memory_output_slice(&errors).len > 0;
    if (!failed) {
        remove_others(&made);
        if (!made_find(&made, slice_of(user_default.name))) default_user_open();
        made_apply(&made);
        acl_user_changed(NULL);
    }
    made_free(&made);
    if (!failed) return NULL;
    output_write(&errors.out, (struct slice){"", 1});
    return memory_output_slice(&errors).data;
}

int acl_file_save(void) {
    struct memory_output content = MEMORY_OUTPUT_INIT;
    for (size_t i = 0; i < users_count(); i++) {
        output_write(&content.out, SLICE("user "));
        output_write(&content.out, slice_of(user_at(i)->name));
        output_write(&content.out, SLICE(" "));
        write_file_rules(user_at(i), &content.out);
        output_write(&content.out, SLICE("\n"));
    }
    int result = file_replace(acl_file, memory_output_slice(&content), file_mode(acl_file, NEW_FILE_MODE));
    memory_output_free(&content);
    if (result < 0) log_warning("Saving the users to '%s' failed: %s", acl_file, strerror(-result));
    return result;
}

/* Applies the `user` lines or reads the aclfile; exits on errors. */
static void acl_users_start(void) {
    if (acl_has_file() && line_count) {
        log_warning("Configuring Valkey with users defined in valkey.conf and at the same setting an ACL file path is "
                    "invalid. This setup is very likely to lead to configuration errors and security holes, please "
                    "define either an ACL file or declare users directly in your valkey.conf, but not both.");
        exit(1);
    }
    lines_apply();
    if (!acl_has_file()) return;
    const char *errors = acl_file_load();
    if (!errors) return;
    log_warning("Aborting Valkey startup because of ACL errors: %s", errors);
    exit(1);
}

static const struct server_part acl_users_part = {.name = "acl", .start = acl_users_start};
const struct feature acl_users_feature = {.name = "acl-users", .parts = PARTS(&acl_users_part)};

const struct config_directive acl_directives[] = {
    {.name = "user", .min_words = 1, .handle = line_read, .rewrite = lines_rewrite}, {.name = NULL}};

const struct config_option acl_options[] = {
    {OPTION("aclfile", CONFIG_STRING, &acl_file, ""), .flags = CONFIG_IMMUTABLE},
    {OPTION("acllog-max-len", CONFIG_INT64, &acl_log_max, "128"), .min = 0, .max = INT64_MAX},
    {OPTION("acl-pubsub-default", CONFIG_ENUM, &acl_channels_default, "resetchannels"), .names = channel_defaults},
    {.name = NULL},
};
