/* number.h: numbers to text and back, exactly as Valkey reads and writes them, without printf. */
#ifndef LIB_NUMBER_H
#define LIB_NUMBER_H
#include "lib/slice.h"
#include <stdint.h>

enum { NUMBER_TEXT_MAX = 32, DOUBLE_TEXT_MAX = 5 * 1024 };

/* Canonical decimal only: no spaces, no leading zeros or '+', within range. False otherwise. */
bool parse_int64(struct slice text, int64_t *value);
bool parse_uint64(struct slice text, uint64_t *value);
size_t format_int64(char *text, int64_t value); /* at most 20 bytes, no NUL; returns the length */
size_t format_uint64(char *text, uint64_t value);

/* What commands accept as a floating point number: decimal strtod syntax, the whole slice, no leading space; inf yes,
 * nan no. False, too, where the number is too large or too small for a double. */
bool parse_double(struct slice text, double *value);
bool parse_long_double(struct slice text, long double *value); /* hexadecimal, too */
bool number_is_hexadecimal(struct slice text);                 /* as strtod would read it */
/* Shortest text that reads back to the same double (RESP3 doubles, ZSCORE, …): "1", "0.1", "1e+20", "inf", "-inf",
 * "nan". */
size_t format_double(char text[static 40], double value);
/* The same without an exception for integers, of which format_double() shows all digits: "1e+20" as there, but "1e+10"
 * too. */
size_t format_double_digits(char text[static 40], double value);
/* With so many digits after the point, 1 to FIXED_DECIMALS_MAX; not of infinities and what is no number. */
enum { FIXED_DECIMALS_MAX = 17 };
size_t format_fixed(char text[static DOUBLE_TEXT_MAX], long double value, unsigned decimals);
/* As INCRBYFLOAT shows numbers: fixed notation, 17 digits after the point, trailing zeros removed. */
size_t format_long_double(char text[static DOUBLE_TEXT_MAX], long double value);

/* "100", "1k" = 1000, "1kb" = 1024, "mb", "gb", case does not matter. */
bool parse_memory(struct slice text, uint64_t *bytes);
/* 1.50K, 23.00M … as INFO's _human fields. */
size_t format_bytes_human(char text[static 32], uint64_t bytes);
#endif
