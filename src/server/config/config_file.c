/* config_file.c: reads the options at start-up: a file with its includes, standard input, the command line.
 *
 * All sources become one text that is read line by line, so that an argument means the same in each of them and later
 * settings win: first the file, then standard input, then a line for each --name of the command line with its arguments
 * quoted. The first invalid line ends the start-up. */
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "resp/request.h"
#include "server/config/config_engine.h"
#include "server/server.h"
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { INCLUDE_DEPTH_MAX = 16 };

static char *file_path; /* absolute; NULL: none */
/* The line being read; of the innermost file if files include others. */
static bool reading;
static int reading_line, reading_depth;
static char reading_text[1024];
static char failed_include[1024]; /* the included file with the line that failed; empty: the line is not in one */
/* The same, while a directive is executed. */
static int current_line;
static struct slice current_text;

int config_reading_depth(void) {
    return reading ? reading_depth + 1 : 0;
}
const char *config_file(void) {
    return file_path ? file_path : "";
}

static void print_fatal_title(void) {
    fprintf(stderr, "\n*** FATAL CONFIG FILE ERROR (Version %s) ***\n", SERVER_VERSION);
}
void config_fatal_line(int number, struct slice line, const char *reason) {
    print_fatal_title();
    fprintf(stderr, "Reading the configuration file, at line %d\n>>> '%.*s'\n%s\n", number, (int)line.len, line.data,
            reason);
    if (failed_include[0]) fprintf(stderr, "The line is in the included file '%s'\n", failed_include);
    exit(1);
}
int config_reading_line(struct slice *text) {
    *text = current_text;
    return current_line;
}
void config_fatal(const char *reason) {
    print_fatal_title();
    fprintf(stderr, "%s\n", reason);
    exit(1);
}

static int read_descriptor(int fd, struct output *out) {
    size_t total = 0;
    for (;;) {
        char *space = output_reserve(out, OUTPUT_RESERVE_MAX);
        ssize_t got = read(fd, space, OUTPUT_RESERVE_MAX);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -errno;
        if (got == 0) return 0;
        output_commit(out, (size_t)got);
        if ((total += (size_t)got) > CONFIG_FILE_SIZE_MAX) return -EFBIG;
    }
}
static void read_file(const char *path, struct output *out) {
    int fd = open(path, O_RDONLY | O_CLOEXEC), result = fd < 0 ? -errno : read_descriptor(fd, out);
    if (fd >= 0) close(fd);
    if (result == 0) return;
    log_warning("Fatal error, can't open config file '%s': %s", path, strerror(-result));
    exit(1);
}

static const char *load_lines(struct slice text);
static const char *include_file(const char *path) {
    struct memory_output text = MEMORY_OUTPUT_INIT;
    read_file(path, &text.out);
    reading_depth++;
    const char *reason = load_lines(memory_output_slice(&text));
    reading_depth--;
    if (reason && !failed_include[0]) snprintf(failed_include, sizeof failed_include, "%s", path);
    memory_output_free(&text);
    return reason;
}
/* A path with wildcards may match nothing; a plain path must exist. */
static const char *include(struct slice pattern) {
    if (reading_depth == INCLUDE_DEPTH_MAX) return "Files include one another too deeply";
    char *path = mem_strndup(pattern.data, pattern.len);
    const char *reason = NULL;
    glob_t found;
    if (strpbrk(path, "*?[") && glob(path, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc && !reason; i++) reason = include_file(found.gl_pathv[i]);
        globfree(&found);
    } else if (!strpbrk(path, "*?[")) {
        reason = include_file(path);
    }
    mem_free(path);
    return reason;
}

/* How many characters must be inserted, deleted, replaced, or swapped with their neighbour to make `b` of `a` (optimal
 * string alignment distance). SIZE_MAX: a text is too long. */
