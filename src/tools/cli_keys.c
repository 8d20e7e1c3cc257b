/* cli_keys.c: --bigkeys, --memkeys and --hotkeys: scans a database, queries each key, and keeps the extremes. The
 * queries for the keys of one SCAN reply are pipelined. */
#include "lib/system/memory.h"
#include "tools/cli_format.h"
#include "tools/cli_modes.h"
#include <stdlib.h>
#include <unistd.h>

enum { TYPES_MAX = 32 };

struct type {
    char name[40];
    const char *size_command, *unit; /* NULL: a module type, which cannot be measured */
    uint64_t keys, total, biggest;
    char *biggest_key; /* quoted */
};
struct hot {
    uint64_t counter;
    char *key;
};
struct survey {
    struct cli *cli;
    enum cli_mode which;
    struct type types[TYPES_MAX];
    int types_count;
    struct hot *hot; /* hottest first */
    int64_t hot_count, hot_kept;
    uint64_t sampled, key_bytes, database_keys;
    double progress; /* percent of the keys, without those being queried */
};

static const struct {
    const char *name, *size_command, *unit;
} known_types[] = {{"list", "LLEN", "items"},     {"hash", "HLEN", "fields"},  {"stream", "XLEN", "entries"},
                   {"string", "STRLEN", "bytes"}, {"set", "SCARD", "members"}, {"zset", "ZCARD", "members"}};

static char *quoted(struct slice text) {
    struct memory_output m = MEMORY_OUTPUT_INIT;
    format_quoted(&m.out, text);
    struct slice s = memory_output_slice(&m);
    char *copy = mem_strndup(s.data, s.len);
    memory_output_free(&m);
    return copy;
}

static struct type *type_find(struct survey *survey, struct slice name) {
    for (int i = 0; i < survey->types_count; i++) {
        if (slice_equal(slice_of(survey->types[i].name), name)) return &survey->types[i];
    }
    if (survey->types_count == TYPES_MAX || name.len >= sizeof survey->types[0].name) return NULL;
    struct type *type = &survey->types[survey->types_count++];
    memset(type, 0, sizeof *type);
    memcpy(type->name, name.data, name.len);
    type->unit = "?";
    return type;
}

static void ask(struct survey *survey, int argc, const struct slice *argv) {
    request_write(&survey->cli->session.conn->out, argc, argv);
}
static const struct resp_value *answer(struct survey *survey) {
    const struct resp_value *reply = session_read(&survey->cli->session, -1);
    if (reply) return reply;
    fprintf(stderr, "\nI/O error\n%s\n", survey->cli->session.error);
    exit(1);
}

/* --- Sizes --- */

static void size_note(struct survey *survey, struct type *type, struct slice key, uint64_t size) {
    type->keys++;
    type->total += size;
    if (size <= type->biggest && type->biggest_key) return;
    if (size == 0) return;
    mem_free(type->biggest_key);
    type->biggest_key = quoted(key);
    type->biggest = size;
    printf("[%05.2f%%] Biggest %-6s found so far '%s' with %llu %s\n", survey->progress, type->name, type->biggest_key,
           (unsigned long long)size, type->unit);
}

