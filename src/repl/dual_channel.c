#include "repl/replica.h"
void dual_channel_start(struct connection *conn, void (*done)(bool synchronized)) {
    (void)conn;
    done(false);
}
void dual_channel_cancel(void) {}
void dual_channel_cron(void) {}
