/* placement.c: the placement client: values between the server's memory and the program's, by the BLOB commands. See
 * valkeyrdma.h.
 *
 * A client is a connection of the library (connection.c) with a `watch`: its changes come here, in a turn of the loop
 * and under the context's lock. Requests are sent in order, so replies need no numbers: the next reply is for the first
 * item without one, of the first batch in the list. A batch that has its last reply goes to the context's list of
 * complete ones.
 *
 * The end of a connection
 *   client_end() closes the connection in such a way that it does not linger. The transport destroys the queue pair in
 *   the deferred work at the end of the loop's iteration (net/rdma/lifetime.h). Each batch that had an item without a
 *   reply is completed by deferred work of its own, which was added later and so runs later: when the program learns of
 *   the end, the queue pair is gone and the device drops what still arrives for it. Whoever ends a connection outside a
 *   turn makes one.
 *
 * Rejected: keeping the connection when a deadline passes, and skipping the reply when it comes. Until then the
 * server may write the memory, and the caller wants it back. Rejected: deregistering the memory instead. A region is
 * an arena in which other items are under way. */
#include "client/library.h"
#include "lib/hash/crc32c.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "net/reply_line.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    IN_FLIGHT = 256,
    OUTPUT_MAX = 256 * 1024, /* queued bytes of requests, before further ones wait */
    LINE_MAX_BYTES = 64 * 1024,
    CONNECT_MS = 5000,
    GREETING_MAX = 4,
};

enum batch_op { BATCH_GET, BATCH_SET, BATCH_EXISTS, BATCH_DELETE };

/* Error text of one or more items. They live as long as the batch. */
struct batch_text {
    struct batch_text *next;
    char text[];
};

struct valkeyrdma_batch {
    struct list_link link;              /* in the client's list, or in the context's when complete */
    struct valkeyrdma_placement *owner; /* NULL: it is complete, or about to be */
    struct valkeyrdma_context *context;
    enum batch_op op;
    struct valkeyrdma_item *items;
    size_t count, sent, replied, succeeded;
    int flags;
    int64_t expire_ms;
    uint64_t deadline_us; /* INT64_MAX: none */
    bool asked;           /* the reply to the next item's ASKING has arrived */
    bool complete;
    struct event_deferred ended;
    struct batch_text *texts;
    void *data;
};

struct valkeyrdma_placement {
    struct list_link link;
    struct valkeyrdma_context *context;
    char *host, *source_host, *username, *password;
    int port, database;
    unsigned in_flight;
    void *data;
    struct valkeyrdma *c; /* NULL: not connected */
    bool ready;           /* the server has accepted user and database */
    unsigned greeted, greetings;
    bool greeting_needed[GREETING_MAX]; /* an error reply to it ends the connection */
    uint64_t connect_deadline_us;
    struct list batches; /* that are not complete, in the order of submission */
    size_t unsent;       /* items of these */
    unsigned unreplied;
    struct event_timer timer;
    uint64_t timer_due; /* 0: not set */
    int error;
    char error_text[VALKEYRDMA_ERROR_MAX];
};

/* --- Results --- */

static const char *keep_text(struct valkeyrdma_batch *batch, const char *text, size_t len) {
    struct batch_text *kept = mem_alloc(sizeof *kept + len + 1);
    memcpy(kept->text, text, len);
    kept->text[len] = '\0';
    kept->next = batch->texts;
    batch->texts = kept;
    return kept->text;
}

static void item_is_done(struct valkeyrdma_batch *batch, int result) {
    batch->items[batch->replied++].result = result;
    if (result == 0) batch->succeeded++;
}

/* Its items have their results. */
static void batch_is_complete(struct valkeyrdma_batch *batch) {
    batch->complete = true;
    list_append(&batch->context->complete, &batch->link);
    context_notify(batch->context); /* a turn that only does deferred work wakes nobody */
}

static void batch_ended(struct event_deferred *deferred) {
    batch_is_complete(container_of(deferred, struct valkeyrdma_batch, ended));
}

