/* nested_turn.c: see nested_turn.h. */
#include "server/nested_turn.h"
#include "server/clients/client.h"
#include "server/clients/reply_barrier.h"
#include "server/server.h"

static void send_output(void) {
    if (reply_barrier_pending) reply_barrier_flush();
    clients_flush();
}

void nested_turn_before_wait(void) {
    each_part(part) {
        if (part->in_call) part->before_wait();
    }
    send_output();
    clients_evict();
}

void nested_turn(int64_t timeout_us) {
    if (event_loop_is_turning(server.loop)) nested_turn_before_wait(); /* otherwise the loop's hook does it */
    event_loop_turn(server.loop, timeout_us);
    send_output();
}
