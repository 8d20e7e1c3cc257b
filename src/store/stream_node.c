/* stream_node.c: see stream_node.h. */
#include "store/stream_node.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"

enum { FLAG_DELETED = 1, FLAG_SAME_FIELDS = 2, FLAGS_ALL = FLAG_DELETED | FLAG_SAME_FIELDS };
enum { HEAD_ELEMENTS = 3 /* FLAGS, MS, SEQ */, VALUES_AT_HAND = 64, CAPACITY_FIRST = 128 };

/* --- Reading --- */

static int64_t number_at(const uint8_t *element) {
    int64_t number = 0;
    bool valid = listpack_number(element, &number);
    must(valid); /* of a valid node (stream_node_validate()) */
    return number;
}
static const uint8_t *pass(const uint8_t *lp, const uint8_t *element, size_t count) {
    while (count--) element = listpack_next(lp, element);
    return element;
}

void stream_node_open(struct stream_node *node, const uint8_t *lp, struct stream_id master) {
    const uint8_t *count = listpack_first(lp), *deleted = listpack_next(lp, count);
    const uint8_t *fields = listpack_next(lp, deleted);
    node->lp = lp;
    node->master = master;
    node->count = (uint64_t)number_at(count);
    node->deleted = (uint64_t)number_at(deleted);
    node->fields = (size_t)number_at(fields);
    node->field = listpack_next(lp, fields);
    node->mark = pass(lp, node->field, node->fields);
}

void stream_entry_read(struct stream_entry *entry, const struct stream_node *node, const uint8_t *flags) {
    const uint8_t *ms = listpack_next(node->lp, flags), *seq = listpack_next(node->lp, ms);
    int64_t bits = number_at(flags);
    entry->flags = flags;
    entry->id.ms = node->master.ms + (uint64_t)number_at(ms);
    entry->id.seq = node->master.seq + (uint64_t)number_at(seq);
    entry->deleted = bits & FLAG_DELETED;
    entry->same_fields = bits & FLAG_SAME_FIELDS;
    entry->fields = node->fields;
    entry->texts = listpack_next(node->lp, seq);
    if (entry->same_fields) return;
    entry->fields = (size_t)number_at(entry->texts);
    entry->texts = listpack_next(node->lp, entry->texts);
}

const uint8_t *stream_node_first(const struct stream_node *node) {
    return listpack_next(node->lp, node->mark);
}
/* Returns the entry that ends with these ELEMENTS. */
static const uint8_t *entry_ending(const struct stream_node *node, const uint8_t *elements) {
    if (elements == node->mark) return NULL;
    const uint8_t *element = elements;
    for (int64_t left = number_at(elements); left > 0; left--) element = listpack_prev(node->lp, element);
    return element;
}
const uint8_t *stream_node_last(const struct stream_node *node) {
    return entry_ending(node, listpack_last(node->lp));
}
const uint8_t *stream_entry_before(const struct stream_node *node, const struct stream_entry *entry) {
    return entry_ending(node, listpack_prev(node->lp, entry->flags));
}
const uint8_t *stream_entry_skip(const struct stream_node *node, const uint8_t *text, size_t left) {
    return listpack_next(node->lp, pass(node->lp, text, left));
}
const uint8_t *stream_entry_after(const struct stream_node *node, const struct stream_entry *entry) {
    return stream_entry_skip(node, entry->texts, entry->same_fields ? entry->fields : entry->fields * 2);
}

/* --- Changes --- */

/* Collects elements to append them with one change. */
struct node_batch {
    struct listpack_value *values, at_hand[VALUES_AT_HAND];
    size_t count, most;
};
static void batch_begin(struct node_batch *batch, size_t most) {
    batch->most = most;
    batch->values = most <= VALUES_AT_HAND ? batch->at_hand : mem_alloc(most * sizeof *batch->values);
    batch->count = 0;
}
static void batch_number(struct node_batch *batch, int64_t number) {
    batch->values[batch->count++] = listpack_number_value(number);
}
static void batch_text(struct node_batch *batch, struct slice text) {
    batch->values[batch->count++] = listpack_text_value(text);
}
static void batch_entry(struct node_batch *batch, int64_t ms, int64_t seq, const struct slice *texts, size_t pairs,
                        bool same_fields) {
    batch_number(batch, same_fields ? FLAG_SAME_FIELDS : 0);
    batch_number(batch, ms);
    batch_number(batch, seq);
    if (!same_fields) batch_number(batch, (int64_t)pairs);
    for (size_t i = 0; i < pairs; i++) {
        if (!same_fields) batch_text(batch, texts[2 * i]);
        batch_text(batch, texts[2 * i + 1]);
    }
    batch_number(batch, (int64_t)(HEAD_ELEMENTS + (same_fields ? pairs : 1 + 2 * pairs)));
}
/* Memory grows by doubling, because entries are appended one at a time until the node is full. */
static uint8_t *batch_append(uint8_t *lp, struct node_batch *batch, size_t expected) {
    size_t bytes = listpack_bytes(lp), more = 0, capacity = mem_size(lp);
    must_within(batch->count, batch->most);
    for (size_t i = 0; i < batch->count; i++) { /* an upper bound */
        const struct listpack_value *value = &batch->values[i];
        bool small = value->data ? value->len < 64 : value->number >= 0 && value->number <= 127;
        more += value->len + (small ? 2 : 11);
    }
    if (bytes + more > capacity && capacity < expected) {
        size_t wanted = capacity * 2 > bytes + more ? capacity * 2 : bytes + more;
        lp = mem_realloc(lp, wanted < expected ? wanted : expected);
    }
    lp = listpack_append_many(lp, batch->values, batch->count);
    if (batch->values != batch->at_hand) mem_free(batch->values);
    return lp;
}