static size_t edit_distance(struct slice a, const char *b) {
    enum { LEN_MAX = 63 };
    unsigned char rows[3][LEN_MAX + 1]; /* of the last character but one, the last, the current */
    unsigned char *before = rows[0], *last = rows[1], *current = rows[2];
    size_t len = strlen(b);
    if (a.len > LEN_MAX || len > LEN_MAX) return SIZE_MAX;
    for (size_t j = 0; j <= len; j++) last[j] = (unsigned char)j;
    for (size_t i = 1; i <= a.len; i++) {
        current[0] = (unsigned char)i;
        for (size_t j = 1; j <= len; j++) {
            bool same = tolower((unsigned char)a.data[i - 1]) == b[j - 1];
            int least = last[j - 1] + !same;
            if (last[j] + 1 < least) least = last[j] + 1;
            if (current[j - 1] + 1 < least) least = current[j - 1] + 1;
            if (i > 1 && j > 1 && tolower((unsigned char)a.data[i - 2]) == b[j - 1] &&
                tolower((unsigned char)a.data[i - 1]) == b[j - 2] && before[j - 2] + 1 < least)
                least = before[j - 2] + 1;
            current[j] = (unsigned char)least;
        }
        unsigned char *oldest = before;
        before = last, last = current, current = oldest;
    }
    return last[len];
}

/* The option whose name is most similar to `name`, for misspelled names; NULL: none is similar. */
static const char *similar_name(struct slice name) {
    const char *similar = NULL;
    size_t least = name.len < 6 ? 2 : 3; /* one or two mistakes */
    for (size_t i = 0; i < config_names_count(); i++) {
        const struct config_name_entry *entry = config_name_at(i);
        size_t distance = edit_distance(name, entry->name);
        if (distance < least) least = distance, similar = entry->name;
    }
    return similar;
}

static const char unbalanced[] = "Unbalanced quotes in configuration line";

/* Several arguments may stand in one pair of quotes. */
static const char *set_quoted(struct config_state *state, struct slice text) {
    struct slice *words;
    int count = words_split(text, &words);
    if (count < 0) return unbalanced; /* Valkey would take it for no argument at all */
    const char *reason = config_state_set(state, count, words, false);
    words_free(words, count);
    return reason;
}

static const char *load_words(int count, const struct slice *words) {
    static const char bad[] = "Bad directive or wrong number of arguments";
    struct slice name = words[0];
    if (slice_is(name, "include")) return count == 2 ? include(words[1]) : bad;
    const struct config_directive *directive = config_directive_find(name);
    if (directive) {
        if (count - 1 < directive->min_words || (directive->max_words && count - 1 > directive->max_words)) return bad;
        return directive->handle(count - 1, words + 1);
    }
    struct config_name_entry *entry = config_name_find(name);
    if (!entry && config_keep_late && memchr(name.data, '.', name.len)) return config_keep_late(count, words);
    if (!entry) {
        const char *similar = similar_name(name);
        return similar ? config_reason("%s\nDid you mean '%s'?", bad, similar) : bad;
    }
    if (count == 2 && words[1].len && entry->state->option->flags & CONFIG_MULTI_ARG)
        return set_quoted(entry->state, words[1]);
    return config_state_set(entry->state, count - 1, words + 1, false);
}
static struct slice trimmed(struct slice line) {
    while (line.len && strchr(" \t\r\n", line.data[0]) && line.data[0]) line.data++, line.len--;
    while (line.len && strchr(" \t\r\n", line.data[line.len - 1]) && line.data[line.len - 1]) line.len--;
    return line;
}
/* On failure reading_line and reading_text give the position. */
static const char *load_lines(struct slice text) {
    int number = 0;
    while (text.len) {
        const char *newline = memchr(text.data, '\n', text.len);
        size_t len = newline ? (size_t)(newline - text.data) : text.len;
        struct slice line = trimmed((struct slice){text.data, len});
        number++;
        text.data += len + (newline != NULL), text.len -= len + (newline != NULL);
        if (!line.len || line.data[0] == '#') continue;
        struct slice *words;
        int count = words_split(line, &words), depth = reading_depth;
        bool inner = count == 2 && slice_is(words[0], "include") &&
                     depth < INCLUDE_DEPTH_MAX; /* the nested call sets them itself */
        current_line = number, current_text = line;
        const char *reason = count < 0 ? unbalanced : count == 0 ? NULL : load_words(count, words);
        if (count >= 0) words_free(words, count);
        if (!reason) continue;
        if (!inner) {
            reading_line = number;
            snprintf(reading_text, sizeof reading_text, "%.*s",
                     (int)(line.len < sizeof reading_text ? line.len : sizeof reading_text - 1), line.data);
        }
        return reason;
    }
    return NULL;
}
const char *config_load_text(struct slice text, int *line_number, struct slice *line) {
    reading_depth = 0;
    failed_include[0] = 0;
    reading = true;
    const char *reason = load_lines(text);
    reading = false;
    *line_number = reading_line;
    *line = slice_of(reading_text);
    return reason;
}

