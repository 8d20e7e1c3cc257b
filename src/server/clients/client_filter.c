/* client_filter.c: the filters of CLIENT LIST and CLIENT KILL.
 *
 * A filter is a list of options with values. Different options must all match. A repeated option replaces its earlier
 * value, except for ID and NOT-ID, which take several ids and accumulate them. Most options have a negative form,
 * NOT-…. If the client has no value for an option (its name was never set), the positive form does not match and the
 * negative form does. */
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "server/clients/auth.h"
#include "server/clients/client_private.h"
#include "server/clients/user.h"
#include "server/server.h"
#include <stdlib.h>

/* Options whose value is a text. The names follow enum client_filter_text. */
static const char *const text_options[CLIENT_FILTER_TEXTS] = {"addr",     "laddr",   "ip",    "user", "name",
                                                              "lib-name", "lib-ver", "flags", "capa"};
/* All letters that client_flags_text() may show, in this build or with the features of Valkey that it lacks. */
static const char flag_letters[] = "ABEIMNOPRSTUbcdeirtux", capa_letters[] = "re";

static void unknown(struct reply *reply, const char *what, const char *quote, struct slice text) {
    reply_error_format(reply, "ERR %s%s%.*s%s", what, quote, (int)(text.len > 128 ? 128 : text.len), text.data, quote);
}

static bool only_letters_of(const char *letters, struct slice text) {
    for (size_t i = 0; i < text.len; i++)
        if (!text.data[i] || !strchr(letters, text.data[i])) return false;
    return true;
}

static bool parse_positive(struct reply *reply, const char *option, struct slice text, int64_t *value) {
    if (!parse_int64(text, value))
        reply_error_format(reply, "ERR %s is not an integer or out of range", option);
    else if (*value < 1)
        reply_error_format(reply, "ERR %s should be greater than 0", option);
    else
        return true;
    return false;
}

/* Parses all ids that follow, at least one. Returns how many arguments it took, 0 after replying with an error. */
static int parse_ids(struct reply *reply, struct client_ids *ids, int count, const struct slice *words) {
    int taken = 0;
    int64_t id;
    while (taken < count && parse_int64(words[taken], &id)) {
        if (id < 1) {
            reply_error(reply, "ERR client-id should be greater than 0");
            return 0;
        }
        taken++;
    }
    if (!taken) {
        reply_syntax_error(reply);
        return 0;
    }
    ids->items = mem_realloc(ids->items, (ids->count + (size_t)taken) * sizeof *ids->items);
    for (int i = 0; i < taken; i++) {
        parse_int64(words[i], &id);
        ids->items[ids->count++] = (uint64_t)id;
    }
    return taken;
}

static bool parse_db(struct reply *reply, bool negated, struct slice text, int *db) {
    int64_t number;
    const char *option = negated ? "NOT-DB" : "DB";
    int last = keyspace_databases(server.keyspace) - 1;
    if (!parse_int64(text, &number))
        reply_error_format(reply, "ERR %s is not an integer or out of range", option);
    else if (number < 0 || number > last)
        reply_error_format(reply, "ERR %s number should be between 0 and %d", option, last);
    else
        return *db = (int)number, true;
    return false;
}

static bool parse_text(struct reply *reply, struct client_filter *filter, bool negated, int option, struct slice text) {
    if (option == CLIENT_FILTER_USER && !auth_user_exists(text)) {
        unknown(reply, "No such user ", "'", text);
        return false;
    }
    if (option == CLIENT_FILTER_FLAGS && !only_letters_of(flag_letters, text)) {
        unknown(reply,
                negated ? "Unknown flags found in the NOT-FLAGS filter: "
                        : "Unknown flags found in the provided filter: ",
                "", text);
        return false;
    }
    if (option == CLIENT_FILTER_CAPA && !only_letters_of(capa_letters, text)) {
        unknown(reply,
                negated ? "Unknown capa found in the NOT-CAPA filter: " : "Unknown capa found in the provided filter: ",
                "", text);
        return false;
    }
    filter->texts[negated][option] = text;
    filter->has_text[negated] |= 1u << option;
    return true;
}

/* Parses the options that take other values. Returns false after replying with an error. */
static bool parse_other(struct reply *reply, struct client_filter *filter, bool negated, struct slice option,
                        struct slice value) {
    if (slice_is(option, "type")) {
        if (client_class_parse(value, &filter->class[negated])) return true;
        unknown(reply, "Unknown client type ", "'", value);
        return false;
    }
    if (slice_is(option, "db")) return parse_db(reply, negated, value, &filter->db[negated]);
    if (!negated && slice_is(option, "maxage")) return parse_positive(reply, "maxage", value, &filter->max_age);
    if (!negated && slice_is(option, "idle")) return parse_positive(reply, "idle", value, &filter->idle);
    if (!negated && slice_is(option, "skipme") && (slice_is(value, "yes") || slice_is(value, "no"))) {
        filter->skip_me = slice_is(value, "yes");
        return true;
    }
    return reply_syntax_error(reply);
}

