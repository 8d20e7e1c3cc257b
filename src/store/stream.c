/* stream.c: see stream.h. */
#include "store/stream.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "store/stream_group.h"
#include "store/types_private.h"

enum { EXPECTED_BYTES_MAX = 4096 };

/* --- Nodes --- */

static bool node_at(struct radix_iterator *it, enum radix_seek how, struct stream_id id) {
    char key[STREAM_ID_BYTES];
    stream_id_encode(key, id);
    return radix_iterator_seek(it, how, slice_make(key, sizeof key));
}
static void node_add(struct stream *stream, struct stream_id master, uint8_t *lp) {
    char key[STREAM_ID_BYTES];
    stream_id_encode(key, master);
    radix_tree_set(stream->nodes, slice_make(key, sizeof key), lp, NULL);
    stream->tail = lp;
    stream->tail_id = master;
}
/* Stores the listpack of a node after a change, which may have moved it. */
static void node_keep(struct stream *stream, const struct stream_node *node, uint8_t *lp) {
    char key[STREAM_ID_BYTES];
    if (lp == node->lp) return;
    stream_id_encode(key, node->master);
    radix_tree_set(stream->nodes, slice_make(key, sizeof key), lp, NULL);
    if (stream->tail == node->lp) stream->tail = lp;
}
static void node_remove(struct stream *stream, const struct stream_node *node) {
    char key[STREAM_ID_BYTES];
    void *lp = NULL;
    stream_id_encode(key, node->master);
    radix_tree_remove(stream->nodes, slice_make(key, sizeof key), &lp);
    must(lp && lp == node->lp);
    if (stream->tail == lp) stream->tail = NULL;
    listpack_free(lp);
}
/* Caches the last node in `tail`. */
static void find_tail(struct stream *stream) {
    struct radix_iterator it;
    if (stream->tail) return;
    radix_iterator_init(&it, stream->nodes);
    if (radix_iterator_seek(&it, RADIX_LAST, SLICE(""))) {
        stream->tail = it.value;
        stream->tail_id = stream_id_decode(it.key.data);
    }
    radix_iterator_free(&it);
}

/* --- Insertion --- */

bool stream_next_id(const struct stream *stream, enum stream_id_form form, int64_t now_ms, struct stream_id *id) {
    struct stream_id next = stream->last_id;
    bool left = stream_id_increment(&next);
    if (form == STREAM_ID_CHOSEN) {
        id->ms = (uint64_t)now_ms;
        id->seq = 0;
        if (id->ms <= stream->last_id.ms) *id = next;
    } else if (form == STREAM_ID_MS_GIVEN) {
        id->seq = 0;
        if (id->ms == stream->last_id.ms) id->seq = stream->last_id.seq + 1;
    }
    return left && stream_id_compare(*id, stream->last_id) > 0;
}

static size_t texts_bytes(const struct slice *texts, size_t pairs) {
    size_t bytes = 0;
    for (size_t i = 0; i < pairs * 2; i++) bytes += texts[i].len;
    return bytes;
}
bool stream_fits(const struct slice *texts, size_t pairs) {
    return texts_bytes(texts, pairs) <= STREAM_NODE_BYTES_MAX;
}

static size_t node_bytes_max(void) {
    int64_t limit = encoding_limits.stream_node_bytes;
    return limit > 0 && limit < STREAM_NODE_BYTES_MAX ? (size_t)limit : STREAM_NODE_BYTES_MAX;
}
static bool tail_has_space(const struct stream *stream, size_t bytes) {
    struct stream_node node;
    uint64_t entries = (uint64_t)encoding_limits.stream_node_entries;
    if (listpack_bytes(stream->tail) + bytes >= node_bytes_max()) return false;
    if (!entries) return true;
    stream_node_open(&node, stream->tail, stream->tail_id);
    return node.count + node.deleted < entries;
}

