/* reply_barrier.c: see reply_barrier.h.
 *
 * Held replies are a list of pieces: memory that replies are written to, or a blob that a reply shares. When the client
 * is flushed, its pieces become the waiting batch, which gets the last issued sequence number, and the client is added
 * to a queue sorted by these numbers. Since sequence numbers only grow, it is added at the end, except in a turn within
 * a call: batches of other clients do not wait for the writes of the call. Later output (usually pushes) follows
 * `batch_end` and becomes a batch when the previous one has been sent. A subscriber to a continuous stream of messages
 * thus gets each message after at most two releases.
 *
 * Rejected: a position in the connection's output up to which it may send (each transport would have to obey it
 * wherever it sends, and discard the rest when it closes; here held bytes never reach a transport); a batch for each
 * sequence number (as many pieces as writes). */
#include "server/clients/reply_barrier.h"
#include "lib/system/memory.h"
#include "lib/system/thread.h"
#include "net/placement.h"
#include "server/clients/client_private.h"
#include "server/command/dispatch.h"
#include <errno.h>

enum { PIECE_FIRST = 512, PIECE_NEXT = 16 * 1024 };

struct held_piece {
    struct held_piece *next;
    struct blob *blob; /* NULL: the bytes are in `data` */
    struct placement *placement;
    size_t len, size; /* used bytes; bytes allocated for the piece */
    char data[];
};
struct held_replies {
    struct output out; /* must be first; writes to the last piece, or (pos NULL) to none */
    struct client *client;
    struct list_link link; /* in `waiting`; unlinked: no batch waits */
    struct held_piece *first, *last;
    struct held_piece *batch_end; /* last piece of the waiting batch */
    struct held_piece
        *requests_end; /* after this piece was sent the client executes requests again; NULL: it already does */
    uint64_t sequence; /* the sequence number that the batch waits for */
    uint64_t least;    /* the last one that was issued when what a nested turn says of data was written */
    bool of_call;      /* a call has written a push behind the batch */
    size_t size;       /* bytes in the pieces before the one that is written to */
    bool replied;      /* replies to the client's requests were written since its last flush */
    bool only_reads;   /* nothing in it is a reply to a write, or a push */
    bool pinned;
};

bool reply_barrier_armed, reply_barrier_pending;
static bool reads_pass;
static enum barrier_pinning pinning;
static struct list barriers = LIST_INIT(barriers);
static struct list waiting = LIST_INIT(waiting);
static struct list waiters = LIST_INIT(waiters); /* struct barrier_waiter, in the order of their numbers */
static uint64_t issued, released;                /* issued by any barrier; released by all of them */
static uint64_t issued_before_call;              /* the last one issued before the call that runs now, or ran last */

uint64_t reply_barrier_unreleased(void) {
    return issued - released;
}
size_t reply_barrier_clients(void) {
    return waiting.len;
}

/* --- Held replies --- */

static bool is_writing(const struct held_replies *held) {
    return held->out.pos != NULL && !held->out.failed;
}

/* Closes the piece that is being written. */
static void piece_end(struct held_replies *held) {
    if (!is_writing(held)) return;
    held->last->len = (size_t)(held->out.pos - held->last->data);
    held->size += held->last->len;
    held->out.pos = held->out.end = NULL;
}

static void piece_append(struct held_replies *held, struct held_piece *piece) {
    piece->next = NULL;
    if (held->last)
        held->last->next = piece;
    else
        held->first = piece;
    held->last = piece;
}

/* The client is closed soon, and its pieces are freed then. */
static void held_fail(struct output *out) {
    struct held_replies *held = (struct held_replies *)out;
    piece_end(held);
    if (held->client->conn) output_fail(&held->client->conn->out);
    out->failed = true;
    output_discard(out);
}

static void held_make_space(struct output *out, size_t len) {
    struct held_replies *held = (struct held_replies *)out;
    if (out->failed) {
        output_discard(out);
        return;
    }
    size_t size = held->first ? PIECE_NEXT : PIECE_FIRST;
    if (size < sizeof(struct held_piece) + len) size = sizeof(struct held_piece) + len;
    piece_end(held);
    struct held_piece *piece = conn_output_alloc(size, held->size);
    if (!piece) {
        held_fail(out);
        return;
    }
    *piece = (struct held_piece){.size = size};
    piece_append(held, piece);
    out->pos = piece->data;
    out->end = (char *)piece + size;
}

static void held_share(struct output *out, struct blob *blob) {
    struct held_replies *held = (struct held_replies *)out;
    if (out->failed) {
        blob_release(blob);
        return;
    }
    piece_end(held);
    struct held_piece *piece = mem_alloc(sizeof *piece);
    *piece = (struct held_piece){.blob = blob, .len = blob->len, .size = sizeof *piece};
    piece_append(held, piece);
    held->size += blob->len;
}

