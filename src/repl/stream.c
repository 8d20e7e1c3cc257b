/* stream.c: see stream.h.
 *
 * Blocks form a list in the order of the stream. A block holds bytes in its own memory, or one blob. Only the last
 * block grows: an output writes into it, and its length is the output's position. When it is full, another block
 * follows, larger than the one before, up to BLOCK_MAX. After a blob the next block is small, because often only the
 * line end and the start of the next command precede the next blob.
 *
 * A reader pins the block of its position by a count. Blocks are freed only from the front of the list, up to the first
 * pinned one, so every reader can read on to the end. The backlog is such a reader, and always at the oldest position,
 * since it does not advance past a block that a replica has pinned. When that replica disconnects, many blocks may be
 * due; they are freed in steps.
 *
 * Without a backlog and without readers the list is empty. */
#include "repl/stream.h"
#include "lib/system/memory.h"
#include "lib/system/thread.h"
#include "repl/feed.h"
#include "repl/settings.h"
#include "server/role.h"
#include <string.h>

enum { BLOCK_MIN = 1024, BLOCK_MAX = 64 * 1024, BLOCK_GROWTH = 4, BLOCKS_IN_BACKLOG = 16 };
/* repl_stream_trim() stops when it has freed this many blocks and this many bytes. Freeing a small block is cheap, and
 * a few large blocks already hold TRIM_BYTES. */
enum { TRIM_BLOCKS = 64, TRIM_BYTES = 2 * 1024 * 1024 };

struct repl_stream_block {
    struct list_link link;
    int64_t offset;    /* of its first byte */
    size_t len;        /* not up to date for the block that grows: use block_len() */
    size_t memory;     /* bytes allocated, the blob included */
    uint32_t pins;     /* readers in it */
    struct blob *blob; /* NULL: the bytes are in data */
    char data[];
};

static struct {
    struct output out; /* writes into the last block; has no space if there is no block, or it is a blob */
    struct list blocks;
    struct list readers; /* attached readers, without the backlog */
    struct repl_stream_reader backlog;
    size_t next_size; /* of the next block */
    size_t memory, peak;
    struct repl_stream_block *mark; /* repl_stream_mark(); it is not freed */
    size_t mark_used;
} stream = {.blocks = LIST_INIT(stream.blocks), .readers = LIST_INIT(stream.readers), .next_size = BLOCK_MIN};

/* --- Blocks --- */

static struct repl_stream_block *block_of(struct list_link *link) {
    return link ? container_of(link, struct repl_stream_block, link) : NULL;
}
static struct repl_stream_block *last_block(void) {
    return stream.blocks.len ? block_of(stream.blocks.head.prev) : NULL;
}
static struct repl_stream_block *next_block(struct repl_stream_block *block) {
    return block_of(list_next(&stream.blocks, &block->link));
}

static inline size_t block_len(const struct repl_stream_block *block) {
    bool grows = stream.blocks.head.prev == &block->link && !block->blob;
    return grows ? (size_t)(stream.out.pos - block->data) : block->len;
}

static const char *block_data(const struct repl_stream_block *block) {
    return block->blob ? block->blob->data : block->data;
}

static int64_t stream_end(void) {
    struct repl_stream_block *last = last_block();
    return last ? last->offset + (int64_t)block_len(last) : role->position.offset;
}

static void memory_add(size_t bytes) {
    stream.memory += bytes;
    if (stream.memory > stream.peak) stream.peak = stream.memory;
}

static struct repl_stream_block *block_new(size_t size, int64_t offset) {
    size_t usable;
    struct repl_stream_block *block = mem_alloc_usable(sizeof *block + size, &usable);
    *block = (struct repl_stream_block){.offset = offset, .memory = usable};
    memory_add(usable);
    return block;
}

/* Lets the output write to the end of the last block, which must not be a blob. */
static void output_attach(struct repl_stream_block *block) {
    stream.out.pos = block->data + block->len;
    stream.out.end = (char *)block + block->memory;
}

static void append_block(struct repl_stream_block *block) {
    must_equal(block->offset, stream_end());
    /* The last block does not grow any more. */
    struct repl_stream_block *last = last_block();
    if (last) last->len = block_len(last);
    stream.out.pos = stream.out.end = NULL;
    list_append(&stream.blocks, &block->link);
    if (!block->blob) output_attach(block);
}

static void free_unread_blocks(void) {
    struct repl_stream_block *block;
    bool keep_last = stream.readers.len || stream.backlog.block;
    while ((block = block_of(list_first(&stream.blocks))) && !block->pins && block != stream.mark &&
           !(keep_last && block == last_block())) {
        list_remove(&stream.blocks, &block->link);
        must_within(block->memory, stream.memory);
        stream.memory -= block->memory;
        if (block->blob) blob_release(block->blob);
        mem_free(block);
    }
    if (stream.blocks.len) return;
    stream.out.pos = stream.out.end = NULL;
    stream.next_size = BLOCK_MIN;
}

