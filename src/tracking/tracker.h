/* tracker.h: a client that tracks keys. Main thread only. */
#pragma once
#include "lib/structures/linked_list.h"
#include "lib/text/slice.h"
#include <stdbool.h>
#include <stdint.h>

struct client;
struct prefix_set;

enum tracker_option { TRACK_BCAST = 1, TRACK_OPTIN = 2, TRACK_OPTOUT = 4, TRACK_NOLOOP = 8 };
struct tracker {
    struct client *client;       /* NULL: the client is closed, and only tracked keys still refer to the tracker */
    struct list_link link;       /* in the list of all trackers that have a client */
    uint64_t redirect;           /* id of the client that gets the messages; 0: this client */
    uint32_t options;            /* enum tracker_option */
    bool on;                     /* false: after CLIENT TRACKING OFF, while tracked keys still refer to the tracker */
    bool redirect_broken;        /* the client with the id `redirect` has disconnected */
    bool caching;                /* CLIENT CACHING was called and applies to the next command */
    size_t items;                /* tracked keys that refer to the tracker */
    struct prefix_set *prefixes; /* with BCAST: the prefixes that the client has named; NULL: none */
    uint64_t wrote;              /* number of the last round of broadcasts in which the client changed a key */
};

struct tracker *tracker_of(const struct client *client); /* NULL: it never tracked keys */
/* Turns tracking on with these options, or changes them. `redirect` as in struct tracker. */
struct tracker *tracker_on(struct client *client, uint64_t redirect, uint32_t options);
void tracker_off(struct client *client);
void tracker_set_caching(struct tracker *tracker);
/* Returns true if the tracker's own client made the change, with the command that runs. The message is then sent after
 * that command (a whole script or transaction), after its reply and the messages that it published. `key` NULL: all
 * keys have changed. */
bool tracker_defer(struct tracker *tracker, const struct slice *key);
/* A tracked key no longer refers to the tracker; may free it. */
void tracker_unref(struct tracker *tracker);
