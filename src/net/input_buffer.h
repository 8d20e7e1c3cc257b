/* input_buffer.h: the memory in which a connection exposes received bytes. They come by read calls of a socket, by
 * decryption (TLS over RDMA), or by a copy from the receive buffer that the peer writes to (RDMA).
 *
 * All connections of a loop read into one buffer, which a connection has while its `readable` runs. Bytes that the
 * owner leaves unconsumed then move to private memory, and the next read continues behind them: so a connection that
 * waits for nothing holds no memory, unless its owner sets conn->in_kept, and a request that comes in one part is never
 * copied. A few bytes are copied in front of the next read instead of growing the private memory. While a handler on
 * the stack has the loop's buffer, other connections read into private memory, and so do those whose owner takes the
 * bytes after `readable` (conn->takes_later).
 *
 * A read is: input_buffer_space(); then the bytes; input_buffer_take(); `readable`; input_buffer_settle().
 *
 * Not thread-safe: a buffer belongs to the thread of its connection. */
#pragma once
#include "net/connection.h"

enum { INPUT_SHARED_SIZE = 64 * 1024 };

/* Of a loop. */
struct input_shared {
    char *data; /* INPUT_SHARED_SIZE bytes */
    bool lent;  /* a handler on the stack uses it */
};

/* Of a connection. */
struct input_buffer {
    char *own; /* private memory: unconsumed bytes between two reads */
    size_t own_size;
};

/* Of one read. */
struct input_space {
    char *at;
    size_t size; /* may exceed what the owner wants: at most up to conn->in_limit, unless that is reached */
    bool shared; /* in the loop's buffer */
};

/* Where the next bytes go. `at` NULL: there is no memory for them. */
struct input_space input_buffer_space(struct input_buffer *b, struct connection *conn,
                                      const struct input_shared *shared);
/* `len` bytes were read to `space`: they follow conn->in. If they are in the loop's buffer it is lent from now on. */
void input_buffer_take(struct input_buffer *b, struct connection *conn, struct input_shared *shared,
                       struct input_space *space, size_t len);
/* Call it after `readable`, and after a read that brought nothing: the loop's buffer is free for others again, and
 * private memory that is empty is freed, unless the owner keeps it for the next part of a request. If `readable` has
 * closed the connection, its private memory stays until input_buffer_free(). False: there is no memory for the
 * unconsumed bytes, which are lost; the caller ends the connection. */
bool input_buffer_settle(struct input_buffer *b, struct connection *conn, struct input_shared *shared,
                         const struct input_space *space);
/* Frees memory that holds no unconsumed bytes. Not while `readable` runs. */
void input_buffer_trim(struct input_buffer *b, struct connection *conn);
void input_buffer_free(struct input_buffer *b);
