/* cli_docs.c: help, completion and hints from the server's COMMAND DOCS, so that they match the server, modules
 * included. */
#include "lib/memory.h"
#include "lib/version.h"
#include "tools/cli.h"
#include <ctype.h>
#include <stdlib.h>

/* A part of a command's syntax: one of its outermost arguments. */
struct part {
    char *text;              /* "[EX seconds|PX milliseconds]" */
    char *more;              /* the syntax that may follow it, as "[key value ...]"; NULL: none */
    char **tokens;           /* the words that identify it; none: identified by position */
    int tokens_count, words; /* number of words after its token, or in total without one */
    bool optional;
};
struct entry {
    char *name; /* "CLIENT KILL" */
    char *summary, *since, *group, *syntax;
    struct part *parts;
    int parts_count;
};
struct cli_docs {
    struct entry *entries; /* sorted by name */
    int count, capacity;
};

/* --- Reading COMMAND DOCS --- */

static const char *text_of(const struct resp_value *map, const char *key) {
    const struct resp_value *v = resp_value_get(map, key);
    return v && v->text.data ? v->text.data : "";
}

static bool has_flag(const struct resp_value *argument, const char *flag) {
    const struct resp_value *flags = resp_value_get(argument, "flags");
    for (size_t i = 0; flags && i < flags->count; i++) {
        if (slice_is(flags->children[i].text, flag)) return true;
    }
    return false;
}

static void put(struct memory_output *m, const char *text) {
    output_write(&m->out, slice_of(text));
}
static char *take(struct memory_output *m) {
    struct slice text = memory_output_slice(m);
    char *copy = text.len ? mem_strndup(text.data, text.len) : mem_strdup("");
    memory_output_free(m);
    return copy;
}

/* The argument without its token and its repetition. */
static void syntax_write(struct memory_output *m, const struct resp_value *argument);
static void syntax_write_body(struct memory_output *m, const struct resp_value *argument) {
    const char *type = text_of(argument, "type");
    const struct resp_value *parts = resp_value_get(argument, "arguments");
    if (parts && (strcmp(type, "oneof") == 0 || strcmp(type, "block") == 0)) {
        for (size_t i = 0; i < parts->count; i++) {
            if (i) put(m, strcmp(type, "oneof") == 0 ? "|" : " ");
            syntax_write(m, &parts->children[i]);
        }
    } else if (strcmp(type, "pure-token") != 0) {
        const char *shown = text_of(argument, "display_text");
        put(m, *shown ? shown : text_of(argument, "name"));
    }
}

static void token_write(struct memory_output *m, const struct resp_value *argument) {
    const char *token = text_of(argument, "token");
    if (!resp_value_get(argument, "token")) return;
    put(m, *token ? token : "\"\"");
    if (strcmp(text_of(argument, "type"), "pure-token") != 0) put(m, " ");
}

static void repetition_write(struct memory_output *m, const struct resp_value *argument) {
    put(m, "[");
    if (has_flag(argument, "multiple_token")) token_write(m, argument);
    syntax_write_body(m, argument);
    put(m, " ...]");
}

static void syntax_write(struct memory_output *m, const struct resp_value *argument) {
    bool optional = has_flag(argument, "optional");
    if (optional) put(m, "[");
    token_write(m, argument);
    syntax_write_body(m, argument);
    if (has_flag(argument, "multiple")) {
        put(m, " ");
        repetition_write(m, argument);
    }
    if (optional) put(m, "]");
}

/* The number of words of an argument, without its token. */
static int words_count(const struct resp_value *argument) {
    const char *type = text_of(argument, "type");
    const struct resp_value *parts = resp_value_get(argument, "arguments");
    if (strcmp(type, "pure-token") == 0) return 0;
    if (!parts || strcmp(type, "oneof") == 0) return 1;
    int count = 0;
    for (size_t i = 0; i < parts->count; i++) {
        if (has_flag(&parts->children[i], "optional")) continue;
        count += words_count(&parts->children[i]) + (resp_value_get(&parts->children[i], "token") != NULL);
    }
    return count;
}

