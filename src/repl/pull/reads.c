/* reads.c: see reads.h. */
#include "repl/pull/reads.h"
#include "lib/hash/crc32c.h"
#include "lib/system/memory.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

enum { READS = 8 /* in flight, or fewer if the connection allows fewer */ };
_Static_assert((int)READS <= (int)RDMA_READS_MAX, "reads in flight");

struct buffer {
    uint32_t length, checksum;
    uint64_t keys;
};

/* What the user does not see. */
struct reads {
    struct pull_reads seen; /* must be first */
    struct pull_reads_params params;
    struct pull_seal *seal; /* NULL: the chunks are not encrypted */
    struct rdma_window window;
    char *memory;
    size_t memory_size;
    uint32_t depth;
    uint64_t posted; /* READs */
    bool orphaned;   /* pull_reads_free() was called: the last READ in flight frees it */
    struct buffer buffers[];
};

static struct reads *of(const struct pull_reads *seen) {
    return (struct reads *)seen;
}
static struct buffer *buffer_at(struct reads *reads, uint64_t number) {
    return &reads->buffers[number % reads->params.buffers];
}
static size_t buffer_offset(const struct reads *reads, uint64_t number) {
    return (size_t)(number % reads->params.buffers) * reads->params.chunk_size;
}

void pull_reads_fail(struct pull_reads *reads, int error, const char *format, ...) {
    if (reads->error) return;
    reads->error = error;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(reads->reason, sizeof reads->reason, format, arguments);
    va_end(arguments);
}

static void release(struct reads *reads) {
    rdma_window_close(&reads->window);
    if (reads->memory != MAP_FAILED) munmap(reads->memory, reads->memory_size);
    pull_seal_free(reads->seal);
    mem_free(reads);
}

struct pull_reads *pull_reads_new(struct connection *conn, const struct pull_reads_params *params, const char **error) {
    struct reads *reads = mem_calloc(1, sizeof *reads + params->buffers * sizeof *reads->buffers);
    reads->params = *params;
    reads->memory_size = (size_t)params->buffers * params->chunk_size;
    reads->memory = mmap(NULL, reads->memory_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *error = NULL;
    if (reads->memory == MAP_FAILED) {
        *error = strerror(errno);
    } else if (params->key && !(reads->seal = pull_seal_new(params->key))) {
        *error = "no memory for the cipher of the pulled snapshot";
    } else {
        int result = rdma_window_open(conn, RDMA_WINDOW_TARGET, reads->memory, reads->memory_size, &reads->window);
        if (result < 0)
            *error =
                result == -EDQUOT ? "rdma-max-registered-memory leaves no memory for the buffers" : strerror(-result);
    }
    reads->params.key = NULL;
    if (*error) {
        release(reads);
        return NULL;
    }
    uint32_t depth = rdma_read_depth(conn);
    reads->depth = depth < READS ? depth : READS;
    return &reads->seen;
}

void pull_reads_free(struct pull_reads *seen) {
    if (!seen) return;
    pull_reads_fail(seen, -ECANCELED, "cancelled");
    of(seen)->orphaned = true;
    if (seen->called_back == of(seen)->posted) release(of(seen));
}

static void chunk_read(struct reads *reads, int64_t result) {
    struct pull_reads *seen = &reads->seen;
    struct buffer *buffer = buffer_at(reads, seen->arrived);
    unsigned long long number = seen->arrived;
    if (seen->error) return;
    if (result < 0) {
        pull_reads_fail(seen, (int)result, "reading chunk %llu failed: %s", number, strerror((int)-result));
        return;
    }
    char *bytes = reads->memory + buffer_offset(reads, seen->arrived);
    if (crc32c(0, bytes, buffer->length) != buffer->checksum) {
        pull_reads_fail(seen, -EILSEQ, "chunk %llu has a wrong checksum", number);
        return;
    }
    if (reads->seal) {
        if (!pull_seal_open(reads->seal, seen->arrived, bytes, buffer->length)) {
            pull_reads_fail(seen, -EBADMSG, "chunk %llu was changed on its way: its tag is wrong", number);
            return;
        }
        buffer->length -= PULL_TAG_SIZE;
    }
    seen->arrived++;
    seen->bytes += buffer->length;
    seen->keys = buffer->keys;
}

static void read_done(struct connection *conn, void *context, int64_t result) {
    struct reads *reads = context;
    reads->seen.called_back++;
    if (reads->orphaned) {
        if (reads->seen.called_back == reads->posted) release(reads);
        return;
    }
    chunk_read(reads, result);
    if (reads->params.arrived) reads->params.arrived(reads->params.context);
}

bool pull_reads_ready(const struct pull_reads *seen) {
    const struct reads *reads = of(seen);
    return !seen->error && seen->started - seen->arrived < reads->depth &&
           seen->started - seen->consumed < reads->params.buffers;
}

bool pull_reads_start(struct pull_reads *seen, struct connection *conn, const struct pull_offer *offer) {
    struct reads *reads = of(seen);
    if (offer->length <= (reads->seal ? PULL_TAG_SIZE : 0) || offer->length > reads->params.chunk_size) return false;
    *buffer_at(reads, seen->started) =
        (struct buffer){.length = offer->length, .checksum = offer->checksum, .keys = offer->keys};
    size_t offset = buffer_offset(reads, seen->started);
    seen->started++;
    int result =
        rdma_read_start(conn, &reads->window, offset, offer->address, offer->rkey, offer->length, read_done, reads);
    if (result < 0)
        pull_reads_fail(seen, result, "reading could not start: %s", strerror(-result));
    else
        reads->posted++;
    return true;
}

struct slice pull_reads_front(const struct pull_reads *seen) {
    struct reads *reads = of(seen);
    if (seen->consumed == seen->arrived) return SLICE("");
    return slice_make(reads->memory + buffer_offset(reads, seen->consumed), buffer_at(reads, seen->consumed)->length);
}

void pull_reads_next(struct pull_reads *seen) {
    seen->consumed++;
}

/* --- Keys --- */

static const char digits[] = "0123456789abcdef";

void pull_key_format(char text[PULL_KEY_TEXT], const struct pull_key *key) {
    for (size_t i = 0; i < PULL_KEY_SIZE; i++) {
        text[2 * i] = digits[key->bytes[i] >> 4];
        text[2 * i + 1] = digits[key->bytes[i] & 15];
    }
}

bool pull_key_parse(struct slice text, struct pull_key *key) {
    if (text.len != PULL_KEY_TEXT) return false;
    for (size_t i = 0; i < PULL_KEY_SIZE; i++) {
        const char *high = memchr(digits, text.data[2 * i], 16), *low = memchr(digits, text.data[2 * i + 1], 16);
        if (!high || !low) return false;
        key->bytes[i] = (unsigned char)((high - digits) << 4 | (low - digits));
    }
    return true;
}
