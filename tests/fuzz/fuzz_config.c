/* The configuration: for any file, CONFIG REWRITE writes an equivalent file, and every value that CONFIG GET shows can
 * be set again. The table has an option of each type. Input: the file. */
#include "fuzz.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "server/config/config_engine.h"

void config_server_start(void) {} /* this program has no server */

static const struct config_name modes[] = {{"slow", 1}, {"fast", 2}, {NULL, 0}};
static const struct config_name signals[] = {{"default", 0}, {"save", 1}, {"now", 4}, {"force", 8}, {NULL, 0}};
static const struct config_option options[] = {
    {.name = "flag", .type = CONFIG_BOOL, .initial = "yes"},
    {.name = "number", .alias = "old", .type = CONFIG_INT, .initial = "10", .min = 2, .max = 100},
    {.name = "any", .type = CONFIG_INT, .initial = "-1"},
    {.name = "wide", .type = CONFIG_INT64, .initial = "0"},
    {.name = "size", .type = CONFIG_MEMORY, .initial = "1mb"},
    {.name = "share", .type = CONFIG_MEMORY, .flags = CONFIG_PERCENT_OK, .initial = "0"},
    {.name = "octal", .type = CONFIG_OCTAL, .initial = "0", .max = 0777},
    {.name = "mode", .type = CONFIG_ENUM, .initial = "slow", .names = modes},
    {.name = "several", .type = CONFIG_FLAGS, .flags = CONFIG_MULTI_ARG, .initial = "default", .names = signals},
    {.name = "name", .type = CONFIG_STRING, .initial = ""},
    {.name = "words", .type = CONFIG_STRINGS, .flags = CONFIG_MULTI_ARG, .initial = "a b"},
    {.name = NULL}};
enum { OPTIONS = sizeof options / sizeof *options - 1 };

static struct config_state *state_of(int i) {
    return config_name_find(slice_of(options[i].name))->state;
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
    log_level = LOG_LEVEL_NOTHING;
    config_register(options);
    return 0;
}

static void put_defaults(void) {
    for (int i = 0; i < OPTIONS; i++) config_state_set_text(state_of(i), state_of(i)->initial, true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *text = mem_alloc(size ? size : 1);
    struct slice shown[OPTIONS];
    memcpy(text, data, size);
    struct slice file = {text, size}, line;
    int number;
    if (fuzz_may_include(text, size)) size = 0;
    put_defaults();
    if (size && config_load_text(file, &number, &line) == NULL) {
        for (int i = 0; i < OPTIONS; i++) {
            shown[i] = config_state_text_copy(state_of(i));
            if (options[i].type != CONFIG_STRINGS) { /* one text cannot express words that contain spaces */
                const char *reason = config_state_set_text(state_of(i), shown[i], false);
                FUZZ_CHECK(!reason, "%s does not take its own value \"%s\": %s", options[i].name, shown[i].data,
                           reason);
            }
        }
        struct memory_output rewritten;
        memory_output_init(&rewritten);
        config_rewrite_content(file, false, &rewritten.out);
        put_defaults();
        const char *reason = config_load_text(memory_output_slice(&rewritten), &number, &line);
        FUZZ_CHECK(!reason, "the rewritten file is refused: %s, line %d", reason, number);
        for (int i = 0; i < OPTIONS; i++) {
            struct slice again = config_state_text_copy(state_of(i));
            FUZZ_CHECK(slice_equal(again, shown[i]), "%s was \"%s\" and is \"%s\" after a rewrite", options[i].name,
                       shown[i].data, again.data);
            config_text_free(again);
            config_text_free(shown[i]);
        }
        memory_output_free(&rewritten);
    }
    mem_free(text);
    return 0;
}
