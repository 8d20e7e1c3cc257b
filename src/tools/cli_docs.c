/* cli_docs.c: help, completion and hints from the server's COMMAND DOCS, so that they match the server, including its
 * modules. If COMMAND DOCS fails, they come from a table of commands in the program (cli_commands.txt). */
#include "lib/system/memory.h"
#include "lib/system/version.h"
#include "tools/cli_docs.h"
#include "tools/cli_syntax.h"
#include <ctype.h>
#include <stdlib.h>

extern const char cli_commands_txt[];

struct docs_entry {
    char *name; /* "CLIENT KILL" */
    char *summary, *since, *group;
    struct syntax syntax;
};
struct cli_docs {
    struct docs_entry *entries; /* sorted by name */
    int count, capacity;
};

/* --- Reading COMMAND DOCS --- */

static const char *cli_docs_text_of(const struct resp_value *map, const char *key) {
    const struct resp_value *v = resp_value_get(map, key);
    return v && v->text.data ? v->text.data : "";
}

static void cli_docs_put(struct memory_output *m, const char *text) {
    output_write(&m->out, slice_of(text));
}
static char *cli_docs_take(struct memory_output *m) {
    struct slice text = memory_output_slice(m);
    char *copy = text.len ? mem_strndup(text.data, text.len) : mem_strdup("");
    memory_output_free(m);
    return copy;
}

static struct docs_entry *entry_new(struct cli_docs *docs) {
    mem_grow(docs->entries, docs->count, docs->capacity, 512);
    return &docs->entries[docs->count++];
}

static void entry_add(struct cli_docs *docs, const char *container, struct slice name, const struct resp_value *doc);

static void entry_read(struct cli_docs *docs, struct docs_entry *e, const struct resp_value *doc) {
    e->summary = mem_strdup(cli_docs_text_of(doc, "summary"));
    e->since = mem_strdup(cli_docs_text_of(doc, "since"));
    e->group = mem_strdup(cli_docs_text_of(doc, "group"));
    syntax_read(&e->syntax, resp_value_get(doc, "arguments"));
    const struct resp_value *subcommands = resp_value_get(doc, "subcommands");
    if (!subcommands) return;
    char *name = mem_strdup(e->name); /* the array of entries may move */
    for (size_t i = 0; i + 1 < subcommands->count; i += 2) {
        entry_add(docs, name, subcommands->children[i].text, &subcommands->children[i + 1]);
    }
    mem_free(name);
}

static void entry_add(struct cli_docs *docs, const char *container, struct slice name, const struct resp_value *doc) {
    struct memory_output m = MEMORY_OUTPUT_INIT;
    const char *bar = memchr(name.data, '|', name.len); /* "client|kill" */
    if (bar) name = slice_make(bar + 1, (size_t)(name.data + name.len - bar - 1));
    if (container) cli_docs_put(&m, container), cli_docs_put(&m, " ");
    output_write(&m.out, name);
    struct docs_entry entry = {.name = cli_docs_take(&m)};
    for (char *p = entry.name; *p; p++) *p = (char)toupper((unsigned char)*p);
    int place = docs->count;
    *entry_new(docs) = entry;
    entry_read(docs, &entry, doc);
    docs->entries[place] = entry;
}

static int entry_compare(const void *a, const void *b) {
    return strcmp(((const struct docs_entry *)a)->name, ((const struct docs_entry *)b)->name);
}

/* Reads cli_commands.txt: for each command a line with tabs, then indented lines for its arguments. */
static void table_read(struct cli_docs *docs) {
    for (const char *text = cli_commands_txt; *text;) {
        char *fields[4];
        for (int i = 0; i < 4; i++) {
            size_t len = strcspn(text, "\t\n");
            fields[i] = mem_strndup(text, len);
            text += len + (text[len] != '\0');
        }
        struct docs_entry *e = entry_new(docs);
        *e = (struct docs_entry){.name = fields[0], .group = fields[1], .since = fields[2], .summary = fields[3]};
        syntax_read_text(&e->syntax, &text);
    }
}

struct cli_docs *docs_load(struct cli *cli) {
    const struct resp_value *reply = cli->session.conn ? SESSION_CALL(&cli->session, "COMMAND", "DOCS") : NULL;
    struct cli_docs *docs = mem_calloc(1, sizeof *docs);
    if (!reply || (reply->type != RESP_MAP && reply->type != RESP_ARRAY)) {
        table_read(docs);
        reply = NULL;
    }
    for (size_t i = 0; reply && i + 1 < reply->count; i += 2) {
        entry_add(docs, NULL, reply->children[i].text.data ? reply->children[i].text : SLICE(""),
                  &reply->children[i + 1]);
    }
    if (docs->count) qsort(docs->entries, (size_t)docs->count, sizeof *docs->entries, entry_compare);
    return docs;
}