bool stream_append(struct stream *stream, struct stream_id id, const struct slice *texts, size_t pairs) {
    size_t bytes = texts_bytes(texts, pairs), most = node_bytes_max();
    size_t expected = most < EXPECTED_BYTES_MAX ? most : EXPECTED_BYTES_MAX;
    if (bytes > STREAM_NODE_BYTES_MAX) return false;
    must(stream_id_compare(id, stream->last_id) > 0);
    find_tail(stream);
    struct stream_node tail = {.lp = stream->tail, .master = stream->tail_id};
    if (stream->tail && tail_has_space(stream, bytes)) {
        node_keep(stream, &tail, stream_node_append(stream->tail, tail.master, id, texts, pairs, expected));
    } else {
        if (stream->tail) node_keep(stream, &tail, listpack_shrink(stream->tail)); /* the node is full */
        node_add(stream, id, stream_node_new(texts, pairs, expected));
    }
    if (!stream->length++) stream->first_id = id;
    stream->last_id = id;
    stream->entries_added += stream->entries_added < INT64_MAX; /* XSETID may have set any value */
    return true;
}

/* --- Iteration --- */

static void enter_node(struct stream_iterator *it) {
    stream_node_open(&it->node, it->at.value, stream_id_decode(it->at.key.data));
    it->next = it->down ? stream_node_last(&it->node) : stream_node_first(&it->node);
}

static unsigned __int128 distance(struct stream_id from, struct stream_id to) {
    return ((unsigned __int128)to.ms << 64 | to.seq) - ((unsigned __int128)from.ms << 64 | from.seq);
}
/* Finds the start of the range in its first node. Searches from the end that is probably nearer, so that the most
 * recent entries, which are requested most often, are found quickly. The position may be a deleted entry. */
static void enter_first_node(struct stream_iterator *it) {
    struct stream_id begin = it->down ? it->last : it->first;
    struct stream_entry entry;
    enter_node(it);
    stream_entry_read(&entry, &it->node, stream_node_last(&it->node));
    bool behind = stream_id_compare(begin, entry.id) >= 0;
    bool end_nearer = distance(begin, entry.id) < distance(it->node.master, begin);
    if (behind) it->next = entry.flags;
    if (behind || end_nearer == it->down) return;
    const uint8_t *at = end_nearer ? entry.flags : stream_node_first(&it->node);
    for (it->next = NULL; at;) {
        stream_entry_read(&entry, &it->node, at);
        int order = stream_id_compare(entry.id, begin);
        if (!entry.deleted && (it->down ? order > 0 : order < 0)) break;
        it->next = at;
        at = it->down ? stream_entry_after(&it->node, &entry) : stream_entry_before(&it->node, &entry);
    }
}

void stream_iterate(struct stream_iterator *it, const struct stream *stream, struct stream_id first,
                    struct stream_id last, bool down) {
    it->first = first;
    it->last = last;
    it->down = down;
    it->begun = false;
    it->next = NULL;
    radix_iterator_init(&it->at, stream->nodes);
    if (node_at(&it->at, RADIX_AT_OR_BELOW, down ? last : first))
        enter_first_node(it);
    else if (!down && radix_iterator_seek(&it->at, RADIX_FIRST, SLICE("")))
        enter_node(it);
    it->done = !it->at.valid;
}

/* Moves to the next entry, live or deleted. */
static bool step(struct stream_iterator *it) {
    if (it->begun)
        it->next =
            it->down ? stream_entry_before(&it->node, &it->entry) : stream_entry_skip(&it->node, it->text, it->left);
    it->begun = true;
    while (!it->next) {
        if (!(it->down ? radix_iterator_prev(&it->at) : radix_iterator_next(&it->at))) return false;
        enter_node(it);
    }
    stream_entry_read(&it->entry, &it->node, it->next);
    it->text = it->entry.texts;
    it->left = it->entry.same_fields ? it->entry.fields : it->entry.fields * 2;
    return true;
}

bool stream_next(struct stream_iterator *it, struct stream_id *id, size_t *fields) {
    while (!it->done && step(it)) {
        if (it->entry.deleted) continue;
        bool above = stream_id_compare(it->entry.id, it->last) > 0;
        bool below = stream_id_compare(it->entry.id, it->first) < 0;
        if (it->down ? below : above) break;
        if (above || below) continue;
        it->master_field = it->node.field;
        *id = it->entry.id;
        *fields = it->entry.fields;
        return true;
    }
    it->done = true;
    return false;
}