/* A placement shows a value, too: it waits with the reply behind it. */
static void held_place(struct output *out, struct placement *placement) {
    struct held_replies *held = (struct held_replies *)out;
    if (out->failed) {
        placement->ended(placement, -ECANCELED);
        return;
    }
    piece_end(held);
    struct held_piece *piece = mem_alloc(sizeof *piece);
    *piece = (struct held_piece){.placement = placement, .size = sizeof *piece};
    piece_append(held, piece);
}

static const struct output_ops held_ops = {.make_space = held_make_space,
                                           .give_up = held_fail,
                                           .share = held_share,
                                           .share_min = OUTPUT_SHARE_MIN,
                                           .place = held_place};

struct output *held_replies_output(struct held_replies *held) {
    return &held->out;
}

size_t reply_barrier_held(const struct client *client) {
    const struct held_replies *held = reply_barrier_replies(client);
    return held ? held->size + (is_writing(held) ? (size_t)(held->out.pos - held->last->data) : 0) : 0;
}

bool reply_barrier_holds_requests(const struct client *client) {
    const struct held_replies *held = reply_barrier_replies(client);
    return held && held->requests_end;
}

static struct held_replies *held_new(struct client *client) {
    struct held_replies *held = mem_calloc(1, sizeof *held);
    held->out.ops = &held_ops;
    held->client = client;
    client_set_state(client, &reply_barrier_listener, held);
    client_retarget(client);
    return held;
}

/* Sends the first piece to the connection, or frees it if there is no connection. */
static void piece_leave(struct held_replies *held, struct output *to) {
    struct held_piece *piece = held->first;
    must_within(piece->len, held->size);
    held->first = piece->next;
    if (!held->first) held->last = NULL;
    held->size -= piece->len;
    if (piece->placement && to)
        output_place(to, piece->placement);
    else if (piece->placement)
        piece->placement->ended(piece->placement, -ECANCELED);
    else if (to && piece->blob)
        output_write_blob(to, piece->blob);
    else if (to)
        output_write(to, (struct slice){piece->data, piece->len});
    if (piece->blob) blob_release(piece->blob);
    mem_free(piece);
}

/* Nothing is held any more: the client's replies are written to its connection again. */
static void held_free(struct held_replies *held, struct output *to) {
    struct client *client = held->client;
    piece_end(held);
    while (held->first) piece_leave(held, to);
    client_set_state(client, &reply_barrier_listener, NULL);
    if (list_is_linked(&held->link)) list_remove(&waiting, &held->link);
    mem_free(held);
    client_retarget(client);
}

static void client_freed(struct client *client) {
    struct held_replies *held = reply_barrier_replies(client);
    if (held) held_free(held, NULL);
}

static void client_reported(const struct client *client, struct client_report *report) {
    size_t held = reply_barrier_held(client);
    report->held_output += held;
    report->memory += held;
}
struct client_listener reply_barrier_listener = {.freed = client_freed, .report = client_reported};

/* --- Waiting --- */

/* The sequence number that the output written so far waits for. In a turn within a call, replies to other clients are
 * older than the writes of the call and do not wait for them, but pushes may be caused by the call: also by a write
 * that was issued after them, because a command notifies first (the command of a script, which runs on). */
static uint64_t sequence_needed(const struct held_replies *held) {
    if (!dispatch_running() || held->of_call) return issued;
    return held->least > issued_before_call ? held->least : issued_before_call;
}

static void batch_close(struct held_replies *held) {
    struct list_link *at = &waiting.head;
    piece_end(held);
    held->batch_end = held->last;
    held->sequence = held->pinned ? UINT64_MAX : sequence_needed(held);
    held->of_call = false;
    while (at->prev != &waiting.head && container_of(at->prev, struct held_replies, link)->sequence > held->sequence)
        at = at->prev;
    list_insert_before(&waiting, at, &held->link);
}

/* Each barrier that denies it has issued a number which it releases when it knows. */
bool reply_barrier_may_show(void) {
    bool may = true;
    list_each_entry(&barriers, struct reply_barrier, link, barrier)
        if (barrier->may_show && !barrier->may_show(barrier)) may = false;
    return may;
}

const char *reply_barrier_refusal(void) {
    list_each_entry(&barriers, struct reply_barrier, link, barrier) {
        const char *error = barrier->refusal ? barrier->refusal(barrier) : NULL;
        if (error) return error;
    }
    return NULL;
}

bool reply_barrier_guards(void) {
    list_each(&barriers, link) if (container_of(link, struct reply_barrier, link)->may_show) return true;
    return false;
}

/* A script that does not declare that it only reads may write. EXEC has the flags of all its commands, a script's
 * CMD_MAY_REPLICATE included. */