/* Takes it from its client, and gives the items without a reply their results. */
static void batch_fail(struct valkeyrdma_batch *batch, int of_sent, int of_others, const char *text) {
    const char *kept = text && *text ? keep_text(batch, text, strlen(text)) : NULL;
    size_t sent = batch->sent;
    batch->owner->unsent -= batch->count - sent;
    while (batch->replied < batch->count) {
        batch->items[batch->replied].error_text = kept;
        item_is_done(batch, batch->replied < sent ? of_sent : of_others);
    }
    list_remove(&batch->owner->batches, &batch->link);
    batch->owner = NULL;
}

/* A batch of which nothing is at the server. */
static void batch_expire(struct valkeyrdma_batch *batch, int result) {
    must(batch->sent == batch->replied);
    batch_fail(batch, result, result, NULL);
    batch_is_complete(batch);
}

/* A batch whose connection was closed in this turn, or will have been before its end. */
static void batch_fail_later(struct valkeyrdma_batch *batch, int of_sent, int of_others, const char *text) {
    struct event_loop *loop = batch->context->loop;
    batch_fail(batch, of_sent, of_others, text);
    event_loop_defer(loop, &batch->ended, batch_ended);
}

static bool is_at_server(const struct valkeyrdma_batch *batch) {
    return batch->sent > batch->replied;
}

/* --- The end of a connection --- */

/* The caller then fails the batches. */
static void client_disconnect(struct valkeyrdma_placement *p, int error, const char *text) {
    p->error = error;
    snprintf(p->error_text, sizeof p->error_text, "%s", text);
    p->ready = false;
    p->unreplied = p->greeted = p->greetings = 0;
    if (p->timer_due) event_timer_cancel(p->context->loop, &p->timer);
    p->timer_due = 0;
    if (p->c) {
        if (p->c->conn) p->c->conn->drops_output = true; /* it must not linger */
        connection_orphan(p->c);
        p->c = NULL;
    }
    context_notify(p->context);
}

static void client_fail_batches(struct valkeyrdma_placement *p, int of_sent, int of_others) {
    while (p->batches.len)
        batch_fail_later(container_of(list_first(&p->batches), struct valkeyrdma_batch, link), of_sent, of_others,
                         p->error_text);
}

/* The connection ends, or the attempt fails. */
static void client_end(struct valkeyrdma_placement *p, int error, const char *text) {
    client_disconnect(p, error, text);
    client_fail_batches(p, -error, -ENOTCONN);
}

/* The connection ends because of a batch. */
static void client_end_for(struct valkeyrdma_placement *p, struct valkeyrdma_batch *batch, int error,
                           const char *text) {
    client_disconnect(p, error, text);
    batch_fail_later(batch, -error, -error, text);
    client_fail_batches(p, -ECONNABORTED, -ENOTCONN);
}

/* --- Deadlines --- */

static uint64_t placement_timer(struct event_timer *timer);

static void deadline_add(struct valkeyrdma_placement *p, uint64_t due_us) {
    if (due_us == INT64_MAX || (p->timer_due && p->timer_due <= due_us)) return;
    uint64_t now = clock_mono();
    p->timer_due = due_us;
    event_timer_set(p->context->loop, &p->timer, due_us > now ? due_us - now : 0, placement_timer);
}

static uint64_t placement_timer(struct event_timer *timer) {
    struct valkeyrdma_placement *p = container_of(timer, struct valkeyrdma_placement, timer);
    uint64_t now = clock_mono(), next = INT64_MAX;
    p->timer_due = 0;
    if (p->c && !p->ready) {
        if (now >= p->connect_deadline_us) {
            client_end(p, ETIMEDOUT, "the server did not answer in time");
            return 0;
        }
        next = p->connect_deadline_us;
    }
    list_each_entry(&p->batches, struct valkeyrdma_batch, link, batch) {
        if (now < batch->deadline_us) {
            if (batch->deadline_us < next) next = batch->deadline_us;
        } else if (is_at_server(batch)) {
            client_end_for(p, batch, ETIMEDOUT, "the deadline of a request has passed");
            return 0;
        } else
            batch_expire(batch, -ETIMEDOUT);
    }
    deadline_add(p, next);
    return 0;
}

/* --- Requests --- */

static void write_argument(struct output *out, const void *bytes, size_t len) {
    char head[NUMBER_TEXT_MAX + 3] = "$";
    size_t n = 1 + format_uint64(head + 1, len);
    memcpy(head + n, "\r\n", 2);
    output_write(out, slice_make(head, n + 2));
    output_write(out, slice_make(bytes, len));
    output_write(out, SLICE("\r\n"));
}

