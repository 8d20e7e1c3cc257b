/* config.h: the table of options. The file, the command line, CONFIG GET/SET/REWRITE/HELP and the check of valkey.conf
 * all use it.
 *
 * A feature describes its options in a constant table beside its code and registers it in its struct feature. The
 * feature owns the values: the table holds a pointer (or NULL: then the engine keeps the value, and config_number()
 * reads it). Names and aliases match case-insensitively. Not thread-safe: the main thread changes options; other
 * threads may read single numbers.
 *
 * A value consists of arguments. A line `name a b c`, a command line `--name a b c` and CONFIG SET name "a b c" pass
 * the same arguments to an option that takes several (CONFIG_MULTI_ARG); for the empty text "" such an option gets
 * none. Any other option takes exactly one. */
#pragma once
#include "lib/text/output.h"
#include "lib/text/slice.h"
#include <stdint.h>

enum config_type {
    CONFIG_BOOL,    /* bool *       yes|no */
    CONFIG_INT,     /* int *        */
    CONFIG_INT64,   /* int64_t *    */
    CONFIG_MEMORY,  /* int64_t *    10, 10k, 10kb, 10mb; with CONFIG_PERCENT_OK also 5% (stored negative) */
    CONFIG_OCTAL,   /* int *        */
    CONFIG_ENUM,    /* int *        one of names[] */
    CONFIG_FLAGS,   /* int *        any of names[], or'ed */
    CONFIG_STRING,  /* char **      allocated by the table (mem_strdup); never NULL: empty is "" */
    CONFIG_BYTES,   /* struct slice * as CONFIG_STRING, but it may contain NUL bytes: passwords */
    CONFIG_STRINGS, /* struct config_strings *; a file line or SET value replaces all of them */
    CONFIG_CUSTOM   /* set/get functions */
};
enum config_flag {
    CONFIG_IMMUTABLE = 1, /* file and command line only: "can't set immutable config" */
    CONFIG_SENSITIVE = 2, /* never logged */
    CONFIG_PROTECTED = 4, /* enable-protected-configs */
    CONFIG_HIDDEN = 8,    /* CONFIG GET shows it only by its exact name */
    CONFIG_PERCENT_OK = 16,
    CONFIG_MULTI_ARG = 32, /* the value may be several arguments */
    CONFIG_NOT_BUILT = 64, /* stored and shown without effect: the feature is not in this build. The server logs this
                              once when the value differs from the default */
    CONFIG_DENY_LOADING = 128,
    CONFIG_VOLATILE = 256,        /* apply even if the value did not change */
    CONFIG_DEPRECATED = 512,      /* accepted without effect */
    CONFIG_UNSIGNED = 1024,       /* CONFIG_MEMORY: the value is a uint64_t, without limits */
    CONFIG_WRITTEN = 2048,        /* CONFIG REWRITE adds it even if it has its default */
    CONFIG_UNSIGNED_LIMITS = 4096 /* min and max are uint64_t, although texts are those of int64_t; as in Valkey */
};
struct config_name {
    const char *name;
    int value;
}; /* arrays end with name NULL */
struct config_strings {
    int count;
    char **items;
};
struct config_option {
    const char *name, *alias; /* CONFIG GET replies with the alias if asked for it; REWRITE writes the name,
                                 unless the file has the alias */
    enum config_type type;
    uint32_t flags;
    void *value;         /* NULL: the engine keeps it */
    const char *initial; /* default as text; one space between arguments */
    int64_t min, max;    /* both 0: the type's own limits */
    const struct config_name *names;
    /* Validates a value before it is stored. The text is well-formed for the type, its arguments joined by spaces, and
     * NUL-terminated. Not called for the default. Returns NULL if valid, else the reason (a static or config_reason()
     * text). */
    const char *(*check)(const struct config_option *option, struct slice text);
    /* Makes a change at run time take effect; called once for each CONFIG SET that names options with this function.
     * Returns NULL on success, else the reason: then all values are restored and apply is called once more. Not called
     * at start-up: the feature starts with the values it finds. */
    const char *(*apply)(void);
    /* CONFIG_CUSTOM. set: takes the arguments of the line, leaves the value unchanged on failure; get: writes a text
     * from whose arguments set() makes the same value again; rewrite: writes whole lines (NULL: "name get-text"). */
    const char *(*set)(const struct config_option *option, int count, const struct slice *words);
    void (*get)(const struct config_option *option, struct output *out);
    void (*rewrite)(const struct config_option *option, struct output *out);
    /* Of types with a number, and CONFIG_STRING: the owner keeps the value, which is in no variable. store: takes the
     * number or the text, or returns the reason (as check; "" for none) and leaves the value unchanged. It is not
     * called with the present value, nor when the option is registered. fetch: returns the number, or writes the
     * text. */
    const char *(*store)(const struct config_option *option, int64_t number, struct slice text);
    int64_t (*fetch)(const struct config_option *option, struct output *text);
    /* As apply, with this context; called once for each CONFIG SET and context. */
    const char *(*apply_with)(void *context);
    void *apply_context;
};
/* The first members of a row. */
#define OPTION(name_, type_, value_, initial_)                                                                         \
    .name = (name_), .type = (type_), .value = (value_), .initial = (initial_)
