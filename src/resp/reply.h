/* reply.h: writes RESP2 or RESP3 replies straight into an output (a connection's send memory, a buffer, nothing).
 *
 * A function named after a RESP3 type writes its RESP2 equivalent if the protocol is 2: a map becomes a flat array, a
 * null "$-1", a double a bulk string, and so on. Functions for aggregates write only the head; the caller writes the
 * elements. */
#pragma once
#include "lib/text/output.h"
#include <stdint.h>

struct reply {
    struct output *out;
    uint8_t protocol; /* 2 or 3 */
    /* Failures of the current call for INFO commandstats. Writing an error sets it to at least 1; the caller clears
     * it. */
    uint32_t failed;
    /* Called with the text of each error, without '-' and CRLF, for error statistics. May be NULL. */
    void (*error_hook)(struct reply *reply, struct slice text);
};

void reply_raw(struct reply *r, struct slice bytes); /* raw protocol bytes */
void reply_ok(struct reply *r);
void reply_status(struct reply *r, const char *text);
/* Errors. All return false, for functions that return whether they succeeded: return reply_error(r, "ERR …").
 * The text includes the code. CR and LF in it become spaces. */
void reply_write_error(struct reply *r, const char *text); /* for reply_error() */
static inline bool reply_error(struct reply *r, const char *text) {
    reply_write_error(r, text);
    return false;
}
bool reply_error_line(struct reply *r, struct slice text); /* the same for a text without CR and LF */
bool reply_error_format(struct reply *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
void reply_integer(struct reply *r, int64_t value);
void reply_bulk(struct reply *r, struct slice bytes);
void reply_bulk_text(struct reply *r, const char *text);
void reply_bulk_blob(struct reply *r, struct blob *blob); /* shares the blob instead of copying where that is cheaper */
void reply_bulk_integer(struct reply *r, int64_t value);
void reply_null(struct reply *r);       /* RESP2 $-1 */
void reply_null_array(struct reply *r); /* RESP2 *-1 */
void reply_array(struct reply *r, size_t len);
void reply_map(struct reply *r, size_t pairs);
void reply_set(struct reply *r, size_t len);
void reply_push(struct reply *r, size_t len);
void reply_attribute(struct reply *r, size_t pairs);
void reply_double(struct reply *r, double value);
void reply_boolean(struct reply *r, bool value);                                /* RESP2 :1 / :0 */
void reply_verbatim(struct reply *r, const char *extension, struct slice text); /* RESP2: a bulk string */
void reply_big_number(struct reply *r, struct slice digits);
/* A key of a map with its value. */
static inline void reply_field_integer(struct reply *r, const char *name, int64_t value) {
    reply_bulk_text(r, name);
    reply_integer(r, value);
}
static inline void reply_field_double(struct reply *r, const char *name, double value) {
    reply_bulk_text(r, name);
    reply_double(r, value);
}
static inline void reply_field_bulk(struct reply *r, const char *name, struct slice value) {
    reply_bulk_text(r, name);
    reply_bulk(r, value);
}
static inline void reply_field_text(struct reply *r, const char *name, const char *value) {
    reply_field_bulk(r, name, slice_of(value));
}
/* The standard errors with Valkey's exact texts. */
static inline bool reply_wrong_type(struct reply *r) {
    return reply_error(r, "WRONGTYPE Operation against a key holding the wrong kind of value");
}
static inline bool reply_syntax_error(struct reply *r) {
    return reply_error(r, "ERR syntax error");
}
static inline bool reply_not_integer(struct reply *r) {
    return reply_error(r, "ERR value is not an integer or out of range");
}
static inline bool reply_not_int(struct reply *r) { /* not a 32-bit integer */
    return reply_error(r, "ERR value is out of range, value must between -2147483648 and 2147483647");
}
static inline bool reply_no_such_key(struct reply *r) {
    return reply_error(r, "ERR no such key");
}

/* An aggregate whose length is not known in advance: between begin and end all output goes to memory; end writes the
 * head and then that memory. May be nested. */
enum reply_aggregate { REPLY_ARRAY, REPLY_MAP, REPLY_SET, REPLY_PUSH };
struct reply_deferred {
    struct memory_output memory;
    struct output *outer;
};
void reply_deferred_begin(struct reply *r, struct reply_deferred *deferred);
void reply_deferred_end(struct reply *r, struct reply_deferred *deferred, enum reply_aggregate kind, size_t len);