static void write_number(struct output *out, uint64_t value) {
    char text[NUMBER_TEXT_MAX];
    write_argument(out, text, format_uint64(text, value));
}

static void write_head(struct output *out, unsigned count, const char *name) {
    char head[NUMBER_TEXT_MAX + 3] = "*";
    size_t n = 1 + format_uint64(head + 1, count);
    memcpy(head + n, "\r\n", 2);
    output_write(out, slice_make(head, n + 2));
    write_argument(out, name, strlen(name));
}

struct remote_memory {
    uint64_t key, address;
};

static void write_memory(struct output *out, const struct valkeyrdma_item *item, const struct remote_memory *memory) {
    write_number(out, memory->key);
    write_number(out, memory->address + item->offset);
    write_number(out, item->length);
}

static void write_item(const struct valkeyrdma_batch *batch, const struct valkeyrdma_item *item,
                       const struct remote_memory *memory, struct output *out) {
    if (batch->flags & VALKEYRDMA_ASKING) write_head(out, 1, "ASKING");
    switch (batch->op) {
    case BATCH_GET:
        write_head(out, 5, "BLOB.GET");
        write_argument(out, item->key, item->key_length);
        write_memory(out, item, memory);
        break;
    case BATCH_SET: {
        bool condition = batch->flags & (VALKEYRDMA_NX | VALKEYRDMA_XX);
        bool keep = batch->flags & VALKEYRDMA_KEEPTTL, expires = batch->expire_ms > 0;
        write_head(out, 6 + (condition ? 1 : 0) + (keep ? 1 : 0) + (expires ? 2 : 0), "BLOB.SET");
        write_argument(out, item->key, item->key_length);
        write_number(out, item->length);
        write_memory(out, item, memory);
        if (expires) {
            write_argument(out, "PX", 2);
            write_number(out, (uint64_t)batch->expire_ms);
        }
        if (keep) write_argument(out, "KEEPTTL", 7);
        if (condition) write_argument(out, batch->flags & VALKEYRDMA_NX ? "NX" : "XX", 2);
        break;
    }
    case BATCH_EXISTS:
    case BATCH_DELETE:
        write_head(out, 2, batch->op == BATCH_EXISTS ? "EXISTS" : "DEL");
        write_argument(out, item->key, item->key_length);
        break;
    }
}

static bool has_memory(const struct valkeyrdma_batch *batch) {
    return batch->op == BATCH_GET || batch->op == BATCH_SET;
}

/* Sends items of a batch. False: the connection has ended. */
static bool batch_pump(struct valkeyrdma_placement *p, struct valkeyrdma_batch *batch) {
    struct connection *conn = p->c->conn;
    struct remote_memory memory;
    char text[VALKEYRDMA_ERROR_MAX];
    while (batch->sent < batch->count && p->unreplied < p->in_flight && conn_pending(conn) < OUTPUT_MAX) {
        const struct valkeyrdma_item *item = &batch->items[batch->sent];
        int result =
            has_memory(batch) ? region_reach(item->region, conn, &memory.key, &memory.address, text, sizeof text) : 0;
        if (result < 0) { /* it was registered before: the device is being removed */
            client_end(p, -result, text);
            return false;
        }
        write_item(batch, item, &memory, &conn->out);
        batch->sent++;
        p->unsent--;
        p->unreplied++;
    }
    return true;
}

/* Sends what may be sent now. */
static void client_pump(struct valkeyrdma_placement *p) {
    if (!p->ready || !p->unsent) return;
    uint64_t before = p->unreplied;
    list_each_entry(&p->batches, struct valkeyrdma_batch, link, batch) {
        if (batch->sent == batch->count) continue;
        if (!batch_pump(p, batch)) return;
        if (batch->sent < batch->count) break;
    }
    if (p->unreplied > before) conn_flush(p->c->conn);
}

