/* command_syntax.c: parses the notation of command_syntax.h by recursive descent. The texts are constants of the
 * program.
 *
 * A text is parsed when its command is registered, so that every start of the server finds mistakes, and again for each
 * request for documentation. Trees are not kept: such requests are rare, and the text is smaller. */
#include "server/command/command_syntax.h"
#include "lib/system/memory.h"
#include <ctype.h>
#include <stdio.h>
#include <string.h>

struct reader {
    const char *at;
    char *error; /* the first failure; 128 bytes */
};
enum { NESTING_MAX = 16 };

static const char *const type_names[] = {"string",    "integer",    "double", "key",  "pattern",
                                         "unix-time", "pure-token", "oneof",  "block"};
const char *argument_type_name(enum argument_type type) {
    return type_names[type];
}

static void syntax_fail(struct reader *r, const char *what) {
    if (!*r->error) snprintf(r->error, 128, "%s at \"%.40s\"", what, r->at);
}
static bool syntax_failed(const struct reader *r) {
    return *r->error;
}
static void skip_spaces(struct reader *r) {
    while (*r->at == ' ') r->at++;
}
static bool syntax_take(struct reader *r, char c) {
    if (*r->at != c) return false;
    r->at++;
    return true;
}
static bool is_name_char(char c) {
    return islower((unsigned char)c) || isdigit((unsigned char)c) || c == '-' || c == '_';
}
static bool is_token_char(char c) {
    return isupper((unsigned char)c) || isdigit((unsigned char)c) || c == '-' || c == '_';
}
static char *take_while(struct reader *r, bool (*belongs)(char)) {
    const char *start = r->at;
    while (belongs(*r->at)) r->at++;
    return mem_strndup(start, (size_t)(r->at - start));
}
static char *take_quoted(struct reader *r) {
    const char *start = ++r->at;
    while (*r->at && *r->at != '"') r->at++;
    char *text = mem_strndup(start, (size_t)(r->at - start));
    if (!syntax_take(r, '"')) syntax_fail(r, "a quote is not closed");
    return text;
}
static bool at_token(const struct reader *r) {
    return isupper((unsigned char)*r->at) || *r->at == '"';
}
static char *take_token(struct reader *r) {
    return *r->at == '"' ? take_quoted(r) : take_while(r, is_token_char);
}
/* "3.0.6"; the dots of "3.0.6..." do not belong to it. */
static char *take_version(struct reader *r) {
    const char *start = r->at;
    while (isdigit((unsigned char)*r->at) || (*r->at == '.' && isdigit((unsigned char)r->at[1]))) r->at++;
    return mem_strndup(start, (size_t)(r->at - start));
}

void syntax_free(struct command_argument *argument) {
    while (argument) {
        struct command_argument *next = argument->next;
        syntax_free(argument->children);
        mem_free(argument->name);
        mem_free(argument->token);
        mem_free(argument->display);
        mem_free(argument->summary);
        mem_free(argument->since);
        mem_free(argument->deprecated_since);
        mem_free(argument);
        argument = next;
    }
}
int syntax_count(const struct command_argument *arguments) {
    int count = 0;
    for (; arguments; arguments = arguments->next) count++;
    return count;
}

static struct command_argument *read_item(struct reader *r, int depth);

