/* strings.h: ValkeyModuleString: a counted byte string that modules hold references to. */
#pragma once
#include "module/api.h"

/* The bytes are followed by a NUL. A string with one reference may be changed in place; the bytes then move. */
struct ValkeyModuleString {
    char *data;
    size_t len, capacity; /* without the NUL */
    unsigned references;  /* atomic: threads of modules release strings without the lock */
    char own[];           /* the first bytes; data points elsewhere after the string has grown */
};
struct ValkeyModuleString *module_string_new(struct slice bytes); /* one reference */
void module_string_release(struct ValkeyModuleString *string);
static inline struct ValkeyModuleString *module_string_hold(struct ValkeyModuleString *string) {
    __atomic_add_fetch(&string->references, 1, __ATOMIC_RELAXED);
    return string;
}
static inline struct slice module_string_slice(const struct ValkeyModuleString *string) {
    return (struct slice){string->data, string->len};
}
/* The arguments of a call, as an array for mem_free(). */
struct ValkeyModuleString **module_strings_of(int argc, const struct slice *argv);
struct ValkeyModuleString **module_strings_try_of(int argc, const struct slice *argv); /* NULL: out of memory */
void module_strings_free(int argc, struct ValkeyModuleString **argv);