/* The requests before those of the batches. */
static void greet(struct valkeyrdma_placement *p) {
    struct output *out = &p->c->conn->out;
    if (p->password) {
        write_head(out, p->username ? 3 : 2, "AUTH");
        if (p->username) write_argument(out, p->username, strlen(p->username));
        write_argument(out, p->password, strlen(p->password));
        p->greeting_needed[p->greetings++] = true;
    }
    if (p->database) {
        write_head(out, 2, "SELECT");
        write_number(out, (uint64_t)p->database);
        p->greeting_needed[p->greetings++] = true;
    }
    static const char *const about[][2] = {{"LIB-NAME", "libvalkeyrdma"}, {"LIB-VER", NULL}};
    for (size_t i = 0; i < sizeof about / sizeof *about; i++) {
        const char *value = about[i][1] ? about[i][1] : valkeyrdma_version();
        write_head(out, 4, "CLIENT");
        write_argument(out, "SETINFO", 7);
        write_argument(out, about[i][0], strlen(about[i][0]));
        write_argument(out, value, strlen(value));
        p->greeting_needed[p->greetings++] = false;
    }
    conn_flush(p->c->conn);
}

/* --- Replies --- */

struct placement_reply {
    char type; /* '+', '-', ':', '*' (two integers), or '$' (nil) */
    struct slice text;
    int64_t numbers[2];
};

/* Takes one line, without its end. Returns its length with the end, 0 (more bytes are needed) or -EPROTO. */
static ssize_t take_line(struct slice in, struct slice *line) {
    ssize_t used = reply_line_read(in, LINE_MAX_BYTES, line);
    if (used == 0) return 0;
    return used < 0 || !line->len || (size_t)used != line->len + 2 ? -EPROTO : used;
}

static bool take_number(struct slice line, char type, int64_t *number) {
    return line.data[0] == type && parse_int64(slice_make(line.data + 1, line.len - 1), number);
}

/* Takes one reply. Returns its length, 0 (more bytes are needed) or -EPROTO. */
static ssize_t take_reply(struct slice in, struct placement_reply *reply) {
    struct slice line;
    int64_t count;
    ssize_t used = take_line(in, &line), more;
    if (used <= 0) return used;
    reply->type = line.data[0];
    reply->text = slice_make(line.data + 1, line.len - 1);
    switch (reply->type) {
    case '+':
    case '-': return used;
    case ':': return take_number(line, ':', &reply->numbers[0]) ? used : -EPROTO;
    case '_': reply->type = '$'; return used;
    case '$':
    case '*':
        if (!take_number(line, reply->type, &count)) return -EPROTO;
        if (count == -1) {
            reply->type = '$';
            return used;
        }
        if (reply->type == '$' || count != 2) return -EPROTO;
        for (int i = 0; i < 2; i++) {
            more = take_line(slice_make(in.data + used, in.len - (size_t)used), &line);
            if (more <= 0) return more;
            if (!take_number(line, ':', &reply->numbers[i])) return -EPROTO;
            used += more;
        }
        return used;
    default: return -EPROTO;
    }
}

static bool begins_with(struct slice text, const char *start) {
    size_t len = strlen(start);
    return text.len >= len && memcmp(text.data, start, len) == 0;
}

static bool contains(struct slice text, const char *part) {
    return memmem(text.data, text.len, part, strlen(part)) != NULL;
}

