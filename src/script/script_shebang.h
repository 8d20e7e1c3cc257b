/* script_shebang.h: the line "#!lua name=library flags=no-writes,allow-oom" at the beginning of a script or library. */
#pragma once
#include "lib/text/slice.h"
#include <stdbool.h>
#include <stdint.h>

struct script_engine;
struct script_shebang {
    struct script_engine *engine;
    struct slice name; /* of a library; valid until the next call; data NULL: not given */
    uint32_t flags;    /* of a script */
    struct slice code; /* starts at the newline, so that line numbers stay correct */
};
static inline bool script_has_shebang(struct slice text) {
    return text.len >= 2 && text.data[0] == '#' && text.data[1] == '!';
}
/* Read the line of a script or of a library. Return NULL, or the error, which is valid until the next call. */
const char *script_shebang_read(struct slice text, struct script_shebang *shebang);
const char *library_shebang_read(struct slice text, struct script_shebang *shebang);
bool script_name_ok(struct slice name); /* of a library or a function: letters, digits and underscores */
