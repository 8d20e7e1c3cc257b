/* client_kill.c: CLIENT KILL, in its old form (an address) and with filters. */
#include "lib/clock.h"
#include "lib/number.h"
#include "server/clients/auth.h"
#include "server/clients/client_private.h"
#include "server/clients/user.h"
#include "server/command/command.h"

struct filter {
    int64_t id, max_age;                       /* 0: any */
    struct slice address, local_address, user; /* data NULL: any */
    enum client_class class;                   /* CLIENT_CLASSES: any */
    bool skip_me;
};

static bool parse_positive(struct reply *reply, struct slice text, const char *not_integer, const char *not_positive,
                           int64_t *value) {
    if (!parse_int64(text, value))
        reply_error(reply, not_integer);
    else if (*value < 1)
        reply_error(reply, not_positive);
    else
        return true;
    return false;
}

static void unknown(struct reply *reply, const char *format, struct slice text) {
    reply_error_format(reply, format, (int)(text.len > 128 ? 128 : text.len), text.data);
}

/* One option and its value. False: answered with an error. */
static bool filter_option(struct reply *reply, struct filter *filter, struct slice option, struct slice value) {
    if (slice_is(option, "id")) {
        static const char wrong[] = "ERR client-id should be greater than 0";
        return parse_positive(reply, value, wrong, wrong, &filter->id);
    }
    if (slice_is(option, "maxage"))
        return parse_positive(reply, value, "ERR maxage is not an integer or out of range",
                              "ERR maxage should be greater than 0", &filter->max_age);
    if (slice_is(option, "type")) {
        if (client_class_parse(value, &filter->class)) return true;
        unknown(reply, "ERR Unknown client type '%.*s'", value);
        return false;
    }
    if (slice_is(option, "user")) {
        filter->user = value;
        if (auth_user_exists(value)) return true;
        unknown(reply, "ERR No such user '%.*s'", value);
        return false;
    }
    if (slice_is(option, "addr")) {
        filter->address = value;
    } else if (slice_is(option, "laddr")) {
        filter->local_address = value;
    } else if (slice_is(option, "skipme") && slice_is(value, "yes")) {
        filter->skip_me = true;
    } else if (slice_is(option, "skipme") && slice_is(value, "no")) {
        filter->skip_me = false;
    } else {
        reply_syntax_error(reply);
        return false;
    }
    return true;
}

static bool address_is(const struct client *client, bool peer, struct slice address) {
    char text[128];
    conn_format_address(client->conn, peer, text);
    return slice_equal(slice_of(text), address);
}

static bool filter_fits(const struct filter *filter, const struct client *client) {
    if (filter->id && client->id != (uint64_t)filter->id) return false;
    if (filter->class != CLIENT_CLASSES && client_class(client) != filter->class) return false;
    if (filter->max_age && (clock_ms() - client->created_ms) / 1000 < filter->max_age) return false;
    if (filter->user.data && !(client->authenticated && slice_equal(slice_of(client->user->name), filter->user)))
        return false;
    if (filter->address.data && !address_is(client, true, filter->address)) return false;
    return !filter->local_address.data || address_is(client, false, filter->local_address);
}

void client_kill_run(struct call *call) {
    bool old_form = call->argc == 3;
    struct filter filter = {.class = CLIENT_CLASSES, .skip_me = !old_form};
    if (old_form) {
        filter.address = call->argv[2];
    } else {
        if (call->argc % 2) {
            reply_syntax_error(call->reply);
            return;
        }
        for (int i = 2; i < call->argc; i += 2)
            if (!filter_option(call->reply, &filter, call->argv[i], call->argv[i + 1])) return;
    }
    int64_t killed = 0;
    bool me = false;
    list_each(clients_all(), link) {
        struct client *client = container_of(link, struct client, link);
        if (!filter_fits(&filter, client) || (client == call->client && filter.skip_me)) continue;
        killed++;
        if (client == call->client)
            me = true;
        else
            client_free(client);
    }
    if (!old_form)
        reply_integer(call->reply, killed);
    else if (killed)
        reply_ok(call->reply);
    else
        reply_error(call->reply, "ERR No such client");
    if (me) client_free_after_reply(call->client);
}
