/* nodes.conf: any text is read or rejected with a reason; an accepted file is written and read again to the same
 * result. Input: a byte of options, the text. */
#include "fuzz.h"
#include "cluster/protocol/nodes_file.h"
#include "lib/system/memory.h"

static void ignore(void *context, const char *text) {
    FUZZ_CHECK(text[0], "an empty note");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct nodes_file file, again;
    struct nodes_file_error error;
    struct memory_output first, second;
    if (size < 1) return 0;
    char *text = mem_alloc(size); /* of the exact size, so that reads past the end are detected */
    memcpy(text, data + 1, size - 1);
    memory_output_init(&first);
    memory_output_init(&second);
    if (nodes_file_parse((struct slice){text, size - 1}, data[0] & 1, ignore, NULL, &file, &error)) {
        nodes_file_print(&first.out, &file);
        FUZZ_CHECK(size == 1 ||
                       nodes_file_parse(memory_output_slice(&first), data[0] & 2, ignore, NULL, &again, &error),
                   "%s", error.reason);
        if (size > 1) {
            nodes_file_print(&second.out, &again);
            FUZZ_CHECK(slice_equal(memory_output_slice(&first), memory_output_slice(&second)), "other text");
            nodes_file_free(&again);
        }
        nodes_file_free(&file);
    } else {
        FUZZ_CHECK(error.reason[0], "no reason");
        nodes_file_print_error(&first.out, &error);
    }
    memory_output_free(&first);
    memory_output_free(&second);
    mem_free(text);
    return 0;
}
