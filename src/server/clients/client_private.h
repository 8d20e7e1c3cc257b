/* client_private.h: declarations shared by the client_*.c files only. */
#pragma once
#include "server/clients/client.h"

void client_flush(struct client *client); /* at the end of a turn, now or before the loop waits; frees a client that
                                             must be closed and has nothing left to send */
void client_flush_forget(struct client *client);
uint64_t client_bytes_out(const struct client *client); /* that its connection has sent */
void client_output_cron(struct client *client);         /* output limits, and the size of the reply buffer */
/* Output as CLIENT LIST shows it and the limits count it: up to buffer.size bytes are in the reply buffer, the others
 * in blocks of a list. `shared`: the part of `pending` that is in strings of the store. */
struct client_output_figures {
    size_t buffered, blocks, queued; /* obl, oll, omem */
};
struct client_output_figures client_output_figures(const struct client *client, size_t pending, size_t shared);
void client_count_bytes(struct client *client); /* adds the bytes since the last call to client_stats */
/* Sizes for the COMMANDLOG of a call that dispatch_call executes. client_call_starts runs before it, client_call_ends
 * after it, if request or reply may be large. */
struct call_start {
    const char *pos; /* where the reply begins in conn->out */
    uint64_t calls;  /* client->commands */
    size_t held;     /* reply_barrier_held() */
};
void client_call_starts(struct client *client, struct call_start *start);
void client_call_ends(struct client *client, const struct call_start *start, int argc, const struct slice *argv,
                      size_t request_size);
/* A client with one of these flags executes no further request. */
enum { CLIENT_STOPS = CLIENT_CLOSING | CLIENT_CLOSE_AFTER_REPLY | CLIENT_PROTECTED };
void client_turn(struct client *client); /* executes the requests in its input */
void client_turn_forget(struct client *client);
/* The clients released just now execute before the reply of the request that released them is sent. */
void client_releases_go_first(void);
void client_skip_end(struct client *client);       /* the reply that CLIENT REPLY SKIP omits has been written */
void client_turns_detach(void);                    /* in a forked child: no client has a turn any more */
void client_produced_start(struct client *client); /* the client's connection or its position has changed */
/* Whether the client will execute requests that it has received, at the latest when a reply barrier releases it. */
bool client_has_turn(const struct client *client);
/* Whether the client executes nothing until something happens that may never happen: it is blocked, or paused. A reply
 * barrier does not count. */
bool client_waits(const struct client *client);
/* Frees a client that waits for an event and whose peer has closed the connection. Returns whether it did. */
bool client_free_if_peer_gone(struct client *client);
void client_closed_by_peer(struct client *client); /* frees the client, if need be after its last replies */
void client_cron_forget(struct client *client);
extern bool client_memory_bounded; /* maxmemory-clients is set: keep client->memory_noted up to date */
void client_memory_note(struct client *client);
/* The memory that the client has caused. Receive memory that its transport reserves for every connection (RDMA) does
 * not count; a socket has a buffer only because of what its client has sent. */
size_t client_memory_caused(const struct client *client);
void client_memory_forget(struct client *client);
struct call;
void client_kill_run(struct call *call);
/* client_list.c: the flags= and capa= fields of CLIENT LIST, NUL-terminated. */
enum { CLIENT_FLAGS_TEXT = 24 };
void client_flags_text(const struct client *client, const struct client_report *report,
                       char text[static CLIENT_FLAGS_TEXT]);
void client_capa_text(const struct client *client, char text[static CLIENT_FLAGS_TEXT]);

/* client_filter.c: the filters of CLIENT LIST and CLIENT KILL. In arrays of two, the second element is for the NOT-…
 * forms. */
enum client_filter_text {
    CLIENT_FILTER_ADDR,
    CLIENT_FILTER_LADDR,
    CLIENT_FILTER_IP,
    CLIENT_FILTER_USER,
    CLIENT_FILTER_NAME,
    CLIENT_FILTER_LIB_NAME,
    CLIENT_FILTER_LIB_VER,
    CLIENT_FILTER_FLAGS,
    CLIENT_FILTER_CAPA,
    CLIENT_FILTER_TEXTS
};
struct client_filter {
    struct client_ids {
        uint64_t *items; /* sorted */
        size_t count;
        bool given; /* a list without ids, which matches none; otherwise no ids mean any id */
    } ids[2];
    struct slice texts[2][CLIENT_FILTER_TEXTS]; /* slices of the parsed arguments */
    uint32_t has_text[2];                       /* one bit for each option */
    enum client_class class[2];                 /* CLIENT_CLASSES: any */
    int db[2];                                  /* -1: any */
    int64_t max_age, idle;                      /* seconds; 0: any */
    bool skip_me;                               /* skip the calling client; client_filter_matches() ignores it */
};
/* Parses options into a filter that the caller has zeroed except for skip_me. On false the error has been replied. Free
 * the filter in both cases. */
/* Notes a size of input memory for client_recent_max_input_buffer of INFO, which the cron could miss. */
void client_recent_input(size_t size);
bool client_filter_parse(struct client_filter *filter, struct reply *reply, int count, const struct slice *words);
bool client_filter_matches(const struct client_filter *filter, const struct client *client);
void client_filter_free(struct client_filter *filter);
void client_notify_freed(struct client *client);
void client_notify_request(struct client *client, int argc, const struct slice *argv);
void client_notify_drained(struct client *client);
void client_notify_requested(struct client *client);
void client_notify_arrived(struct client *client);
void client_notify_reset(struct client *client);
