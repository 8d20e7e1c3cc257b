/* trickle.h: a source as of a connection: a few bytes at a time, with unknown total size. */
#pragma once
#include "formats/source.h"
#include <string.h>

static ssize_t trickle(struct source *source, void *to, size_t len) {
    struct slice *rest = source->context;
    size_t piece = 1 + rest->len % 37;
    if (piece > len) piece = len;
    if (piece > rest->len) piece = rest->len;
    if (piece) memcpy(to, rest->data, piece);
    rest->data += piece, rest->len -= piece;
    return (ssize_t)piece;
}
static const struct source_ops trickle_ops = {.read = trickle};
