/* data_view.c: see data_view.h. */
#include "snapshot/data_view.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/thread.h"
#include "store/before_change.h"
#include "store/parts.h"
#include <string.h>

enum {
    WORD_BITS = 64,
    VISITS = 1024, /* parts that a step looks at */
    /* Bytes that count as another entry in a batch: of a string that the reader refers to, and of a collection, */
    BLOB_BYTES = 2048,
    COLLECTION_BYTES = 128,
    ALLOCATION_BYTES = 256, /* and as an allocation of a collection that may be lent alone */
    KEPT_MAX = 4            /* while values are lent */
};

/* The keys of a database at the start. */
struct db_view {
    struct key_parts *parts; /* NULL: the snapshot has finished */
    uint64_t *given;         /* a bit for each part */
    size_t given_parts;
    int db; /* the number of the database at the start */
};

struct data_view {
    struct data_view *next; /* in `running` */
    struct keyspace *keyspace;
    struct data_view_reader reader;
    size_t keys, given, loans, batches;
    uint64_t lendings; /* loans and batches so far: the next one's number */
    bool finished;
    int databases, turn; /* the view where data_view_step() continues, */
    struct part at;      /* and its part */
    struct list lent;    /* batches */
    /* Tables that left while entries and values were lent: one may be in them, wherever it was moved. In the order of
     * their departure. */
    struct kept {
        struct departed *tables;
        uint64_t lendings; /* loans and batches until then */
    } * kept;
    size_t kept_count, kept_capacity;
    struct db_view **view_of; /* by the present number of the database that has, or had, its keys */
    struct db_view views[];
};

static struct data_view *running;

static bool part_given(const struct db_view *view, struct part part) {
    return view->given[part.number / WORD_BITS] >> part.number % WORD_BITS & 1;
}

struct giving {
    struct data_view *snapshot;
    int db;
    bool changes; /* a command is about to change one of the entries */
};

static size_t collection_bytes(const struct entry *entry) {
    enum { SAMPLES = 3 };
    return entry_memory(entry, -1, SAMPLES);
}

static bool is_lendable(const struct data_view *s, const struct entry *entry, bool changes) {
    enum value_type type = entry_type(entry);
    if (!s->reader.lend || type == TYPE_STRING || type == TYPE_EXTENSION) return false;
    size_t least = changes ? s->reader.lend_min_changed : s->reader.lend_min;
    return entry_allocations(entry) >= least || collection_bytes(entry) >= least * ALLOCATION_BYTES;
}

static void recall(struct value_loan *loan) {
    const struct data_view *s = loan->owner;
    size_t before = s->loans;
    s->reader.recall(s->reader.context, loan);
    must_equal(s->loans + 1, before);
}

static void give_entry(void *context, struct entry *entry) {
    const struct giving *giving = context;
    struct data_view *s = giving->snapshot;
    must_less(s->given, s->keys);
    s->given++;
    if (s->loans < LOANS_MAX && is_lendable(s, entry, giving->changes)) {
        struct value_loan *loan = loan_new(entry, giving->db, recall, s);
        loan->number = s->lendings++;
        s->loans++;
        s->reader.lend(s->reader.context, loan);
    } else {
        s->reader.entry(s->reader.context, giving->db, entry);
    }
}

static void set_given(struct db_view *view, struct part part) {
    must(!part_given(view, part) && view->given_parts < parts_count(view->parts));
    view->given[part.number / WORD_BITS] |= (uint64_t)1 << part.number % WORD_BITS;
    view->given_parts++;
}

static void give(struct data_view *s, struct db_view *view, struct part part, bool changes) {
    set_given(view, part);
    parts_visit(view->parts, part, give_entry, &(struct giving){s, view->db, changes});
}

/* --- Batches --- */

struct collecting {
    const struct data_view *snapshot;
    struct lent_batch *batch;
    bool refused; /* the part cannot be in this batch */
};

static void collect_entry(void *context, struct entry *entry) {
    struct collecting *collecting = context;
    struct lent_batch *batch = collecting->batch;
    enum value_type type = entry_type(entry);
    if (collecting->refused) return;
    collecting->refused =
        batch->count == LENT_ENTRIES || type == TYPE_EXTENSION || is_lendable(collecting->snapshot, entry, false);
    if (collecting->refused) return;
    batch->entry[batch->count++] = entry;
    batch->work++;
    if (type == TYPE_STRING) {
        const struct blob *blob = entry_blob(entry);
        if (blob) batch->work += blob->len / BLOB_BYTES;
    } else {
        batch->work += 4 * entry_allocations(entry) + collection_bytes(entry) / COLLECTION_BYTES;
        batch->collections = true;
    }
}