static int meaning_of(struct slice error) {
    static const struct {
        const char *start;
        int result;
    } known[] = {{"MOVED ", -EREMOTE},
                 {"ASK ", -EREMOTE},
                 {"NOAUTH", -EACCES},
                 {"NOPERM", -EACCES},
                 {"WRONGPASS", -EACCES},
                 {"OOM ", -ENOSPC},
                 {"ERR unknown command", -EOPNOTSUPP}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (begins_with(error, known[i].start)) return known[i].result;
    return contains(error, "smaller than object length") ? -EMSGSIZE : -EREMOTEIO;
}

/* The result of an item of which a reply tells. -EPROTO: the reply makes no sense. */
static int judge(struct valkeyrdma_batch *batch, struct valkeyrdma_item *item, const struct placement_reply *reply) {
    if (reply->type == '-') {
        item->error_text = keep_text(batch, reply->text.data, reply->text.len);
        return meaning_of(reply->text);
    }
    switch (batch->op) {
    case BATCH_GET:
        if (reply->type == '$') return -ENOENT;
        if (reply->type != '*' || reply->numbers[0] < 0 || (uint64_t)reply->numbers[0] > item->length ||
            reply->numbers[1] < 0 || reply->numbers[1] > UINT32_MAX)
            return -EPROTO;
        item->value_length = (uint64_t)reply->numbers[0];
        item->checksum = (uint32_t)reply->numbers[1];
        if (batch->flags & VALKEYRDMA_CHECK &&
            crc32c(0, item->region->address + item->offset, item->value_length) != item->checksum)
            return -EBADMSG;
        return 0;
    case BATCH_SET:
        if (reply->type == '$' && batch->flags & (VALKEYRDMA_NX | VALKEYRDMA_XX))
            return batch->flags & VALKEYRDMA_NX ? -EEXIST : -ENOENT;
        return reply->type == '+' && slice_is(reply->text, "ok") ? 0 : -EPROTO;
    default:
        if (reply->type != ':' || reply->numbers[0] < 0 || reply->numbers[0] > 1) return -EPROTO;
        return reply->numbers[0] ? 0 : -ENOENT;
    }
}

/* False: the connection has ended. */
static bool take_greeting(struct valkeyrdma_placement *p, const struct placement_reply *reply) {
    bool needed = p->greeting_needed[p->greeted++];
    if (needed && reply->type == '-') {
        char text[VALKEYRDMA_ERROR_MAX];
        int result = meaning_of(reply->text);
        snprintf(text, sizeof text, "%.*s", (int)(reply->text.len < 400 ? reply->text.len : 400), reply->text.data);
        client_end(p, -result, text);
        return false;
    }
    if (p->greeted < p->greetings) return true;
    p->ready = true;
    context_notify(p->context);
    return true;
}

/* False: the reply belongs to no request, or makes no sense. */
static bool take_for_batch(struct valkeyrdma_placement *p, const struct placement_reply *reply) {
    if (!p->batches.len) return false;
    struct valkeyrdma_batch *batch = container_of(list_first(&p->batches), struct valkeyrdma_batch, link);
    if (!is_at_server(batch)) return false;
    if (batch->flags & VALKEYRDMA_ASKING && !batch->asked) {
        batch->asked = true; /* whatever it says: the reply to the request itself follows */
        return true;
    }
    int result = judge(batch, &batch->items[batch->replied], reply);
    if (result == -EPROTO) return false;
    batch->asked = false;
    p->unreplied--;
    item_is_done(batch, result);
    if (batch->replied == batch->count) {
        list_remove(&p->batches, &batch->link);
        batch->owner = NULL;
        batch_is_complete(batch);
    }
    return true;
}

static void client_read(struct valkeyrdma_placement *p) {
    struct placement_reply reply;
    size_t used = 0;
    while (p->c) {
        struct slice in = conn_peek(p->c->conn);
        in = slice_make(in.data + used, in.len - used);
        ssize_t len = in.len ? take_reply(in, &reply) : 0;
        if (len == 0) break;
        bool good = len > 0;
        if (good && p->greeted < p->greetings) {
            if (!take_greeting(p, &reply)) return;
        } else if (good)
            good = take_for_batch(p, &reply);
        if (!good) {
            client_end(p, EPROTO, "the server sent a reply that makes no sense");
            return;
        }
        used += (size_t)len;
    }
    if (p->c && used) conn_consume(p->c->conn, used);
}

/* Something has happened to the connection. */
static void client_watch(struct valkeyrdma *c) {
    struct valkeyrdma_placement *p = c->watcher;
    char text[VALKEYRDMA_ERROR_MAX];
    if (p->c != c) return;
    if (c->ended) {
        snprintf(text, sizeof text, "%s", *c->error_text ? c->error_text : "the server closed the connection");
        client_end(p, c->error ? c->error : ECONNRESET, text);
        return;
    }
    if (c->connected && !p->greetings) {
        int result = regions_reach(p->context, c->conn, text, sizeof text);
        if (result < 0) {
            client_end(p, -result, text);
            return;
        }
        greet(p);
    }
    client_read(p);
    client_pump(p);
}

/* --- Clients --- */

struct valkeyrdma_placement *valkeyrdma_placement_new(struct valkeyrdma_context *context, const char *host, int port,
                                                      const struct valkeyrdma_placement_options *options, char *error,
                                                      size_t error_size) {
    struct valkeyrdma_placement_options all = {0};
    if (options) memcpy(&all, options, options->size < sizeof all ? options->size : sizeof all);
    int result = port < 1 || port > 65535 || all.database < 0 ? -EINVAL : context_enter(context) ? 0 : -EPERM;
    if (result < 0) {
        fail_text(error, error_size,
                  result == -EINVAL ? "the port is not between 1 and 65535, or the database is negative"
                                    : "the context belongs to the parent process");
        errno = -result;
        return NULL;
    }
    struct valkeyrdma_placement *p = mem_calloc(1, sizeof *p);
    p->context = context;
    p->host = mem_strdup(host);
    p->port = port;
    p->source_host = all.source_host ? mem_strdup(all.source_host) : NULL;
    p->username = all.username ? mem_strdup(all.username) : NULL;
    p->password = all.password ? mem_strdup(all.password) : NULL;
    p->database = all.database;
    p->in_flight = all.in_flight ? all.in_flight : IN_FLIGHT;
    p->data = all.data;
    list_init(&p->batches);
    list_append(&context->placements, &p->link);
    context_leave(context);
    return p;
}

static bool is_decided(const void *argument) {
    const struct valkeyrdma_placement *p = argument;
    return p->ready || !p->c;
}

/* Begins to connect, unless another thread does. Releases the lock while it resolves the name. 0 or -errno. */
static int client_begin(struct valkeyrdma_placement *p, int timeout_ms) {
    struct valkeyrdma_options options = {.size = sizeof options, .source_host = p->source_host, .one_sided = 1};
    char text[VALKEYRDMA_ERROR_MAX] = "";
    if (timeout_ms <= 0) timeout_ms = CONNECT_MS;
    context_leave(p->context);
    struct valkeyrdma *c = connection_new(p->host, p->port, &options, timeout_ms, text, sizeof text);
    int result = c ? 0 : -errno;
    if (!context_enter(p->context)) return -EPERM;
    if (p->c) {
        if (c) connection_free(c);
        return 0;
    }
    if (c) {
        c->watch = client_watch;
        c->watcher = p;
        p->c = c;
        p->error = 0;
        p->connect_deadline_us = clock_mono() + (uint64_t)timeout_ms * 1000;
        if (connection_begin(c, p->context)) {
            deadline_add(p, p->connect_deadline_us);
            return 0;
        }
        result = -EHOSTUNREACH;
        snprintf(text, sizeof text, "%s", strerror(EHOSTUNREACH));
    }
    client_end(p, -result, text);
    return result;
}

int valkeyrdma_placement_connect(struct valkeyrdma_placement *p, int timeout_ms) {
    struct valkeyrdma_context *context = p->context;
    if (!context_enter(context)) return -EPERM;
    int result = 0;
    if (!p->c) result = client_begin(p, timeout_ms);
    if (result == 0) result = context_wait(context, is_decided, p, timeout_ms == 0 ? 0 : -1);
    if (result == 0 && !p->ready) result = p->error ? -p->error : -ECONNRESET;
    context_leave(context);
    return result;
}

int valkeyrdma_placement_state(const struct valkeyrdma_placement *p) {
    if (!context_enter(p->context)) return -EPERM;
    int state = p->ready ? 1 : p->c ? 0 : -ENOTCONN;
    context_leave(p->context);
    return state;
}

const char *valkeyrdma_placement_error_text(const struct valkeyrdma_placement *p) {
    if (!context_enter(p->context)) return "the client belongs to the parent process";
    bool ended = !p->c;
    context_leave(p->context);
    return ended ? p->error_text : ""; /* it does not change until the client connects */
}

void *valkeyrdma_placement_data(const struct valkeyrdma_placement *p) {
    return p->data;
}

static void client_free(struct valkeyrdma_placement *p) {
    mem_free(p->host);
    mem_free(p->source_host);
    mem_free(p->username);
    mem_free(p->password);
    mem_free(p);
}

static void client_destroy(struct valkeyrdma_placement *p) {
    client_disconnect(p, ECANCELED, "the client was freed");
    client_fail_batches(p, -ECANCELED, -ECANCELED);
    list_remove(&p->context->placements, &p->link);
    client_free(p);
}

void valkeyrdma_placement_free(struct valkeyrdma_placement *p) {
    if (!p) return;
    struct valkeyrdma_context *context = p->context;
    if (!context_enter(context)) {
        client_free(p);
        return;
    }
    client_destroy(p);
    context_turn(context);
    context_leave(context);
}

void placements_destroy(struct valkeyrdma_context *context) {
    while (context->placements.len)
        client_destroy(container_of(list_first(&context->placements), struct valkeyrdma_placement, link));
    context_turn(context);
}

/* --- Batches --- */

static int check_items(const struct valkeyrdma_placement *p, enum batch_op op, const struct valkeyrdma_item *items,
                       size_t count, const struct valkeyrdma_batch_options *options) {
    int allowed = VALKEYRDMA_ASKING;
    int use = op == BATCH_GET ? VALKEYRDMA_REGION_GET : VALKEYRDMA_REGION_SET;
    if (op == BATCH_GET) allowed |= VALKEYRDMA_CHECK;
    if (op == BATCH_SET) allowed |= VALKEYRDMA_NX | VALKEYRDMA_XX | VALKEYRDMA_KEEPTTL;
    int both = VALKEYRDMA_NX | VALKEYRDMA_XX;
    if (count == 0 || options->flags & ~allowed || (options->flags & both) == both || options->timeout_ms < 0 ||
        options->expire_ms < 0 || (options->expire_ms && (op != BATCH_SET || options->flags & VALKEYRDMA_KEEPTTL)))
        return -EINVAL;
    for (size_t i = 0; i < count; i++) {
        const struct valkeyrdma_item *item = &items[i];
        if (!item->key || item->key_length == 0) return -EINVAL;
        if (op != BATCH_GET && op != BATCH_SET) continue;
        const struct valkeyrdma_region *region = item->region;
        if (!region || region->context != p->context || item->length == 0 || item->offset > region->length ||
            item->length > region->length - item->offset)
            return -EINVAL;
        if (!(region->uses & use)) return -EACCES;
        if (options->flags & VALKEYRDMA_CHECK && !region->address) return -EOPNOTSUPP;
    }
    return 0;
}

static struct valkeyrdma_batch *submit(struct valkeyrdma_placement *p, enum batch_op op, struct valkeyrdma_item *items,
                                       size_t count, const struct valkeyrdma_batch_options *options) {
    struct valkeyrdma_batch_options all = {0};
    if (options) memcpy(&all, options, options->size < sizeof all ? options->size : sizeof all);
    int result = context_is_ours(p->context) ? check_items(p, op, items, count, &all) : -EPERM;
    if (result < 0 || !context_enter(p->context)) {
        errno = result < 0 ? -result : EPERM;
        return NULL;
    }
    struct valkeyrdma_batch *batch = mem_calloc(1, sizeof *batch);
    batch->owner = p;
    batch->context = p->context;
    batch->op = op;
    batch->items = items;
    batch->count = count;
    batch->flags = all.flags;
    batch->expire_ms = all.expire_ms;
    batch->data = all.data;
    batch->deadline_us = all.timeout_ms ? clock_mono() + (uint64_t)all.timeout_ms * 1000 : INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        items[i].result = -EINPROGRESS;
        items[i].checksum = 0;
        items[i].value_length = 0;
        items[i].error_text = NULL;
    }
    list_append(&p->batches, &batch->link);
    p->unsent += count;
    if (!p->c) {
        batch_fail(batch, -ENOTCONN, -ENOTCONN, p->error_text);
        batch_is_complete(batch);
    } else {
        deadline_add(p, batch->deadline_us);
        client_pump(p);
    }
    context_leave(batch->context);
    return batch;
}