static void token_add(struct part *part, const char *token) {
    part->tokens = mem_realloc(part->tokens, (size_t)(part->tokens_count + 1) * sizeof *part->tokens);
    part->tokens[part->tokens_count++] = mem_strdup(token);
}

static void part_read(struct part *part, const struct resp_value *argument) {
    struct memory_output m;
    memory_output_init(&m);
    syntax_write(&m, argument);
    part->text = take(&m);
    part->optional = has_flag(argument, "optional");
    part->words = words_count(argument);
    if (has_flag(argument, "multiple")) {
        memory_output_init(&m);
        repetition_write(&m, argument);
        part->more = take(&m);
    }
    if (resp_value_get(argument, "token")) {
        token_add(part, text_of(argument, "token"));
        return;
    }
    const struct resp_value *choices = resp_value_get(argument, "arguments");
    bool oneof = strcmp(text_of(argument, "type"), "oneof") == 0;
    for (size_t i = 0; choices && i < (oneof ? choices->count : 1); i++) {
        const struct resp_value *choice = &choices->children[i];
        if (!resp_value_get(choice, "token")) continue;
        token_add(part, text_of(choice, "token"));
        part->words = oneof ? words_count(choice) : part->words - 1;
    }
}

static void entry_add(struct cli_docs *docs, const char *container, struct slice name, const struct resp_value *doc);

static void entry_read(struct cli_docs *docs, struct entry *e, const struct resp_value *doc) {
    e->summary = mem_strdup(text_of(doc, "summary"));
    e->since = mem_strdup(text_of(doc, "since"));
    e->group = mem_strdup(text_of(doc, "group"));
    const struct resp_value *arguments = resp_value_get(doc, "arguments");
    struct memory_output m;
    memory_output_init(&m);
    e->parts_count = arguments ? (int)arguments->count : 0;
    e->parts = mem_calloc((size_t)e->parts_count + 1, sizeof *e->parts);
    for (int i = 0; i < e->parts_count; i++) {
        part_read(&e->parts[i], &arguments->children[i]);
        if (i) put(&m, " ");
        put(&m, e->parts[i].text);
    }
    e->syntax = take(&m);
    const struct resp_value *subcommands = resp_value_get(doc, "subcommands");
    if (!subcommands) return;
    char *name = mem_strdup(e->name); /* the array of entries may move */
    for (size_t i = 0; i + 1 < subcommands->count; i += 2) {
        entry_add(docs, name, subcommands->children[i].text, &subcommands->children[i + 1]);
    }
    mem_free(name);
}

static void entry_add(struct cli_docs *docs, const char *container, struct slice name, const struct resp_value *doc) {
    if (docs->count == docs->capacity) {
        docs->capacity = docs->capacity ? docs->capacity * 2 : 512;
        docs->entries = mem_realloc(docs->entries, (size_t)docs->capacity * sizeof *docs->entries);
    }
    struct memory_output m;
    memory_output_init(&m);
    const char *bar = memchr(name.data, '|', name.len); /* "client|kill" */
    if (bar) name = slice_make(bar + 1, (size_t)(name.data + name.len - bar - 1));
    if (container) put(&m, container), put(&m, " ");
    output_write(&m.out, name);
    struct entry entry = {.name = take(&m)};
    for (char *p = entry.name; *p; p++) *p = (char)toupper((unsigned char)*p);
    int place = docs->count++;
    docs->entries[place] = entry;
    entry_read(docs, &entry, doc);
    docs->entries[place] = entry;
}