static bool collect_part(struct data_view *s, struct db_view *view, struct part part, struct lent_batch *batch) {
    struct collecting collecting = {s, batch, false};
    size_t count = batch->count;
    parts_visit(view->parts, part, collect_entry, &collecting);
    if (collecting.refused) {
        batch->count = count;
        return false;
    }
    set_given(view, part);
    if (batch->count == count) return true;
    batch->part[batch->parts++] = part.number;
    s->given += batch->count - count;
    must_within(s->given, s->keys);
    return true;
}

static void hold_values(const struct lent_batch *batch, void (*each)(const struct entry *entry)) {
    for (size_t i = 0; batch->collections && i < batch->count; i++)
        if (entry_type(batch->entry[i]) != TYPE_STRING) each(batch->entry[i]);
}

/* Lends the next parts of the database at hand, or passes some that are empty or were given. False: the next part
 * cannot be in a batch, or there is none. */
static bool lend_parts(struct data_view *s) {
    if (s->turn == s->databases) return false;
    struct db_view *view = &s->views[s->turn];
    size_t count = parts_count(view->parts), most = s->reader.batch_parts;
    if (!most || most > LENT_PARTS) most = LENT_PARTS;
    struct lent_batch *batch = mem_alloc(sizeof *batch);
    *batch = (struct lent_batch){.owner = s, .view = view, .db = view->db};
    s->at = parts_settle(view->parts, s->at);
    unsigned slot = s->at.slot, visits = 0;
    while (s->at.number < count && visits++ < VISITS && batch->parts < most && batch->work < LENT_WORK) {
        struct part part = s->at;
        if (part.slot != slot && batch->count) break;
        slot = part.slot;
        parts_prefetch_next(view->parts, part);
        if (!part_given(view, part) && !collect_part(s, view, part, batch)) break;
        s->at = parts_next(view->parts, part);
    }
    if (!batch->count) {
        mem_free(batch);
        return visits > VISITS;
    }
    batch->slot = slot;
    hold_values(batch, value_hold);
    batch->number = s->lendings++;
    list_append(&s->lent, &batch->link);
    s->batches++;
    s->reader.lend_batch(s->reader.context, batch);
    return true;
}

void lent_batch_drop(struct lent_batch *batch) {
    if (lending_drop(&batch->lending)) mem_free(batch);
}

static struct lent_batch *batch_of(struct data_view *s, const struct db_view *view, struct part part) {
    if (!s->batches) return NULL;
    list_each_entry(&s->lent, struct lent_batch, link, batch) {
        if (batch->view != view || part.number < batch->part[0] || part.number > batch->part[batch->parts - 1])
            continue;
        for (size_t i = 0; i < batch->parts; i++)
            if (batch->part[i] == part.number) return batch;
    }
    return NULL;
}

static void recall_batch(struct data_view *s, struct lent_batch *batch) {
    size_t before = s->batches;
    s->reader.recall_batch(s->reader.context, batch);
    must_equal(s->batches + 1, before);
}

/* --- Changes --- */

static struct db_view *view_of(const struct data_view *s, const struct db *db) {
    struct db_view *view = s->view_of[db_id(db)];
    must(parts_db(view->parts) == NULL || parts_db(view->parts) == db);
    return view;
}

static void data_view_key_changes(struct db *db, struct slice key) {
    for (struct data_view *s = running; s; s = s->next) {
        struct part part;
        if (db_keyspace(db) != s->keyspace) continue;
        struct db_view *view = view_of(s, db);
        if (!parts_find(view->parts, key, &part)) continue;
        if (part_given(view, part)) {
            struct lent_batch *batch = batch_of(s, view, part);
            if (batch) recall_batch(s, batch);
            continue;
        }
        parts_prefetch(view->parts, part);
        give(s, view, part, true);
    }
}

static bool data_view_key_announced(struct db *db, struct slice key) {
    for (struct data_view *s = running; s; s = s->next) {
        struct part part;
        if (db_keyspace(db) != s->keyspace) continue;
        const struct db_view *view = view_of(s, db);
        if (!parts_find(view->parts, key, &part)) continue;
        if (!part_given(view, part) || batch_of(s, view, part)) return false;
    }
    return true;
}

static bool data_view_key_lent(struct db *db, struct slice key) {
    for (struct data_view *s = running; s; s = s->next) {
        struct part part;
        if (db_keyspace(db) != s->keyspace || !s->batches) continue;
        const struct db_view *view = view_of(s, db);
        if (parts_find(view->parts, key, &part) && batch_of(s, view, part)) return true;
    }
    return false;
}

