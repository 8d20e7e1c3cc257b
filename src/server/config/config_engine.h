/* config_engine.h: declarations shared by the files of the configuration engine only. config.h is the public interface.
 *
 *   config.c          the table: names, typed values, defaults
 *   config_file.c     the file, its includes, standard input, the command line
 *   config_rewrite.c  CONFIG REWRITE
 *   config_command.c  CONFIG GET, SET, … */
#pragma once
#include "server/config/config.h"

struct config_state {
    const struct config_option *option;
    void *value;           /* the option's variable, or memory of the engine */
    struct slice initial;  /* the default as config_state_text() shows it */
    bool logged_not_built; /* the CONFIG_NOT_BUILT message was logged for the current value */
    int pass;              /* scratch of config_command.c */
};
/* A name or an alias of an option. */
struct config_name_entry {
    const char *name;
    struct config_state *state;
    uint32_t shown; /* number of the last CONFIG GET that showed it */
};
/* NULL: every option is registered before the configuration is read. */
extern const char *(*config_keep_late)(int count, const struct slice *words);
struct config_name_entry *config_name_find(struct slice name);
size_t config_names_count(void);
struct config_name_entry *config_name_at(size_t index); /* sorted by name */
struct config_directive *config_directive_find(struct slice name);
size_t config_directives_count(void);
struct config_directive *config_directive_at(size_t index);

/* Sets the value. On failure changes nothing and returns the reason; else NULL. `is_default`: skips the option's check.
 */
const char *config_state_set(struct config_state *state, int count, const struct slice *words, bool is_default);
/* As above for one text, which is split at spaces for an option with several arguments. */
const char *config_state_set_text(struct config_state *state, struct slice text, bool is_default);
void config_state_text(const struct config_state *state, struct output *out);
struct slice config_state_text_copy(const struct config_state *state); /* NUL-terminated; config_text_free() it */
void config_text_free(struct slice text);
bool config_state_is_default(const struct config_state *state);
/* Logs that the option has no effect in this build, if that is so. */
void config_state_log_not_built(struct config_state *state);
/* Writes the lines of a file that set this value; each ends with \n. */
void config_state_lines(const struct config_state *state, const char *name, struct output *out);

enum { CONFIG_FILE_SIZE_MAX = 64 * 1024 * 1024 }; /* a larger file is not read, and not written: -EFBIG */
/* Rewrites the file; `all`: includes options at their default. Returns 0 or -errno. */
int config_rewrite(bool all);
/* Makes the new content of a file whose content is `old` (config_rewrite without the file system, for tests). */
void config_rewrite_content(struct slice old, bool all, struct output *out);
/* Reads lines as config_load does. Returns NULL, or the reason; *line_number and *line (static memory) give the
 * position. */
const char *config_load_text(struct slice text, int *line_number, struct slice *line);
/* Converts command line arguments to lines of the file. */
void config_arguments_to_text(int argc, char **argv, struct output *out);
_Noreturn void config_fatal(const char *reason); /* prints a fatal configuration error without a line, exits */
void config_server_start(void);                  /* config_server.c: makes the loaded values take effect */
