/* data_view.c: see data_view.h. */
#include "snapshot/data_view.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/thread.h"
#include "store/before_change.h"
#include "store/parts.h"

enum { WORD_BITS = 64 };

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
    size_t keys, given, loans;
    bool finished;
    int databases, turn;    /* the view where data_view_step() continues, */
    struct part at;         /* and its part */
    struct departed **kept; /* tables that left while values were lent: one may be in them, wherever it was moved */
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

static bool is_lendable(const struct data_view *s, const struct entry *entry, bool changes) {
    enum value_type type = entry_type(entry);
    return s->reader.lend && type != TYPE_STRING && type != TYPE_EXTENSION &&
           entry_allocations(entry) >= (changes ? s->reader.lend_min_changed : s->reader.lend_min);
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
        s->loans++;
        s->reader.lend(s->reader.context, loan_new(entry, giving->db, recall, s));
    } else {
        s->reader.entry(s->reader.context, giving->db, entry);
    }
}

static void give(struct data_view *s, struct db_view *view, struct part part, bool changes) {
    must(!part_given(view, part) && view->given_parts < parts_count(view->parts));
    view->given[part.number / WORD_BITS] |= (uint64_t)1 << part.number % WORD_BITS;
    view->given_parts++;
    parts_visit(view->parts, part, give_entry, &(struct giving){s, view->db, changes});
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
        if (!parts_find(view->parts, key, &part) || part_given(view, part)) continue;
        parts_prefetch(view->parts, part);
        give(s, view, part, true);
    }
}

static bool data_view_key_announced(struct db *db, struct slice key) {
    for (const struct data_view *s = running; s; s = s->next) {
        struct part part;
        if (db_keyspace(db) != s->keyspace) continue;
        const struct db_view *view = view_of(s, db);
        if (parts_find(view->parts, key, &part) && !part_given(view, part)) return false;
    }
    return true;
}

static void data_view_keys_left(struct db *db, int slot, struct departed *tables) {
    for (struct data_view *s = running; s; s = s->next) {
        if (db_keyspace(db) != s->keyspace) continue;
        const struct db_view *view = view_of(s, db);
        if (parts_db(view->parts) && view->given_parts < parts_count(view->parts))
            parts_left(view->parts, slot, tables);
        if (!s->loans) continue;
        mem_grow(s->kept, s->kept_count, s->kept_capacity, 8);
        s->kept[s->kept_count++] = departed_hold(tables);
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

static void release_kept(struct data_view *s) {
    while (s->kept_count) departed_release(s->kept[--s->kept_count]);
    mem_free(s->kept);
    s->kept = NULL;
    s->kept_capacity = 0;
}

void data_view_loan_ended(struct value_loan *loan) {
    struct data_view *s = loan->owner;
    must(s->loans > 0);
    s->loans--;
    loan_end(loan);
    if (!s->loans) release_kept(s);
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
    must_equal(s->loans, 0); /* tables that have left may have lent values */
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

/* Gives the next part that was not given. False: all are given. */
static bool give_next(struct data_view *s) {
    for (; s->turn < s->databases; s->turn++, s->at = (struct part){0}) {
        struct db_view *view = &s->views[s->turn];
        size_t count = parts_count(view->parts);
        while (s->at.number < count) {
            struct part part = s->at;
            s->at = parts_next(view->parts, part);
            parts_prefetch_next(view->parts, part);
            if (part_given(view, part)) continue;
            give(s, view, part, false);
            return true;
        }
        must_equal(view->given_parts, count);
    }
    return false;
}

bool data_view_step(struct data_view *s, uint64_t microseconds) {
    must_be_main_thread();
    if (s->finished) return false;
    uint64_t end = microseconds ? clock_monotonic_us() + microseconds : 0;
    do {
        if (give_next(s)) continue;
        must_equal(s->given, s->keys);
        if (s->loans) return true;
        s->finished = true;
        retire(s);
        return false;
    } while (microseconds && clock_monotonic_us() < end);
    return true;
}

void data_view_end(struct data_view *s) {
    must_be_main_thread();
    for (struct value_loan *loan; (loan = loan_find(s, NULL));) recall(loan);
    retire(s);
    mem_free(s);
}

size_t data_view_keys(const struct data_view *s) {
    return s->keys;
}
size_t data_view_given(const struct data_view *s) {
    return s->given;
}
