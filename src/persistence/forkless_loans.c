/* forkless_loans.c: large collections that the reader's thread of a save serializes in place; see forkless_private.h
 * and snapshot/data_view.h. */
#include "formats/rdb.h"
#include "lib/structures/hashtable.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "persistence/forkless_private.h"
#include "persistence/lent_values.h"
#include "server/server.h"
#include <errno.h>

/* --- The reader --- */

struct lent_reading {
    struct forkless *save;
    struct value_loan *loan;
    uint64_t keys; /* given, with this one */
    /* An RDB file: what precedes the value, which needs the main thread's clock. */
    struct memory_output head;
    enum rdb_type type;
};

static void serialize(struct forkless *f, const struct lent_reading *reading) {
    struct output *out = &f->lent.out;
    const struct value_loan *loan = reading->loan;
    f->lent_keys = reading->keys;
    if (f->save->content.format == SAVE_COMMANDS) {
        bool written = aof_write_entry(out, loan->entry, loan->db);
        must(written); /* only an extension can be without commands */
    } else {
        output_write(out, memory_output_slice(&reading->head));
        rdb_write_value(out, loan->entry, loan->db, reading->type);
    }
    deferred_output_flush(&f->lent);
}

static void read_loan(void *arg) {
    struct lent_reading *reading = arg;
    struct forkless *f = reading->save;
    if (loan_begin(reading->loan)) {
        hashtable_iterates_held(true);
        if (!f->stop) serialize(f, reading);
        hashtable_iterates_held(false);
        pthread_mutex_lock(&f->lock);
        loan_return(reading->loan);
        pthread_cond_broadcast(&f->changed);
        pthread_mutex_unlock(&f->lock);
        forkless_wake_main();
    }
    memory_output_free(&reading->head);
    mem_free(reading);
}

/* --- Loans --- */

uint64_t forkless_lent;

/* What follows in the stream has to come after the value: the batch at hand goes first. */
static int lend(struct forkless *f, struct value_loan *loan, struct lent_reading *reading) {
    int error = forkless_serialize(f, loan->db, loan->entry, false);
    if (error) return error;
    deferred_output_flush(&f->out);
    const struct rdb_entries *rdb = &f->entries.rdb;
    if (f->save->content.format == SAVE_RDB)
        reading->type = rdb_write_key_head(&reading->head.out, loan->entry, rdb->access,
                                           rdb_access_data(loan->entry, rdb->access), rdb->version);
    return 0;
}

void forkless_lend(void *context, struct value_loan *loan) {
    struct forkless *f = context;
    struct lent_reading *reading = mem_alloc(sizeof *reading);
    *reading = (struct lent_reading){.save = f, .loan = loan};
    memory_output_init(&reading->head);
    bool wanted = forkless_counts(f, 1);
    reading->keys = f->reservation.keys;
    int error = wanted ? lend(f, loan, reading) : 0;
    if (error) f->error = error;
    if (!wanted || error) {
        loan_refuse(loan);
        data_view_loan_ended(loan);
        memory_output_free(&reading->head);
        mem_free(reading);
        return;
    }
    f->by_reader++, forkless_lent++;
    forkless_read(f, read_loan, reading);
}

static void loan_over(struct value_loan *loan) {
    if (loan->awaited) forkless_hurry_all(false); /* clients that still wait ask again */
    lent_value_over(loan);
}

void forkless_await(void *context) {
    forkless_hurry_all(true);
}

void forkless_recall(void *context, struct value_loan *loan) {
    struct forkless *f = context;
    if (server.is_child) { /* a copy of the values, which nobody reads */
        if (!loan_take_back(loan) && !loan_is_returned(loan)) loan_return(loan);
    } else if (!loan_take_back(loan)) {
        forkless_wait_for_return(f, &loan->lending);
    } else if (!f->stop && !f->error) {
        f->by_reader--;
        f->error = f->giving ? -EDEADLK : forkless_serialize(f, loan->db, loan->entry, true);
    }
    loan_over(loan);
}

void forkless_collect(struct forkless *f) {
    if (!f->view) return;
    for (struct value_loan *loan; (loan = loan_find(f->view, loan_is_returned));) loan_over(loan);
    for (struct lent_batch *batch; (batch = data_view_returned_batch(f->view));) data_view_batch_ended(batch);
}
