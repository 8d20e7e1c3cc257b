/* glob.h: glob patterns as in KEYS, SCAN MATCH, PSUBSCRIBE and CONFIG GET: * ? [a-z] [^a] \x. Matching is iterative
 * with one backtrack point, O(pattern x text), so a pattern with many stars cannot exhaust the CPU. As in Valkey, a
 * match that needs more than 1000 stars fails. */
#pragma once
#include "lib/text/slice.h"
bool glob_match(struct slice pattern, struct slice text, bool ignore_case);
