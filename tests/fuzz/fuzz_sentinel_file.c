/* The file of a Sentinel: any text is accepted, or refused with a reason; and what the Sentinel writes it reads again,
 * with the same result: it never locks itself out of its own file. Input: the file. */
#include "fuzz.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "sentinel/sentinel_file.h"
#include "sentinel/this_sentinel.h"
#include "server/config/config_engine.h"
#include "server/server.h"
#include <stdio.h>
#include <string.h>

struct sentinel *this_sentinel;
struct sentinel_options sentinel_options;
struct server server;
void config_server_start(void) {} /* this program has no server */
void sentinel_set_text(char **text, struct slice value) {
    mem_free(*text);
    *text = mem_strndup(value.data, value.len);
}

static uint64_t fixed(void *context) {
    return 3;
}
/* Names that begin with a letter resolve, too: to one address. */
static bool resolve(void *context, const char *host, bool names, char ip[static SENTINEL_IP_MAX]) {
    bool address = *host && strspn(host, "0123456789.:") == strlen(host);
    if (!address && (!names || !*host)) return false;
    snprintf(ip, SENTINEL_IP_MAX, "%.45s", address ? host : "10.0.0.9");
    return true;
}
static void no_half(void *context, struct sentinel_link *link, enum link_kind kind) {}
static void save(void *context, bool durable) {}
static void write_log(void *context, enum log_level level, const char *text) {}
static void event(void *context, enum log_level level, const char *type, const char *text,
                  const struct instance *group) {}
static const struct sentinel_effects effects = {.random = fixed,
                                                .resolve = resolve,
                                                .dial = no_half,
                                                .close = no_half,
                                                .save = save,
                                                .log = write_log,
                                                .event = event};

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    log_level = LOG_LEVEL_NOTHING;
    config_register_directives(sentinel_directives);
    return 0;
}

/* Reads a file; writes it again, and the state alone, as into an empty file. */
static const char *load(struct slice file, struct memory_output *rewritten, struct memory_output *state) {
    int number;
    struct slice line;
    char *text = NULL;
    sentinel_options = (struct sentinel_options){.announce_ip = mem_strdup(""),
                                                 .user = mem_strdup(""),
                                                 .password = mem_strdup(""),
                                                 .deny_scripts_reconfig = true};
    this_sentinel = sentinel_new("", &effects, NULL, 1000000);
    const char *reason = config_load_text(file, &number, &line), *invalid = sentinel_file_read(&number, &text);
    if (!reason) reason = invalid;
    if (text) FUZZ_CHECK(invalid && number > 0, "line %d without a reason", number);
    mem_free(text);
    if (!*this_sentinel->id) memset(this_sentinel->id, '1', SENTINEL_ID_LEN);
    if (!reason) {
        config_rewrite_content(file, false, &rewritten->out);
        config_rewrite_content(slice_make("", 0), false, &state->out);
    }
    sentinel_free(this_sentinel);
    this_sentinel = NULL;
    mem_free(sentinel_options.announce_ip);
    mem_free(sentinel_options.user);
    mem_free(sentinel_options.password);
    return reason;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct memory_output first, second, state, state_again;
    struct slice file = slice_make(data, size);
    memory_output_init(&first);
    memory_output_init(&second);
    memory_output_init(&state);
    memory_output_init(&state_again);
    if (size && !fuzz_may_include((const char *)data, size) && !load(file, &first, &state)) {
        struct slice written = memory_output_slice(&first);
        const char *reason = load(written, &second, &state_again);
        FUZZ_CHECK(!reason, "its own file is refused: %s\n%.*s", reason, (int)written.len, written.data);
        struct slice before = memory_output_slice(&state), after = memory_output_slice(&state_again);
        FUZZ_CHECK(slice_equal(before, after), "the state differs:\n%.*s---\n%.*s", (int)before.len, before.data,
                   (int)after.len, after.data);
    }
    memory_output_free(&first);
    memory_output_free(&second);
    memory_output_free(&state);
    memory_output_free(&state_again);
    return 0;
}
