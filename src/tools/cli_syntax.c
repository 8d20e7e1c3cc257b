/* cli_syntax.c: see cli_syntax.h.
 *
 * Words are matched from left to right. Adjacent optional arguments may be in any order. If the words end inside an
 * argument, the hint starts with the rest of that argument. Then follow the arguments that are still possible, in the
 * order of COMMAND DOCS. If no argument matches a word, there is no hint, since a wrong hint is worse than none. */
#include "tools/cli_syntax.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include <stdlib.h>
#include <string.h>

/* --- Reading --- */

static const char *cli_syntax_text_of(const struct resp_value *map, const char *key) {
    const struct resp_value *v = resp_value_get(map, key);
    return v && v->text.data ? v->text.data : NULL;
}

static bool has_flag(const struct resp_value *argument, const char *flag) {
    const struct resp_value *flags = resp_value_get(argument, "flags");
    for (size_t i = 0; flags && i < flags->count; i++) {
        if (slice_is(flags->children[i].text, flag)) return true;
    }
    return false;
}

static enum syntax_kind kind_of(struct slice type) {
    static const struct {
        const char *name;
        enum syntax_kind kind;
    } kinds[] = {{"integer", SYNTAX_INTEGER},  {"unix-time", SYNTAX_INTEGER}, {"double", SYNTAX_DOUBLE},
                 {"pure-token", SYNTAX_TOKEN}, {"oneof", SYNTAX_ONEOF},       {"block", SYNTAX_BLOCK}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (slice_is(type, kinds[i].name)) return kinds[i].kind;
    }
    return SYNTAX_WORD;
}

static struct syntax_argument *argument_add(struct syntax *s) {
    s->arguments = mem_realloc(s->arguments, (size_t)(s->count + 1) * sizeof *s->arguments);
    struct syntax_argument *a = &s->arguments[s->count++];
    memset(a, 0, sizeof *a);
    return a;
}

void syntax_read(struct syntax *s, const struct resp_value *arguments) {
    for (size_t i = 0; arguments && i < arguments->count; i++) {
        const struct resp_value *from = &arguments->children[i];
        struct syntax_argument *a = argument_add(s);
        const char *type = cli_syntax_text_of(from, "type"), *name = cli_syntax_text_of(from, "display_text"),
                   *token = cli_syntax_text_of(from, "token");
        if (!name) name = cli_syntax_text_of(from, "name");
        a->kind = type ? kind_of(slice_of(type)) : SYNTAX_WORD;
        a->name = mem_strdup(name ? name : "");
        a->token = token ? mem_strdup(token) : NULL;
        a->optional = has_flag(from, "optional");
        a->multiple = has_flag(from, "multiple");
        a->multiple_token = has_flag(from, "multiple_token");
        syntax_read(&a->parts, resp_value_get(from, "arguments"));
    }
}

/* Reads lines of cli_commands.txt. A line is indented by one space per level. It has type, flags and name, each
 * followed by a space, and the token after '='. */
static void lines_read(struct syntax *s, const char **text, size_t depth) {
    while (strspn(*text, " ") == depth) {
        const char *p = *text + depth, *end = p + strcspn(p, "\n");
        struct slice fields[3];
        for (int i = 0; i < 3; i++) {
            size_t len = strcspn(p, " \n");
            fields[i] = slice_make(p, len);
            p += len + (p[len] == ' ');
        }
        struct syntax_argument *a = argument_add(s);
        a->kind = kind_of(fields[0]);
        a->optional = memchr(fields[1].data, 'o', fields[1].len);
        a->multiple = memchr(fields[1].data, 'm', fields[1].len);
        a->multiple_token = memchr(fields[1].data, 't', fields[1].len);
        a->name = mem_strndup(fields[2].data, fields[2].len);
        if (p < end && *p == '=') a->token = mem_strndup(p + 1, (size_t)(end - p - 1));
        *text = end + (*end == '\n');
        lines_read(&a->parts, text, depth + 1);
    }
}

