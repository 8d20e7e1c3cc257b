/* lent_values.h: clients wait before they change a large value that a thread reads in place (snapshot/data_view.h).
 *
 * A filter of commands holds the client, and not the server: its command is executed when no snapshot lends the value.
 * What little time the serialization takes, if the thread has not begun, the main thread does at once. Commands of
 * transactions and scripts are not held; they wait in place (store/loan.h).
 *
 * Main thread. */
#pragma once
#include "store/loan.h"

enum { LENT_MIN_CHANGED = 10000 /* allocations of a value for which a client waits: see struct data_view_reader */ };

/* Between these calls a snapshot lends values; any number of snapshots may. */
void lent_values_begin(void);
void lent_values_end(void);
/* Ends the loan, as data_view_loan_ended(). Clients that wait for it go on. */
void lent_value_over(struct value_loan *loan);