static void sizes_survey(struct survey *survey, const struct resp_value *keys) {
    size_t count = keys->count;
    struct type **types = mem_calloc(count + 1, sizeof *types);
    for (size_t i = 0; i < count; i++) ask(survey, 2, (struct slice[]){SLICE("TYPE"), keys->children[i].text});
    conn_flush(survey->cli->session.conn);
    for (size_t i = 0; i < count; i++) {
        const struct resp_value *reply = answer(survey);
        if (reply->type == RESP_ERROR) cli_refused("TYPE returned an error", reply);
        struct slice name = cli_text(reply);
        if (!slice_equal(name, SLICE("none")))
            types[i] = type_find(survey, name); /* "none": the key was deleted after SCAN */
    }
    char samples[24];
    snprintf(samples, sizeof samples, "%lld", (long long)survey->cli->options.memkeys_samples);
    for (size_t i = 0; i < count; i++) {
        struct slice key = keys->children[i].text;
        if (!types[i]) continue;
        if (survey->which == MODE_MEMKEYS) {
            struct slice argv[] = {SLICE("MEMORY"), SLICE("USAGE"), key, SLICE("SAMPLES"), slice_of(samples)};
            ask(survey, survey->cli->options.memkeys_samples >= 0 ? 5 : 3, argv);
        } else if (types[i]->size_command) {
            ask(survey, 2, (struct slice[]){slice_of(types[i]->size_command), key});
        }
    }
    conn_flush(survey->cli->session.conn);
    for (size_t i = 0; i < count; i++) {
        if (!types[i]) continue;
        struct slice key = keys->children[i].text;
        survey->sampled++;
        survey->key_bytes += key.len;
        uint64_t size = 0;
        if (survey->which == MODE_MEMKEYS || types[i]->size_command) {
            const struct resp_value *reply = answer(survey);
            if (reply->type == RESP_INTEGER)
                size = (uint64_t)reply->integer;
            else if (reply->type == RESP_ERROR)
                fprintf(stderr, "Warning:  %s on '%.*s' failed (may have changed type)\n",
                        survey->which == MODE_MEMKEYS ? "MEMORY USAGE" : types[i]->size_command, (int)key.len,
                        key.data);
        }
        size_note(survey, types[i], key, size);
    }
    mem_free(types);
}

static void sizes_summarize(const struct survey *survey) {
    printf("\n-------- Summary --------\n\nSampled %llu keys in the keyspace!\n", (unsigned long long)survey->sampled);
    printf("Total key length in bytes is %llu (avg len %.2f)\n\n", (unsigned long long)survey->key_bytes,
           survey->sampled ? (double)survey->key_bytes / (double)survey->sampled : 0);
    for (int i = 0; i < survey->types_count; i++) {
        const struct type *t = &survey->types[i];
        if (t->biggest_key)
            printf("Biggest %6s found '%s' has %llu %s\n", t->name, t->biggest_key, (unsigned long long)t->biggest,
                   t->unit);
    }
    putchar('\n');
    for (int i = 0; i < survey->types_count; i++) {
        const struct type *t = &survey->types[i];
        printf("%llu %ss with %llu %s (%05.2f%% of keys, avg size %.2f)\n", (unsigned long long)t->keys, t->name,
               (unsigned long long)t->total, t->unit,
               survey->sampled ? 100.0 * (double)t->keys / (double)survey->sampled : 0,
               t->keys ? (double)t->total / (double)t->keys : 0);
    }
}

/* --- Access frequency --- */

static void hot_note(struct survey *survey, struct slice key, uint64_t counter) {
    int64_t place = survey->hot_count;
    if (place == survey->hot_kept && counter <= survey->hot[place - 1].counter) return;
    if (place == survey->hot_kept)
        mem_free(survey->hot[--place].key);
    else
        survey->hot = mem_realloc(survey->hot, (size_t)++survey->hot_count * sizeof *survey->hot);
    while (place > 0 && survey->hot[place - 1].counter < counter) survey->hot[place] = survey->hot[place - 1], place--;
    survey->hot[place] = (struct hot){counter, quoted(key)};
    printf("[%05.2f%%] Hot key '%s' found so far with counter %llu\n", survey->progress, survey->hot[place].key,
           (unsigned long long)counter);
}

static void use_survey(struct survey *survey, const struct resp_value *keys) {
    for (size_t i = 0; i < keys->count; i++)
        ask(survey, 3, (struct slice[]){SLICE("OBJECT"), SLICE("FREQ"), keys->children[i].text});
    conn_flush(survey->cli->session.conn);
    for (size_t i = 0; i < keys->count; i++) {
        const struct resp_value *reply = answer(survey);
        if (reply->type == RESP_ERROR) {
            fprintf(stderr, "Error: %s\n", reply->text.data);
            exit(1);
        }
        survey->sampled++;
        if (reply->type == RESP_INTEGER && reply->integer > 0)
            hot_note(survey, keys->children[i].text, (uint64_t)reply->integer);
    }
}