struct valkeyrdma_batch *valkeyrdma_placement_get(struct valkeyrdma_placement *p, struct valkeyrdma_item *items,
                                                  size_t count, const struct valkeyrdma_batch_options *options) {
    return submit(p, BATCH_GET, items, count, options);
}
struct valkeyrdma_batch *valkeyrdma_placement_set(struct valkeyrdma_placement *p, struct valkeyrdma_item *items,
                                                  size_t count, const struct valkeyrdma_batch_options *options) {
    return submit(p, BATCH_SET, items, count, options);
}
struct valkeyrdma_batch *valkeyrdma_placement_exists(struct valkeyrdma_placement *p, struct valkeyrdma_item *items,
                                                     size_t count, const struct valkeyrdma_batch_options *options) {
    return submit(p, BATCH_EXISTS, items, count, options);
}
struct valkeyrdma_batch *valkeyrdma_placement_delete(struct valkeyrdma_placement *p, struct valkeyrdma_item *items,
                                                     size_t count, const struct valkeyrdma_batch_options *options) {
    return submit(p, BATCH_DELETE, items, count, options);
}

static bool is_complete(const void *argument) {
    return ((const struct valkeyrdma_batch *)argument)->complete;
}

static void take_from_complete(struct valkeyrdma_batch *batch) {
    if (list_is_linked(&batch->link)) list_remove(&batch->context->complete, &batch->link);
}