static bool may_write(uint32_t flags) {
    if (flags & CMD_MODULE) return true; /* whatever it declares, it may call commands that write */
    if (flags & CMD_WRITE || (flags & (CMD_RUNS_SCRIPT | CMD_READONLY)) == CMD_RUNS_SCRIPT) return true;
    return (flags & (CMD_RUNS_QUEUED | CMD_MAY_REPLICATE)) == (CMD_RUNS_QUEUED | CMD_MAY_REPLICATE);
}

/* Nothing in it waits, now or after the running call. */
static bool is_free_to_leave(const struct held_replies *held) {
    return !dispatch_running() && !list_is_linked(&held->link) && !held->pinned && !held->requests_end &&
           sequence_needed(held) <= released;
}

void reply_barrier_before_call(struct client *client, uint32_t command_flags) {
    enum { READS = CMD_READONLY | CMD_SHOWS_DATA, ASKS = READS | CMD_WRITE | CMD_RUNS_SCRIPT | CMD_MAY_REPLICATE };
    if (!dispatch_running()) issued_before_call = issued;
    if (!client->conn || client->flags & CLIENT_PRIMARY) return; /* the primary gets no replies */
    struct held_replies *held = reply_barrier_replies(client);
    bool writes = may_write(command_flags), reads = command_flags & READS;
    if (command_flags & ASKS) reply_barrier_may_show();
    if (pinning && held && is_free_to_leave(held)) { /* a reply that is pinned does not keep those before it */
        held_free(held, &client->conn->out);
        held = NULL;
    }
    if (!held) {
        bool shown = issued == released || (reads_pass && barriers.len == 1) || !reads;
        bool waits = barriers.len && (writes || !shown);
        if (!waits && !(pinning && (writes || (reads && pinning == PIN_ALL)))) return;
        held = held_new(client);
        held->only_reads = !writes;
    }
    held->replied = true;
    if (writes) held->only_reads = false;
    if (dispatch_running() && command_flags & ASKS) held->least = issued;
}

const char *reply_barrier_before_answer(struct client *client) {
    if (!reply_barrier_armed) return NULL;
    const char *error = reply_barrier_refusal();
    if (!error) reply_barrier_before_call(client, CMD_READONLY);
    return error;
}

/* --- What is not a reply --- */

bool reply_barrier_shows_now(void) {
    return issued == released && !waiters.len;
}

/* A call issues a number for its change when its handler has returned. */
uint64_t reply_barrier_number(void) {
    return issued + 1;
}

bool reply_barrier_is_released(uint64_t number) {
    return issued == released || number <= released;
}

void reply_barrier_when_shown(struct barrier_waiter *waiter) {
    waiter->sequence = issued;
    list_append(&waiters, &waiter->link);
    if (issued == released) reply_barrier_pending = true; /* not now: its owner is still at work */
}

void reply_barrier_forget(struct barrier_waiter *waiter) {
    if (list_is_linked(&waiter->link)) list_remove(&waiters, &waiter->link);
}

static void waiters_release(void) {
    while (waiters.len) {
        struct barrier_waiter *waiter = container_of(list_first(&waiters), struct barrier_waiter, link);
        if (waiter->sequence > released) return;
        list_remove(&waiters, &waiter->link);
        waiter->ended(waiter, true);
    }
}

static void waiters_drop(void) {
    while (waiters.len) {
        struct barrier_waiter *waiter = container_of(list_first(&waiters), struct barrier_waiter, link);
        list_remove(&waiters, &waiter->link);
        waiter->ended(waiter, false);
    }
}

struct output *reply_barrier_push_output(struct client *client) {
    struct held_replies *held = reply_barrier_replies(client);
    if (!held) held = held_new(client);
    held->only_reads = false;
    if (dispatch_running()) held->of_call = true;
    return &held->out;
}

bool reply_barrier_holds_replies(const struct client *client) {
    const struct held_replies *held = reply_barrier_replies(client);
    return held && (held->requests_end || held->replied);
}

void reply_barrier_call_replies_elsewhere(struct client *client) {
    struct held_replies *held = reply_barrier_replies(client);
    if (!held) return;
    held->replied = false;
    if (reply_barrier_held(client) == 0) held_free(held, &client->conn->out);
}

void reply_barrier_replied(struct client *client) {
    reply_barrier_replies(client)->replied = true;
}

bool reply_barrier_holds(struct client *client) {
    struct held_replies *held = reply_barrier_replies(client);
    if (!list_is_linked(&held->link)) {
        bool empty = reply_barrier_held(client) == 0;
        if (empty && held->pinned) return true;
        if (!held->pinned && (sequence_needed(held) <= released || empty)) {
            held_free(held, &client->conn->out);
            return false;
        }
        batch_close(held);
    }
    if (held->replied) {
        held->replied = false;
        piece_end(held);
        if (!held->requests_end) client_hold(client);
        held->requests_end = held->last;
    }
    return true;
}

