/* number.h: conversion between numbers and text, exactly as Valkey reads and writes them, without printf. */
#pragma once
#include "lib/text/slice.h"
#include <stdint.h>

enum { NUMBER_TEXT_MAX = 32, DOUBLE_TEXT_MAX = 5 * 1024 };

/* Accepts canonical decimal only: no spaces, no leading zeros or '+', in range. False otherwise. */
bool parse_int64(struct slice text, int64_t *value);
bool parse_uint64(struct slice text, uint64_t *value);
/* Up to the zero byte; what strtoull() accepts, too, but for negative numbers that an int64_t holds: as in IDs of
 * streams. */
bool parse_uint64_loosely(const char *text, uint64_t *value);
size_t format_int64(char *text, int64_t value); /* at most 20 bytes, no NUL; returns the length */
size_t format_uint64(char *text, uint64_t value);

/* Parses a floating point number as commands accept it: the whole slice must be decimal strtod syntax without leading
 * space; "inf" is valid, "nan" is not. False if the number is invalid, or too large or too small for a double. */
bool parse_double(struct slice text, double *value);
bool parse_long_double(struct slice text, long double *value); /* also accepts hexadecimal */
bool number_is_hexadecimal(struct slice text);                 /* as strtod would read it */
/* The shortest text that reads back as the same double (RESP3 doubles, ZSCORE, …): "1", "0.1", "1e+20", "inf", "-inf",
 * "nan". */
size_t format_double(char text[static 40], double value);
/* The same without the special case for integers: format_double() writes 1e10 with all digits, this function writes
 * "1e+10". */
size_t format_double_digits(char text[static 40], double value);
/* Fixed notation with `decimals` digits after the point, 1 to FIXED_DECIMALS_MAX. The value must be finite. */
enum { FIXED_DECIMALS_MAX = 17 };
size_t format_fixed(char text[static DOUBLE_TEXT_MAX], long double value, unsigned decimals);
/* The format of INCRBYFLOAT: fixed notation, 17 digits after the point, trailing zeros removed. */
size_t format_long_double(char text[static DOUBLE_TEXT_MAX], long double value);

/* "100", "1k" = 1000, "1kb" = 1024, "mb", "gb"; case does not matter. No digits mean 0. False if the result exceeds 64
 * bits. */
bool parse_memory(struct slice text, uint64_t *bytes);
/* The inverse, with the largest of "kb", "mb" and "gb" that leaves no rest; as format_uint64(). */
size_t format_memory(char *text, uint64_t bytes);
/* 1.50K, 23.00M …, as in the _human fields of INFO. */
size_t format_bytes_human(char text[static 32], uint64_t bytes);
/* The value of a hexadecimal digit of either case; -1: it is none. */
static inline int hex_digit(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}