int valkeyrdma_batch_wait(struct valkeyrdma_batch *batch, int timeout_ms) {
    struct valkeyrdma_context *context = batch->context;
    if (!context_enter(context)) return -EPERM;
    int result = context_wait(context, is_complete, batch, timeout_ms);
    if (result == 0) take_from_complete(batch);
    context_leave(context);
    return result;
}

struct valkeyrdma_batch *valkeyrdma_batch_next(struct valkeyrdma_context *context) {
    struct valkeyrdma_batch *batch = NULL;
    if (!context_enter(context)) return NULL;
    if (context->complete.len) {
        batch = container_of(list_first(&context->complete), struct valkeyrdma_batch, link);
        take_from_complete(batch);
    }
    context_leave(context);
    return batch;
}

/* Under the lock. */
static void cancel(struct valkeyrdma_batch *batch) {
    if (batch->complete) return;
    if (batch->owner && is_at_server(batch))
        client_end_for(batch->owner, batch, ECANCELED, "a request was cancelled");
    else if (batch->owner)
        batch_expire(batch, -ECANCELED);
    if (!batch->complete) context_turn(batch->context);
    must(batch->complete);
}

void valkeyrdma_batch_cancel(struct valkeyrdma_batch *batch) {
    struct valkeyrdma_context *context = batch->context;
    if (!context_enter(context)) return;
    cancel(batch);
    context_leave(context);
}

