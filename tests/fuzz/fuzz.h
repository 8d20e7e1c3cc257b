/* fuzz.h: shared by the fuzz targets. A target is one file with LLVMFuzzerTestOneInput, which converts the fuzzer's
 * bytes to a situation and aborts the program if a guarantee of the code is violated. It must not depend on time or
 * randomness: an input that failed once must fail again. */
#pragma once
#include "lib/text/slice.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerInitialize(int *argc, char ***argv);

#define FUZZ_CHECK(promise, ...)                                                                                       \
    do {                                                                                                               \
        if (!(promise)) {                                                                                              \
            fprintf(stderr, "%s:%d: %s: ", __FILE__, __LINE__, #promise);                                              \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fputc('\n', stderr);                                                                                       \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* The clock of targets that link fake_clock.o in place of lib/clock.o. */
extern uint64_t fuzz_now_us;

/* The input, read from its start. After its end all values are zero. */
struct fuzz_input {
    const uint8_t *at, *end;
};
static inline uint8_t fuzz_byte(struct fuzz_input *in) {
    return in->at < in->end ? *in->at++ : 0;
}
static inline uint32_t fuzz_u32(struct fuzz_input *in) {
    uint32_t value = 0;
    for (int i = 0; i < 4; i++) value = value << 8 | fuzz_byte(in);
    return value;
}
static inline struct slice fuzz_take(struct fuzz_input *in, size_t len) {
    if (len > (size_t)(in->end - in->at)) len = (size_t)(in->end - in->at);
    struct slice taken = {(const char *)in->at, len};
    in->at += len;
    return taken;
}

/* The division of a stream into pieces: sizes from the input, used cyclically; 0 means one large piece. */
struct fuzz_cuts {
    struct slice sizes;
    size_t next;
};
static inline struct fuzz_cuts fuzz_take_cuts(struct fuzz_input *in) {
    uint8_t count = fuzz_byte(in);
    return (struct fuzz_cuts){fuzz_take(in, count & 15), 0};
}
static inline size_t fuzz_piece(struct fuzz_cuts *cuts) {
    if (!cuts->sizes.len) return SIZE_MAX;
    uint8_t size = (uint8_t)cuts->sizes.data[cuts->next++ % cuts->sizes.len];
    return size == 0 ? 40000 : size;
}

static inline int fuzz_hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : (c | 32) >= 'a' && (c | 32) <= 'f' ? (c | 32) - 'a' + 10 : -1;
}

/* Files of the machine are not included: this program would read them, or exit where there are none. Whether the text
 * contains the word, quoted or escaped in any way. */
static inline bool fuzz_may_include(const char *text, size_t size) {
    char *plain = malloc(size + 1);
    if (!plain) abort();
    size_t len = 0;
    bool found = false;
    for (size_t i = 0; i < size; i++) {
        if (strchr("\"'\\", text[i])) {
            bool escaped = text[i] == '\\' && i + 3 < size && text[i + 1] == 'x' && fuzz_hex_digit(text[i + 2]) >= 0 &&
                           fuzz_hex_digit(text[i + 3]) >= 0;
            if (!escaped) continue; /* also for NUL, which strchr() finds */
            plain[len++] = (char)(fuzz_hex_digit(text[i + 2]) << 4 | fuzz_hex_digit(text[i + 3]));
            i += 3;
        } else {
            plain[len++] = text[i];
        }
    }
    for (size_t i = 0; i + 7 <= len; i++) found |= strncasecmp(plain + i, "include", 7) == 0;
    free(plain);
    return found;
}
