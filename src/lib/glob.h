/* glob.h: the patterns of KEYS, SCAN MATCH, PSUBSCRIBE, CONFIG GET: * ? [a-z] [^a] \x. Time is bounded: a pattern of
 * many stars cannot be used to burn the server's CPU (iterative matching with one backtrack point, O(pattern x text)).
 */
#ifndef LIB_GLOB_H
#define LIB_GLOB_H
#include "lib/slice.h"
bool glob_match(struct slice pattern, struct slice text, bool ignore_case);
#endif
