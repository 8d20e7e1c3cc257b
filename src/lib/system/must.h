/* must.h: conditions that this program itself guarantees.
 *
 *     must(list->len > 0);
 *     must_equal(moved, count);             as must(moved == count), but the report has both numbers
 *     must_less(index, count);              index < count
 *     must_within(at, size);                at <= size
 *     must_hold(at <= size, "at %zu of %zu", at, size);
 *
 * A condition that does not hold is a defect of this program: the process ends before a wrong answer leaves it. The
 * handler gets the place, the condition and the values; then abort() raises SIGABRT, for which the server writes the
 * report of a crash. The checks are part of every build.
 *
 * Input of clients, peers, files and the configuration is checked with errors, never with must(): nobody outside may be
 * able to end the process. The condition has no side effects; what other threads change is read into a variable first.
 * Where a profile shows that a check costs time for each request, use must_in_tests(), which only builds with
 * sanitizers or with MUST_IN_TESTS evaluate. Any thread may call it. */
#pragma once

#define must(condition)                                                                                                \
    (__builtin_expect(!(condition), 0) ? must_fail(__FILE__, __LINE__, __func__, #condition, (const char *)0) : (void)0)
#define must_hold(condition, ...)                                                                                      \
    (__builtin_expect(!(condition), 0) ? must_fail(__FILE__, __LINE__, __func__, #condition, __VA_ARGS__) : (void)0)
/* Integers of the same signedness. A number above INT64_MAX is shown as a negative one. */
#define must_numbers(a, relation, b)                                                                                   \
    (__builtin_expect(!((a)relation(b)), 0) ? must_fail(__FILE__, __LINE__, __func__, #a " " #relation " " #b,         \
                                                        "%lld and %lld", (long long)(a), (long long)(b))               \
                                            : (void)0)
#define must_equal(a, b)  must_numbers(a, ==, b)
#define must_less(a, b)   must_numbers(a, <, b)
#define must_within(a, b) must_numbers(a, <=, b)
#if defined(MUST_IN_TESTS) || defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define must_in_tests(condition) must(condition)
#else
#define must_in_tests(condition) ((void)sizeof(condition))
#endif

/* `format` NULL: there are no values. */
_Noreturn void must_fail(const char *file, int line, const char *function, const char *condition, const char *format,
                         ...) __attribute__((format(printf, 5, 6), cold));
/* Receives one line without a newline. At first it is written to standard error. */
void must_set_handler(void (*handler)(const char *text));
