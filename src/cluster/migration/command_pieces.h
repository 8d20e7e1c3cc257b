/* command_pieces.h: an output for requests that passes them on in pieces of whole requests, for a thread that
 * serializes a large value while others send on the same link.
 *
 * The bytes are collected in one block. When it has COMMAND_PIECE bytes, the output looks for the end of the last
 * complete request, by the lengths in it, and passes on what precedes. Large strings are referred to, and count. A
 * piece owns everything in it, so it can pass to another thread. */
#pragma once
#include "lib/structures/linked_list.h"
#include "lib/text/output.h"
#include <stdint.h>

enum { COMMAND_PIECE = 64 * 1024 };

struct command_piece {
    struct list_link link; /* of the receiver, */
    int db;                /* and so is this */
    size_t len, held;      /* of the bytes; bytes of the blobs */
    char *bytes;
    struct piece_string {
        size_t at; /* in bytes: what precedes the blob */
        struct blob *blob;
    } * strings;
    size_t count, capacity;
};
static inline size_t command_piece_memory(const struct command_piece *piece) {
    return piece->len + piece->held;
}
void command_piece_write(const struct command_piece *piece, struct output *out);
void command_piece_free(struct command_piece *piece);

struct command_pieces {
    struct output out; /* must be first */
    /* Receives each piece, and owns it. It may set out.failed: then nothing follows. */
    void (*full)(void *context, struct command_piece *piece);
    void *context;
    bool copies; /* strings, in place of references */
    /* Private. */
    struct command_piece *piece; /* not complete; its len is that of `out` */
    size_t capacity;
    size_t scanned;          /* bytes that were looked at */
    size_t strings;          /* blobs before that */
    uint64_t arguments;      /* that the request at `scanned` still has; 0: none has begun */
    size_t complete, before; /* the end of the last complete request; blobs before it */
};
void command_pieces_init(struct command_pieces *pieces, void (*full)(void *context, struct command_piece *piece),
                         void *context);
/* Passes on the rest, which ends with a complete request unless the output has failed. The next request may follow. */
void command_pieces_end(struct command_pieces *pieces);
void command_pieces_free(struct command_pieces *pieces);
