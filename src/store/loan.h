/* loan.h: values that a thread reads in place, while the main thread executes commands: for snapshot/.
 *
 * A loan is of one value, whose thread gets an entry with the same key, expiry and value. The entry of the database may
 * move, be renamed or relocated and get another expiry or access field: the thread does not read it. Until the loan has
 * ended the value stays where it is, and nothing changes it:
 *
 *     db_find() with LOOKUP_WRITE   recalls it, before a command changes it in place. LOOKUP_REPLACES: the caller only
 *     or LOOKUP_CHANGES             replaces or removes it, which needs no recall
 *     hash_expire_due()             recalls it; the expiry cycle skips it until then
 *     entry_free_value(),           leave a value that was deleted, replaced, expired or evicted to the loan, which
 *     entry_dispose()               frees it at its end. Tables that leave their database: the caller keeps them
 *                                   (parts.h)
 *     relocate_keys.h               skips it
 *     hash and set tables           are held: what iterates over them, or stops to, does not resize them
 *
 * Nothing else writes to a value: lookups, iterations, copies, samples and scans of all types only read. The reference
 * counts of blobs are atomic.
 *
 *     state       LENT -> READ -> RETURNED      loan_begin() and loan_return(), on the thread
 *                 LENT -> TAKEN_BACK            loan_take_back(), main thread
 *     end         loan_end(), main thread, in the states RETURNED and TAKEN_BACK
 *
 * While nothing is lent, a change tests one number. Main thread, except where it says something else. */
#pragma once
#include "lib/structures/linked_list.h"
#include "lib/system/likely.h"
#include "store/entry.h"

/* What two threads share of a loan; also of one of several entries (snapshot/data_view.h). */
enum lending_state { LENDING_LENT, LENDING_READ, LENDING_RETURNED, LENDING_TAKEN_BACK };
struct lending {
    _Atomic enum lending_state state;
    _Atomic bool one_left; /* the thread, or the main thread, needs it no more */
};
bool lending_begin(struct lending *lending);     /* on the thread. False: it was taken back: lending_drop() follows */
void lending_return(struct lending *lending);    /* on the thread; lending_drop() follows */
bool lending_take_back(struct lending *lending); /* main thread. False: the thread reads, or has returned it */
/* The last of both threads frees the memory: it gets true. */
bool lending_drop(struct lending *lending);
static inline bool lending_is_returned(const struct lending *lending) {
    return lending->state == LENDING_RETURNED;
}

struct value_loan {
    struct list_link link; /* in the list of all loans */
    struct entry *entry;   /* for the thread */
    int db;                /* the number that the caller gave */
    void *owner;           /* likewise */
    /* Ends the loan soon: by loan_take_back(), or when the thread has returned it. Calls loan_end(). */
    void (*recall)(struct value_loan *loan);
    struct lending lending;
    uint64_t number; /* for the owner */
    bool awaited;    /* a client waits for its end; set by the owner */
    bool detached;   /* no entry has the value any more */
    size_t bytes;    /* of a detached value, about */
};

/* The entry must have a value of a type other than string and extension. */
struct value_loan *loan_new(const struct entry *entry, int db, void (*recall)(struct value_loan *loan), void *owner);
/* On the thread. False: it was taken back, and is gone. */
bool loan_begin(struct value_loan *loan);
void loan_refuse(struct value_loan *loan); /* main thread: no thread gets it, and loan_end() follows */
void loan_return(struct value_loan *loan); /* on the thread, which does not use it afterwards */
static inline bool loan_take_back(struct value_loan *loan) {
    return lending_take_back(&loan->lending);
}
static inline bool loan_is_returned(const struct value_loan *loan) {
    return lending_is_returned(&loan->lending);
}
void loan_end(struct value_loan *loan);

extern size_t loans_count; /* that have not ended */
struct value_loan *loan_find(void *owner,
                             bool (*wanted)(const struct value_loan *loan)); /* NULL: none; wanted: NULL: any */
size_t loans_detached_memory(void); /* bytes of values that no entry has any more */
/* The table over which a thread iterates that reads the value; a set or a hash that has one. While it is held it is not
 * resized, whatever else iterates over it. */
void value_hold(const struct entry *entry);
void value_release(const struct entry *entry);

bool loan_has(const struct entry *entry);
struct value_loan *loan_of(const struct entry *entry); /* NULL: its value is not lent */
void loan_recall(const struct entry *entry);
bool loan_keeps(const struct entry *entry, int db); /* true: the loan frees the value when it ends */
static inline bool value_is_lent(const struct entry *entry) {
    return unlikely(loans_count != 0) && loan_has(entry);
}
static inline void before_value_changes(const struct entry *entry) {
    if (unlikely(loans_count != 0)) loan_recall(entry);
}