static void enter(struct repl_stream_reader *reader, struct repl_stream_block *block, size_t used) {
    if (block) block->pins++;
    must(!reader->block || reader->block->pins > 0);
    if (reader->block) reader->block->pins--;
    reader->block = block;
    reader->used = used;
}

/* Frees the backlog's oldest blocks while repl-backlog-size bytes remain. The backlog keeps blocks that a slow replica
 * still needs: the memory is in use anyway, and other replicas can continue from there. */
void repl_stream_trim(void) {
    struct repl_stream_block *block = stream.backlog.block, *next;
    if (!block) {
        free_unread_blocks();
        return;
    }
    int64_t keep_from = stream_end() - repl_settings.backlog_size;
    size_t blocks = 0, memory = stream.memory;
    for (; (next = next_block(block)) && next->offset <= keep_from && block->pins == 1; blocks++) {
        if (blocks >= TRIM_BLOCKS && memory - stream.memory >= TRIM_BYTES) {
            repl_stream_excess = true;
            return;
        }
        enter(&stream.backlog, next, 0);
        free_unread_blocks();
        block = next;
    }
    repl_stream_excess = false;
}
bool repl_stream_excess;

/* --- Writing --- */

static void make_space(struct output *out, size_t len) {
    size_t size = stream.next_size < len ? len : stream.next_size;
    append_block(block_new(size, stream_end()));
    int64_t largest = repl_settings.backlog_size / BLOCKS_IN_BACKLOG; /* the backlog is trimmed by whole blocks */
    if (largest > BLOCK_MAX) largest = BLOCK_MAX;
    stream.next_size *= BLOCK_GROWTH;
    if ((int64_t)stream.next_size > largest) stream.next_size = (size_t)largest;
    repl_stream_trim();
}

static void share(struct output *out, struct blob *blob) {
    struct repl_stream_block *block = block_new(0, stream_end());
    size_t memory = blob_memory(blob);
    block->blob = blob;
    block->len = blob->len;
    block->memory += memory;
    memory_add(memory);
    append_block(block);
    stream.next_size = BLOCK_MIN;
    repl_stream_trim();
}

static const struct output_ops stream_ops = {.make_space = make_space, .share = share, .share_min = OUTPUT_SHARE_MIN};

bool repl_stream_active(void) {
    return stream.readers.len || stream.backlog.block;
}

struct output *repl_stream_output(void) {
    stream.out.ops = &stream_ops;
    return &stream.out;
}

void repl_stream_write(struct slice bytes) {
    if (repl_stream_active())
        output_write(repl_stream_output(), bytes);
    else
        role_set_offset(role->position.offset + (int64_t)bytes.len);
}

void repl_stream_write_blob(struct blob *blob) {
    struct output *out = repl_stream_output();
    if (!repl_stream_active())
        role_set_offset(role->position.offset + (int64_t)blob->len);
    else if (output_shares(out, blob))
        share(out, blob_hold(blob));
    else
        output_write(out, blob_slice(blob));
}

void repl_stream_written(void) {
    must_be_main_thread();
    if (stream.blocks.len) role_set_offset(stream_end());
}

/* --- The mark --- */

void repl_stream_mark(void) {
    must(repl_stream_active());
    if (!last_block() || last_block()->blob) make_space(repl_stream_output(), 1);
    stream.mark = last_block();
    stream.mark_used = block_len(stream.mark);
}

static void shift_blocks_after(struct repl_stream_block *block, size_t by) {
    while ((block = next_block(block))) block->offset += (int64_t)by;
}

/* Moves the bytes after the mark to a new block, after the inserted bytes. */
static void insert_block_at_mark(struct slice bytes) {
    struct repl_stream_block *mark = stream.mark;
    size_t tail = block_len(mark) - stream.mark_used;
    struct repl_stream_block *block = block_new(bytes.len + tail, mark->offset + (int64_t)stream.mark_used);
    bool was_last = mark == last_block();
    memcpy(block->data, bytes.data, bytes.len);
    memcpy(block->data + bytes.len, mark->data + stream.mark_used, tail);
    block->len = bytes.len + tail;
    mark->len = stream.mark_used;
    if (was_last) {
        list_append(&stream.blocks, &block->link);
        output_attach(block);
    } else {
        list_insert_before(&stream.blocks, mark->link.next, &block->link);
        shift_blocks_after(block, bytes.len);
    }
}