static void use_summarize(const struct survey *survey) {
    printf("\n-------- Summary --------\n\nSampled %llu keys in the keyspace!\n", (unsigned long long)survey->sampled);
    for (int64_t i = 0; i < survey->hot_count; i++) {
        printf("hot key found with counter: %llu\tkeyname: %s\n", (unsigned long long)survey->hot[i].counter,
               survey->hot[i].key);
    }
}

/* --- Both --- */

/* Sends SCAN. Returns a copy of the reply, because the queries for its keys reuse the reader. */
static struct resp_value scan(struct survey *survey, const char *cursor) {
    const struct cli_options *o = &survey->cli->options;
    char count[24];
    struct slice argv[6] = {SLICE("SCAN"), slice_of(cursor)};
    int argc = 2;
    snprintf(count, sizeof count, "%lld", (long long)o->count);
    if (o->pattern) argv[argc++] = SLICE("MATCH"), argv[argc++] = slice_of(o->pattern);
    argv[argc++] = SLICE("COUNT"), argv[argc++] = slice_of(count);
    struct resp_value *reply = cli_call(survey->cli, argc, argv);
    if (reply->type == RESP_ERROR) cli_refused("SCAN error", reply);
    if (reply->count != 2 || reply->children[0].text.len >= 32) {
        fprintf(stderr, "ERROR: this is not an answer to SCAN\n");
        exit(1);
    }
    struct resp_value taken = *reply;
    reply->children = NULL, reply->count = reply->capacity = 0;
    return taken;
}

int mode_keys(struct cli *cli, enum cli_mode which) {
    static struct survey static_survey;
    struct survey *survey = &static_survey;
    survey->cli = cli;
    survey->which = which;
    survey->hot_kept = cli->options.hotkeys_count;
    for (size_t i = 0; i < sizeof known_types / sizeof *known_types; i++) {
        struct type *type = type_find(survey, slice_of(known_types[i].name));
        type->size_command = known_types[i].size_command;
        type->unit = which == MODE_MEMKEYS ? "bytes" : known_types[i].unit;
    }
    cli_connect_or_exit(cli);
    cli_catch_interrupt(cli, true); /* an interrupt shows the results so far */
    cli->session.interrupt = NULL;
    const struct resp_value *size = CLI_CALL(cli, "DBSIZE");
    if (size->type == RESP_ERROR) cli_refused("Couldn't determine DBSIZE", size);
    survey->database_keys = (uint64_t)size->integer;
    printf("\n# Scanning the entire keyspace to find %s keys as well as\n"
           "# average sizes per key type.  You can use -i 0.1 to sleep 0.1 sec\n"
           "# per 100 SCAN commands (not usually needed).\n\n",
           which == MODE_HOTKEYS ? "hot" : "biggest");
    /* Lets a replica in a cluster serve reads. */
    const struct resp_value *allowed = CLI_CALL(cli, "READONLY");
    if (allowed->type == RESP_ERROR && !strstr(allowed->text.data, "cluster support disabled"))
        cli_refused("Error", allowed);
    char cursor[32] = "0";
    for (uint64_t round = 1;; round++) {
        struct resp_value reply = scan(survey, cursor);
        snprintf(cursor, sizeof cursor, "%s", reply.children[0].text.data);
        survey->progress = survey->database_keys ? 100.0 * (double)survey->sampled / (double)survey->database_keys : 0;
        if (which == MODE_HOTKEYS)
            use_survey(survey, &reply.children[1]);
        else
            sizes_survey(survey, &reply.children[1]);
        resp_value_free(&reply);
        fflush(stdout);
        if (cli_interrupted || strcmp(cursor, "0") == 0) break;
        if (cli->options.interval_us && round % 100 == 0) usleep((useconds_t)cli->options.interval_us);
    }
    if (which == MODE_HOTKEYS)
        use_summarize(survey);
    else
        sizes_summarize(survey);
    return 0;
}