/* Whether the keys, or those of a slot, which are about to leave, are in batches. */
static bool has_keys_lent(struct data_view *s, const struct db_view *view, int slot) {
    if (!parts_db(view->parts)) return false; /* they have left before */
    list_each_entry(&s->lent, const struct lent_batch, link, batch) {
        if (batch->view == view && (slot < 0 || batch->slot == (unsigned)slot)) return true;
    }
    return false;
}

static void data_view_keys_left(struct db *db, int slot, struct departed *tables) {
    for (struct data_view *s = running; s; s = s->next) {
        if (db_keyspace(db) != s->keyspace) continue;
        const struct db_view *view = view_of(s, db);
        bool lent = has_keys_lent(s, view, slot);
        bool gives = view->given_parts < parts_count(view->parts);
        if (parts_db(view->parts)) parts_left(view->parts, slot, gives ? tables : NULL);
        /* So that no number of tables is kept, the last ones wait until lent values are read. */
        if (s->kept_count >= KEPT_MAX)
            for (struct value_loan *loan; (loan = loan_find(s, NULL));) recall(loan);
        if (!s->loans && !lent) continue;
        mem_grow(s->kept, s->kept_count, s->kept_capacity, 8);
        s->kept[s->kept_count++] = (struct kept){departed_hold(tables), s->lendings};
    }
}

static void data_view_swapped(struct db *a, struct db *b) {
    for (struct data_view *s = running; s; s = s->next) {
        if (db_keyspace(a) != s->keyspace) continue;
        struct db_view *of_a = view_of(s, a), *of_b = view_of(s, b);
        if (parts_db(of_a->parts)) parts_set_db(of_a->parts, b);
        if (parts_db(of_b->parts)) parts_set_db(of_b->parts, a);
        s->view_of[db_id(a)] = of_b;
        s->view_of[db_id(b)] = of_a;
    }
}

static const struct before_change hooks = {.key = data_view_key_changes,
                                           .announced = data_view_key_announced,
                                           .lent = data_view_key_lent,
                                           .left = data_view_keys_left,
                                           .swapped = data_view_swapped};

/* --- Loans --- */

static const struct entry *entry_of(struct db *db, struct slice key) {
    return db_find(db, key, LOOKUP_NOTOUCH | LOOKUP_NOSTATS | LOOKUP_NOEXPIRE);
}

struct value_loan *data_view_lends(struct db *db, struct slice key) {
    const struct entry *entry = running ? entry_of(db, key) : NULL;
    struct value_loan *loan = entry ? loan_of(entry) : NULL;
    if (!entry || loan) return loan;
    bool gave = false;
    for (struct data_view *s = running; s && !gave; s = s->next) {
        struct part part;
        if (db_keyspace(db) != s->keyspace || !is_lendable(s, entry, true)) continue;
        struct db_view *view = view_of(s, db);
        if (!parts_find(view->parts, key, &part) || part_given(view, part)) continue;
        give(s, view, part, true);
        gave = true;
    }
    if (!gave) return NULL;
    entry = entry_of(db, key); /* a module that saved its value may have changed anything */
    return entry ? loan_of(entry) : NULL;
}

/* The tables that left before the oldest loan and the oldest batch were lent. */
static void release_kept(struct data_view *s) {
    if (!s->kept_count) return;
    const struct value_loan *loan = loan_find(s, NULL);
    uint64_t oldest = loan ? loan->number : UINT64_MAX;
    if (s->batches) {
        const struct lent_batch *batch = container_of(list_first(&s->lent), struct lent_batch, link);
        if (batch->number < oldest) oldest = batch->number;
    }
    size_t count = 0;
    while (count < s->kept_count && s->kept[count].lendings <= oldest) departed_release(s->kept[count++].tables);
    s->kept_count -= count;
    memmove(s->kept, s->kept + count, s->kept_count * sizeof *s->kept);
    if (s->kept_count) return;
    mem_free(s->kept);
    s->kept = NULL;
    s->kept_capacity = 0;
}

void data_view_loan_ended(struct value_loan *loan) {
    struct data_view *s = loan->owner;
    must(s->loans > 0);
    s->loans--;
    loan_end(loan);
    release_kept(s);
}

