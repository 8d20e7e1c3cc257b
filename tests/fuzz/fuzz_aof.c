/* Append-only files with any bytes: the records are the same in the window and across its ends; the valid part is valid
 * alone. Manifests with any bytes: an accepted manifest is the same after writing and reading it. */
#include "formats/aof_manifest.h"
#include "formats/aof_reader.h"
#include "fuzz.h"
#include "lib/system/memory.h"
#include "lib/text/output.h"
#include "trickle.h"

struct outcome {
    enum aof_record last;
    uint64_t good, records, bytes;
};

static struct outcome read_all(struct slice file, bool connection) {
    struct outcome outcome = {0};
    struct source source;
    struct aof_reader reader;
    struct slice rest = file;
    size_t before = mem_used();
    if (connection)
        source_init(&source, &trickle_ops, &rest, UINT64_MAX);
    else
        source_init_memory(&source, file);
    aof_reader_init(&reader, &source);
    while ((outcome.last = aof_reader_next(&reader)) == AOF_COMMAND || outcome.last == AOF_ANNOTATION) {
        outcome.records++;
        FUZZ_CHECK(source_offset(&source) > reader.record_offset, "no step forward");
        for (int i = 0; outcome.last == AOF_COMMAND && i < reader.argc; i++)
            for (size_t b = 0; b < reader.argv[i].len; b++) outcome.bytes += (uint8_t)reader.argv[i].data[b] + b;
    }
    outcome.good = reader.good_offset;
    FUZZ_CHECK(outcome.good <= file.len, "good behind the end");
    FUZZ_CHECK(outcome.last != AOF_END || outcome.good == file.len, "a good file is not good to its end");
    FUZZ_CHECK(mem_used() - before < 8 * 1024 * 1024 + 64 * file.len, "%zu bytes", mem_used() - before);
    aof_reader_free(&reader);
    source_free(&source);
    return outcome;
}

static void try_manifest(struct slice text) {
    const char *error;
    int line;
    struct slice at;
    struct aof_manifest *manifest = aof_manifest_parse(text, &error, &line, &at);
    FUZZ_CHECK((manifest == NULL) == (error != NULL), "a failure without a reason");
    if (!manifest) return;
    struct memory_output once, twice;
    memory_output_init(&once);
    memory_output_init(&twice);
    aof_manifest_format(manifest, &once.out);
    if (memory_output_slice(&once).len) {
        struct aof_manifest *again = aof_manifest_parse(memory_output_slice(&once), &error, &line, &at);
        /* A name whose bytes are written as escapes may be too long for a line. */
        FUZZ_CHECK(again || strstr(error, "too long"), "what was written is refused: %s", error);
        if (again) aof_manifest_format(again, &twice.out);
        FUZZ_CHECK(!again || slice_equal(memory_output_slice(&once), memory_output_slice(&twice)), "another manifest");
        aof_manifest_free(again);
    }
    memory_output_free(&once);
    memory_output_free(&twice);
    aof_manifest_free(manifest);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    char *exact = mem_alloc(size ? size : 1);
    if (size) memcpy(exact, data, size);
    struct slice file = {exact, size};
    if (size >= 5 && memcmp(exact, "file ", 5) == 0) {
        try_manifest(file);
    } else {
        struct outcome whole = read_all(file, false), pieces = read_all(file, true);
        FUZZ_CHECK(whole.last == pieces.last && whole.good == pieces.good && whole.records == pieces.records &&
                       whole.bytes == pieces.bytes,
                   "%d and %d, good up to %llu and %llu", whole.last, pieces.last, (unsigned long long)whole.good,
                   (unsigned long long)pieces.good);
        FUZZ_CHECK(read_all((struct slice){exact, (size_t)whole.good}, false).last == AOF_END,
                   "what is good is not good by itself");
    }
    mem_free(exact);
    return 0;
}
