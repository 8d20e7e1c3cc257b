/* config.h: the one table of options. The file, the command line, CONFIG GET/SET/REWRITE/HELP and valkey.conf's check
 * are views of it.
 *
 * A feature describes its options in a constant table beside its code and registers it in main.c. Values live where the
 * feature wants them: the table holds a pointer (or none: then the engine keeps the value, config_number() and
 * config_text() read it). Names and aliases are matched without regard to case. Not thread-safe: the main thread
 * changes options; other threads read plain words.
 *
 * Values are words. A line `name a b c`, a command line `--name a b c` and CONFIG SET name "a b c" give the same words
 * to an option that takes several (CONFIG_MULTI_ARG); such an option is given no words at all for the empty text "".
 * Any other option takes exactly one. */
#ifndef SERVER_CONFIG_H
#define SERVER_CONFIG_H
#include "lib/output.h"
#include "lib/slice.h"
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
    CONFIG_STRINGS, /* struct config_strings * words; a file line or SET value replaces all of it */
    CONFIG_CUSTOM   /* set/get functions */
};
enum config_flag {
    CONFIG_IMMUTABLE = 1, /* file and command line only: "can't set immutable config" */
    CONFIG_SENSITIVE = 2, /* never logged */
    CONFIG_PROTECTED = 4, /* enable-protected-configs */
    CONFIG_HIDDEN = 8,    /* CONFIG GET shows it only by its exact name */
    CONFIG_PERCENT_OK = 16,
    CONFIG_MULTI_ARG = 32, /* the value may be several words */
    CONFIG_NOT_BUILT = 64, /* known, stored, shown; what it controls is not in this build: one log line tells so when it
                              is set to something else than its default */
    CONFIG_DENY_LOADING = 128,
    CONFIG_VOLATILE = 256,  /* apply even when the value did not change */
    CONFIG_DEPRECATED = 512 /* accepted without effect */
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
    const char *name, *alias; /* the alias is answered under its own name by CONFIG GET; REWRITE writes the main one,
                                 unless the file has the alias */
    enum config_type type;
    uint32_t flags;
    void *value;         /* NULL: the engine keeps it */
    const char *initial; /* default, as text; words are separated by one space */
    int64_t min, max;    /* both 0: the type's own limits */
    const struct config_name *names;
    /* Looks at a value before it is stored (the text is well-formed for the type; words joined by spaces,
     * NUL-terminated). Not asked about the default. NULL: fine, else the reason (a static or config_reason() text). */
    const char *(*check)(const struct config_option *option, struct slice text);
    /* Makes a change at run time take effect; called once for all options of one CONFIG SET that name it. NULL: fine,
     * else the reason: then all is put back and apply is called once more. Not called at start-up: the feature starts
     * with the values it finds. */
    const char *(*apply)(void);
    /* CONFIG_CUSTOM. set: words of the line, leaves the value alone where it fails; get: one text, from which set()
     * with its words makes the same value again; rewrite: whole lines (NULL: "name get-text"). */
    const char *(*set)(const struct config_option *option, int count, const struct slice *words);
    void (*get)(const struct config_option *option, struct output *out);
    void (*rewrite)(const struct config_option *option, struct output *out);
    const char *help; /* one sentence, for CONFIG HELP-like views and --help */
};
void config_register(const struct config_option *options); /* ends with name NULL; sets the defaults. Aborts on a
                                                              malformed table or a name there is already */
/* Takes the options of a registered table out again; those that are not there are left out. Values of CONFIG_STRING and
 * CONFIG_STRINGS are freed. Not while an option is being set. */
void config_unregister(const struct config_option *options);
const struct config_option *config_find(struct slice name); /* by name or alias */
size_t config_each(void (*seen)(const struct config_option *option, void *context),
                   void *context); /* sorted by name; returns how many */
const char *config_reason(const char *format, ...)
    __attribute__((format(printf, 1, 2))); /* static text, valid until the next call */
/* The value of an option by its name, for those who own none of it: INFO, another room. Aborts on an unknown name. */
int64_t config_number(const char *name); /* of BOOL, INT, INT64, MEMORY, OCTAL, ENUM, FLAGS */
void config_text(const char *name, struct output *out);
/* Sets an option as a line of the file would; NULL or the reason. Does not call apply. */
const char *config_assign(const char *name, int count, const struct slice *words);

/* Lines of the file that are not options (user, loadmodule, rename-command): CONFIG GET and SET do not know them,
 * REWRITE leaves them where they are. */
struct config_directive {
    const char *name;
    int min_words,
        max_words; /* after the name; max 0: any number. Otherwise "Bad directive or wrong number of arguments" */
    const char *(*handle)(int count, const struct slice *words);
};
void config_register_directives(const struct config_directive *directives); /* ends with name NULL; a later one of the
                                                                               same name replaces the earlier */

/* Start-up. On failure prints Valkey's "*** FATAL CONFIG FILE ERROR" block on stderr and exits 1. `arguments` are
 * argv[1..] less --help and the like: [file] [--name word…]… [-]; "-" reads standard input too. Commands and options
 * are registered before. */
void config_load(int argc, char **argv);
bool config_is_loading(
    void); /* config_load is reading: a line may add to what earlier lines said instead of replacing it */
const char *config_file(void);                              /* absolute path, "" where none was given */
extern const struct config_option config_options_unbuilt[]; /* options whose feature is in no room yet */
extern const struct config_directive
    config_directives_basic[];                             /* rename-command, and those that are refused or ignored */
extern const struct config_option config_options_server[]; /* logging, store settings and other small things */
#endif
