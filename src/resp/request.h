/* request.h: reads requests, in place.
 *
 * The reader is given what a connection shows (conn_peek) and finds one request in it: a RESP array of bulk strings, or
 * an inline command line. Arguments are slices of that input; nothing is copied. A request that has not arrived whole
 * is continued where the reader stopped when more is there, never read twice from its start: the cost of a request is
 * linear however it is cut.
 *
 * A bulk of at least REQUEST_LARGE_MIN bytes that has not arrived whole is received straight into a blob (but for peers
 * that are not authenticated, for whose word alone no memory is spent). From 8 KiB on that costs less than copying what
 * lies at the end of a receive buffer once more:
 *
 *     switch (request_read(&reader, conn_peek(conn))) {
 *     case REQUEST_READY:   execute reader.argv[0..argc); then conn_consume(conn, reader.size); request_done(&reader)
 *     case REQUEST_PARTIAL: wait for more input
 *     case REQUEST_LARGE:   conn_consume(conn, reader.size);
 *                           conn_receive_into(conn, reader.large->data + reader.large_have, reader.large->len -
 * reader.large_have), and read again when conn->sink_len is 0 case REQUEST_FAILED:  answer reader.error (a complete
 * error text: "ERR Protocol error: …"), then close
 *     }
 *
 * A large argument that lies whole in the input is a slice like any other. argc may be 0 (an empty line, *0, *-1):
 * nothing to execute. */
#ifndef RESP_REQUEST_H
#define RESP_REQUEST_H
#include "lib/blob.h"
#include "lib/slice.h"
#include <stdint.h>

enum { REQUEST_LARGE_MIN = 8 * 1024, REQUEST_INLINE_MAX = 64 * 1024 };
enum request_status { REQUEST_PARTIAL, REQUEST_READY, REQUEST_LARGE, REQUEST_FAILED };

struct request_limits {
    int64_t multibulk_max; /* arguments of a request: 1024*1024*1024 as Valkey; 10 before AUTH */
    int64_t bulk_max;      /* bytes of one: proto-max-bulk-len; 16384 before AUTH */
    bool unauthenticated;  /* chooses the error text: "unauthenticated multibulk length" */
};

struct request_large {
    int index; /* of the argument */
    bool taken;
    struct blob *blob;
};

struct request_reader {
    /* The request found (REQUEST_READY). argv points into the input and into blobs; valid until the input is consumed.
     */
    struct slice *argv;
    int argc;
    size_t size; /* bytes of input to consume */
    bool is_inline;
    /* REQUEST_LARGE: the blob being filled; its bytes [0, large_have) are filled already. */
    struct blob *large;
    size_t large_have;
    char error[128]; /* REQUEST_FAILED */
    /* Private. */
    int64_t args_left, bulk_len;
    const char *base; /* where the input lay at the last call: argv[args_detached..argc) points behind it */
    size_t offset;    /* read so far */
    size_t scanned;   /* looked through for the end of a line */
    int argv_capacity, args_detached;
    char *detached; /* copy of the arguments that came before a large one */
    size_t detached_len, detached_capacity;
    struct request_large *larges;
    int larges_count, larges_capacity;
    struct slice argv_inline[8]; /* argv of most requests: no allocation */
    size_t memory;               /* held by argv, detached and blobs, for CLIENT LIST */
};

void request_reader_init(struct request_reader *reader);
void request_reader_free(struct request_reader *reader);
enum request_status request_read(struct request_reader *reader, struct slice input,
                                 const struct request_limits *limits);
/* A request that was found is kept for later, and the input has moved meanwhile: argv follows it. Not for inline
 * requests. */
void request_moved(struct request_reader *reader, struct slice input);
/* A request that another reader has found, perhaps on another thread, becomes this one's, which holds none. Lent: argv
 * and the input it lies in stay where they are until request_give_back(); then the reader is as before. Handed over:
 * whatever belongs to it goes along, nothing of it lies in the input any more, and `from` is as after request_done().
 * False: memory is too short to copy what lies in the input; from->error says so. */
void request_release_argv(struct request_reader *reader); /* for request_lend only */
static inline void request_lend(struct request_reader *reader, struct slice *argv, int argc, size_t size) {
    if (__builtin_expect(reader->argv != reader->argv_inline, 0)) request_release_argv(reader);
    reader->argv = argv;
    reader->argc = argc;
    reader->size = size;
}
static inline void request_give_back(struct request_reader *reader) {
    reader->argv = reader->argv_inline;
    reader->argc = 0;
    reader->size = 0;
}
bool request_hand_over(struct request_reader *from, struct request_reader *to);
size_t request_wire_size(const struct request_reader *reader); /* bytes of the whole request as it was received */
/* Whether some of the request's arguments lie outside the input, so that it cannot be lent. */
static inline bool request_is_apart(const struct request_reader *reader) {
    return reader->larges_count || reader->detached_len;
}
void request_done(struct request_reader *reader); /* forget this request; drops the references to its blobs */
/* Gives the caller a reference to the blob that holds argument `index`, once; NULL where it is not one or was given
 * already. The reader keeps a reference of its own until request_done, so argv stays valid whatever becomes of the
 * blob. */
struct blob *request_take_blob(struct request_reader *reader, int index);
/* The blob whose bytes `argument` is, without a reference; NULL where it lies in none. */
struct blob *request_find_blob(const struct request_reader *reader, struct slice argument);
/* Splits a line as configuration files and the cli do: quotes "..." with \n \r \t \b \a \xHH, '...' with \'. A
 * closing quote ends the word; in inline requests what follows it without a space belongs to the same word. Returns the
 * number of words put into a fresh array of fresh strings, or -1 for unbalanced quotes. Free with words_free. */
int words_split(struct slice line, struct slice **words);
void words_free(struct slice *words, int count);
/* A request as bytes (tools, propagation). */
struct output;
void request_write(struct output *out, int argc, const struct slice *argv);
#endif
