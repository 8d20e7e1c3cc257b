/* glob.h: glob patterns as in KEYS, SCAN MATCH, PSUBSCRIBE and CONFIG GET: * ? [a-z] [^a] \x. Matching is iterative
 * with one backtrack point, O(pattern x text), so a pattern with many stars cannot exhaust the CPU. */
#ifndef LIB_GLOB_H
#define LIB_GLOB_H
#include "lib/slice.h"
bool glob_match(struct slice pattern, struct slice text, bool ignore_case);
#endif
