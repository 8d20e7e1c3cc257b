/* rights.h: the permissions of a user, and the rules that grant and revoke them.
 *
 * A user has a root selector and any number of further selectors. A selector is a set of commands, keys, channels and
 * databases. The user may run a command if a single selector allows all that the command uses. Rules change a selector:
 *
 *     +get -get +config|get +select|0    commands, subcommands, a command with this first argument only
 *     +@read -@all allcommands nocommands    categories
 *     ~objects:* %R~in:* %W~out:* allkeys resetkeys    keys to read and write, to read, to write
 *     &news:* allchannels resetchannels    channels
 *     db=0,2 alldbs resetdbs    databases
 *
 * The commands are compiled to a bitmap indexed by command->id. The rules are kept as well, because ACL LIST shows
 * them, and because a bitmap does not determine which new commands of a later version are allowed. A pattern without
 * wildcards, or with one star at its end, is compared without the glob matcher; for any other pattern its literal
 * prefix is compared first, eight bytes in one step.
 *
 * Rejected: sharing rule sets between users. There are few users, and a selector takes some hundred bytes. */
#pragma once
#include "lib/text/output.h"
#include "server/clients/user.h"
#include "server/command/command.h"
#include <string.h>

enum access { ACCESS_READ = 1, ACCESS_WRITE = 2 };
struct acl_pattern {
    struct slice text;   /* allocated */
    size_t plain;        /* bytes before the first special character */
    uint64_t head, mask; /* up to 8 of these bytes, and a mask of the bytes to compare */
    enum { PATTERN_EXACT, PATTERN_PREFIX, PATTERN_GLOB } kind;
    uint32_t access; /* access to keys; not used for channels */
};
struct acl_patterns {
    bool all;
    size_t count;
    struct acl_pattern *items;
};
struct acl_first_argument {
    uint32_t command; /* id */
    char *text;       /* lower case */
};
struct acl_selector {
    struct acl_shortcuts { /* owned by acl_check.c; every rule discards them */
        uint8_t *commands; /* indexed by command->id */
        size_t count;
        uint64_t head, mask; /* the prefix that a key matched last */
        uint8_t allows;      /* the access that the prefix grants; 0: no prefix is stored */
    } shortcuts;
    uint64_t *commands; /* bitmap of `words` words; `others` is the bit of all higher ids */
    size_t words;
    bool others;
    bool all_databases;
    size_t database_count, first_count, rule_count;
    struct acl_patterns keys, channels;
    int *databases; /* ascending */
    struct acl_first_argument *firsts;
    bool all_commands_first; /* the first rule is +@all, not -@all */
    char **rules;            /* the rules after it, without rules that a later one overrides */
};
struct acl_rights {
    size_t count;
    struct acl_selector *selectors; /* [0]: the root selector */
};

extern int acl_channels_default; /* 1: new users may use all channels; the option acl-pubsub-default */

struct acl_rights *rights_new(void); /* the permissions of a new user: no commands, no keys */
bool rights_are_all(const struct acl_rights *rights);

bool selector_has_command(const struct acl_selector *selector, const struct command *command, int argc,
                          const struct slice *argv);
/* Applies the rules on commands once more: there are new commands, or they are in other categories. */
void selector_apply_again(struct acl_selector *selector);
bool pattern_glob_matches(const struct acl_pattern *pattern, struct slice text);
static inline bool pattern_matches(const struct acl_pattern *pattern, struct slice text) {
    size_t plain = pattern->plain;
    uint64_t head;
    if (text.len >= sizeof head) {
        memcpy(&head, text.data, sizeof head);
        if ((head ^ pattern->head) & pattern->mask) return false;
    }
    if ((text.len < sizeof head || plain > sizeof head) &&
        (text.len < plain || (plain && memcmp(pattern->text.data, text.data, plain) != 0)))
        return false;
    if (pattern->kind == PATTERN_PREFIX) return true;
    return pattern->kind == PATTERN_EXACT ? text.len == plain : pattern_glob_matches(pattern, text);
}
bool selector_has_channel(const struct acl_selector *selector, struct slice channel, bool is_pattern);
bool selector_has_database(const struct acl_selector *selector, int db);

/* Functions on all data of a user. A copy has no name and cannot log in; it is used to try out rules. */
void user_copy_rights(struct user *to,
                      const struct user *from); /* passwords, flags and permissions; frees those of `to` */
void user_free_rights(struct user *user);
void user_reset(struct user *user); /* the state of a new user */
/* Applies one rule. Returns NULL, or a static text, the reason why nothing was changed: acl_unknown_command or
 * another. */
extern const char acl_unknown_command[];
const char *user_apply_rule(struct user *user, struct slice rule);
/* Joins the arguments of a selector that contains spaces: "(~a", "+get)" becomes "(~a +get)". Returns the rules, which
 * the caller frees with rules_free(). NULL: the parenthesis in argument *unmatched is not closed. */
struct slice *rules_join(int count, const struct slice *words, int *rule_count, int *unmatched);
void rules_free(struct slice *rules, int count);

/* Writes the rules that define the user: "on nopass ~* &* +@all". */
void user_write_rules(const struct user *user, struct output *out);
void selector_write_commands(const struct acl_selector *selector, struct output *out);
void selector_write_keys(const struct acl_selector *selector, struct output *out);
void selector_write_channels(const struct acl_selector *selector, struct output *out);
void selector_write_databases(const struct acl_selector *selector, struct output *out); /* "alldbs", "db=1,2" or "" */
void user_password_hex(const unsigned char digest[static SHA256_SIZE], char text[static 2 * SHA256_SIZE]);