ssize_t valkeyrdma_batch_succeeded(const struct valkeyrdma_batch *batch) {
    if (!context_enter(batch->context)) return -EPERM;
    ssize_t result = batch->complete ? (ssize_t)batch->succeeded : -EINPROGRESS;
    context_leave(batch->context);
    return result;
}

void *valkeyrdma_batch_data(const struct valkeyrdma_batch *batch) {
    return batch->data;
}

void valkeyrdma_batch_free(struct valkeyrdma_batch *batch) {
    if (!batch) return;
    struct valkeyrdma_context *context = batch->context;
    if (context_enter(context)) {
        cancel(batch);
        take_from_complete(batch);
        context_leave(context);
    }
    while (batch->texts) {
        struct batch_text *text = batch->texts;
        batch->texts = text->next;
        mem_free(text);
    }
    mem_free(batch);
}

static bool uses_region(const struct valkeyrdma_batch *batch, const struct valkeyrdma_region *region) {
    if (!has_memory(batch)) return false;
    for (size_t i = batch->replied; i < batch->count; i++)
        if (batch->items[i].region == region) return true;
    return false;
}

static bool is_used_at_server(const struct valkeyrdma_placement *p, const struct valkeyrdma_region *region) {
    list_each_entry(&((struct valkeyrdma_placement *)(uintptr_t)p)->batches, const struct valkeyrdma_batch, link, batch)
        if (is_at_server(batch) && uses_region(batch, region)) return true;
    return false;
}

static void client_let_go(struct valkeyrdma_placement *p, const struct valkeyrdma_region *region) {
    bool ends = is_used_at_server(p, region);
    if (ends) client_disconnect(p, ECANCELED, "a region with requests under way was freed");
    list_each_entry(&p->batches, struct valkeyrdma_batch, link, batch) {
        if (!uses_region(batch, region)) continue;
        if (ends)
            batch_fail_later(batch, -ECANCELED, -ECANCELED, p->error_text);
        else
            batch_expire(batch, -ECANCELED);
    }
    if (ends) client_fail_batches(p, -ECONNABORTED, -ENOTCONN);
}

void placement_let_go(struct valkeyrdma_region *region) {
    struct valkeyrdma_context *context = region->context;
    list_each(&context->placements, link) client_let_go(container_of(link, struct valkeyrdma_placement, link), region);
    context_turn(context); /* destroys the queue pairs, also of clients that ended just before */
}

uint32_t valkeyrdma_checksum(const void *bytes, size_t length) {
    return crc32c(0, bytes, length);
}
