/* reply_line.h: one line of a connection's input, for protocols that begin with single lines before something else
 * follows: the handshake of a replica, the header of a snapshot, the first reply in a slot migration. Those whose
 * replies are RESP use resp/reply_reader.h.
 *
 *     ssize_t used = reply_line_read(conn_peek(conn), LINE_MAX, &line);
 *     if (used == 0) wait for more input
 *     if (used < 0)  end the connection: the peer's line is too long
 *     use the line, which points into the input; then conn_consume(conn, (size_t)used)
 *
 * A caller that reads on, or may close the connection, while it uses the line copies the line first. Any thread. */
#pragma once
#include "lib/text/slice.h"
#include <errno.h>
#include <sys/types.h>

/* Finds the line at the start of the input. Sets `line` to it, without its LF or CRLF, and returns its bytes with the
 * line end, at most `max`. Returns 0 if the line is not complete, -EMSGSIZE if it has more than `max` bytes. An empty
 * line is a line. */
static inline ssize_t reply_line_read(struct slice input, size_t max, struct slice *line) {
    const char *end = input.len ? memchr(input.data, '\n', input.len < max ? input.len : max) : NULL;
    if (!end) return input.len < max ? 0 : -EMSGSIZE;
    size_t len = (size_t)(end - input.data);
    *line = slice_make(input.data, len && end[-1] == '\r' ? len - 1 : len);
    return (ssize_t)len + 1;
}
