/* spec.h: shorthands for tables of command specs. */
#ifndef COMMANDS_SPEC_H
#define COMMANDS_SPEC_H
#include "server/command/command.h"

/* One key spec: keys from argv[first] to argv[first + last] (last < 0: from the end), every `step`. */
#define KEY_RANGE(first, last, step, ...)                                                                              \
    {                                                                                                                  \
        .flags = (__VA_ARGS__), .begin = BEGIN_INDEX, .index = (first), .find = FIND_RANGE, .a = (last), .b = (step),  \
        .c = 0                                                                                                         \
    }
/* One key spec: argv[index] counts the keys that follow it. */
#define KEY_COUNTED(at, ...)                                                                                           \
    { .flags = (__VA_ARGS__), .begin = BEGIN_INDEX, .index = (at), .find = FIND_KEYNUM, .a = 0, .b = 1, .c = 1 }
#define FIRST_KEY(...)                                                                                                 \
    { KEY_RANGE(1, 0, 1, __VA_ARGS__) }
#define ALL_KEYS(...)                                                                                                  \
    { KEY_RANGE(1, -1, 1, __VA_ARGS__) }
/* History and tips: strings that end with NULL. */
#define WORDS(...)                                                                                                     \
    (const char *const[]) {                                                                                            \
        __VA_ARGS__, NULL                                                                                              \
    }
#endif
