/* tracking_commands.c: CLIENT TRACKING, CACHING, GETREDIR and TRACKINGINFO. */
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "server/clients/client.h"
#include "server/command/spec.h"
#include "tracking/broadcast.h"
#include "tracking/tracker.h"
#include <stdlib.h>

/* The arguments of CLIENT TRACKING. */
struct tracking_request {
    uint64_t redirect;
    uint32_t options;
    const struct slice **prefixes; /* arguments of the call, in their order; the caller frees the array */
    size_t prefix_count;
};

static bool parse_redirect(struct call *call, struct slice text, struct tracking_request *request) {
    int64_t id;
    if (request->redirect) {
        reply_error(call->reply, "ERR A client can only redirect to a single other client");
    } else if (!parse_int64(text, &id)) {
        reply_not_integer(call->reply);
    } else if (id <= 0 || !client_by_id((uint64_t)id)) {
        reply_error(call->reply, "ERR The client ID you want redirect to does not exist");
    } else {
        request->redirect = (uint64_t)id;
        return true;
    }
    return false;
}

static uint32_t option_of(struct slice word) {
    static const struct {
        const char *name;
        enum tracker_option option;
    } names[] = {{"bcast", TRACK_BCAST}, {"optin", TRACK_OPTIN}, {"optout", TRACK_OPTOUT}, {"noloop", TRACK_NOLOOP}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (slice_is(word, names[i].name)) return names[i].option;
    return 0;
}

/* False: an error was replied. */
static bool parse(struct call *call, struct tracking_request *request) {
    request->prefixes = mem_alloc((size_t)call->argc * sizeof(const struct slice *));
    for (int i = 3; i < call->argc; i++) {
        struct slice word = call->argv[i];
        uint32_t option = option_of(word);
        bool last = i == call->argc - 1;
        if (option) {
            request->options |= option;
        } else if (!last && slice_is(word, "redirect")) {
            if (!parse_redirect(call, call->argv[++i], request)) return false;
        } else if (!last && slice_is(word, "prefix")) {
            request->prefixes[request->prefix_count++] = &call->argv[++i];
        } else {
            return reply_syntax_error(call->reply);
        }
    }
    return true;
}

/* Returns the error if options exclude each other or the client's current mode; NULL: they do not. */
static const char *check_options(const struct client *client, const struct tracking_request *request) {
    enum { CHOICE = TRACK_OPTIN | TRACK_OPTOUT };
    const struct tracker *tracker = tracker_of(client);
    uint32_t options = request->options, choice = options & CHOICE;
    if (request->prefix_count && !(options & TRACK_BCAST)) return "ERR PREFIX option requires BCAST mode to be enabled";
    if (tracker && tracker->on && (tracker->options ^ options) & TRACK_BCAST)
        return "ERR You can't switch BCAST mode on/off before disabling tracking for this client, and then "
               "re-enabling it with a different mode.";
    if (options & TRACK_BCAST && choice) return "ERR OPTIN and OPTOUT are not compatible with BCAST";
    if (choice == CHOICE) return "ERR You can't specify both OPTIN mode and OPTOUT mode";
    if (tracker && tracker->on && choice && tracker->options & CHOICE & ~choice)
        return "ERR You can't switch OPTIN/OPTOUT mode before disabling tracking for this client, and then "
               "re-enabling it with a different mode.";
    return NULL;
}

/* --- Overlapping prefixes --- */

static int by_text(const void *a, const void *b) {
    return slice_compare(**(const struct slice *const *)a, **(const struct slice *const *)b);
}

static bool is_prefix(struct slice prefix, struct slice text) {
    return prefix.len <= text.len && (prefix.len == 0 || memcmp(prefix.data, text.data, prefix.len) == 0);
}

static bool overlap(struct slice a, struct slice b) {
    return is_prefix(a, b) || is_prefix(b, a);
}

/* The first of the arguments that overlaps with a later one; NULL: none. In sorted order a prefix is directly followed
 * by all texts that start with it, so one pass finds all overlaps. The arguments are in one array (call->argv), so
 * comparing their addresses compares their positions. */
static const struct slice *first_overlapping(const struct tracking_request *request) {
    size_t count = request->prefix_count;
    if (count < 2) return NULL;
    const struct slice **sorted = mem_alloc(count * sizeof *sorted), *outer, *first = NULL;
    memcpy(sorted, request->prefixes, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, by_text);
    outer = sorted[0];
    for (size_t i = 1; i < count; i++) {
        if (!is_prefix(*outer, *sorted[i])) {
            outer = sorted[i];
            continue;
        }
        if (!first || outer < first) first = outer;
        if (sorted[i] < first) first = sorted[i];
    }
    mem_free(sorted);
    return first;
}

static void reply_overlap(struct call *call, struct slice prefix, const char *with, struct slice other) {
    reply_error_format(call->reply,
                       "ERR Prefix '%.*s' overlaps with %s prefix '%.*s'. Prefixes for a single client must not "
                       "overlap.",
                       (int)prefix.len, prefix.data, with, (int)other.len, other.data);
}

/* False: an error was replied. */
static bool check_prefixes(struct call *call, const struct tracking_request *request) {
    const struct slice *first = first_overlapping(request);
    const struct tracker *tracker = tracker_of(call->client);
    for (size_t i = 0; i < request->prefix_count; i++) {
        const struct slice *prefix = request->prefixes[i];
        struct slice other;
        if (broadcast_overlap(tracker, *prefix, &other)) {
            reply_overlap(call, *prefix, "an existing", other);
            return false;
        }
        if (prefix != first) continue;
        do i++;
        while (!overlap(*prefix, *request->prefixes[i]));
        reply_overlap(call, *prefix, "another provided", *request->prefixes[i]);
        return false;
    }
    return true;
}

static void turn_on(struct call *call, const struct tracking_request *request) {
    const char *error = check_options(call->client, request);
    if (error) {
        reply_error(call->reply, error);
        return;
    }
    if (!check_prefixes(call, request)) return;
    struct tracker *tracker = tracker_on(call->client, request->redirect, request->options);
    for (size_t i = 0; i < request->prefix_count; i++) broadcast_join(tracker, *request->prefixes[i]);
    if (request->options & TRACK_BCAST && !request->prefix_count) broadcast_join(tracker, SLICE(""));
    reply_ok(call->reply);
}

static void tracking_run(struct call *call) {
    struct tracking_request request = {0};
    if (!parse(call, &request)) {
        /* the error was replied */
    } else if (slice_is(call->argv[2], "on")) {
        turn_on(call, &request);
    } else if (slice_is(call->argv[2], "off")) {
        tracker_off(call->client);
        reply_ok(call->reply);
    } else {
        reply_syntax_error(call->reply);
    }
    mem_free(request.prefixes);
}

static void caching_run(struct call *call) {
    struct tracker *tracker = tracker_of(call->client);
    bool yes = slice_is(call->argv[2], "yes");
    if (!tracker || !tracker->on) {
        reply_error(call->reply, "ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN "
                                 "or OPTOUT mode enabled");
    } else if (!yes && !slice_is(call->argv[2], "no")) {
        reply_syntax_error(call->reply);
    } else if (yes && !(tracker->options & TRACK_OPTIN)) {
        reply_error(call->reply, "ERR CLIENT CACHING YES is only valid when tracking is enabled in OPTIN mode.");
    } else if (!yes && !(tracker->options & TRACK_OPTOUT)) {
        reply_error(call->reply, "ERR CLIENT CACHING NO is only valid when tracking is enabled in OPTOUT mode.");
    } else {
        tracker_set_caching(tracker);
        reply_ok(call->reply);
    }
}

static int64_t redirect_of(const struct tracker *tracker) {
    return tracker && tracker->on ? (int64_t)tracker->redirect : -1;
}

static void getredir_run(struct call *call) {
    reply_integer(call->reply, redirect_of(tracker_of(call->client)));
}

static void reply_flags(struct call *call, const struct tracker *tracker) {
    const char *flags[8];
    size_t count = 0;
    if (!tracker || !tracker->on) {
        flags[count++] = "off";
    } else {
        bool caching = tracker->caching;
        flags[count++] = "on";
        if (tracker->options & TRACK_BCAST) flags[count++] = "bcast";
        if (tracker->options & TRACK_OPTIN) flags[count++] = "optin";
        if (tracker->options & TRACK_OPTIN && caching) flags[count++] = "caching-yes";
        if (tracker->options & TRACK_OPTOUT) flags[count++] = "optout";
        if (tracker->options & TRACK_OPTOUT && caching) flags[count++] = "caching-no";
        if (tracker->options & TRACK_NOLOOP) flags[count++] = "noloop";
        if (tracker->redirect_broken) flags[count++] = "broken_redirect";
    }
    reply_set(call->reply, count);
    for (size_t i = 0; i < count; i++) reply_bulk_text(call->reply, flags[i]);
}

static void prefix_reply(void *reply, struct slice prefix) {
    reply_bulk(reply, prefix);
}

static void trackinginfo_run(struct call *call) {
    const struct tracker *tracker = tracker_of(call->client);
    reply_map(call->reply, 3);
    reply_bulk_text(call->reply, "flags");
    reply_flags(call, tracker);
    reply_field_integer(call->reply, "redirect", redirect_of(tracker));
    reply_bulk_text(call->reply, "prefixes");
    reply_array(call->reply, tracker ? broadcast_prefixes(tracker) : 0);
    if (tracker) broadcast_each(tracker, prefix_reply, call->reply);
}

#define FLAGS (CMD_NO_DATA | CMD_NOSCRIPT | CMD_LOADING | CMD_STALE)

const struct command_spec tracking_commands[] = {
    {COMMAND("caching", caching_run, 3, FLAGS | CMD_ALLOW_BUSY, .group = GROUP_CONNECTION, "6.0.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)",
     .summary = "Sets whether the keys of the next command are tracked, in the modes OPTIN and OPTOUT.",
     .syntax = "mode(YES|NO)"},
    {COMMAND("getredir", getredir_run, 2, FLAGS | CMD_ALLOW_BUSY, .group = GROUP_CONNECTION, "6.0.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)",
     .summary = "Returns the id of the client that gets the connection's invalidation messages."},
    {COMMAND("tracking", tracking_run, -3, FLAGS, .group = GROUP_CONNECTION, "6.0.0"), .categories = CAT_CONNECTION,
     .complexity = "O(1). Some options may introduce additional complexity.",
     .summary = "Turns client-side caching for the connection on or off.",
     .syntax = "status(ON|OFF) [REDIRECT client-id:integer] [PREFIX prefix:string]... [BCAST] [OPTIN] [OPTOUT] "
               "[NOLOOP]"},
    {COMMAND("trackinginfo", trackinginfo_run, 2, FLAGS, .group = GROUP_CONNECTION, "6.2.0"),
     .categories = CAT_CONNECTION, .complexity = "O(1)",
     .summary = "Returns what the connection tracks for client-side caching."},
    {.name = NULL},
};
