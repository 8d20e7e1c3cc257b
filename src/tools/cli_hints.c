/* cli_hints.c: --test_hint and --test_hint_file: the hints of the prompt on the command line. */
#include "tools/cli_docs.h"
#include "tools/cli_modes.h"
#include <stdlib.h>

static void cli_hints_load(struct cli *cli) {
    cli_connect(cli, false, false);
    cli->docs = docs_load(cli);
}

int hint_print(struct cli *cli, const char *line) {
    struct memory_output m = MEMORY_OUTPUT_INIT;
    cli_hints_load(cli);
    docs_hint(cli->docs, slice_of(line), &m.out);
    struct slice hint = memory_output_slice(&m);
    printf("%.*s\n", (int)hint.len, hint.len ? hint.data : "");
    memory_output_free(&m);
    docs_free(cli->docs);
    return 0;
}

static bool hint_is(struct cli *cli, const struct slice *test) {
    struct memory_output m = MEMORY_OUTPUT_INIT;
    bool known = docs_hint(cli->docs, test[0], &m.out);
    struct slice hint = memory_output_slice(&m);
    bool same = slice_equal(hint, test[1]);
    if (!same) {
        printf("Test case '%s' FAILED: expected '%s', got '%.*s'\n", test[0].data, test[1].data,
               known ? (int)hint.len : 6,
               !known     ? "(null)"
               : hint.len ? hint.data
                          : "");
    }
    memory_output_free(&m);
    return same;
}

int hints_check(struct cli *cli, const char *path) {
    FILE *file = fopen(path, "r");
    if (!file) {
        fprintf(stderr, "Can't open file '%s': ", path);
        perror(NULL);
        return -1;
    }
    cli_hints_load(cli);
    char *line = NULL;
    size_t size = 0;
    ssize_t len;
    int count = 0, passed = 0;
    while ((len = getline(&line, &size, file)) >= 0) {
        struct slice *test;
        int words = line[0] == '#' ? 0 : words_split(slice_make(line, (size_t)len), &test);
        if (words == 2) {
            count++;
            passed += hint_is(cli, test);
        }
        if (words > 0 || (words == 0 && line[0] != '#')) words_free(test, words);
    }
    free(line);
    fclose(file);
    docs_free(cli->docs);
    printf("%s: %d/%d passed\n", passed == count ? "SUCCESS" : "FAILURE", passed, count);
    return count - passed;
}
