/* benchmark_request.c: prepared batches.
 *
 * A sequence of commands is one request: it is sent as a whole, and its commands share their random numbers.
 *
 * All requests of a test are equal except for numbers of twelve digits and, in a cluster, tags of three letters. So a
 * whole batch is formatted once, and before each send only digits and tags are overwritten. */
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include "resp/request.h"
#include "tools/benchmark.h"
#include <stdio.h>
#include <stdlib.h>

static const char *const placeholders[PATCH_KINDS] = {"__rand_int__", "__rand_1st__", "__rand_2nd__", "__rand_3rd__",
                                                      "__rand_4th__", "__rand_5th__", "__rand_6th__", "__rand_7th__",
                                                      "__rand_8th__", "__rand_9th__"};
enum { DIGITS = 12, KEY_DIGITS = 10, ADDRESS_DIGITS = 20, TAG_LETTERS = 5 };

static size_t patch_length(int kind) {
    return kind == PATCH_TAG       ? TAG_LETTERS
           : kind == PATCH_KEY     ? KEY_DIGITS
           : kind == PATCH_ADDRESS ? ADDRESS_DIGITS
                                   : DIGITS;
}

static void patch_add(struct bench_request *r, size_t offset, int kind) {
    if ((r->patches_count & (r->patches_count - 1)) == 0) {
        size_t capacity = r->patches_count ? (size_t)r->patches_count * 2 : 1;
        r->patches = mem_realloc(r->patches, capacity * sizeof *r->patches);
    }
    r->patches[r->patches_count++] = (struct bench_patch){offset, kind};
}

static void patches_find(struct bench_request *r, const char *text, int kind) {
    const char *at = r->bytes, *end = r->bytes + r->size;
    size_t len = strlen(text);
    while ((at = memmem(at, (size_t)(end - at), text, len))) {
        patch_add(r, (size_t)(at - r->bytes), kind);
        at += len;
    }
}

void request_build_raw(struct bench_request *r, const struct bench_options *o, struct slice bytes) {
    memset(r, 0, sizeof *r);
    r->size = bytes.len;
    r->commands = 1;
    r->count = (int)o->pipeline;
    r->bytes = mem_alloc(bytes.len * (size_t)r->count);
    for (int i = 0; i < r->count; i++) memcpy(r->bytes + (size_t)i * bytes.len, bytes.data, bytes.len);
    if (o->random_keys) {
        for (int kind = 0; kind < PATCH_KINDS; kind++) patches_find(r, placeholders[kind], kind);
    }
    if (o->cluster) patches_find(r, "{tag}", PATCH_TAG);
    if (o->placement) {
        patches_find(r, "__rkey____", PATCH_KEY);
        patches_find(r, "__address___________", PATCH_ADDRESS);
    }
}

/* Replaces every `from` in an argument. The result is new memory that the caller frees. */
static struct slice replace(struct slice text, const char *from, struct slice to) {
    struct memory_output out = MEMORY_OUTPUT_INIT;
    size_t from_len = strlen(from);
    const char *at = text.data, *end = text.data + text.len, *found;
    while ((found = memmem(at, (size_t)(end - at), from, from_len))) {
        output_write(&out.out, slice_make(at, (size_t)(found - at)));
        output_write(&out.out, to);
        at = found + from_len;
    }
    output_write(&out.out, slice_make(at, (size_t)(end - at)));
    struct slice result = memory_output_slice(&out);
    result.data = result.len ? mem_strndup(result.data, result.len) : mem_strdup("");
    memory_output_free(&out);
    return result;
}

/* Letters that do not compress well, the same in every run. */
static char *data_make(size_t len) {
    char *data = mem_alloc(len + 1);
    uint32_t state = 1234;
    for (size_t i = 0; i < len; i++) {
        state = state * 1103515245 + 12345;
        data[i] = (char)('0' + (state >> 16) % 63);
    }
    return data;
}

/* Writes one command `times` times, with __data__ replaced by values. */
static void command_write(struct output *out, int argc, const struct slice *argv, int64_t times, struct slice data) {
    struct slice *ready = mem_alloc((size_t)argc * sizeof *ready);
    for (int i = 0; i < argc; i++) ready[i] = replace(argv[i], "__data__", data);
    for (int64_t i = 0; i < times; i++) request_write(out, argc, ready);
    for (int i = 0; i < argc; i++) mem_free((char *)ready[i].data);
    mem_free(ready);
}