void syntax_read_text(struct syntax *s, const char **text) {
    lines_read(s, text, 1);
}

void syntax_free(struct syntax *s) {
    for (int i = 0; i < s->count; i++) {
        mem_free(s->arguments[i].name);
        mem_free(s->arguments[i].token);
        syntax_free(&s->arguments[i].parts);
    }
    mem_free(s->arguments);
    *s = (struct syntax){0};
}

/* --- Writing --- */

static void cli_syntax_put(struct output *out, const char *text) {
    output_write(out, slice_of(text));
}

static void argument_write(struct output *out, const struct syntax_argument *a);

/* Writes the argument without its token and its repetition. */
static void body_write(struct output *out, const struct syntax_argument *a) {
    if (a->kind == SYNTAX_TOKEN) return;
    if (!a->parts.count) cli_syntax_put(out, a->name);
    for (int i = 0; i < a->parts.count; i++) {
        if (i) cli_syntax_put(out, a->kind == SYNTAX_ONEOF ? "|" : " ");
        argument_write(out, &a->parts.arguments[i]);
    }
}

static void token_write(struct output *out, const struct syntax_argument *a) {
    if (!a->token) return;
    cli_syntax_put(out, *a->token ? a->token : "\"\"");
    if (a->kind != SYNTAX_TOKEN) cli_syntax_put(out, " ");
}

static void repetition_write(struct output *out, const struct syntax_argument *a) {
    cli_syntax_put(out, "[");
    if (a->multiple_token) token_write(out, a);
    body_write(out, a);
    cli_syntax_put(out, " ...]");
}

static void argument_write(struct output *out, const struct syntax_argument *a) {
    if (a->optional) cli_syntax_put(out, "[");
    token_write(out, a);
    body_write(out, a);
    if (a->multiple) {
        cli_syntax_put(out, " ");
        repetition_write(out, a);
    }
    if (a->optional) cli_syntax_put(out, "]");
}

void syntax_write(struct output *out, const struct syntax *s) {
    for (int i = 0; i < s->count; i++) {
        if (i) cli_syntax_put(out, " ");
        argument_write(out, &s->arguments[i]);
    }
}

/* --- Matching --- */

struct syntax_words {
    const struct slice *argv;
    int count, at;
};

static enum syntax_match list_match(struct syntax *s, struct syntax_words *w);

static void reset(struct syntax *s) {
    for (int i = 0; i < s->count; i++) {
        struct syntax_argument *a = &s->arguments[i];
        a->match = SYNTAX_NONE;
        a->skipped = false;
        a->missing = SYNTAX_REPETITION;
        reset(&a->parts);
    }
}

static bool word_fits(const struct syntax_argument *a, struct slice word) {
    int64_t integer;
    if (a->kind == SYNTAX_INTEGER) return parse_int64(word, &integer);
    if (a->kind != SYNTAX_DOUBLE) return true;
    char *end;
    strtod(word.data, &end);
    return word.len > 0 && end == word.data + word.len;
}

static enum syntax_match argument_match(struct syntax_argument *a, struct syntax_words *w);

/* Matches the argument once, without its repetition. */
static enum syntax_match once_match(struct syntax_argument *a, struct syntax_words *w, bool with_token) {
    reset(&a->parts);
    a->missing = SYNTAX_WHOLE;
    if (with_token && a->token) {
        if (!slice_is(w->argv[w->at], a->token)) return SYNTAX_NONE;
        w->at++;
        if (a->kind == SYNTAX_TOKEN) return SYNTAX_ALL;
        if (w->at == w->count) return SYNTAX_PART;
    }
    enum syntax_match match = SYNTAX_NONE;
    if (a->kind == SYNTAX_BLOCK) {
        match = list_match(&a->parts, w);
    } else if (a->kind == SYNTAX_ONEOF) {
        for (int i = 0; match == SYNTAX_NONE && i < a->parts.count; i++) {
            match = argument_match(&a->parts.arguments[i], w);
            a->chosen = i;
        }
    } else if (word_fits(a, w->argv[w->at])) {
        w->at++;
        match = SYNTAX_ALL;
    }
    a->missing = match == SYNTAX_PART ? SYNTAX_REST : SYNTAX_REPETITION;
    return match;
}

