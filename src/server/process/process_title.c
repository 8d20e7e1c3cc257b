/* process_title.c: the title that ps shows. The title overwrites the arguments and the environment, which lie together
 * at the top of the stack; the environment is copied to the heap first. */
#include "lib/system/memory.h"
#include "server/clients/listeners.h"
#include "server/process/process_title.h"
#include "server/server.h"
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { TITLE_MAX = 1024 };
static bool set_title;
static char *template;
static char *space;
static size_t space_size;
static char name[128];

void process_keep_arguments(int argc, char **argv) {
    char *end = argv[0];
    space = argv[0];
    for (int i = 0; i < argc; i++)
        if (argv[i] == end) end = argv[i] + strlen(argv[i]) + 1;
    size_t count = 0;
    while (environ && environ[count]) count++;
    char **copy = mem_alloc((count + 1) * sizeof *copy);
    for (size_t i = 0; i < count; i++) {
        if (environ[i] == end) end = environ[i] + strlen(environ[i]) + 1;
        copy[i] = mem_strdup(environ[i]);
    }
    copy[count] = NULL;
    snprintf(name, sizeof name, "%s", argv[0]);
    for (int i = 0; i < argc; i++) argv[i] = mem_strdup(argv[i]);
    environ = copy;
    space_size = (size_t)(end - space);
    listeners_changed = process_title;
}

/* Expands the template. Returns false if it names an unknown variable. */
static bool title_write(const char *program, const char *from, char *title, size_t size) {
    char address[256], tls_port[16];
    snprintf(tls_port, sizeof tls_port, "%d", listeners_tls_port());
    const struct {
        const char *key, *value;
    } values[] = {{"title", program},
                  {"listen-addr", listeners_first_address(address, sizeof address)},
                  {"server-mode", strcmp(server.mode, "cluster") == 0    ? "[cluster]"
                                  : strcmp(server.mode, "sentinel") == 0 ? "[sentinel]"
                                                                         : ""},
                  {"port", NULL},
                  {"tls-port", tls_port},
                  {"unixsocket", listeners_unix_path()},
                  {"config-file", *config_file() ? config_file() : "-"}};
    size_t len = 0;
    while (*from && len + 1 < size) {
        if (*from != '{') {
            title[len++] = *from++;
            continue;
        }
        const char *close = strchr(from, '}');
        if (!close) return false;
        struct slice key = {from + 1, (size_t)(close - from - 1)};
        bool known = false;
        for (size_t i = 0; i < sizeof values / sizeof *values && !known; i++) {
            if (!slice_equal(key, slice_of(values[i].key))) continue;
            known = true;
            int written = values[i].value ? snprintf(title + len, size - len, "%s", values[i].value)
                                          : snprintf(title + len, size - len, "%d", listeners_port());
            len += (size_t)written < size - len ? (size_t)written : size - len - 1;
        }
        if (!known) return false;
        from = close + 1;
    }
    while (len && title[len - 1] == ' ') len--;
    title[len] = 0;
    return true;
}

void process_title(void) {
    char title[TITLE_MAX];
    if (!set_title || !space || !title_write(name, template, title, sizeof title)) return;
    memset(space, 0, space_size);
    snprintf(space, space_size, "%s", title);
    prctl(PR_SET_NAME, "valkey-server", 0, 0, 0);
}

void process_title_child(const char *title) {
    snprintf(name, sizeof name, "%s", title);
    process_title();
}

static const char *check_template(const struct config_option *option, struct slice text) {
    char title[TITLE_MAX];
    /* A title without the program's name must not be empty. config.h guarantees that the text is NUL-terminated. */
    return title_write("", text.data, title, sizeof title) && title[0]
               ? NULL
               : "template format is invalid or contains unknown variables";
}

static const char *apply_template(void) {
    process_title();
    return NULL;
}

const struct config_option process_title_options[] = {
    {OPTION("set-proc-title", CONFIG_BOOL, &set_title, "yes"), .flags = CONFIG_IMMUTABLE},
    {OPTION("proc-title-template", CONFIG_STRING, &template, "{title} {listen-addr} {server-mode}"),
     .check = check_template, .apply = apply_template},
    {.name = NULL},
};