void stream_field(struct stream_iterator *it, struct slice *field, struct slice *value) {
    const uint8_t **from = it->entry.same_fields ? &it->master_field : &it->text;
    *field = listpack_text(*from, it->field_text);
    *from = listpack_next(it->node.lp, *from);
    *value = listpack_text(it->text, it->value_text);
    it->text = listpack_next(it->node.lp, it->text);
    it->left -= it->entry.same_fields ? 1 : 2;
}

void stream_iterate_end(struct stream_iterator *it) {
    radix_iterator_free(&it->at);
}

/* Finds the first live entry of a range in iteration order. */
static bool edge(const struct stream *stream, struct stream_id first, struct stream_id last, bool down,
                 struct stream_id *id) {
    struct stream_iterator it;
    size_t fields;
    stream_iterate(&it, stream, first, last, down);
    bool found = stream_next(&it, id, &fields);
    stream_iterate_end(&it);
    return found;
}
bool stream_contains(const struct stream *stream, struct stream_id id) {
    struct stream_id found;
    return edge(stream, id, id, false, &found);
}
bool stream_last_entry(const struct stream *stream, struct stream_id *id) {
    return stream->length && edge(stream, STREAM_ID_MIN, STREAM_ID_MAX, true, id);
}
static void find_first(struct stream *stream) {
    if (!stream->length || !edge(stream, STREAM_ID_MIN, STREAM_ID_MAX, false, &stream->first_id))
        stream->first_id = STREAM_ID_MIN;
}

/* Counts the entries of one node, at most `limit`. Counts backwards, which is fast for the ids after a recently read
 * one, unless the node extends above `last`. */
static uint64_t node_count(const struct stream_node *node, struct stream_id first, struct stream_id last,
                           uint64_t limit) {
    struct stream_entry entry;
    uint64_t count = 0;
    const uint8_t *flags = stream_node_last(node);
    stream_entry_read(&entry, node, flags);
    bool down = stream_id_compare(entry.id, last) <= 0;
    if (down && stream_id_compare(node->master, first) >= 0) return node->count;
    if (!down) flags = stream_node_first(node);
    for (; flags && count < limit;
         flags = down ? stream_entry_before(node, &entry) : stream_entry_after(node, &entry)) {
        stream_entry_read(&entry, node, flags);
        if (entry.deleted) continue;
        bool above = stream_id_compare(entry.id, first) >= 0, below = stream_id_compare(entry.id, last) <= 0;
        if (down ? !above : !below) break;
        count += above && below;
    }
    return count;
}
uint64_t stream_count(const struct stream *stream, struct stream_id first, struct stream_id last, uint64_t limit) {
    struct radix_iterator it;
    uint64_t count = 0;
    if (!limit) limit = UINT64_MAX;
    radix_iterator_init(&it, stream->nodes);
    bool at = node_at(&it, RADIX_AT_OR_BELOW, first) || radix_iterator_seek(&it, RADIX_FIRST, SLICE(""));
    for (; at && count < limit; at = radix_iterator_next(&it)) {
        struct stream_node node;
        stream_node_open(&node, it.value, stream_id_decode(it.key.data));
        if (stream_id_compare(node.master, last) > 0) break;
        count += node_count(&node, first, last, limit - count);
    }
    radix_iterator_free(&it);
    return count < limit ? count : limit;
}

bool stream_has_gaps(const struct stream *stream, struct stream_id first, struct stream_id last) {
    struct stream_id deleted = stream->max_deleted_id;
    if (!stream->length || stream_id_is_zero(deleted)) return false;
    return stream_id_compare(deleted, first) >= 0 && stream_id_compare(deleted, last) <= 0;
}

/* --- Removal --- */

bool stream_delete(struct stream *stream, struct stream_id id) {
    struct stream_iterator it;
    struct stream_id found;
    size_t fields;
    stream_iterate(&it, stream, id, id, false);
    bool there = stream_next(&it, &found, &fields);
    stream_iterate_end(&it);
    if (!there) return false;
    if (it.node.count == 1) {
        node_remove(stream, &it.node);
    } else {
        uint8_t *lp = stream_node_mark(it.at.value, &it.entry.flags);
        node_keep(stream, &it.node, stream_node_count_deleted(lp, 1));
    }
    must(stream->length > 0);
    stream->length--;
    if (stream_id_compare(id, stream->max_deleted_id) > 0) stream->max_deleted_id = id;
    if (stream_id_equal(id, stream->first_id)) find_first(stream);
    return true;
}

