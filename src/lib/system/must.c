/* must.c: see must.h. */
#include "lib/system/must.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { TEXT_MAX = 1024 };

static void must_print(const char *text) {
    fprintf(stderr, "%s\n", text);
    fflush(stderr);
}
static void (*must_handler)(const char *text) = must_print;

void must_set_handler(void (*handler)(const char *text)) {
    must_handler = handler ? handler : must_print;
}

void must_fail(const char *file, int line, const char *function, const char *condition, const char *format, ...) {
    char text[TEXT_MAX], values[TEXT_MAX / 2] = "";
    if (format) {
        va_list args;
        va_start(args, format);
        vsnprintf(values, sizeof values, format, args);
        va_end(args);
    }
    snprintf(text, sizeof text, "==> %s:%d %s(): '%s' is not true%s%s", file, line, function, condition,
             format ? ": " : "", values);
    must_handler(text);
    abort();
}
