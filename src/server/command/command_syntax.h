/* command_syntax.h: the notation for a command's arguments (command_spec.syntax), parsed into a tree.
 *
 *     name:type           an argument; types: key string integer double pattern unix-time
 *     TOKEN               a literal word; its name is the word in lower case
 *     name=TOKEN          the same under another name
 *     TOKEN name:type     an argument after a literal word; also before a block or a choice
 *     name(a|b|…)         one of; each alternative is one argument
 *     name{a b …}         a block of arguments that belong together
 *     [ … ]               optional; contains one argument
 *     …...                may be repeated; after the ] of an optional argument that has a token: repeated
 *                         with its token
 *
 * After an argument, in this order and without spaces between:
 *     (#n)     after a type: the index of the command's key spec that finds it; a key has (#0) by default
 *     "text"   after a type: the display text, if it differs from the name
 *     @1.2.3   the version that added it
 *     !1.2.3   the version that deprecated it
 *
 * A token consists of capital letters, digits, '-' and '_'; any other is quoted: exact="=", "#" name:type.
 *
 *     key:key value:string [condition(NX|XX)@2.6.12] [GET@6.2.0] [expiration(EX seconds:integer|KEEPTTL@6.0.0)]
 *     destination:key numkeys:integer key:key(#1)... [WEIGHTS weight:integer...] [AGGREGATE aggregate(SUM|MIN|MAX)]
 *     key:key [BY by-pattern:pattern(#1)"pattern"] [LIMIT limit{offset:integer count:integer}]
 *         [GET get-pattern:pattern(#1)"pattern"]... */
#pragma once
#include <stdbool.h>

enum argument_type {
    ARGUMENT_STRING,
    ARGUMENT_INTEGER,
    ARGUMENT_DOUBLE,
    ARGUMENT_KEY,
    ARGUMENT_PATTERN,
    ARGUMENT_UNIX_TIME,
    ARGUMENT_PURE_TOKEN,
    ARGUMENT_ONE_OF,
    ARGUMENT_BLOCK
};
struct command_argument {
    /* NULL: none; display: NULL if equal to the name; summary: only commands of modules have one */
    char *name, *token, *display, *summary, *since, *deprecated_since;
    enum argument_type type;
    int key_spec; /* -1: none */
    bool optional, multiple, multiple_token;
    struct command_argument *children, *next;
};
/* Parses a text. Returns NULL if it is malformed, with the reason in `error`, or if it is empty, with `error` "". */
struct command_argument *syntax_parse(const char *text, char error[static 128]);
void syntax_free(struct command_argument *arguments);
int syntax_count(const struct command_argument *arguments);
const char *argument_type_name(enum argument_type type); /* "string", "pure-token", … */