static int compare_ids(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

bool client_filter_parse(struct client_filter *filter, struct reply *reply, int count, const struct slice *words) {
    filter->class[0] = filter->class[1] = CLIENT_CLASSES;
    filter->db[0] = filter->db[1] = -1;
    for (int at = 0; at < count;) {
        struct slice option = words[at];
        bool negated = option.len > 4 && slice_is((struct slice){option.data, 4}, "not-");
        if (negated) option = (struct slice){option.data + 4, option.len - 4};
        if (++at == count) {
            /* ID as the last argument is an empty list, which matches no client. */
            if (count > 1 && slice_is(option, "id")) {
                filter->ids[negated].given = true;
                break;
            }
            return reply_syntax_error(reply);
        }
        if (slice_is(option, "id")) {
            int taken = parse_ids(reply, &filter->ids[negated], count - at, words + at);
            if (!taken) return false;
            at += taken;
            continue;
        }
        int text = 0;
        while (text < CLIENT_FILTER_TEXTS && !slice_is(option, text_options[text])) text++;
        if (text < CLIENT_FILTER_TEXTS ? !parse_text(reply, filter, negated, text, words[at])
                                       : !parse_other(reply, filter, negated, option, words[at]))
            return false;
        at++;
    }
    for (int negated = 0; negated < 2; negated++)
        if (filter->ids[negated].count > 1)
            qsort(filter->ids[negated].items, filter->ids[negated].count, sizeof(uint64_t), compare_ids);
    return true;
}

void client_filter_free(struct client_filter *filter) {
    mem_free(filter->ids[0].items);
    mem_free(filter->ids[1].items);
}

static bool has_id(const struct client_ids *ids, const struct client *client) {
    return ids->count && bsearch(&client->id, ids->items, ids->count, sizeof(uint64_t), compare_ids);
}

static bool has_all_letters(const char *have, struct slice wanted) {
    for (size_t i = 0; i < wanted.len; i++)
        if (!strchr(have, wanted.data[i])) return false;
    return true;
}

static bool is_text(const char *have, struct slice wanted) {
    return have && slice_equal(slice_of(have), wanted);
}

static bool has_text(const struct client *client, int option, struct slice wanted) {
    char text[128];
    struct client_report report;
    switch (option) {
    case CLIENT_FILTER_ADDR:
    case CLIENT_FILTER_LADDR:
        conn_format_address(client->conn, option == CLIENT_FILTER_ADDR, text);
        return is_text(text, wanted);
    case CLIENT_FILTER_IP: {
        /* The address without the port, and without the brackets of IPv6. */
        conn_format_address(client->conn, true, text);
        char *ip = text, *end = strrchr(text, ':');
        if (end) *end = 0;
        if (*ip == '[' && end && end > ip && end[-1] == ']') ip++, end[-1] = 0;
        return is_text(ip, wanted);
    }
    case CLIENT_FILTER_USER: return client->authenticated && is_text(client->user->name, wanted);
    case CLIENT_FILTER_NAME: return is_text(client->name, wanted);
    case CLIENT_FILTER_LIB_NAME: return is_text(client->lib_name, wanted);
    case CLIENT_FILTER_LIB_VER: return is_text(client->lib_ver, wanted);
    case CLIENT_FILTER_FLAGS:
        client_report(client, &report);
        client_flags_text(client, &report, text);
        return has_all_letters(text, wanted);
    default: client_capa_text(client, text); return has_all_letters(text, wanted);
    }
}

/* The links of slot migrations are of no type. */
static bool is_of_class(const struct client *client, enum client_class class) {
    return !(client->flags & CLIENT_MIGRATION) && client_class(client) == class;
}

bool client_filter_matches(const struct client_filter *filter, const struct client *client) {
    if ((filter->ids[0].count || filter->ids[0].given) && !has_id(&filter->ids[0], client)) return false;
    if (has_id(&filter->ids[1], client)) return false;
    if (filter->class[0] != CLIENT_CLASSES && !is_of_class(client, filter->class[0])) return false;
    if (filter->class[1] != CLIENT_CLASSES && is_of_class(client, filter->class[1])) return false;
    int db = client->db ? db_id(client->db) : 0;
    if (filter->db[0] >= 0 && db != filter->db[0]) return false;
    if (filter->db[1] >= 0 && db == filter->db[1]) return false;
    if (filter->max_age && (clock_mono_ms() - client->created_ms) / 1000 < filter->max_age) return false;
    if (filter->idle && (clock_mono_ms() - client->active_ms) / 1000 < filter->idle) return false;
    for (int negated = 0; negated < 2; negated++)
        for (int i = 0; i < CLIENT_FILTER_TEXTS; i++)
            if (filter->has_text[negated] & 1u << i && has_text(client, i, filter->texts[negated][i]) == negated)
                return false;
    return true;
}