/* An argument that has more than the name: "--maxmemory 1gb". */
static bool has_value(const char *argument) {
    struct slice *words;
    int count = words_split(slice_of(argument), &words);
    if (count >= 0) words_free(words, count);
    return count != 1 && count != 0;
}

/* An argument after --name is its value even if it begins with "--" itself, unless the name came with its value. The
 * exception is --save, which without a value means: no save points. */
void config_arguments_to_text(int argc, char **argv, struct output *out) {
    bool awaits_value = false, awaits_save = false;
    for (int i = 0; i < argc; i++) {
        bool is_name = strncmp(argv[i], "--", 2) == 0 && (!awaits_value || awaits_save);
        if (is_name) {
            if (awaits_save) output_write(out, SLICE(" \"\""));
            output_write(out, SLICE("\n"));
            output_write(out, slice_of(argv[i] + 2));
            awaits_value = !has_value(argv[i]);
            awaits_save = strcasecmp(argv[i] + 2, "save") == 0;
        } else {
            output_write(out, i ? SLICE(" ") : SLICE("\n"));
            word_write(out, slice_of(argv[i]), true);
            awaits_value = awaits_save = false;
        }
    }
    if (awaits_save) output_write(out, SLICE(" \"\""));
}
static char *absolute_path(const char *path) {
    char directory[4096];
    if (path[0] == '/' || !getcwd(directory, sizeof directory)) return mem_strdup(path);
    while (strncmp(path, "./", 2) == 0) path += 2;
    size_t len = strlen(directory) + strlen(path) + 2;
    char *absolute = mem_alloc(len);
    snprintf(absolute, len, "%s%s%s", directory, directory[1] ? "/" : "", path);
    return absolute;
}
void config_load(int argc, char **argv) {
    struct memory_output text = MEMORY_OUTPUT_INIT;
    /* "-" is the first argument, in the place of the file, or the last one. */
    bool standard_input_first = argc > 0 && strcmp(argv[0], "-") == 0, standard_input = standard_input_first;
    if (standard_input_first) argc--, argv++;
    if (argc > 0 && strcmp(argv[argc - 1], "-") == 0) standard_input = true, argc--;
    if (!standard_input_first && argc > 0 && argv[0][0] != '-') {
        file_path = absolute_path(argv[0]);
        read_file(file_path, &text.out);
        argc--, argv++;
    }
    if (standard_input) {
        log_notice("Reading config from stdin");
        output_write(&text.out, SLICE("\n"));
        int result = read_descriptor(STDIN_FILENO, &text.out);
        if (result < 0) log_warning("Reading config from stdin: %s", strerror(-result));
    }
    config_arguments_to_text(argc, argv, &text.out);
    int number;
    struct slice line;
    const char *reason = config_load_text(memory_output_slice(&text), &number, &line);
    if (reason) config_fatal_line(number, line, reason);
    memory_output_free(&text);
    config_server_start();
    for (size_t i = 0; i < config_names_count(); i++) config_state_log_not_built(config_name_at(i)->state);
}