void data_view_batch_ended(struct lent_batch *batch) {
    struct data_view *s = batch->owner;
    must_be_main_thread();
    must(batch->lending.state == LENDING_RETURNED || batch->lending.state == LENDING_TAKEN_BACK);
    must(s->batches > 0);
    hold_values(batch, value_release);
    list_remove(&s->lent, &batch->link);
    s->batches--;
    lent_batch_drop(batch);
    release_kept(s);
}

struct lent_batch *data_view_returned_batch(struct data_view *s) {
    list_each_entry(&s->lent, struct lent_batch, link, batch) {
        if (lending_is_returned(&batch->lending)) return batch;
    }
    return NULL;
}

size_t data_view_batches(const struct data_view *s) {
    return s->batches;
}

void data_view_await(struct value_loan *loan) {
    const struct data_view *s = loan->owner;
    loan->awaited = true;
    if (s->reader.await) s->reader.await(s->reader.context);
}

size_t data_view_loans(const struct data_view *s) {
    return s->loans;
}

/* --- Start, steps, end --- */

struct data_view *data_view_start(struct keyspace *keyspace, const struct slot_bitmap *slots,
                                  const struct data_view_reader *reader) {
    must_be_main_thread();
    int databases = keyspace_databases(keyspace);
    struct data_view *s = mem_calloc(1, sizeof *s + (size_t)databases * sizeof *s->views);
    s->keyspace = keyspace;
    s->reader = *reader;
    s->databases = databases;
    list_init(&s->lent);
    store_settings.lending += reader->lend_batch != NULL;
    s->view_of = mem_alloc((size_t)databases * sizeof(struct db_view *));
    for (int i = 0; i < databases; i++) {
        struct db_view *view = s->view_of[i] = &s->views[i];
        view->db = i;
        view->parts = parts_new(keyspace_db(keyspace, i), slots);
        view->given = mem_calloc(parts_count(view->parts) / WORD_BITS + 1, sizeof *view->given);
        s->keys += parts_keys(view->parts);
    }
    s->next = running;
    running = s;
    before_change = &hooks;
    return s;
}

/* Changes concern the snapshot no more. */
static void retire(struct data_view *s) {
    if (!s->view_of) return;
    must(!s->loans && !s->batches); /* tables that have left may have lent values */
    store_settings.lending -= s->reader.lend_batch != NULL;
    struct data_view **link = &running;
    while (*link && *link != s) link = &(*link)->next;
    must(*link == s);
    *link = s->next;
    if (!running) before_change = NULL;
    for (int i = 0; i < s->databases; i++) {
        parts_free(s->views[i].parts);
        mem_free(s->views[i].given);
        s->views[i] = (struct db_view){.db = i};
    }
    must_equal(s->kept_count, 0);
    mem_free(s->view_of);
    s->view_of = NULL;
}

/* Gives the next part that was not given, or passes some that were. False: all are given. */
static bool give_next(struct data_view *s) {
    unsigned visits = 0;
    for (; s->turn < s->databases; s->turn++, s->at = (struct part){0}) {
        struct db_view *view = &s->views[s->turn];
        size_t count = parts_count(view->parts);
        while (s->at.number < count) {
            struct part part = s->at;
            s->at = parts_next(view->parts, part);
            parts_prefetch_next(view->parts, part);
            if (!part_given(view, part)) {
                give(s, view, part, false);
                return true;
            }
            if (++visits == VISITS) return true;
        }
        must_equal(view->given_parts, count);
    }
    return false;
}

/* All are given. False: and read. */
static bool is_read(struct data_view *s) {
    must_equal(s->given, s->keys);
    if (s->loans || s->batches) return true;
    s->finished = true;
    retire(s);
    return false;
}

bool data_view_step(struct data_view *s, uint64_t microseconds) {
    must_be_main_thread();
    if (s->finished) return false;
    uint64_t end = microseconds ? clock_monotonic_us() + microseconds : 0;
    do {
        if (!give_next(s)) return is_read(s);
    } while (microseconds && clock_monotonic_us() < end);
    return true;
}

bool data_view_lend_step(struct data_view *s) {
    must_be_main_thread();
    if (s->finished) return false;
    return lend_parts(s) || give_next(s) || is_read(s);
}

void data_view_end(struct data_view *s) {
    must_be_main_thread();
    for (struct value_loan *loan; (loan = loan_find(s, NULL));) recall(loan);
    while (s->batches) recall_batch(s, container_of(list_first(&s->lent), struct lent_batch, link));
    retire(s);
    mem_free(s);
}

size_t data_view_keys(const struct data_view *s) {
    return s->keys;
}
size_t data_view_given(const struct data_view *s) {
    return s->given;
}
