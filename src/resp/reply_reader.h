/* reply_reader.h: reads replies, RESP2 and RESP3 of any nesting, as a client does.
 *
 * Two readers. Both take the bytes as they come, say how many they are done with, and go on from there: their cost is
 * linear however the stream is cut, and they never need a reply to lie whole in the input.
 *
 *   reply_counter  passes over replies without building anything: for who only wants to know that they came (the
 * benchmark). reply_reader   builds a tree of each reply: for who shows them (the command line tool) or looks into
 * them.
 *
 * What a peer announces is not believed: memory grows with what arrived, nesting and lengths are bounded. */
#ifndef RESP_REPLY_READER_H
#define RESP_REPLY_READER_H
#include "lib/slice.h"
#include <stdint.h>

enum {
    REPLY_DEPTH_MAX = 512,        /* aggregates within aggregates */
    REPLY_LINE_MAX = 1024 * 1024, /* a simple string, an error, a number */
};

/* --- Counting --- */

struct reply_counter {
    uint64_t errors;      /* error replies among those counted since the caller cleared it */
    char error_text[256]; /* of the last one, without '-' and CRLF; cut where it is longer */
    /* Private. */
    uint64_t missing; /* elements still to come of the reply being read; 0: none begun */
    uint64_t skip;    /* bytes of a bulk still to be passed over */
    size_t scanned;   /* of the line at the start of the input, looked through for its end */
    bool aside;       /* a push message or an attribute: not a reply of its own */
};

/* Passes over at most `limit` replies. Returns how many ended in this input, and in *used the bytes it is done with
 * (consume them); -1: what came is not RESP. Push messages are passed over and not counted. A zeroed struct is a fresh
 * counter. */
int64_t reply_count(struct reply_counter *counter, struct slice input, int64_t limit, size_t *used);

/* --- Trees --- */

enum resp_type {
    RESP_STATUS = '+',
    RESP_ERROR = '-', /* '!' too */
    RESP_INTEGER = ':',
    RESP_BULK = '$',
    RESP_ARRAY = '*',
    RESP_NULL = '_', /* "$-1" and "*-1" too */
    RESP_DOUBLE = ',',
    RESP_BOOLEAN = '#',
    RESP_BIG_NUMBER = '(',
    RESP_VERBATIM = '=', /* text is what follows "txt:" */
    RESP_MAP = '%',
    RESP_SET = '~',
    RESP_PUSH = '>',
    RESP_ATTRIBUTE = '|', /* stands before the value it is about, as an element (or a reply) of its own, not counted */
};

struct resp_value {
    enum resp_type type;
    char extension[4];           /* of RESP_VERBATIM: "txt", "mkd" */
    int64_t integer;             /* RESP_INTEGER; RESP_BOOLEAN 0 or 1 */
    struct slice text;           /* of everything that is not an aggregate, as it came; NUL-terminated */
    struct resp_value *children; /* of an aggregate; of a map key, value, key, value … */
    size_t count;                /* of children */
    size_t capacity;
};
void resp_value_free(struct resp_value *value); /* what it holds, not the struct */
/* The value of a key of a map, or of an array that lists keys and values as RESP2 does. NULL: not there. */
const struct resp_value *resp_value_get(const struct resp_value *map, const char *key);
static inline bool resp_is_aggregate(const struct resp_value *v) {
    return v->type == RESP_ARRAY || v->type == RESP_MAP || v->type == RESP_SET || v->type == RESP_PUSH ||
           v->type == RESP_ATTRIBUTE;
}

enum reply_status { REPLY_PARTIAL, REPLY_READY, REPLY_FAILED };

struct reply_reader {
    struct resp_value value; /* REPLY_READY: the reply (or push message); yours until the next call */
    char error[128];         /* REPLY_FAILED */
    /* Private. */
    struct reply_frame {
        struct resp_value *value;
        uint64_t missing;
    } * stack;
    int depth, stack_capacity;
    struct resp_value *bulk; /* the string being received */
    uint64_t bulk_missing;   /* bytes of it, without CRLF */
    size_t bulk_capacity;
    size_t scanned;
    bool tail, complete;
};
void reply_reader_init(struct reply_reader *reader);
void reply_reader_free(struct reply_reader *reader);
/* Reads up to the end of one reply; *used is what it took of the input, whatever it returns. */
enum reply_status reply_read(struct reply_reader *reader, struct slice input, size_t *used);
#endif