uint8_t *stream_node_new(const struct slice *texts, size_t pairs, size_t expected) {
    struct node_batch batch;
    batch_begin(&batch, 2 * HEAD_ELEMENTS + 2 + 2 * pairs);
    batch_number(&batch, 1);
    batch_number(&batch, 0);
    batch_number(&batch, (int64_t)pairs);
    for (size_t i = 0; i < pairs; i++) batch_text(&batch, texts[2 * i]);
    batch_number(&batch, 0);
    batch_entry(&batch, 0, 0, texts, pairs, true);
    return batch_append(listpack_new(expected < CAPACITY_FIRST ? expected : CAPACITY_FIRST), &batch, expected);
}

static bool fields_same(const struct stream_node *node, const struct slice *texts, size_t pairs) {
    const uint8_t *field = node->field;
    if (pairs != node->fields) return false;
    for (size_t i = 0; i < pairs; i++, field = listpack_next(node->lp, field))
        if (!listpack_equal(field, texts[2 * i])) return false;
    return true;
}

uint8_t *stream_node_append(uint8_t *lp, struct stream_id master, struct stream_id id, const struct slice *texts,
                            size_t pairs, size_t expected) {
    struct stream_node node;
    struct node_batch batch;
    stream_node_open(&node, lp, master);
    batch_begin(&batch, HEAD_ELEMENTS + 2 + 2 * pairs);
    batch_entry(&batch, (int64_t)(id.ms - master.ms), (int64_t)(id.seq - master.seq), texts, pairs,
                fields_same(&node, texts, pairs));
    lp = batch_append(lp, &batch, expected);
    uint8_t *count = listpack_first(lp);
    return listpack_replace(lp, &count, listpack_number_value((int64_t)node.count + 1));
}

uint8_t *stream_node_mark(uint8_t *lp, const uint8_t **flags) {
    uint8_t *element = lp + (*flags - lp);
    lp = listpack_replace(lp, &element, listpack_number_value(number_at(element) | FLAG_DELETED));
    *flags = element;
    return lp;
}

uint8_t *stream_node_count_deleted(uint8_t *lp, uint64_t deleted) {
    uint8_t *element = listpack_first(lp);
    lp = listpack_replace(lp, &element, listpack_number_value(number_at(element) - (int64_t)deleted));
    element = listpack_next(lp, element);
    return listpack_replace(lp, &element, listpack_number_value(number_at(element) + (int64_t)deleted));
}

/* --- Validation --- */

/* Iterates over elements of a valid listpack whose content is not validated yet. */
struct checking {
    const uint8_t *lp, *at; /* NULL: the end */
    bool failed;
};
static int64_t expect_number(struct checking *check) {
    int64_t number = 0;
    if (!check->at || !listpack_number(check->at, &number)) check->failed = true;
    if (check->at) check->at = listpack_next(check->lp, check->at);
    return number;
}
static size_t expect_count(struct checking *check) {
    int64_t number = expect_number(check);
    if (number < 0 || number > UINT32_MAX) check->failed = true;
    return check->failed ? 0 : (size_t)number;
}
static void expect_texts(struct checking *check, size_t count) {
    for (; count && check->at; count--) check->at = listpack_next(check->lp, check->at);
    if (count) check->failed = true;
}

/* Checks an entry; its id must be above *after. */
static bool entry_check(struct checking *check, struct stream_id master, size_t master_fields,
                        struct stream_id *after) {
    int64_t flags = expect_number(check);
    struct stream_id id = {master.ms + (uint64_t)expect_number(check), 0};
    id.seq = master.seq + (uint64_t)expect_number(check);
    bool same_fields = flags & FLAG_SAME_FIELDS, living = !(flags & FLAG_DELETED);
    size_t fields = same_fields ? master_fields : expect_count(check);
    size_t elements = same_fields ? fields : 1 + 2 * fields;
    expect_texts(check, same_fields ? fields : 2 * fields);
    if (expect_number(check) != (int64_t)(HEAD_ELEMENTS + elements) || flags & ~FLAGS_ALL) check->failed = true;
    if (stream_id_compare(id, *after) <= 0 || (living && stream_id_compare(id, master) < 0)) check->failed = true;
    if (living) *after = id;
    return living;
}

bool stream_node_validate(const uint8_t *bytes, size_t size, struct stream_id master, struct stream_id *after,
                          uint64_t *count) {
    if (size > STREAM_NODE_BYTES_MAX * 2ull || !listpack_validate(bytes, size, true, NULL, NULL)) return false;
    struct checking check = {.lp = bytes, .at = listpack_first(bytes)};
    size_t living = expect_count(&check), deleted = expect_count(&check), fields = expect_count(&check);
    expect_texts(&check, fields);
    if (expect_number(&check) != 0) check.failed = true; /* without fields: a module may add such entries */
    *count = living;
    while (check.at && !check.failed) {
        size_t *left = entry_check(&check, master, fields, after) ? &living : &deleted;
        if ((*left)-- == 0) return false;
    }
    return !check.failed && !living && !deleted;
}
