/* read_helper.c: see read_helper.h.
 *
 * Pieces are in a ring, in the order of the file. Both threads take the oldest piece that no thread reads: the
 * background thread whenever there is one, the caller when the ring is full or when it waits. So the background thread
 * always has work and is woken for many pieces, not for each. Pieces leave the ring in order, because their checksums
 * are combined at that point.
 *
 * On two cores, with the file in the page cache, it takes 0.41 s instead of 0.57 s to load 600 MB in values of 20,000
 * bytes, and 0.29 s instead of 0.43 s in values of 1 MB.
 *
 * Rejected: a background job for each piece, because the thread slept after each one (0.51 s of CPU time instead of
 * 0.35 s for 400 MiB in values of 16 KiB); reading into a buffer that is aligned like the pages of the file (source.c),
 * because the second copy costs more than the alignment saves. */
#include "formats/read_helper.h"
#include "lib/hash/crc64.h"
#include "lib/system/background.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum {
    PIECES = 64,
    WAKE_BYTES = 256 * 1024, /* bytes added before the background thread is woken */
    AT_ONCE = 64 * 1024      /* bytes per read, so that the checksum finds them in the CPU's cache */
};

struct helper_piece {
    struct blob *blob; /* held */
    char *to;
    size_t len;
    off_t offset;
    uint64_t gap, gap_len, crc;
    int error;
    off_t failed_at;
    atomic_bool done;
};

struct read_helper {
    int fd;
    bool checksum;
    /* Numbers of pieces; a piece is at its number modulo PIECES. left <= taken <= added */
    unsigned left;          /* the first that has not left the ring */
    _Atomic unsigned taken; /* the first that no thread has taken */
    _Atomic unsigned added;
    struct helper_piece pieces[PIECES];
    size_t waiting; /* bytes added since the background thread was last woken */
    /* Totals of the pieces that have left the ring. */
    uint64_t crc;
    int64_t bytes;
    int error;
    off_t failed_at;
};

struct read_helper *read_helper_new(int fd, bool checksum) {
    if (!background_is_parallel(BACKGROUND_READ)) return NULL;
    struct read_helper *helper = mem_calloc(1, sizeof *helper);
    helper->fd = fd;
    helper->checksum = checksum;
    return helper;
}

void read_helper_free(struct read_helper *helper) {
    uint64_t crc;
    off_t failed_at;
    if (!helper) return;
    read_helper_finish(helper, &crc, &failed_at);
    mem_free(helper);
}

static void read_piece(const struct read_helper *helper, struct helper_piece *piece) {
    size_t got = 0;
    while (got < piece->len) {
        char *to = piece->to + got;
        size_t left = piece->len - got;
        off_t offset = piece->offset + (off_t)got;
        ssize_t bytes = pread(helper->fd, to, left < AT_ONCE ? left : AT_ONCE, offset);
        if (bytes < 0 && errno == EINTR) continue;
        if (bytes <= 0) {
            piece->error = bytes < 0 ? -errno : -ENODATA;
            piece->failed_at = offset;
            memset(to, 0, left);
            break;
        }
        if (helper->checksum) piece->crc = crc64(piece->crc, to, (size_t)bytes);
        got += (size_t)bytes;
    }
    atomic_store_explicit(&piece->done, true, memory_order_release);
}

/* Takes a piece and reads it. False: there is none to take. `taken` is read with acquire: the value of `added` must be
 * at least as new, or the thread could take a piece that has not been added yet. */
static bool read_next(struct read_helper *helper) {
    unsigned next = atomic_load_explicit(&helper->taken, memory_order_acquire);
    do {
        if (next == atomic_load_explicit(&helper->added, memory_order_acquire)) return false;
    } while (!atomic_compare_exchange_weak(&helper->taken, &next, next + 1));
    read_piece(helper, &helper->pieces[next % PIECES]);
    return true;
}
static void read_all(void *helper) {
    while (read_next(helper)) continue;
}

static void read_helper_leave(struct read_helper *helper, struct helper_piece *piece) {
    blob_release(piece->blob);
    helper->bytes += (int64_t)(piece->gap_len + piece->len);
    if (helper->checksum) {
        helper->crc = crc64_combine(helper->crc, piece->gap, piece->gap_len);
        helper->crc = crc64_combine(helper->crc, piece->crc, piece->len);
    }
    if (!piece->error || helper->error) return;
    helper->error = piece->error;
    helper->failed_at = piece->failed_at;
}
static void leave_done(struct read_helper *helper) {
    unsigned added = atomic_load_explicit(&helper->added, memory_order_relaxed);
    for (; helper->left != added; helper->left++) {
        struct helper_piece *piece = &helper->pieces[helper->left % PIECES];
        if (!atomic_load_explicit(&piece->done, memory_order_acquire)) break;
        read_helper_leave(helper, piece);
    }
}
static void wait_for_all(struct read_helper *helper) {
    read_all(helper);
    background_drain(BACKGROUND_READ);
    leave_done(helper);
    must_equal(helper->left, atomic_load_explicit(&helper->added, memory_order_relaxed));
}

void read_helper_add(struct read_helper *helper, struct blob *blob, char *to, size_t len, off_t offset, uint64_t gap,
                     uint64_t gap_len) {
    unsigned number = atomic_load_explicit(&helper->added, memory_order_relaxed);
    if (number - helper->left == PIECES) {
        /* The other thread may still be reading the oldest piece. */
        do leave_done(helper);
        while (number - helper->left == PIECES && read_next(helper));
        if (number - helper->left == PIECES) wait_for_all(helper);
    }
    must_less(number - helper->left, (unsigned)PIECES);
    helper->pieces[number % PIECES] = (struct helper_piece){
        .blob = blob_hold(blob), .to = to, .len = len, .offset = offset, .gap = gap, .gap_len = gap_len};
    atomic_store_explicit(&helper->added, number + 1, memory_order_release);
    helper->waiting += len;
    if (helper->waiting < WAKE_BYTES || background_pending(BACKGROUND_READ)) return;
    background_submit(BACKGROUND_READ, read_all, helper);
    helper->waiting = 0;
}

int64_t read_helper_finish(struct read_helper *helper, uint64_t *crc, off_t *failed_at) {
    wait_for_all(helper);
    int64_t result = helper->error ? helper->error : helper->bytes;
    *crc = helper->crc;
    *failed_at = helper->failed_at;
    helper->crc = 0;
    helper->bytes = 0;
    helper->error = 0;
    return result;
}
