/* config.h: the one table of options. The file, the command line, CONFIG GET/SET/REWRITE/HELP and valkey.conf's check are views of it.
 *
 * A feature describes its options in a constant table beside its code and registers it in main.c. Values live where the feature wants them: the
 * table holds a pointer. Names and aliases are matched without regard to case. Not thread-safe: the main thread changes options; other threads read plain words. */
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
    CONFIG_IMMUTABLE = 1,   /* file and command line only: "can't set immutable config" */
    CONFIG_SENSITIVE = 2,   /* never logged */
    CONFIG_PROTECTED = 4,   /* enable-protected-configs */
    CONFIG_HIDDEN = 8,      /* CONFIG GET shows it only by its exact name */
    CONFIG_PERCENT_OK = 16,
    CONFIG_MULTI_ARG = 32,  /* the value may be several words */
    CONFIG_NOT_BUILT = 64,  /* known, stored, shown; what it controls is not in this build: one log line tells so when it is set to something else than its default */
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
    const char *name, *alias; /* the alias is answered under its own name by CONFIG GET; REWRITE writes the main one, unless the file has the alias */
    enum config_type type;
    uint32_t flags;
    void *value;
    const char *initial; /* default, as text */
    int64_t min, max;    /* both 0: the type's own limits */
    const struct config_name *names;
    /* Looks at a value before it is stored (already parsed, as text too). NULL: fine, else the reason (a static or config_reason() text). */
    const char *(*check)(const struct config_option *option, struct slice text);
    /* Makes a change at run time take effect; called once for all options of one CONFIG SET that name it. NULL: fine, else the reason: then all is put back. */
    const char *(*apply)(void);
    /* CONFIG_CUSTOM. set: words of the line; get: one text; rewrite: whole lines (NULL: "name get-text"). */
    const char *(*set)(const struct config_option *option, int count, const struct slice *words);
    void (*get)(const struct config_option *option, struct output *out);
    void (*rewrite)(const struct config_option *option, struct output *out);
    const char *help; /* one sentence, for CONFIG HELP-like views and --help */
};
void config_register(const struct config_option *options); /* ends with name NULL; sets the defaults */
const struct config_option *config_find(struct slice name);
const char *config_reason(const char *format, ...) __attribute__((format(printf, 1, 2))); /* static text, valid until the next call */

/* Start-up. On failure prints Valkey's "*** FATAL CONFIG FILE ERROR" block on stderr and exits 1. `arguments` are argv[1..] less --help and the like. */
void config_load(int argc, char **argv);
const char *config_file(void); /* absolute path, "" where none was given */
extern const struct config_option config_options_unbuilt[]; /* options whose feature is in no room yet */
#endif