/* True: the trim removes the whole node. */
static bool trims_whole(const struct stream *stream, const struct stream_trim *trim, const struct stream_node *node) {
    struct stream_entry last;
    if (trim->by == STREAM_TRIM_LENGTH) return stream->length - node->count >= trim->length;
    stream_entry_read(&last, node, stream_node_last(node));
    return stream_id_compare(last.id, trim->min) < 0;
}

/* Removes the first entries of a node that may keep some. True: first_id is an entry of this node. */
static bool trim_within(struct stream *stream, const struct stream_trim *trim, struct stream_node *node, uint8_t *lp,
                        uint64_t *removed) {
    struct stream_node now = *node; /* the current state while entries are marked */
    struct stream_entry entry;
    bool kept = false;
    *removed = 0;
    for (const uint8_t *flags = stream_node_first(&now); flags && !kept;) {
        stream_entry_read(&entry, &now, flags);
        if (!entry.deleted) {
            kept = trim->by == STREAM_TRIM_LENGTH ? stream->length - *removed <= trim->length
                                                  : stream_id_compare(entry.id, trim->min) >= 0;
            if (kept) break;
            uint8_t *before = lp;
            lp = stream_node_mark(lp, &flags);
            if (lp != before) stream_node_open(&now, lp, node->master);
            stream_entry_read(&entry, &now, flags);
            ++*removed;
        }
        flags = stream_entry_after(&now, &entry);
    }
    if (*removed) lp = stream_node_count_deleted(lp, *removed);
    node_keep(stream, node, lp);
    node->lp = lp;
    if (kept)
        stream->first_id = entry.id;
    else
        node_remove(stream, node);
    return kept;
}

uint64_t stream_trim_limit(void) {
    enum { NODES = 100, NODES_UNBOUNDED = 10000, MOST = 1000000 };
    int64_t entries = encoding_limits.stream_node_entries;
    if (entries <= 0) return NODES_UNBOUNDED;
    return entries > MOST / NODES ? MOST : (uint64_t)entries * NODES;
}
uint64_t stream_trim(struct stream *stream, const struct stream_trim *trim) {
    struct radix_iterator it;
    uint64_t removed = 0;
    bool more = trim->by != STREAM_TRIM_NOTHING, first_known = false;
    radix_iterator_init(&it, stream->nodes);
    while (more && radix_iterator_seek(&it, RADIX_FIRST, SLICE(""))) {
        struct stream_node node;
        uint64_t gone = 0;
        if (trim->by == STREAM_TRIM_LENGTH && stream->length <= trim->length) break;
        stream_node_open(&node, it.value, stream_id_decode(it.key.data));
        if (trim->limit && removed + node.count > trim->limit) break;
        more = trims_whole(stream, trim, &node);
        if (more) {
            gone = node.count;
            node_remove(stream, &node);
        } else if (!trim->approximate) {
            first_known = trim_within(stream, trim, &node, it.value, &gone);
        }
        must_within(gone, stream->length);
        stream->length -= gone;
        removed += gone;
    }
    radix_iterator_free(&it);
    if (removed && !first_known) find_first(stream);
    return removed;
}

/* --- Creation and destruction --- */

struct stream *stream_new(void) {
    struct stream *stream = mem_calloc(1, sizeof *stream);
    stream->nodes = radix_tree_new();
    return stream;
}
struct entry *stream_create(struct db *db, struct slice key) {
    return db_add_value(db, key, TYPE_STREAM, ENCODING_STREAM, stream_new());
}
void stream_free(struct stream *stream) {
    radix_tree_free(stream->nodes, mem_free);
    stream_groups_free(stream->groups);
    mem_free(stream);
}
void stream_add_node(struct stream *stream, struct stream_id master, uint8_t *lp, uint64_t count) {
    must(!stream->tail || stream_id_compare(master, stream->tail_id) > 0);
    node_add(stream, master, lp);
    stream->length += count;
    if (stream_id_is_zero(stream->first_id)) find_first(stream);
}