void docs_free(struct cli_docs *docs) {
    for (int i = 0; docs && i < docs->count; i++) {
        struct docs_entry *e = &docs->entries[i];
        mem_free(e->name);
        mem_free(e->summary);
        mem_free(e->since);
        mem_free(e->group);
        syntax_free(&e->syntax);
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

static void help_entry(const struct docs_entry *e, bool group) {
    struct memory_output m = MEMORY_OUTPUT_INIT;
    syntax_write(&m.out, &e->syntax);
    struct slice syntax = memory_output_slice(&m);
    printf("\r\n  \033[1m%s\033[0m \033[90m%.*s\033[0m\r\n", e->name, (int)syntax.len, syntax.len ? syntax.data : "");
    memory_output_free(&m);
    printf("  \033[33msummary:\033[0m %s\r\n", e->summary);
    printf("  \033[33msince:\033[0m %s\r\n", e->since);
    if (group) printf("  \033[33mgroup:\033[0m %s\r\n", e->group);
}

/* Whether the words are the entry's name or its first words. */
static bool help_matches(const struct docs_entry *e, int argc, const struct slice *argv) {
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
    if (!cli->docs) cli->docs = docs_load(cli);
    for (int i = 0; cli->docs && i < cli->docs->count; i++) {
        const struct docs_entry *e = &cli->docs->entries[i];
        if (argv[0].len && argv[0].data[0] == '@') {
            if (slice_is(slice_make(argv[0].data + 1, argv[0].len - 1), e->group)) help_entry(e, false);
        } else if (help_matches(e, argc, argv)) {
            help_entry(e, true);
        }
    }
    printf("\r\n");
}

/* --- Hints --- */

/* The entry with the longest name that matches the first words; *name_words: the number of words of its name. */
static struct docs_entry *entry_of(struct cli_docs *docs, int argc, const struct slice *argv, int *name_words) {
    struct docs_entry *found = NULL;
    for (int i = 0; i < docs->count; i++) {
        struct docs_entry *e = &docs->entries[i];
        int words = strchr(e->name, ' ') ? 2 : 1;
        if (words > argc || !help_matches(e, words, argv) || (found && words <= *name_words)) continue;
        found = e;
        *name_words = words;
    }
    return found;
}

bool docs_hint(struct cli_docs *docs, struct slice line, struct output *hint) {
    struct slice *argv;
    int argc = words_split(line, &argv), name_words = 0;
    if (argc < 0) return false;
    /* Only complete words count: the last one may still grow. */
    int complete = argc - (line.len > 0 && line.data[line.len - 1] != ' ');
    struct docs_entry *e = complete > 0 ? entry_of(docs, complete, argv, &name_words) : NULL;
    if (e) syntax_hint(hint, &e->syntax, complete - name_words, argv + name_words);
    words_free(argv, argc);
    return e != NULL;
}

void docs_hint_typed(struct cli_docs *docs, struct slice line, struct output *hint) {
    struct slice *argv;
    int argc = words_split(line, &argv), name_words = 0;
    if (argc < 0) return;
    struct docs_entry *e = argc > 0 ? entry_of(docs, argc, argv, &name_words) : NULL;
    bool fits = e && syntax_hint(hint, &e->syntax, argc - name_words, argv + name_words);
    words_free(argv, argc);
    if (!fits) docs_hint(docs, line, hint);
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

/* Completes names of options: every word after CONFIG GET, and every second word after CONFIG SET. Gets the names from
 * the server, except within MULTI, where it would queue the request. */
static void complete_options(struct cli *cli, struct slice line, void (*found)(void *, const char *), void *context) {
    struct slice *argv;
    bool new_word = line.len && line.data[line.len - 1] == ' ';
    int argc = words_split(line, &argv), at = argc - !new_word;
    if (argc < 0) return;
    bool get = argc > 1 && slice_is(argv[0], "config") && slice_is(argv[1], "get"),
         set = argc > 1 && slice_is(argv[0], "config") && slice_is(argv[1], "set");
    struct slice word = new_word || !argc ? SLICE("") : argv[argc - 1];
    size_t kept = line.len - word.len;
    /* A name contains neither pattern characters nor quotes. */
    bool plain = word.len < 64 && (new_word || memcmp(line.data + kept, word.data, word.len) == 0) &&
                 strspn(word.data, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-") >= word.len;
    bool can_ask = cli->session.conn && session_is_open(&cli->session) && !cli->in_transaction && !cli->subscribed;
    if (can_ask && plain && at >= 2 && (get || (set && at % 2 == 0))) {
        char pattern[80];
        snprintf(pattern, sizeof pattern, "%.*s*", (int)word.len, word.data);
        const struct resp_value *reply = SESSION_CALL(&cli->session, "CONFIG", "GET", pattern);
        bool pairs = reply && (reply->type == RESP_MAP || reply->type == RESP_ARRAY);
        for (size_t i = 0; pairs && i + 1 < reply->count; i += 2) {
            struct slice name = reply->children[i].text;
            char text[1024];
            if (kept + name.len >= sizeof text || !name.data) continue;
            snprintf(text, sizeof text, "%.*s%.*s", (int)kept, line.data, (int)name.len, name.data);
            found(context, text);
        }
    }
    words_free(argv, argc);
}

void docs_complete(struct cli *cli, struct slice line, void (*found)(void *context, const char *text), void *context) {
    const struct cli_docs *docs = cli->docs;
    complete_options(cli, line, found, context);
    bool help = line.len >= 5 && strncasecmp(line.data, "help ", 5) == 0;
    struct slice name = help ? slice_make(line.data + 5, line.len - 5) : line;
    if (help) complete_groups(docs, line, found, context);
    for (int i = 0; i < docs->count; i++) {
        const struct docs_entry *e = &docs->entries[i];
        /* Complete subcommands only after their command, to keep the list short. */
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
