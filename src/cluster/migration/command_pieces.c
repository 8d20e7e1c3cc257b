/* command_pieces.c: see command_pieces.h. */
#include "cluster/migration/command_pieces.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include <string.h>

enum { LINE_END = 2 };

/* --- Pieces --- */

void command_piece_write(const struct command_piece *piece, struct output *out) {
    size_t written = 0;
    for (size_t i = 0; i < piece->count; i++) {
        const struct piece_string *string = &piece->strings[i];
        output_write(out, slice_make(piece->bytes + written, string->at - written));
        output_write_blob(out, string->blob);
        written = string->at;
    }
    output_write(out, slice_make(piece->bytes + written, piece->len - written));
}

void command_piece_free(struct command_piece *piece) {
    for (size_t i = 0; i < piece->count; i++) blob_release(piece->strings[i].blob);
    mem_free(piece->strings);
    mem_free(piece->bytes);
    mem_free(piece);
}

/* --- The block --- */

static size_t pieces_len(const struct command_pieces *pieces) {
    return (size_t)(pieces->out.pos - pieces->piece->bytes);
}

static void pieces_go_to(struct command_pieces *pieces, size_t len) {
    pieces->out.pos = pieces->piece->bytes + len;
    pieces->out.end = pieces->piece->bytes + pieces->capacity;
}

static void pieces_begin(struct command_pieces *pieces, size_t capacity) {
    pieces->piece = mem_calloc(1, sizeof *pieces->piece);
    pieces->piece->bytes = mem_alloc(capacity);
    pieces->capacity = capacity;
    pieces_go_to(pieces, 0);
}

static void add_string(struct command_piece *piece, size_t at, struct blob *blob) {
    mem_grow(piece->strings, piece->count, piece->capacity, 8);
    piece->strings[piece->count++] = (struct piece_string){at, blob};
    piece->held += blob->len;
}

/* The number of the line at `at`, "*2\r\n" or "$3\r\n", and the end of the line. False: it is not complete. */
static bool pieces_line(const struct command_pieces *pieces, size_t at, uint64_t *number, size_t *end) {
    const char *bytes = pieces->piece->bytes;
    size_t len = pieces_len(pieces);
    *number = 0;
    for (size_t i = at + 1; i < len && i + 1 < len; i++) {
        if (bytes[i] == '\r') {
            *end = i + LINE_END;
            return true;
        }
        must(bytes[i] >= '0' && bytes[i] <= '9');
        *number = *number * 10 + (uint64_t)(bytes[i] - '0');
    }
    return false;
}

/* Looks for the end of the last complete request, from where it stopped. */
static void pieces_scan(struct command_pieces *pieces) {
    const struct command_piece *piece = pieces->piece;
    size_t len = pieces_len(pieces), body;
    uint64_t number;
    while (pieces_line(pieces, pieces->scanned, &number, &body)) {
        must_equal(piece->bytes[pieces->scanned], pieces->arguments ? '$' : '*');
        if (!pieces->arguments) {
            must(number > 0);
            pieces->arguments = number;
            pieces->scanned = body;
            continue;
        }
        bool is_blob = pieces->strings < piece->count && piece->strings[pieces->strings].at == body;
        size_t rest = is_blob ? LINE_END : number + LINE_END;
        if (len - body < rest) return;
        pieces->strings += is_blob;
        pieces->scanned = body + rest;
        if (--pieces->arguments) continue;
        pieces->complete = pieces->scanned;
        pieces->before = pieces->strings;
    }
}

/* Passes on what is complete; the rest begins the next block. */
static void pieces_pass(struct command_pieces *pieces) {
    pieces_scan(pieces);
    if (!pieces->complete) return;
    struct command_piece *full = pieces->piece;
    size_t len = pieces_len(pieces), rest = len - pieces->complete;
    must_within(pieces->complete, len);
    pieces_begin(pieces, rest + COMMAND_PIECE + OUTPUT_RESERVE_MAX);
    memcpy(pieces->piece->bytes, full->bytes + pieces->complete, rest);
    pieces_go_to(pieces, rest);
    for (size_t i = pieces->before; i < full->count; i++) {
        add_string(pieces->piece, full->strings[i].at - pieces->complete, full->strings[i].blob);
        full->held -= full->strings[i].blob->len;
    }
    full->len = pieces->complete;
    full->count = pieces->before;
    pieces->scanned -= pieces->complete;
    pieces->strings -= pieces->before;
    pieces->complete = pieces->before = 0;
    pieces->full(pieces->context, full);
}

static void pieces_make_space(struct output *out, size_t len) {
    struct command_pieces *pieces = (struct command_pieces *)out;
    size_t used = pieces_len(pieces);
    if (used + pieces->piece->held >= COMMAND_PIECE) pieces_pass(pieces);
    used = pieces_len(pieces);
    if (pieces->capacity - used < len) {
        pieces->capacity = pieces->capacity * 2 > used + len ? pieces->capacity * 2 : used + len;
        pieces->piece->bytes = mem_realloc(pieces->piece->bytes, pieces->capacity);
    }
    pieces_go_to(pieces, used);
}

static void pieces_share(struct output *out, struct blob *blob) {
    struct command_pieces *pieces = (struct command_pieces *)out;
    if (pieces->copies) {
        struct blob *copy = blob_copy(blob_slice(blob));
        blob_release(blob);
        blob = copy;
    }
    add_string(pieces->piece, pieces_len(pieces), blob);
    if (pieces->piece->held >= COMMAND_PIECE) pieces_pass(pieces);
}

/* --- For the caller --- */

static const struct output_ops pieces_ops = {
    .make_space = pieces_make_space, .share = pieces_share, .share_min = OUTPUT_SHARE_MIN};

void command_pieces_init(struct command_pieces *pieces, void (*full)(void *context, struct command_piece *piece),
                         void *context) {
    *pieces = (struct command_pieces){.out.ops = &pieces_ops, .full = full, .context = context};
    pieces_begin(pieces, COMMAND_PIECE + OUTPUT_RESERVE_MAX);
}

void command_pieces_end(struct command_pieces *pieces) {
    if (!pieces->out.failed) {
        pieces_pass(pieces);
        if (!pieces->out.failed) must_equal(pieces_len(pieces), 0);
    }
    command_piece_free(pieces->piece);
    bool copies = pieces->copies;
    command_pieces_init(pieces, pieces->full, pieces->context);
    pieces->copies = copies;
}

void command_pieces_free(struct command_pieces *pieces) {
    command_piece_free(pieces->piece);
    pieces->piece = NULL;
}
