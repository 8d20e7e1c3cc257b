/* process_check.h: one check of --check-system, and what it found. Internal to process_check*.c. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

enum check_result { CHECK_FAILED = -1, CHECK_SKIPPED, CHECK_OK };
struct process_check {
    const char *root; /* the directory that has proc, sys and dev: "", or that of a recorded machine */
    char text[4096];  /* the finding; a failed check names the command that mends it */
};
struct check_entry {
    const char *name;
    enum check_result (*run)(struct process_check *check);
};
extern const struct check_entry process_checks_rdma[]; /* ends with a NULL name */

/* Appends to the text. Text that does not fit is cut off. */
void check_say(struct process_check *check, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Reads the first line of a file below the root, without its newline. */
bool check_line(const struct process_check *check, char *line, size_t size, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