/* --- Releasing --- */

/* Sends the batch that the client has waited for. */
static void batch_leave(struct held_replies *held) {
    struct client *client = held->client;
    struct output *out = &client->conn->out;
    bool last, goes_on = false;
    must_within(held->sequence, released);
    list_remove(&waiting, &held->link);
    piece_end(held);
    do {
        must(held->first); /* the batch ends with a piece that is held */
        last = held->first == held->batch_end;
        if (held->first == held->requests_end) goes_on = true;
        piece_leave(held, out);
    } while (!last);
    if (held->first && sequence_needed(held) > released) {
        if (goes_on) held->requests_end = NULL;
        batch_close(held);
    } else {
        if (held->requests_end) goes_on = true;
        held_free(held, out);
    }
    if (goes_on) client_release(client);
    client_flush(client);
}

/* The first batch that may be sent. The batch of a client whose call is on the stack stays, because the reply of that
 * call is being written behind it. */
static struct held_replies *first_released(void) {
    list_each_entry(&waiting, struct held_replies, link, held) {
        if (held->sequence > released) return NULL;
        if (!dispatch_replies_to(held->client)) return held;
        reply_barrier_pending = true;
    }
    return NULL;
}

static void release(void) {
    reply_barrier_pending = false;
    waiters_release();
    for (struct held_replies *held = first_released(); held; held = first_released()) batch_leave(held);
}

/* Sends everything that the client holds, and resumes the execution of its requests. */
static void held_leave(struct held_replies *held) {
    struct client *client = held->client;
    bool goes_on = held->requests_end != NULL;
    held_free(held, &client->conn->out);
    if (goes_on) client_release(client);
    client_flush(client);
}

bool reply_barrier_pin(struct client *client) {
    struct held_replies *held = reply_barrier_replies(client);
    if (!held || held->pinned || list_is_linked(&held->link)) return false;
    held->pinned = true;
    client_hold(client);
    return true;
}

void reply_barrier_unpin(struct client *client) {
    struct held_replies *held = reply_barrier_replies(client);
    must(held && held->pinned);
    held->pinned = false;
    if (list_is_linked(&held->link)) {
        list_remove(&waiting, &held->link);
        bool passes = reads_pass && barriers.len <= 1 && held->only_reads;
        if (passes || sequence_needed(held) <= released)
            held_leave(held);
        else
            batch_close(held);
    } else {
        client_flush_later(client);
    }
    client_release(client);
}

void reply_barrier_may_pin(enum barrier_pinning now) {
    pinning = now;
    reply_barrier_armed = barriers.len || pinning;
}

void reply_barrier_pass_reads(bool pass) {
    reads_pass = pass;
    if (!pass || barriers.len > 1) return;
    list_each_entry(&waiting, struct held_replies, link, held)
        if (held->only_reads && !held->pinned) held_leave(held);
}

size_t reply_barrier_close_waiting(void) {
    size_t count = 0;
    waiters_drop();
    list_each_entry(clients_all(), struct client, link, client) {
        if (!reply_barrier_replies(client) || (!reply_barrier_held(client) && !reply_barrier_holds_replies(client)))
            continue;
        client->conn->drops_output = true;
        client_free(client);
        count++;
    }
    return count;
}

void reply_barrier_flush(void) {
    release();
}

/* Computes what all barriers have released. A barrier that has released all it issued holds nothing back. */
static void released_update(void) {
    uint64_t lowest = issued;
    list_each_entry(&barriers, struct reply_barrier, link, barrier) {
        if (barrier->released < barrier->issued && barrier->released < lowest) lowest = barrier->released;
    }
    must_within(released, lowest); /* what was released stays so */
    released = lowest;
    if (dispatch_running())
        reply_barrier_pending = true;
    else
        release();
}

void reply_barrier_arm(struct reply_barrier *barrier) {
    if (list_is_linked(&barrier->link)) return;
    barrier->issued = barrier->released = issued;
    list_append(&barriers, &barrier->link);
    reply_barrier_armed = true;
}

void reply_barrier_disarm(struct reply_barrier *barrier) {
    if (!list_is_linked(&barrier->link)) return;
    list_remove(&barriers, &barrier->link);
    reply_barrier_armed = barriers.len || pinning;
    released_update();
}

uint64_t reply_barrier_issue(struct reply_barrier *barrier) {
    must_within(barrier->released, barrier->issued);
    must_within(barrier->issued, issued);
    if (barrier->released == barrier->issued) barrier->released = issued;
    return barrier->issued = ++issued;
}

void reply_barrier_release(struct reply_barrier *barrier, uint64_t sequence) {
    must_be_main_thread();
    if (sequence > barrier->issued) sequence = barrier->issued;
    if (sequence <= barrier->released) return;
    barrier->released = sequence;
    released_update();
}
