/* forkless_loans.c: large collections that the reader's thread of a save serializes in place; see forkless_private.h
 * and snapshot/data_view.h. */
#include "formats/rdb.h"
#include "lib/structures/hashtable.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "persistence/forkless_private.h"
#include "server/clients/client.h"
#include "server/clients/transactions.h"
#include "server/command/dispatch.h"
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
        bool taken = loan_take_back(loan);
        must(taken);
        data_view_loan_ended(loan);
    } else {
        f->by_reader++, forkless_lent++;
    }
    if (server.is_child) return; /* it has no threads; see forkless_counts() */
    forkless_read(f, read_loan, reading);
}

static void loan_over(struct value_loan *loan) {
    bool awaited = loan->awaited;
    data_view_loan_ended(loan);
    if (!awaited) return;
    forkless_hurry_all(false); /* clients that still wait ask again */
    if (server.loop) clients_postponed_again();
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

/* --- Clients --- */

/* Whether a command may change the value of such a key in place. Commands of strings do not change collections, and
 * generic ones replace values. XREADGROUP counts as a reader of its keys, but changes their groups. */
static bool changes_key(const struct command *command, uint32_t key_flags) {
    return key_flags & KEY_RW || (command->spec->group == GROUP_STREAM && key_flags & KEY_RO);
}

static enum filter_answer lent_look(struct client *client, const struct command *command, int argc,
                                    const struct slice *argv) {
    switch (command->spec->group) {
    case GROUP_LIST:
    case GROUP_SET:
    case GROUP_SORTED_SET:
    case GROUP_HASH:
    case GROUP_STREAM:
    case GROUP_GEO: return FILTER_ASK;
    default: return FILTER_PASS;
    }
}

/* The value of a key is lent: what the reader has not begun, and takes little time, the main thread writes itself. The
 * reader buffers more of what a client waits for, as much as may wait at all. */
static bool client_waits(struct value_loan *loan) {
    bool little = loan->lending.state == LENDING_LENT && entry_allocations(loan->entry) < FORKLESS_LEND_MIN_CHANGED;
    if ((little && !forkless_is_giving()) || loan_is_returned(loan)) {
        loan->recall(loan);
        return false;
    }
    loan->awaited = true;
    forkless_hurry_all(true);
    return true;
}

static enum filter_answer lent_ask(struct client *client, const struct command *command, int argc,
                                   const struct slice *argv, const char **error) {
    enum { KEYS = 16 }; /* the others wait in place */
    struct key_position keys[KEYS];
    if (!client->conn || client->flags & CLIENT_REPLICA) return FILTER_PASS;
    if (lent_look(client, command, argc, argv) == FILTER_PASS) return FILTER_PASS;
    if (transaction_queued(client) >= 0) return FILTER_PASS; /* it is only queued */
    int count = command_find_keys(command, argc, argv, keys, KEYS);
    for (int i = 0; i < count && i < KEYS; i++) {
        if (!changes_key(command, keys[i].flags)) continue;
        struct value_loan *loan = data_view_lends(client->db, argv[keys[i].index]);
        if (!loan || !client_waits(loan)) continue;
        client_postpone(client);
        return FILTER_HOLD;
    }
    return FILTER_PASS;
}

static struct command_filter lent_filter = {
    .order = FILTER_PAUSE + 1, .flags = CMD_WRITE, .look = lent_look, .ask = lent_ask};

void forkless_filter(bool on) {
    dispatch_set_filter(&lent_filter, on);
    if (!on && server.loop) clients_postponed_again();
}