static int entry_compare(const void *a, const void *b) {
    return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

struct cli_docs *docs_load(struct cli *cli) {
    const struct resp_value *reply = SESSION_CALL(&cli->session, "COMMAND", "DOCS");
    if (!reply || (reply->type != RESP_MAP && reply->type != RESP_ARRAY)) return NULL;
    struct cli_docs *docs = mem_calloc(1, sizeof *docs);
    for (size_t i = 0; i + 1 < reply->count; i += 2) {
        entry_add(docs, NULL, reply->children[i].text.data ? reply->children[i].text : SLICE(""),
                  &reply->children[i + 1]);
    }
    if (docs->count) qsort(docs->entries, (size_t)docs->count, sizeof *docs->entries, entry_compare);
    return docs;
}

void docs_free(struct cli_docs *docs) {
    for (int i = 0; docs && i < docs->count; i++) {
        struct entry *e = &docs->entries[i];
        for (int k = 0; k < e->parts_count; k++) {
            for (int t = 0; t < e->parts[k].tokens_count; t++) mem_free(e->parts[k].tokens[t]);
            mem_free(e->parts[k].tokens);
            mem_free(e->parts[k].text);
            mem_free(e->parts[k].more);
        }
        mem_free(e->parts);
        mem_free(e->name);
        mem_free(e->summary);
        mem_free(e->since);
        mem_free(e->group);
        mem_free(e->syntax);
    }
    if (docs) mem_free(docs->entries);
    mem_free(docs);
}

/* --- Help --- */

static void help_general(void) {
    printf("valkey-cli " PROJECT_VERSION "\n"
           "To get help about Valkey commands type:\n"
           "      \"help @<group>\" to get a list of commands in <group>\n"
           "      \"help <command>\" for help on <command>\n"
           "      \"help <tab>\" to get a list of possible help topics\n"
           "      \"quit\" to exit\n"
           "\n"
           "To set valkey-cli preferences:\n"
           "      \":set hints\" enable online hints\n"
           "      \":set nohints\" disable online hints\n"
           "Set your preferences in ~/.valkeyclirc\n");
}

static void help_entry(const struct entry *e, bool group) {
    printf("\r\n  \033[1m%s\033[0m \033[90m%s\033[0m\r\n", e->name, e->syntax);
    printf("  \033[33msummary:\033[0m %s\r\n", e->summary);
    printf("  \033[33msince:\033[0m %s\r\n", e->since);
    if (group) printf("  \033[33mgroup:\033[0m %s\r\n", e->group);
}

/* The request is the entry's name, or its first words. */
static bool help_matches(const struct entry *e, int argc, const struct slice *argv) {
    const char *at = e->name;
    for (int i = 0; i < argc; i++) {
        size_t len = strcspn(at, " ");
        if (len != argv[i].len || strncasecmp(at, argv[i].data, len) != 0) return false;
        at += len;
        while (*at == ' ') at++;
        if (!*at && i + 1 < argc) return false;
    }
    return true;
}

void docs_help(struct cli *cli, int argc, const struct slice *argv) {
    if (argc == 0) {
        help_general();
        return;
    }
    if (!cli->docs && cli->session.conn) cli->docs = docs_load(cli);
    for (int i = 0; cli->docs && i < cli->docs->count; i++) {
        const struct entry *e = &cli->docs->entries[i];
        if (argv[0].len && argv[0].data[0] == '@') {
            if (slice_is(slice_make(argv[0].data + 1, argv[0].len - 1), e->group)) help_entry(e, false);
        } else if (help_matches(e, argc, argv)) {
            help_entry(e, true);
        }
    }
    printf("\r\n");
}

/* --- Hints --- */

/* The entry whose name matches the first words, longest match first; *name_words: the number of words of the name. */
static const struct entry *entry_of(const struct cli_docs *docs, int argc, const struct slice *argv, int *name_words) {
    const struct entry *found = NULL;
    for (int i = 0; i < docs->count; i++) {
        const struct entry *e = &docs->entries[i];
        int words = strchr(e->name, ' ') ? 2 : 1;
        if (words > argc || !help_matches(e, words, argv) || (found && words <= *name_words)) continue;
        found = e;
        *name_words = words;
    }
    return found;
}

static bool is_token_of(const struct part *part, struct slice word) {
    for (int i = 0; i < part->tokens_count; i++) {
        if (slice_is(word, part->tokens[i])) return true;
    }
    return false;
}

/* Marks the parts that the typed words use. */
static void parts_use(const struct entry *e, int argc, const struct slice *argv, bool *used) {
    for (int i = 0; i < argc;) {
        int k = 0;
        while (k < e->parts_count && (used[k] || !is_token_of(&e->parts[k], argv[i]))) k++;
        bool by_token = k < e->parts_count;
        if (!by_token) {
            k = 0;
            while (k < e->parts_count && (used[k] || (e->parts[k].optional && e->parts[k].tokens_count))) k++;
        }
        if (k == e->parts_count) {
            i++;
            continue;
        }
        used[k] = true;
        i += e->parts[k].words + by_token > 0 ? e->parts[k].words + by_token : 1;
    }
}

bool docs_hint(const struct cli_docs *docs, struct slice line, char *text, size_t size) {
    struct slice *argv;
    int argc = words_split(line, &argv), name_words = 0;
    if (argc <= 0) {
        if (argc == 0) words_free(argv, 0);
        return false;
    }
    bool ended = line.data[line.len - 1] == ' '; /* the last word is complete */
    const struct entry *e = entry_of(docs, argc, argv, &name_words);
    struct memory_output m;
    memory_output_init(&m);
    if (e && (ended || argc == name_words)) {
        bool used[64] = {false};
        if (e->parts_count <= 64) parts_use(e, argc - name_words, argv + name_words, used);
        for (int i = 0; i < e->parts_count && i < 64; i++) {
            const char *shown = used[i] ? e->parts[i].more : e->parts[i].text;
            if (!shown) continue;
            if (memory_output_slice(&m).len || !ended) put(&m, " ");
            put(&m, shown);
        }
    }
    words_free(argv, argc);
    struct slice hint = memory_output_slice(&m);
    bool something = hint.len > 0;
    snprintf(text, size, "%.*s", (int)hint.len, hint.len ? hint.data : "");
    memory_output_free(&m);
    return something;
}

/* --- Completion --- */

static void complete_groups(const struct cli_docs *docs, struct slice start, void (*found)(void *, const char *),
                            void *context) {
    for (int i = 0; i < docs->count; i++) {
        bool seen = false;
        for (int k = 0; k < i && !seen; k++) seen = strcmp(docs->entries[k].group, docs->entries[i].group) == 0;
        char topic[80];
        snprintf(topic, sizeof topic, "help @%s", docs->entries[i].group);
        if (!seen && strncasecmp(topic, start.data, start.len) == 0) found(context, topic);
    }
}

void docs_complete(const struct cli_docs *docs, struct slice line, void (*found)(void *context, const char *text),
                   void *context) {
    bool help = line.len >= 5 && strncasecmp(line.data, "help ", 5) == 0;
    struct slice name = help ? slice_make(line.data + 5, line.len - 5) : line;
    if (help) complete_groups(docs, line, found, context);
    for (int i = 0; i < docs->count; i++) {
        const struct entry *e = &docs->entries[i];
        /* Complete subcommands only after their command was typed: a list of all would be too long. */
        const char *space = strchr(e->name, ' ');
        if (strlen(e->name) < name.len || strncasecmp(e->name, name.data, name.len) != 0) continue;
        if (space && (size_t)(space - e->name) >= name.len) continue;
        char text[160];
        bool lower = name.len && islower((unsigned char)name.data[0]);
        snprintf(text, sizeof text, "%s%s", help ? "help " : "", e->name);
        for (char *p = text + (help ? 5 : 0); lower && *p; p++) *p = (char)tolower((unsigned char)*p);
        found(context, text);
    }
}