void repl_stream_insert_at_mark(struct slice bytes) {
    struct repl_stream_block *mark = stream.mark;
    must(mark);
    must_within(stream.mark_used, block_len(mark));
    if (mark == last_block() && (size_t)(stream.out.end - stream.out.pos) >= bytes.len) {
        char *at = mark->data + stream.mark_used;
        memmove(at + bytes.len, at, (size_t)(stream.out.pos - at));
        memcpy(at, bytes.data, bytes.len);
        stream.out.pos += bytes.len;
    } else {
        insert_block_at_mark(bytes);
    }
}

void repl_stream_unmark(void) {
    stream.mark = NULL;
}

bool repl_stream_is_marked(void) {
    return stream.mark != NULL;
}

/* --- The backlog --- */

bool repl_stream_has_backlog(void) {
    return stream.backlog.block != NULL;
}

static struct repl_stream_block *block_at_end(void) {
    if (!last_block() || last_block()->blob) {
        repl_stream_output();
        append_block(block_new(stream.next_size, stream_end()));
    }
    return last_block();
}

void repl_stream_create_backlog(void) {
    if (stream.backlog.block) return;
    struct repl_stream_block *last = block_at_end();
    enter(&stream.backlog, last, block_len(last));
    repl_feed_update();
}

void repl_stream_free_backlog(void) {
    enter(&stream.backlog, NULL, 0);
    free_unread_blocks();
    repl_feed_update();
}

int64_t repl_stream_backlog_start(void) {
    return repl_stream_reader_offset(&stream.backlog);
}

int64_t repl_stream_backlog_len(void) {
    return (int64_t)repl_stream_reader_lag(&stream.backlog);
}

/* --- Readers --- */

static void attach(struct repl_stream_reader *reader, struct repl_stream_block *block, size_t used) {
    must_within(used, block_len(block));
    enter(reader, block, used);
    list_append(&stream.readers, &reader->link);
    if (stream.readers.len == 1) repl_feed_update();
}

bool repl_stream_attach(struct repl_stream_reader *reader, int64_t offset) {
    int64_t end = stream_end();
    reader->block = NULL;
    if (offset == end) {
        repl_stream_attach_end(reader);
        return true;
    }
    if (!stream.backlog.block || offset < repl_stream_backlog_start() || offset > end) return false;
    struct repl_stream_block *block = stream.backlog.block, *next;
    while ((next = next_block(block)) && next->offset <= offset) block = next;
    attach(reader, block, (size_t)(offset - block->offset));
    return true;
}

void repl_stream_attach_end(struct repl_stream_reader *reader) {
    struct repl_stream_block *last = block_at_end();
    reader->block = NULL;
    attach(reader, last, block_len(last));
}

void repl_stream_attach_like(struct repl_stream_reader *reader, const struct repl_stream_reader *other) {
    reader->block = NULL;
    attach(reader, other->block, other->used);
}

void repl_stream_detach(struct repl_stream_reader *reader) {
    if (!reader->block) return;
    list_remove(&stream.readers, &reader->link);
    enter(reader, NULL, 0);
    repl_stream_trim();
    if (!stream.readers.len) repl_feed_update();
}

int64_t repl_stream_reader_offset(const struct repl_stream_reader *reader) {
    return reader->block ? reader->block->offset + (int64_t)reader->used : stream_end();
}

uint64_t repl_stream_reader_lag(const struct repl_stream_reader *reader) {
    must_within(repl_stream_reader_offset(reader), stream_end());
    return (uint64_t)(stream_end() - repl_stream_reader_offset(reader));
}

size_t repl_stream_read(struct repl_stream_reader *reader, struct output *out, size_t max) {
    struct repl_stream_block *before = reader->block;
    size_t read = 0;
    while (reader->block) {
        struct repl_stream_block *block = reader->block, *next = next_block(block);
        bool to_mark = block == stream.mark;
        size_t end = to_mark ? stream.mark_used : block_len(block);
        must_within(reader->used, end);
        size_t left = end - reader->used;
        if (!left) {
            if (!next || to_mark) break;
            enter(reader, next, 0);
            continue;
        }
        if (read >= max) break;
        if (block->blob && !reader->used && output_shares(out, block->blob)) {
            output_write_blob(out, block->blob);
        } else {
            if (left > max - read) left = max - read;
            output_write(out, (struct slice){block_data(block) + reader->used, left});
        }
        reader->used += left;
        read += left;
    }
    if (reader->block != before) repl_stream_trim();
    return read;
}

struct repl_stream_memory repl_stream_memory(void) {
    struct repl_stream_memory memory = {.blocks = stream.memory, .peak = stream.peak};
    size_t kept = stream.backlog.block ? (size_t)repl_settings.backlog_size : 0;
    memory.backlog = stream.memory < kept ? stream.memory : kept;
    memory.replicas = stream.memory - memory.backlog;
    return memory;
}