size_t stream_node_count(const struct stream *stream) {
    return radix_tree_len(stream->nodes);
}
size_t stream_tree_nodes(const struct stream *stream) {
    size_t nodes = radix_tree_nodes(stream->nodes) + radix_tree_runs(stream->nodes);
    return nodes ? nodes : 1;
}

static void structure_free(void *value, enum value_encoding encoding) {
    stream_free(value);
}
static size_t structure_free_effort(const void *value, enum value_encoding encoding) {
    const struct stream *stream = value;
    return radix_tree_nodes(stream->nodes) + radix_tree_len(stream->nodes) + stream_groups_allocations(stream->groups);
}
static void *node_copy(void *lp) {
    return listpack_copy(lp);
}
static void *structure_copy(const void *value, enum value_encoding encoding) {
    const struct stream *from = value;
    struct stream *copy = mem_alloc(sizeof *copy);
    *copy = *from;
    copy->nodes = radix_tree_copy(from->nodes, node_copy);
    copy->groups = stream_groups_copy(from->groups);
    copy->tail = NULL;
    return copy;
}
/* The last node, which may have spare memory, is measured separately. */
static size_t structure_memory(const void *value, enum value_encoding encoding, size_t samples) {
    const struct stream *stream = value;
    size_t bytes = mem_size(stream) + radix_tree_memory(stream->nodes), measured = 0, measured_bytes = 0;
    size_t full = radix_tree_len(stream->nodes);
    struct radix_iterator it;
    radix_iterator_init(&it, stream->nodes);
    if (radix_iterator_seek(&it, RADIX_LAST, SLICE(""))) {
        bytes += mem_size(it.value);
        full--;
    }
    for (bool more = full && radix_iterator_seek(&it, RADIX_FIRST, SLICE(""));
         more && measured < full && measured < samples; more = radix_iterator_next(&it), measured++)
        measured_bytes += mem_size(it.value);
    radix_iterator_free(&it);
    if (measured) bytes += (size_t)((double)measured_bytes / (double)measured * (double)full);
    return bytes + stream_groups_memory(stream->groups);
}

static size_t common(const char *a, const char *b) {
    size_t i = 0;
    while (i < STREAM_ID_BYTES && a[i] == b[i]) i++;
    return i;
}
/* The cursor is the time of the next node's master id, in milliseconds: all nodes of a millisecond are done in one
 * call. The groups with their trees, consumers and pending entries do not move. */
static uint64_t structure_relocate(void **value, enum value_encoding encoding, uint64_t cursor, struct relocation *r) {
    uint64_t begin = r->moved + r->stayed, next = 0;
    if (!cursor) relocate_block(r, value);
    struct stream *stream = *value;
    if (!cursor) {
        void *tree = stream->nodes;
        relocate_block(r, &tree);
        stream->nodes = tree;
    }
    struct stream_id at = {cursor, 0};
    struct radix_iterator it;
    char key[STREAM_ID_BYTES], before[STREAM_ID_BYTES];
    bool begun = false;
    radix_iterator_init(&it, stream->nodes);
    for (bool more = node_at(&it, RADIX_AT_OR_ABOVE, at); more; more = node_at(&it, RADIX_ABOVE, at)) {
        struct stream_id id = stream_id_decode(it.key.data);
        if (r->moved + r->stayed - begin >= r->limit && id.ms > at.ms) {
            next = id.ms;
            break;
        }
        void *lp = it.value, *old = lp;
        at = id;
        stream_id_encode(key, id);
        size_t known = begun ? common(key, before) : 0; /* the nodes above the branch are done */
        memcpy(before, key, sizeof before);
        begun = true;
        relocate_block(r, &lp);
        if (lp != old) {
            radix_tree_set(stream->nodes, slice_make(key, sizeof key), lp, &old);
            if (stream->tail == old) stream->tail = lp;
        }
        radix_tree_relocate_path(stream->nodes, slice_make(key, sizeof key), known, r);
    }
    radix_iterator_free(&it);
    return next;
}
const struct value_ops stream_ops = {structure_free, structure_free_effort, structure_copy, structure_memory,
                                     structure_relocate};
