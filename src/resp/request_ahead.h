/* request_ahead.h: finds the keys of pipelined requests before they are executed.
 *
 * It returns the second argument, usually the key, of the following requests in the input, so that the server can
 * prefetch the memory that these requests need while it executes others. The result is a hint: the scan stops at
 * anything unusual (an inline request, a length of more than a few digits, an incomplete request), reports no errors
 * and changes no state; the reader of request.h validates the requests. */
#pragma once
#include "lib/text/slice.h"

/* Reads up to `max` requests; sets *scanned to the bytes of input they take. Returns the number of keys, which is lower
 * when a request has no second argument. */
size_t requests_ahead(struct slice input, struct slice *keys, size_t max, size_t *scanned);
/* Finds the arguments of the first request, and sets *size to its bytes. Returns their number; 0: there is no complete
 * request, it has more than `max` arguments, or it is unusual. The reader may still refuse it, but finds the same
 * arguments if it does not. */
int request_ahead(struct slice input, struct slice *argv, int max, size_t *size);