void config_register(const struct config_option *options); /* ends with name NULL; sets the defaults. Aborts on a
                                                              malformed table or a duplicate name */
/* Removes the options of a registered table, ignoring missing ones. Frees values of CONFIG_STRING and CONFIG_STRINGS.
 * Do not call it while an option is being set. */
void config_unregister(const struct config_option *options);
const struct config_option *config_find(struct slice name); /* by name or alias */
const char *config_reason(const char *format, ...)
    __attribute__((format(printf, 1, 2))); /* static text, valid until the next call */
/* The value of an option by name, for modules that do not own it, such as INFO. Aborts on an unknown name. */
int64_t config_number(const char *name); /* of BOOL, INT, INT64, MEMORY, OCTAL, ENUM, FLAGS */
/* A number within a value of several arguments. As in Valkey it may have blanks before it, a sign and leading zeros,
 * and the empty text is 0. */
bool config_parse_number(struct slice text, int64_t *number);
/* Sets an option as a line of the file would. Returns NULL or the reason. Does not call apply. */
const char *config_assign(const char *name, int count, const struct slice *words);

/* The same for one text, which is split at spaces if the option takes several arguments. */
const char *config_assign_text(const char *name, struct slice text);
/* Writes a value of CONFIG_ENUM, or of CONFIG_FLAGS. */
void config_names_write(const struct config_name *names, bool flags, int value, struct output *out);

/* Lines of the file that are not options (user, loadmodule, rename-command). CONFIG GET and SET do not know them;
 * REWRITE keeps them unchanged, or replaces them by what `rewrite` writes. */
struct config_directive {
    const char *name;
    int min_words,
        max_words; /* after the name; max 0: any number. Otherwise "Bad directive or wrong number of arguments" */
    const char *(*handle)(int count, const struct slice *words);
    void (*rewrite)(struct output *out); /* all lines of the directive; may be NULL */
    /* With it, each line keeps its place: this writes what replaces the line with these words, perhaps nothing, and
     * `rewrite` what is left, at the end of the file. */
    void (*rewrite_line)(int count, const struct slice *words, struct output *out);
};
void config_register_directives(const struct config_directive *directives); /* ends with name NULL; a later one with the
                                                                               same name replaces the earlier */

/* Options whose names contain a dot may be registered after the configuration has been read. `keep` gets the arguments
 * of lines that set them, with the name, and returns NULL or the reason. CONFIG REWRITE makes a comment of such a line
 * if the option does not exist. */
void config_set_late_options(const char *(*keep)(int count, const struct slice *words));
/* `changed` is called after each CONFIG SET that succeeds, with the names of its options. */
void config_on_change(void (*changed)(int count, const char *const *names));

/* Start-up. On failure prints Valkey's "*** FATAL CONFIG FILE ERROR" block on stderr and exits 1. `arguments` are
 * argv[1..] without --help and similar options: [file | -] [--name word…]… [-]; "-" reads standard input. Register
 * commands and options first. */
void config_load(int argc, char **argv);
/* 0: config_load() is not reading. Otherwise 1 plus the depth of the included file that contains the line being read.
 * For options whose lines add to the value of earlier lines instead of replacing it. */
int config_reading_depth(void);
/* For a directive that is executed later: the line being read, and its number. The text is valid within handle(). */
int config_reading_line(struct slice *text);
/* Ends the start-up as an invalid line does. */
_Noreturn void config_fatal_line(int number, struct slice line, const char *reason);
const char *config_file(void);                                  /* absolute path, "" if none was given */
extern const struct config_option config_options_unbuilt[];     /* options of features that are not in this build */
extern const struct config_directive config_directives_basic[]; /* refused or ignored ones */
extern const struct config_option config_options_server[];      /* logging, store settings and other general options */
