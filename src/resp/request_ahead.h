/* request_ahead.h: a glance at the requests of a pipeline before they are executed.
 *
 * Finds the second argument, mostly the key, of the requests that follow in the input, so that what they will need can
 * be fetched from memory while others are executed. It is a hint: the glance stops at anything unusual (an inline
 * request, a length of more than a few digits, a request that has not arrived whole), judges nothing and leaves no
 * trace; the reader of request.h decides. */
#ifndef RESP_REQUEST_AHEAD_H
#define RESP_REQUEST_AHEAD_H
#include "lib/slice.h"

/* Up to `max` requests; *seen: the bytes of input they take. Returns the number of keys, which is less where a request
 * has no second argument. */
size_t requests_ahead(struct slice input, struct slice *keys, size_t max, size_t *seen);
#endif
