/* rights.h: the permissions of a user, and the rules that grant and take them.
 *
 * A user has a root selector and any number of further selectors. A selector is a set of commands, of keys, of channels
 * and of databases; the user may run a command that one of the selectors allows as a whole. Rules change a selector:
 *
 *     +get -get +config|get +select|0    commands, subcommands, a command with this first argument only
 *     +@read -@all allcommands nocommands    categories
 *     ~objects:* %R~in:* %W~out:* allkeys resetkeys    keys to read and write, to read, to write
 *     &news:* allchannels resetchannels    channels
 *     db=0,2 alldbs resetdbs    databases
 *
 * The commands are compiled to a bitmap indexed by command->id. The rules themselves are kept beside it: ACL LIST shows
 * them, and a bitmap could not say which of its new commands a later version is to allow. A pattern without wildcards,
 * or with one star at its end, is compared without the glob matcher; any other pattern first compares its literal
 * start, eight bytes at once.
 *
 * Rejected: sharing rule sets between users. Users are few, and a selector takes some hundred bytes. */
#ifndef ACL_RIGHTS_H
#define ACL_RIGHTS_H
#include "lib/output.h"
#include "server/clients/user.h"
#include "server/command/command.h"
#include <string.h>

enum access { ACCESS_READ = 1, ACCESS_WRITE = 2 };
struct acl_pattern {
    struct slice text;   /* allocated */
    size_t plain;        /* bytes before the first special character */
    uint64_t head, mask; /* up to 8 of them, and which bytes of a text to compare with these */
    enum { PATTERN_EXACT, PATTERN_PREFIX, PATTERN_GLOB } kind;
    uint32_t access; /* of keys */
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
    struct acl_shortcuts { /* of acl_check.c; the next rule discards them */
        uint8_t *commands; /* indexed by command->id */
        size_t count;
        uint64_t head, mask; /* of the prefix that a key has matched last */
        uint8_t allows;      /* what that prefix allows; 0: none is noted */
    } shortcuts;
    uint64_t *commands; /* bitmap of `words` words; `others` stands for all ids behind it */
    size_t words;
    bool others;
    bool all_databases;
    size_t database_count, first_count, rule_count;
    struct acl_patterns keys, channels;
    int *databases; /* ascending */
    struct acl_first_argument *firsts;
    bool all_commands_first; /* the rules begin with +@all, not -@all */
    char **rules;            /* those after it, without a rule that a later one repeals */
};
struct acl_rights {
    size_t count;
    struct acl_selector *selectors; /* [0]: the root selector */
};

extern int acl_channels_default; /* 1: new users may use all channels; the option acl-pubsub-default */

struct acl_rights *rights_new(void); /* that of a new user: no commands, no keys */
struct acl_rights *rights_copy(const struct acl_rights *rights);
void rights_free(struct acl_rights *rights); /* may be NULL */
bool rights_are_all(const struct acl_rights *rights);

bool selector_has_command(const struct acl_selector *selector, const struct command *command, int argc,
                          const struct slice *argv);
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

/* Users as a whole. A copy has no name and is no user; copies are for trying rules out. */
void user_copy_rights(struct user *to,
                      const struct user *from); /* passwords, flags and permissions; frees those of `to` */
void user_free_rights(struct user *user);
void user_reset(struct user *user); /* the state of a new user */
/* Applies one rule. Returns NULL, or the reason (one of the following or another static text): nothing has changed. */
extern const char acl_unknown_command[];
const char *user_apply_rule(struct user *user, struct slice rule);
/* Joins the words of selectors that contain spaces: "(~a", "+get)" becomes "(~a +get)". Returns the rules, to be freed
 * with rules_free(), or NULL and in *unmatched the index of a word whose parenthesis is not closed. */
struct slice *rules_join(int count, const struct slice *words, int *rule_count, int *unmatched);
void rules_free(struct slice *rules, int count);

/* The rules that make the user: "on nopass ~* &* +@all". */
void user_write_rules(const struct user *user, struct output *out);
void selector_write_commands(const struct acl_selector *selector, struct output *out);
void selector_write_keys(const struct acl_selector *selector, struct output *out);
void selector_write_channels(const struct acl_selector *selector, struct output *out);
void selector_write_databases(const struct acl_selector *selector, struct output *out); /* "alldbs", "db=1,2" or "" */
void user_password_hex(const unsigned char digest[static SHA256_SIZE], char text[static 2 * SHA256_SIZE]);
#endif
