/* client.c: creates and frees clients, and handles the events of their connections. client_turn.c executes requests.
 *
 * Freeing. A client may be freed anywhere, also by its own command. Its connection is closed immediately; its memory is
 * freed at the end of the loop's turn, so functions on the stack can still read the client and see CLIENT_CLOSING.
 * Replies written after that are discarded. */
#include "lib/structures/hashtable.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/thread.h"
#include "net/remote.h"
#include "server/clients/auth.h"
#include "server/clients/client_private.h"
#include "server/clients/io_threads.h"
#include "server/clients/reply_barrier.h"
#include "server/clients/user.h"
#include "server/cluster_hooks.h"
#include "server/server.h"
#include "server/stats/errorstats.h"
#include "server/server_events.h"
#include <errno.h>

struct client_stats client_stats;
static struct list clients = LIST_INIT(clients), internal = LIST_INIT(internal);
static struct hashtable *by_id;
static uint64_t next_id = 1;
static struct null_output nowhere;

static struct slice id_key(const void *entry) {
    return slice_make(&((const struct client *)entry)->id, sizeof(uint64_t));
}
static const struct hashtable_type id_type = {.key = id_key};

struct client *client_by_id(uint64_t id) {
    return by_id ? hashtable_find(by_id, slice_make(&id, sizeof id)) : NULL;
}
struct list *clients_all(void) {
    return &clients;
}
struct list *clients_internal(void) {
    return &internal;
}
size_t clients_count(void) {
    return clients.len;
}

/* --- Life --- */

struct client *client_new(struct connection *conn) {
    must_be_main_thread();
    struct client *client = mem_calloc(1, sizeof *client);
    if (!nowhere.out.ops) null_output_init(&nowhere);
    client->conn = conn;
    client->id = next_id++;
    client->reply = (struct reply){.out = conn ? &conn->out : &nowhere.out,
                                   .protocol = (uint8_t)client_settings.protocol,
                                   .error_hook = errorstats_count};
    client->db = server.keyspace ? keyspace_db(server.keyspace, 0) : NULL;
    client->user = &user_default;
    client->created_ms = client->active_ms = clock_mono_ms();
    client->buffer.size = client->buffer.peak = REPLY_SIZE_MAX;
    request_reader_init(&client->reader);
    if (!conn) {
        client->flags = CLIENT_INTERNAL;
        client->authenticated = true;
        list_append(&internal, &client->link);
        return client;
    }
    client->authenticated = !auth_required();
    conn_set_trusted(conn, client->authenticated);
    if (!by_id) by_id = hashtable_new(&id_type);
    bool added = hashtable_add(by_id, client);
    must(added); /* ids are not used again */
    list_append(&clients, &client->link);
    return client;
}

static void client_memory_free(struct event_deferred *deferred) {
    struct client *client = container_of(deferred, struct client, deferred);
    must(client->flags & CLIENT_CLOSING && !client->conn);
    must_in_tests(!client->states); /* `freed` was called: no feature may keep state of it */
    request_reader_free(&client->reader);
    mem_free(client->name);
    mem_free(client->lib_name);
    mem_free(client->lib_ver);
    mem_free(client->addresses);
    mem_free(client->states);
    mem_free(client);
}

void client_free(struct client *client) {
    if (client->flags & CLIENT_CLOSING) return;
    if (__builtin_expect(client->flags & CLIENT_PROTECTED, 0)) {
        client->flags |= CLIENT_CLOSE_WANTED;
        return;
    }
    client->flags |= CLIENT_CLOSING;
    if (client->conn) server_event(EVENT_CLIENT_CHANGE, 1, client);
    client_notify_freed(client);
    client->reply.out = &nowhere.out;
    client_turn_forget(client);
    if (client->conn) {
        client_count_bytes(client);
        client_flush_forget(client);
        client_cron_forget(client);
        client_memory_forget(client);
        list_remove(&clients, &client->link);
        const struct client *known = hashtable_pop(by_id, id_key(client));
        must(known == client);
        conn_close(client->conn);
        client_count_bytes(client); /* the bytes counted since the last time */
        client->conn = NULL;
    } else if (list_is_linked(&client->link)) { /* not after clients_detach() */
        list_remove(&internal, &client->link);
    }
    if (server.loop)
        event_loop_defer(server.loop, &client->deferred, client_memory_free);
    else
        client_memory_free(&client->deferred);
}

void clients_detach(void) {
    list_each_entry(&clients, struct client, link, client) {
        client_flush_forget(client);
        client->conn = NULL;
        client->reply.out = &nowhere.out;
        list_remove(&clients, &client->link);
    }
    client_turns_detach();
    if (by_id) hashtable_free(by_id);
    by_id = NULL;
}

void client_protect(struct client *client) {
    client->flags |= CLIENT_PROTECTED;
    if (client->conn) conn_set_reading(client->conn, false);
    client_memory_forget(client);
}

void client_free_after_reply(struct client *client) {
    client->flags |= CLIENT_CLOSE_AFTER_REPLY;
    client_retarget(client);                      /* the caller may be this client's own EXEC: keep the rest running */
    if (client->conn) client_flush_later(client); /* unless the client is in its own turn */
}

void client_retarget(struct client *client) {
    enum { SILENT = CLIENT_REPLY_OFF | CLIENT_REPLY_SKIP | CLIENT_CLOSING | CLIENT_CLOSE_AFTER_REPLY };
    enum { ELSEWHERE = CLIENT_REPLICA | CLIENT_INTERNAL }; /* their owners say where replies go */
    if (__builtin_expect(client->flags & ELSEWHERE, 0) && !(client->flags & CLIENT_CLOSING)) return;
    client->reply.out = client->conn && !(client->flags & SILENT) ? client_output(client) : &nowhere.out;
}