static void read_type(struct reader *r, struct command_argument *argument) {
    size_t len = 0;
    while (is_name_char(r->at[len])) len++;
    for (enum argument_type type = ARGUMENT_STRING; type <= ARGUMENT_UNIX_TIME; type++)
        if (strlen(type_names[type]) == len && strncmp(type_names[type], r->at, len) == 0) {
            argument->type = type;
            r->at += len;
            argument->key_spec = type == ARGUMENT_KEY ? 0 : -1;
            if (strncmp(r->at, "(#", 2) == 0) {
                r->at += 2;
                if (!isdigit((unsigned char)*r->at))
                    syntax_fail(r, "a key spec's number is missing");
                else
                    argument->key_spec = *r->at++ - '0';
                if (!syntax_take(r, ')')) syntax_fail(r, "a ) is missing");
            }
            if (*r->at == '"') argument->display = take_quoted(r);
            return;
        }
    syntax_fail(r, "not a type");
}
/* A list with elements separated by | (`separated`) or by spaces, up to `close` (0: the end of the text). */
static struct command_argument *read_list(struct reader *r, char close, bool separated, int depth) {
    struct command_argument *first = NULL, **last = &first;
    if (depth > NESTING_MAX) syntax_fail(r, "nested too deeply");
    for (skip_spaces(r); *r->at && *r->at != close && !syntax_failed(r); skip_spaces(r)) {
        *last = read_item(r, depth + 1);
        if (*last) last = &(*last)->next;
        skip_spaces(r);
        if (separated && *r->at != close && !syntax_take(r, '|')) syntax_fail(r, "a | is missing");
    }
    if (close && !syntax_take(r, close)) syntax_fail(r, "not closed");
    if (close && !first) syntax_fail(r, "nothing between brackets");
    return first;
}
static void read_value(struct reader *r, struct command_argument *argument, int depth) {
    argument->name = take_while(r, is_name_char);
    if (!*argument->name)
        syntax_fail(r, "not a name");
    else if (syntax_take(r, ':'))
        read_type(r, argument);
    else if (syntax_take(r, '('))
        argument->type = ARGUMENT_ONE_OF, argument->children = read_list(r, ')', true, depth);
    else if (syntax_take(r, '{'))
        argument->type = ARGUMENT_BLOCK, argument->children = read_list(r, '}', false, depth);
    else if (syntax_take(r, '=') && !argument->token && at_token(r))
        argument->type = ARGUMENT_PURE_TOKEN, argument->token = take_token(r);
    else
        syntax_fail(r, "not an argument");
}
static void read_token(struct reader *r, struct command_argument *argument, int depth) {
    argument->token = take_token(r);
    if (*r->at == ' ' &&
        is_name_char(r->at[1])) { /* TOKEN name:type, but not TOKEN name=TOKEN: those are two arguments */
        const char *name_end = r->at + 1;
        while (is_name_char(*name_end)) name_end++;
        if (*name_end != '=') {
            r->at++;
            read_value(r, argument, depth);
            return;
        }
    }
    argument->type = ARGUMENT_PURE_TOKEN;
    argument->name = mem_strdup(argument->token);
    for (char *c = argument->name; *c; c++) *c = (char)tolower((unsigned char)*c);
}
static void read_versions(struct reader *r, struct command_argument *argument) {
    if (syntax_take(r, '@')) argument->since = take_version(r);
    if (syntax_take(r, '!')) argument->deprecated_since = take_version(r);
    if ((argument->since && !*argument->since) || (argument->deprecated_since && !*argument->deprecated_since))
        syntax_fail(r, "a version is missing");
}
static bool take_dots(struct reader *r) {
    if (strncmp(r->at, "...", 3) != 0) return false;
    r->at += 3;
    return true;
}
static struct command_argument *read_item(struct reader *r, int depth) {
    if (depth > NESTING_MAX) {
        syntax_fail(r, "nested too deeply");
        return NULL;
    }
    struct command_argument *argument;
    if (syntax_take(r, '[')) {
        skip_spaces(r);
        argument = read_item(r, depth + 1);
        skip_spaces(r);
        if (!syntax_take(r, ']')) syntax_fail(r, "a ] is missing");
        if (!argument) return NULL;
        argument->optional = true;
        if (!argument->since && !argument->deprecated_since) read_versions(r, argument);
        if (take_dots(r))
            argument->multiple = true,
            argument->multiple_token = argument->token && argument->type != ARGUMENT_PURE_TOKEN;
        return argument;
    }
    argument = mem_calloc(1, sizeof *argument);
    argument->key_spec = -1;
    if (at_token(r))
        read_token(r, argument, depth);
    else
        read_value(r, argument, depth);
    read_versions(r, argument);
    argument->multiple = take_dots(r);
    if (!argument->since && !argument->deprecated_since) read_versions(r, argument);
    if (!syntax_failed(r) && *r->at && !strchr(" |)]}", *r->at)) syntax_fail(r, "not understood");
    return argument;
}
struct command_argument *syntax_parse(const char *text, char error[static 128]) {
    struct reader reader = {.at = text, .error = error};
    *error = 0;
    struct command_argument *arguments = read_list(&reader, 0, false, 0);
    if (!*error) return arguments;
    syntax_free(arguments);
    return NULL;
}
