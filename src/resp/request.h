/* request.h: parses requests in place.
 *
 * The reader finds one request in the input of a connection (conn_peek): a RESP array of bulk strings, or an inline
 * command line. Arguments are slices of that input; nothing is copied. When more of an incomplete request arrives, the
 * reader continues where it stopped and never starts over: the cost of a request is linear for any fragmentation.
 *
 * An incomplete bulk string of at least REQUEST_LARGE_MIN bytes is received straight into a blob (except from
 * unauthenticated peers, for whom the server does not allocate memory on an announced length). For 8 KiB and more this
 * is cheaper than copying the bytes once more. The caller's loop:
 *
 *     switch (request_read(&reader, conn_peek(conn), limits)) {
 *     case REQUEST_READY:   execute reader.argv[0..argc); conn_consume(conn, reader.size); request_done(&reader)
 *     case REQUEST_PARTIAL: wait for more input
 *     case REQUEST_LARGE:   conn_consume(conn, reader.size);
 *                           conn_receive_into(conn, reader.large->data + reader.large_have,
 *                                             reader.large->len - reader.large_have);
 *                           read again when conn->sink_len is 0
 *     case REQUEST_FAILED:  reply reader.error (a complete error text: "ERR Protocol error: …"), then close
 *     }
 *
 * A large argument that is complete in the input is a slice like any other. argc may be 0 (an empty line, *0, *-1):
 * nothing to execute. */
#pragma once
#include "lib/text/blob.h"
#include "lib/text/slice.h"
#include <stdint.h>

enum { REQUEST_LARGE_MIN = 8 * 1024, REQUEST_INLINE_MAX = 64 * 1024 };
enum request_status { REQUEST_PARTIAL, REQUEST_READY, REQUEST_LARGE, REQUEST_FAILED };

struct request_limits {
    int64_t multibulk_max; /* maximum number of arguments: 1024*1024*1024 as in Valkey; 10 before AUTH */
    int64_t bulk_max;      /* maximum bytes of an argument: proto-max-bulk-len; 16384 before AUTH */
    bool unauthenticated;  /* selects the error text "unauthenticated multibulk length" */
};

struct request_large {
    int index; /* index of the argument */
    bool taken;
    struct blob *blob;
};

struct request_reader {
    /* The request (REQUEST_READY). argv points into the input and into blobs; valid until the input is consumed. */
    struct slice *argv;
    int argc;
    size_t size; /* bytes of input to consume */
    bool is_inline;
    /* REQUEST_LARGE: the blob to fill; its bytes [0, large_have) are already filled. */
    struct blob *large;
    size_t large_have;
    size_t large_missing; /* private: request_shrink_large() */
    /* REQUEST_FAILED: the reason, and the input from the invalid byte on. */
    char error[128];
    struct slice unread;
    /* Private, except for the numbers in CLIENT LIST. */
    int64_t args_left, bulk_len;
    const char *base; /* the input at the last call, into which argv[args_detached..argc) points */
    size_t offset;    /* bytes read */
    size_t scanned;   /* bytes searched for the end of a line */
    int argv_capacity, args_detached;
    char *detached; /* copies of the arguments before a large one */
    size_t detached_len, detached_capacity;
    struct request_large *larges;
    int larges_count, larges_capacity;
    struct slice argv_inline[8]; /* argv of most requests, without an allocation */
    size_t memory;               /* of argv, detached and blobs, for CLIENT LIST */
};

void request_reader_init(struct request_reader *reader);
void request_reader_free(struct request_reader *reader);
enum request_status request_read(struct request_reader *reader, struct slice input,
                                 const struct request_limits *limits);
/* Adjusts argv when a complete request is kept for later and the input has moved. Not for inline requests. */
void request_moved(struct request_reader *reader, struct slice input);
/* These functions pass a request that another reader has parsed, perhaps on another thread, to this reader, which must
 * not hold a request.
 *
 * Lending: argv and the input it points into stay in place until request_give_back(), which restores the reader.
 *
 * Handing over: all memory of the request moves to the new reader, arguments in the input are copied, and `from` is in
 * the state after request_done(). False: out of memory for the copies; from->error says so. */
void request_release_argv(struct request_reader *reader); /* called by request_lend only */
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
size_t request_wire_size(const struct request_reader *reader); /* bytes of the whole request on the wire */
/* True: some arguments are outside the input, so the request cannot be lent. */
static inline bool request_is_detached(const struct request_reader *reader) {
    return reader->larges_count || reader->detached_len;
}
/* Memory of a connection's input for CLIENT LIST: bytes that are not parsed yet, bytes of complete arguments, and free
 * space. The connection has `input` bytes of input, counted from the request in the reader, and receives `sink` more
 * bytes into the reader's large argument; its line end is missing with them, so that announced arguments have the size
 * that Valkey shows. */
struct request_figures {
    size_t waiting, arguments, missing;
};
struct request_figures request_figures(const struct request_reader *reader, size_t input, size_t sink);
/* For an argument that the peer does not complete: `missing` bytes of reader->large have not arrived, and the memory
 * for them is freed. The caller calls conn_receive_stop(). When more bytes arrive, request_read() allocates it again.
 */
void request_shrink_large(struct request_reader *reader, size_t missing);
void request_done(struct request_reader *reader); /* ends this request; releases its blobs */
/* True: no part of a request was read, so that another reader can continue with the rest of the input. */
static inline bool request_is_idle(const struct request_reader *reader) {
    return !reader->argc && !reader->args_left && !request_is_detached(reader);
}
/* Returns a new reference to the blob of argument `index`, once; NULL: the argument is not in a blob, or the blob was
 * already taken. The reader keeps its own reference until request_done(), so argv stays valid. */
struct blob *request_take_blob(struct request_reader *reader, int index);
/* Returns the blob that holds the bytes of `argument`, without a new reference; NULL: none. */
struct blob *request_find_blob(const struct request_reader *reader, struct slice argument);
/* Splits a line with the syntax of configuration files and the command line tool: "..." with \n \r \t \b \a \xHH, '...'
 * with \'. Quoted and plain text without space between them are one word, as in inline commands. Returns the number of
 * words, in a new array of new strings, or -1 for unbalanced quotes. Free it with words_free(). */
int words_split(struct slice line, struct slice **words);
void words_free(struct slice *words, int count);
/* Writes a word so that words_split() reads it back: plain if possible, otherwise quoted with escapes. */
struct output;
void word_write(struct output *out, struct slice word, bool always_quoted);
/* Write a request in RESP (tools, propagation): the whole request, or first the number of arguments and then each
 * argument. A blob is written without a copy, as by output_write_blob(). */
void request_write(struct output *out, int argc, const struct slice *argv);
void request_write_count(struct output *out, size_t argc);
void request_write_argument(struct output *out, struct slice argument);
void request_write_blob(struct output *out, struct blob *argument);