/* --- Events of the connection --- */

static void client_readable(struct connection *conn) {
    client_stats.reads++;
    client_turn(conn->owner);
}

static void client_drained(struct connection *conn) {
    struct client *client = conn->owner;
    client_count_bytes(client);
    if (client->flags & CLIENT_CLOSE_AFTER_REPLY && !reply_barrier_replies(client))
        client_free(client);
    else if (client->states)
        client_notify_drained(client);
}

void client_closed_by_peer(struct client *client) {
    const struct connection *conn = client->conn;
    bool late = !conn->error && !client_waits(client) &&
                (reply_barrier_replies(client) || conn_pending(conn) || client_has_turn(client));
    if (conn->error == ENOMEM)
        log_warning("No memory is left for the requests or replies of a client: closing it. %s",
                    client_log_text(client));
    else if (conn->error)
        log_verbose("Error on the connection of a client: %s (%s)", conn_error_text(conn), client_log_text(client));
    else
        log_verbose("Client closed connection %s", client_log_text(client));
    if (!late) {
        client_free(client);
        return;
    }
    /* A peer that has only shut down its sending direction still gets its replies. client_output.c frees the client
     * after the last one, and the cron if it takes too long. */
    client->active_ms = clock_mono_ms();
    client_flush_later(client);
}

static void client_closed(struct connection *conn) {
    client_closed_by_peer(conn->owner);
}

/* Requests that were received before the end of the connection are executed, except those behind a request that waits.
 * A client that executes nothing more waits for its replies to leave: over RDMA they are gone. */
static void client_hung_up(struct connection *conn) {
    struct client *client = conn->owner;
    if (client->flags & CLIENT_CLOSE_AFTER_REPLY && !reply_barrier_replies(client) && !conn_pending(conn))
        client_free(client);
    else
        client_free_if_peer_gone(client);
}

/* Evicts immediately: the next request may already have arrived and would be executed with more memory. */
static void client_grown(struct connection *conn) {
    if (!client_memory_bounded) return;
    client_memory_note(conn->owner);
    clients_evict();
}

static const struct connection_events client_connection_events = {.readable = client_readable,
                                                                  .drained = client_drained,
                                                                  .closed = client_closed,
                                                                  .hung_up = client_hung_up,
                                                                  .grown = client_grown};

/* Refuses a connection with an error. */
static void connection_refuse(struct connection *conn, const char *error) {
    struct reply reply = {.out = &conn->out, .protocol = 2};
    client_stats.rejected++;
    reply_error(&reply, error);
    conn_flush(conn);
    conn_close(conn);
}

void client_accept(struct listener *listener, struct connection *conn) {
    static const struct connection_events refused_events = {.readable = conn_close, .closed = conn_close};
    conn->events = &refused_events;
    if ((int64_t)(clients.len + cluster_connections()) >= client_settings.maxclients) {
        connection_refuse(conn, cluster_hooks ? "ERR max number of clients + cluster connections reached"
                                              : "ERR max number of clients reached");
        return;
    }
    const char *refusal = auth_protected_refusal(conn);
    if (refusal) {
        connection_refuse(conn, refusal);
        return;
    }
    client_stats.accepted++;
    struct client *client = client_new(conn);
    conn->events = &client_connection_events;
    conn->owner = client;
    client->threaded = conn_is_remote(conn);
    conn->keeps_input = !client->threaded;
    auth_login_certificate(client, conn_peer_names(conn));
    conn_set_in_limit(conn, (size_t)client_settings.query_buffer_limit);
    if (client_settings.tcp_keepalive) conn_set_keepalive(conn, client_settings.tcp_keepalive);
    io_threads_accepted(conn);
    char peer[128];
    conn_format_address(client->conn, true, peer);
    log_verbose("Accepted %s", peer);
    server_event(EVENT_CLIENT_CHANGE, 0, client); /* last: who hears of it may close the client */
}

bool client_can_change_connection(const struct client *client) {
    enum {
        EXCLUDED = CLIENT_STOPS | CLIENT_REPLICA | CLIENT_PRIMARY | CLIENT_PAUSED | CLIENT_TAKEN_OVER | CLIENT_INTERNAL
    };
    if (client->flags & EXCLUDED || client->held || client->waits_for_turn || client->resume) return false;
    if (list_is_linked(&client->turn_link) || list_is_linked(&client->flush_link)) return false;
    return request_is_idle(&client->reader) && !reply_barrier_replies(client);
}

void client_change_connection(struct client *client, struct connection *conn) {
    client->conn = conn;
    client->threaded = conn_is_remote(conn);
    conn->keeps_input = !client->threaded;
    client_retarget(client);
    client_produced_start(client);
}

void client_set_name(struct client *client, struct slice name) {
    mem_free(client->name);
    client->name = name.len ? mem_strndup(name.data, name.len) : NULL;
}

void client_reset(struct client *client) {
    client->flags &=
        ~(uint32_t)(CLIENT_REPLY_OFF | CLIENT_REPLY_SKIP | CLIENT_REPLY_SKIP_NEXT | CLIENT_NO_EVICT | CLIENT_NO_TOUCH |
                    CLIENT_IMPORT_SOURCE | CLIENT_READONLY | CLIENT_ASKING | CLIENT_ASKING_USED);
    client_notify_reset(client);
    client_retarget(client);
    client->reply.protocol = (uint8_t)client_settings.protocol;
    client->db = keyspace_db(server.keyspace, 0);
    client->user = &user_default;
    client->authenticated = !auth_required();
    if (client->conn) conn_set_trusted(client->conn, client->authenticated);
    client_set_name(client, SLICE(""));
}
