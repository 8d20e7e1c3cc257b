/* input_buffer.c: see input_buffer.h. */
#include "net/input_buffer.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include <string.h>

enum {
    JOIN_MAX = 16 * 1024,  /* leftovers up to this size are copied in front of the next read */
    OWN_SPACE = 20 * 1024, /* minimum size of a read into private memory */
    OWN_KEPT = 64 * 1024,  /* private memory up to this size, or in_kept, may stay when it is empty */
};

/* Makes space behind the unconsumed bytes in private memory. False: there is no memory. */
static bool make_space(struct input_buffer *b, struct connection *conn) {
    size_t at = b->own && conn->in_len ? (size_t)(conn->in - b->own) : 0;
    size_t space = conn->in_len > OWN_SPACE ? conn->in_len : OWN_SPACE;
    if (b->own && b->own_size - at - conn->in_len >= OWN_SPACE) return true;
    if (b->own && at && b->own_size - conn->in_len >= space) {
        memmove(b->own, conn->in, conn->in_len);
        conn->in = b->own;
        return true;
    }
    char *grown = mem_try_alloc(conn->in_len + space);
    if (!grown) return false;
    b->own_size = mem_size(grown);
    if (conn->in_len) memcpy(grown, conn->in, conn->in_len);
    mem_free(b->own);
    b->own = grown;
    conn->in = grown;
    return true;
}

struct input_space input_buffer_space(struct input_buffer *b, struct connection *conn,
                                      const struct input_shared *shared) {
    struct input_space space = {.shared = !shared->lent && conn->in_len <= JOIN_MAX && !conn->takes_later};
    if (space.shared) {
        space.at = shared->data + conn->in_len;
        space.size = INPUT_SHARED_SIZE - conn->in_len;
    } else {
        if (!make_space(b, conn)) return space;
        space.at = b->own + (conn->in_len ? (size_t)(conn->in - b->own) : 0) + conn->in_len;
        space.size = b->own_size - (size_t)(space.at - b->own);
    }
    if (conn->in_len < conn->in_limit && space.size > conn->in_limit - conn->in_len)
        space.size = conn->in_limit - conn->in_len;
    return space;
}

void input_buffer_take(struct input_buffer *b, struct connection *conn, struct input_shared *shared,
                       struct input_space *space, size_t len) {
    must_within(len, space->size);
    if (len == 0) {
        space->shared = false;
        return;
    }
    if (space->shared) {
        must(!shared->lent); /* another connection's bytes are not overwritten */
        if (conn->in_len) memcpy(shared->data, conn->in, conn->in_len);
        conn->in = shared->data;
        shared->lent = true;
    } else if (conn->in_len == 0)
        conn->in = b->own;
    conn->in_len += len;
}

/* Private memory of in_kept bytes without content. */
static void keep_space(struct input_buffer *b, const struct connection *conn) {
    char *kept = mem_try_alloc(conn->in_kept);
    if (!kept) return;
    mem_free(b->own);
    b->own = kept;
    b->own_size = mem_size(kept);
}

bool input_buffer_settle(struct input_buffer *b, struct connection *conn, struct input_shared *shared,
                         const struct input_space *space) {
    if (space->shared) shared->lent = false;
    if (conn->state == CONN_CLOSED) return true;
    if (conn->in_len == 0) {
        conn->in = NULL;
        bool unusual = b->own_size > OWN_KEPT && b->own_size / 2 > conn->in_kept;
        if (!(conn->keeps_input || conn->takes_later) || unusual) input_buffer_free(b);
        if (conn->keeps_input && b->own_size < conn->in_kept && !conn->sink) keep_space(b, conn);
    } else if (space->shared) {
        if (b->own_size < conn->in_len) {
            input_buffer_free(b);
            bool small = conn->keeps_input && conn->in_len < OWN_SPACE;
            b->own = mem_try_alloc(small ? OWN_SPACE : conn->in_len);
            if (!b->own) {
                conn->in = NULL;
                conn->in_len = 0;
                return false;
            }
            b->own_size = mem_size(b->own);
        }
        memcpy(b->own, conn->in, conn->in_len);
        conn->in = b->own;
    }
    return true;
}

void input_buffer_trim(struct input_buffer *b, struct connection *conn) {
    if (!b->own) return;
    if (conn->in_len == 0) {
        if (!conn->in_kept)
            input_buffer_free(b);
        else if (b->own_size / 2 > conn->in_kept)
            keep_space(b, conn);
    } else if (b->own_size / 2 > conn->in_len) {
        size_t size;
        char *trimmed = mem_alloc_usable(conn->in_len, &size);
        conn->in = memcpy(trimmed, conn->in, conn->in_len);
        mem_free(b->own);
        b->own = trimmed;
        b->own_size = size;
    }
}

void input_buffer_free(struct input_buffer *b) {
    mem_free(b->own);
    *b = (struct input_buffer){0};
}