static enum syntax_match argument_match(struct syntax_argument *a, struct syntax_words *w) {
    int start = w->at;
    a->match = once_match(a, w, true);
    while (a->match == SYNTAX_ALL && a->multiple) {
        int behind = w->at;
        if (behind == w->count) {
            a->match = SYNTAX_PART; /* a repetition may follow */
            break;
        }
        enum syntax_match again = once_match(a, w, a->multiple_token);
        if (again == SYNTAX_NONE) {
            w->at = behind;
            break;
        }
        a->match = again;
    }
    if (a->match == SYNTAX_NONE) w->at = start;
    return a->match;
}

/* Matches the optional arguments [first, last) in any order. */
static enum syntax_match options_match(struct syntax *s, int first, int last, struct syntax_words *w) {
    bool found;
    do {
        found = false;
        for (int i = first; i < last && w->at < w->count; i++) {
            struct syntax_argument *a = &s->arguments[i];
            if (a->match != SYNTAX_NONE) continue;
            enum syntax_match match = argument_match(a, w);
            if (match == SYNTAX_PART) return SYNTAX_PART;
            found |= match == SYNTAX_ALL;
        }
    } while (found && w->at < w->count);
    bool all = true;
    for (int i = first; i < last; i++) all &= s->arguments[i].match != SYNTAX_NONE;
    if (w->at == w->count) return all ? SYNTAX_ALL : SYNTAX_PART;
    for (int i = first; i < last; i++) s->arguments[i].skipped = true;
    return SYNTAX_ALL;
}

/* SYNTAX_PART: all words match, and more may follow. */
static enum syntax_match list_match(struct syntax *s, struct syntax_words *w) {
    for (int i = 0, last; i < s->count; i = last) {
        if (w->at == w->count) return SYNTAX_PART;
        for (last = i; last < s->count && s->arguments[last].optional;) last++;
        enum syntax_match match = last > i ? options_match(s, i, last, w) : argument_match(&s->arguments[last++], w);
        if (match != SYNTAX_ALL) return match;
    }
    return SYNTAX_ALL;
}

/* --- Hints --- */

static void rest_write(struct output *out, const struct syntax_argument *a);

static void separate(struct output *out, bool *first) {
    if (!*first) cli_syntax_put(out, " ");
    *first = false;
}

static void list_rest_write(struct output *out, const struct syntax *s) {
    bool first = true;
    for (int i = 0; i < s->count; i++) {
        if (s->arguments[i].match != SYNTAX_PART) continue;
        separate(out, &first);
        rest_write(out, &s->arguments[i]);
    }
    for (int i = 0; i < s->count; i++) {
        const struct syntax_argument *a = &s->arguments[i];
        if (a->match != SYNTAX_NONE || a->skipped) continue;
        separate(out, &first);
        argument_write(out, a);
    }
}

/* Writes the rest of an argument in which the words ended. */
static void rest_write(struct output *out, const struct syntax_argument *a) {
    if (a->missing == SYNTAX_WHOLE)
        body_write(out, a);
    else if (a->missing == SYNTAX_REST && a->kind == SYNTAX_BLOCK)
        list_rest_write(out, &a->parts);
    else if (a->missing == SYNTAX_REST)
        rest_write(out, &a->parts.arguments[a->chosen]);
    if (!a->multiple) return;
    if (a->missing != SYNTAX_REPETITION) cli_syntax_put(out, " ");
    repetition_write(out, a);
    if (a->optional) cli_syntax_put(out, "]"); /* Valkey's tool closes this bracket without opening it */
}

bool syntax_hint(struct output *out, struct syntax *s, int argc, const struct slice *argv) {
    struct syntax_words w = {argv, argc, 0};
    reset(s);
    if (list_match(s, &w) == SYNTAX_NONE || w.at < argc) return false;
    list_rest_write(out, s);
    return true;
}
