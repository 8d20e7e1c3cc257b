/* reply_reader.h: client-side readers of RESP2 and RESP3 replies of any nesting.
 *
 * There are two readers. Both process bytes as they arrive, return the number of bytes consumed, and continue from
 * there: the input need not contain a whole reply, and the cost is linear for any fragmentation of the stream.
 *
 *   reply_counter  skips over replies without building anything, for the benchmark, which only counts replies
 *   reply_reader   builds a tree of each reply, for the command line tool and other code that uses the content
 *
 * The readers do not trust announced sizes: memory grows with the bytes that arrive; nesting and lengths are
 * limited. */
#pragma once
#include "lib/text/slice.h"
#include <stdint.h>

enum {
    REPLY_DEPTH_MAX = 512,        /* nesting of aggregates */
    REPLY_LINE_MAX = 1024 * 1024, /* a simple string, an error, a number */
};

/* --- Counting --- */

struct reply_counter {
    uint64_t errors;      /* counted error replies; the caller clears it */
    char error_text[256]; /* text of the last one, without '-' and CRLF; truncated */
    uint64_t skip;        /* bytes of a bulk string still to skip, with CRLF; for reading */
    /* Private. */
    uint64_t missing; /* missing elements of the current reply; 0: between replies */
    size_t scanned;   /* bytes of the current line already searched for its end */
    bool aside;       /* in a push message or attribute, which is not a reply */
};

/* Skips at most `limit` replies. Returns the number of replies that end in this input and sets *used to the bytes to
 * consume; -1: invalid RESP. Skips push messages without counting them. A zeroed struct is a new counter. */
int64_t reply_count(struct reply_counter *counter, struct slice input, int64_t limit, size_t *used);
/* The caller has left the next counter->skip bytes out, of which there are some. Returns the number of replies that end
 * with them: 0 or 1. */
int reply_skipped(struct reply_counter *counter);

/* --- Trees --- */

enum resp_type {
    RESP_STATUS = '+',
    RESP_ERROR = '-', /* also '!' */
    RESP_INTEGER = ':',
    RESP_BULK = '$',
    RESP_ARRAY = '*',
    RESP_NULL = '_', /* also "$-1" and "*-1" */
    RESP_DOUBLE = ',',
    RESP_BOOLEAN = '#',
    RESP_BIG_NUMBER = '(',
    RESP_VERBATIM = '=', /* text is the part after "txt:" */
    RESP_MAP = '%',
    RESP_SET = '~',
    RESP_PUSH = '>',
    RESP_ATTRIBUTE = '|', /* precedes the value it describes, as a separate element or reply; not counted */
};

struct resp_value {
    enum resp_type type;
    char extension[4];           /* RESP_VERBATIM: "txt", "mkd" */
    int64_t integer;             /* RESP_INTEGER; RESP_BOOLEAN 0 or 1 */
    struct slice text;           /* all types except aggregates, as received; NUL-terminated */
    struct resp_value *children; /* of an aggregate; in a map key, value, key, value … */
    size_t count;                /* number of children */
    size_t capacity;
};
void resp_value_free(struct resp_value *value); /* frees the content, not the struct */
/* Returns the value of a key in a map, or in a RESP2 array of keys and values. NULL: not found. */
const struct resp_value *resp_value_get(const struct resp_value *map, const char *key);
static inline bool resp_is_aggregate(const struct resp_value *v) {
    return v->type == RESP_ARRAY || v->type == RESP_MAP || v->type == RESP_SET || v->type == RESP_PUSH ||
           v->type == RESP_ATTRIBUTE;
}

enum reply_status { REPLY_PARTIAL, REPLY_READY, REPLY_FAILED };

struct reply_reader {
    struct resp_value value; /* REPLY_READY: the reply or push message; valid until the next call */
    char error[128];         /* REPLY_FAILED */
    /* Private. */
    struct reply_frame {
        struct resp_value *value;
        uint64_t missing;
    } * stack;
    int depth, stack_capacity;
    struct resp_value *bulk; /* the string being received */
    uint64_t bulk_missing;   /* its missing bytes, without CRLF */
    size_t bulk_capacity;
    size_t scanned;
    bool tail, complete;
};
void reply_reader_init(struct reply_reader *reader);
void reply_reader_free(struct reply_reader *reader);
/* Reads up to the end of one reply. Sets *used to the bytes consumed, with every status. */
enum reply_status reply_read(struct reply_reader *reader, struct slice input, size_t *used);
