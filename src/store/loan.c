/* loan.c: see loan.h. There are few loans at a time: a list. */
#include "store/loan.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/thread.h"
#include "store/hash.h"
#include "store/keyspace_layout.h"
#include "store/set.h"
#include <stdatomic.h>

enum { SAMPLES = 100, MEASURED_ALL = 10000 };

size_t loans_count;
static struct list loans = LIST_INIT(loans);

/* The thread iterates over tables of hashes and sets; sorted sets are read by their skiplist. */
static struct hashtable *iterated_table(const struct entry *e) {
    return e->type == TYPE_HASH ? hash_table(e) : e->type == TYPE_SET ? set_table(e) : NULL;
}

void value_hold(const struct entry *entry) {
    struct hashtable *table = iterated_table(entry);
    if (table) hashtable_hold(table);
}
void value_release(const struct entry *entry) {
    struct hashtable *table = iterated_table(entry);
    if (table) hashtable_release(table);
}

bool lending_begin(struct lending *lending) {
    enum lending_state state = LENDING_LENT;
    if (atomic_compare_exchange_strong(&lending->state, &state, LENDING_READ)) return true;
    must_equal(state, LENDING_TAKEN_BACK);
    return false;
}
void lending_return(struct lending *lending) {
    enum lending_state before = atomic_exchange(&lending->state, LENDING_RETURNED);
    must_equal(before, LENDING_READ);
}
bool lending_take_back(struct lending *lending) {
    enum lending_state state = LENDING_LENT;
    must_be_main_thread();
    return atomic_compare_exchange_strong(&lending->state, &state, LENDING_TAKEN_BACK);
}
bool lending_drop(struct lending *lending) {
    return atomic_exchange(&lending->one_left, true);
}

struct value_loan *loan_new(const struct entry *entry, int db, void (*recall)(struct value_loan *loan), void *owner) {
    must_be_main_thread();
    must(entry->type != TYPE_STRING && entry->type != TYPE_EXTENSION);
    struct value_loan *loan = mem_calloc(1, sizeof *loan);
    loan->entry = entry_under_key(entry, entry_key_inline(entry));
    loan->db = db;
    loan->recall = recall;
    loan->owner = owner;
    value_hold(entry);
    list_append(&loans, &loan->link);
    loans_count++;
    return loan;
}

static void loan_drop(struct value_loan *loan) {
    if (lending_drop(&loan->lending)) mem_free(loan);
}

bool loan_begin(struct value_loan *loan) {
    bool began = lending_begin(&loan->lending);
    if (!began) loan_drop(loan);
    return began;
}

void loan_refuse(struct value_loan *loan) {
    bool taken = loan_take_back(loan);
    must(taken);
    loan_drop(loan);
}

void loan_return(struct value_loan *loan) {
    lending_return(&loan->lending);
    loan_drop(loan);
}

struct value_loan *loan_of(const struct entry *e) {
    if (e->type == TYPE_STRING || e->type == TYPE_EXTENSION) return NULL;
    list_each_entry(&loans, struct value_loan, link, loan) {
        if (!loan->detached && entry_pointer(loan->entry) == entry_pointer(e)) return loan;
    }
    return NULL;
}

/* Another loan of a detached value has to free it. */
static bool passed_on(const struct value_loan *ended) {
    list_each_entry(&loans, struct value_loan, link, loan) {
        if (entry_pointer(loan->entry) != entry_pointer(ended->entry)) continue;
        loan->detached = true;
        loan->bytes = ended->bytes;
        return true;
    }
    return false;
}

void loan_end(struct value_loan *loan) {
    must_be_main_thread();
    must(loan->lending.state == LENDING_RETURNED || loan->lending.state == LENDING_TAKEN_BACK);
    must(loans_count > 0);
    list_remove(&loans, &loan->link);
    loans_count--;
    value_release(loan->entry);
    if (loan->detached && !passed_on(loan))
        entry_dispose(loan->entry, -1, true);
    else
        mem_free(loan->entry);
    loan_drop(loan);
}

struct value_loan *loan_find(void *owner, bool (*wanted)(const struct value_loan *loan)) {
    list_each_entry(&loans, struct value_loan, link, loan) {
        if (loan->owner == owner && (!wanted || wanted(loan))) return loan;
    }
    return NULL;
}

size_t loans_detached_memory(void) {
    size_t bytes = 0;
    list_each_entry(&loans, const struct value_loan, link, loan) bytes += loan->bytes;
    return bytes;
}

bool loan_has(const struct entry *entry) {
    return loan_of(entry) != NULL;
}

void loan_recall(const struct entry *entry) {
    for (struct value_loan *loan; (loan = loan_of(entry));) {
        size_t count = loans_count;
        loan->recall(loan);
        must_less(loans_count, count);
    }
}

bool loan_keeps(const struct entry *entry, int db) {
    struct value_loan *loan = loan_of(entry);
    if (!loan) return false;
    must_be_main_thread();
    /* The sum is left out of what maxmemory counts: it must not be a guess far above the truth. */
    bool all = entry_allocations(entry) <= MEASURED_ALL;
    size_t bytes = entry_memory(entry, db, all ? SIZE_MAX : SAMPLES), most = mem_used() / 2;
    loan->bytes = bytes < most ? bytes : most;
    loan->detached = true;
    return true;
}