void request_build(struct bench_request *r, const struct bench_options *o, int argc, const struct slice *argv) {
    enum { COMMANDS_MAX = 1000000 };
    char *data = data_make((size_t)o->data_size);
    struct memory_output out = MEMORY_OUTPUT_INIT;
    int64_t commands = 0, times, number;
    for (int i = 0, end; i <= argc; i = end + 1) {
        for (times = 1; i < argc && parse_int64(argv[i], &number) && number > 0; i++)
            times = number <= COMMANDS_MAX / times ? times * number : COMMANDS_MAX + 1;
        for (end = i; end < argc && !slice_equal(argv[end], SLICE(";"));) end++;
        commands += times;
        if (end == i || commands > COMMANDS_MAX) {
            fprintf(stderr, end == i ? "A command of the sequence is empty\n" : "The sequence has too many commands\n");
            exit(1);
        }
        command_write(&out.out, end - i, argv + i, times, slice_make(data, (size_t)o->data_size));
    }
    request_build_raw(r, o, memory_output_slice(&out));
    r->commands = (int)commands;
    memory_output_free(&out);
    mem_free(data);
}

void request_free(struct bench_request *r) {
    mem_free(r->bytes);
    mem_free(r->patches);
    memset(r, 0, sizeof *r);
}

enum { PART_LONG = 1024 };

/* Start of the first patch at or after `from`; *end: its end. */
static size_t next_patch(const struct bench_request *r, size_t from, size_t *end) {
    size_t first = *end = r->size;
    for (int i = 0; i < r->patches_count; i++) {
        const struct bench_patch *patch = &r->patches[i];
        if (patch->offset < from || patch->offset >= first) continue;
        first = patch->offset;
        *end = first + patch_length(patch->kind);
    }
    return first;
}

int request_parts(const struct bench_request *r, struct bench_part **parts) {
    int count = 0;
    size_t start = 0; /* start of the bytes to copy */
    *parts = mem_alloc((2 * ((size_t)r->patches_count + 1) + 1) * sizeof **parts);
    for (size_t at = 0, end; at < r->size; at = end) {
        size_t patch = next_patch(r, at, &end);
        if (patch - at < PART_LONG) continue;
        if (at > start) (*parts)[count++] = (struct bench_part){start, at - start, NULL};
        (*parts)[count++] = (struct bench_part){at, patch - at, blob_copy(slice_make(r->bytes + at, patch - at))};
        start = patch;
    }
    if (count && start < r->size) (*parts)[count++] = (struct bench_part){start, r->size - start, NULL};
    return count;
}

void request_parts_free(struct bench_part *parts, int count) {
    for (int i = 0; i < count; i++)
        if (parts[i].blob) blob_release(parts[i].blob);
    mem_free(parts);
}

/* Twelve digits, in two halves of 32 bits, two digits at a time. */
static inline void six_digits_write(char *at, uint32_t value) {
    for (int i = 4; i >= 0; i -= 2, value /= 100) {
        uint32_t pair = value % 100;
        at[i] = (char)('0' + pair / 10);
        at[i + 1] = (char)('0' + pair % 10);
    }
}
static void number_write(char *at, size_t digits, uint64_t value) {
    for (; digits > 0; value /= 10) at[--digits] = (char)('0' + value % 10);
}

static _Alignas(64) _Atomic uint64_t counters[PATCH_KINDS]; /* for --sequential */

void request_patch(const struct bench_request *r, const struct bench_options *o, char *bytes, int count,
                   const char *tag, const struct bench_memory *memory) {
    if (r->patches_count == 0) return;
    uint64_t keyspace = o->keyspace > 0 ? (uint64_t)o->keyspace : 1;
    for (int i = 0; i < count; i++, bytes += r->size) {
        uint64_t shared[PATCH_KINDS];
        uint32_t drawn = 0;
        for (int k = 0; k < r->patches_count; k++) {
            const struct bench_patch *patch = &r->patches[k];
            if (patch->kind == PATCH_TAG) {
                memcpy(bytes + patch->offset, (char[TAG_LETTERS]){'{', tag[0], tag[1], tag[2], '}'}, TAG_LETTERS);
                continue;
            }
            if (patch->kind == PATCH_KEY || patch->kind == PATCH_ADDRESS) {
                uint64_t address = memory->address + (uint64_t)i * (uint64_t)o->data_size;
                number_write(bytes + patch->offset, patch_length(patch->kind),
                             patch->kind == PATCH_KEY ? memory->rkey : address);
                continue;
            }
            if (patch->kind == PATCH_RANDOM || !(drawn >> patch->kind & 1)) {
                shared[patch->kind] =
                    o->sequential
                        ? atomic_fetch_add_explicit(&counters[patch->kind], 1, memory_order_relaxed) % keyspace
                        : random_below(keyspace);
                drawn |= 1u << patch->kind;
            }
            six_digits_write(bytes + patch->offset, (uint32_t)(shared[patch->kind] / 1000000));
            six_digits_write(bytes + patch->offset + DIGITS / 2, (uint32_t)(shared[patch->kind] % 1000000));
        }
    }
}
