/* script_shebang.h: the line "#!lua name=library flags=no-writes,allow-oom" at the beginning of a script or library. */
#ifndef SCRIPT_SHEBANG_H
#define SCRIPT_SHEBANG_H
#include "lib/slice.h"
#include <stdbool.h>
#include <stdint.h>

struct script_shebang {
    struct slice name; /* of a library; data NULL: not given */
    uint32_t flags;    /* of a script */
    struct slice code; /* from the end of the line on, so that line numbers stay right */
};
static inline bool script_has_shebang(struct slice text) {
    return text.len >= 2 && text.data[0] == '#' && text.data[1] == '!';
}
/* Reads the line of a script, or of a library. Returns NULL, or the error, valid until the next call. */
const char *script_shebang_read(struct slice text, struct script_shebang *shebang);
const char *library_shebang_read(struct slice text, struct script_shebang *shebang);
#endif
