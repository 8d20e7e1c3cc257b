/* debug_barrier.c: DEBUG REPLY-BARRIER, a reply barrier (reply_barrier.h) that a test releases by command, in place of
 * an fsync. Each command that changes data and is propagated counts as a write. The writes are numbered from 1, from
 * HOLD to OFF. */
#include "server/debug/debug.h"
#include "lib/text/number.h"
#include "server/clients/reply_barrier.h"
#include "server/command/propagate.h"

static struct reply_barrier barrier;
static uint64_t before_first; /* sequence number of the barrier before the first write */

static void write_seen(struct propagation_listener *self, const struct propagation *propagation) {
    reply_barrier_issue(&barrier);
}
static struct propagation_listener listener = {.command = write_seen, .changes_only = true};

static bool denies;
static const char *barrier_refusal(struct reply_barrier *self) {
    return denies ? "NOSYNCREPLICAS DEBUG REPLY-BARRIER DENY is in effect" : NULL;
}

static void hold(void) {
    if (list_is_linked(&listener.link)) return;
    barrier.refusal = barrier_refusal;
    reply_barrier_arm(&barrier);
    before_first = barrier.issued;
    propagate_listen(&listener);
}

static void off(void) {
    if (!list_is_linked(&listener.link)) return;
    propagate_unlisten(&listener);
    reply_barrier_disarm(&barrier);
}

static void status(struct reply *reply) {
    bool on = list_is_linked(&listener.link);
    reply_map(reply, 3);
    reply_field_integer(reply, "writes", on ? (int64_t)(barrier.issued - before_first) : 0);
    reply_field_integer(reply, "unreleased", (int64_t)reply_barrier_unreleased());
    reply_field_integer(reply, "clients", (int64_t)reply_barrier_clients());
}

static void run_reply_barrier(struct call *call) {
    struct slice what = call->argv[2];
    int64_t number = INT64_MAX;
    if (call->argc == 4 && (!slice_is(what, "release") || !parse_int64(call->argv[3], &number) || number < 0)) {
        reply_syntax_error(call->reply);
        return;
    }
    if (slice_is(what, "status")) {
        status(call->reply);
        return;
    }
    if (slice_is(what, "hold")) {
        hold();
    } else if (slice_is(what, "off")) {
        off();
        denies = false;
        reply_barrier_pass_reads(false);
    } else if (slice_is(what, "deny")) {
        denies = true;
    } else if (slice_is(what, "pass-reads")) {
        reply_barrier_pass_reads(true);
    } else if (slice_is(what, "release")) {
        uint64_t most = UINT64_MAX - before_first;
        reply_barrier_release(&barrier, before_first + ((uint64_t)number < most ? (uint64_t)number : most));
    } else {
        reply_syntax_error(call->reply);
        return;
    }
    reply_ok(call->reply);
}

const struct debug_subcommand debug_barrier_subcommands[] = {
    {"reply-barrier", 1, 2, run_reply_barrier,
     WORDS(
         "REPLY-BARRIER <HOLD|RELEASE [<number>]|PASS-READS|DENY|STATUS|OFF>",
         "    Hold the replies to writes from now on; release those of all writes so far, or of the first <number>",
         "    since HOLD; answer reads from now on; show no data; show the numbers of writes, of unreleased ones, and",
         "    of clients that wait; release all and end it.")},
    {NULL, 0, 0, NULL, NULL}};
