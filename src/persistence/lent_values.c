/* lent_values.c: see lent_values.h. */
#include "persistence/lent_values.h"
#include "lib/system/must.h"
#include "server/clients/client.h"
#include "server/clients/transactions.h"
#include "server/command/dispatch.h"
#include "server/server.h"
#include "snapshot/data_view.h"

static size_t snapshots;

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

/* A module that saves its value runs the event loop: nothing else can be serialized then. */
static bool client_waits(struct value_loan *loan) {
    bool little = loan->lending.state == LENDING_LENT && entry_allocations(loan->entry) < LENT_MIN_CHANGED;
    if ((little && !store_settings.saving) || lending_is_returned(&loan->lending)) {
        loan->recall(loan);
        return false;
    }
    data_view_await(loan);
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

void lent_values_begin(void) {
    if (!snapshots++) dispatch_set_filter(&lent_filter, true);
}

void lent_values_end(void) {
    must(snapshots > 0);
    if (--snapshots) return;
    dispatch_set_filter(&lent_filter, false);
    if (server.loop) clients_postponed_again();
}

void lent_value_over(struct value_loan *loan) {
    bool awaited = loan->awaited;
    data_view_loan_ended(loan);
    if (awaited && server.loop) clients_postponed_again(); /* those that still wait ask again */
}
