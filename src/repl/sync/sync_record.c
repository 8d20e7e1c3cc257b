/* sync_record.c: see sync_record.h. The text consists of words between single spaces; "-" stands for an empty word. A
 * set ends the text that contains it. */
#include "repl/sync/sync_record.h"
#include "lib/text/number.h"
#include <stdio.h>
#include <string.h>

int sync_term_compare(const struct sync_term *a, const struct sync_term *b) {
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return strcmp(a->id, b->id);
}

int sync_set_compare(const struct sync_set *a, const struct sync_set *b) {
    int order = sync_term_compare(&a->term, &b->term);
    return order ? order : (a->version > b->version) - (a->version < b->version);
}

const struct sync_member *sync_members_find(const struct sync_members *members, const char *id) {
    for (int i = 0; i < members->count; i++)
        if (strcmp(members->list[i].id, id) == 0) return &members->list[i];
    return NULL;
}

/* --- Words --- */

static const char HEX[] = "0123456789abcdef";

static bool sync_id_is_valid(struct slice id) {
    if (id.len != SYNC_ID_LEN) return false;
    for (size_t i = 0; i < id.len; i++)
        if (!id.data[i] || !strchr(HEX, id.data[i])) return false;
    return true;
}

bool sync_host_is_valid(struct slice host) {
    static const char others[] = ".:_%-";
    if (!host.len || host.len > SYNC_HOST_MAX) return false;
    for (size_t i = 0; i < host.len; i++) {
        char c = host.data[i];
        bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!plain && (!c || !strchr(others, c))) return false;
    }
    return !slice_is(host, "-");
}

static void put(struct output *out, const char *word) {
    output_write(out, *word ? slice_of(word) : SLICE("-"));
    output_write(out, SLICE(" "));
}
static void put_number(struct output *out, uint64_t number) {
    char text[NUMBER_TEXT_MAX];
    output_write(out, (struct slice){text, format_uint64(text, number)});
    output_write(out, SLICE(" "));
}
static void put_term(struct output *out, const struct sync_term *term) {
    put_number(out, term->number);
    put(out, term->id);
}

struct words {
    struct slice rest;
    bool ok;
};
static struct slice word(struct words *words) {
    const char *space = words->rest.len ? memchr(words->rest.data, ' ', words->rest.len) : NULL;
    struct slice found = {words->rest.data, space ? (size_t)(space - words->rest.data) : words->rest.len};
    size_t used = found.len + (space != NULL);
    words->rest = (struct slice){words->rest.data + used, words->rest.len - used};
    if (!found.len) words->ok = false;
    return found;
}
static uint64_t number(struct words *words, uint64_t max) {
    uint64_t value = 0;
    if (!parse_uint64(word(words), &value) || value > max) words->ok = false;
    return words->ok ? value : 0;
}
static void id(struct words *words, char to[static SYNC_ID_LEN + 1], bool may_be_empty) {
    struct slice text = word(words);
    to[0] = 0;
    if (may_be_empty && slice_is(text, "-")) return;
    if (!sync_id_is_valid(text)) {
        words->ok = false;
        return;
    }
    memcpy(to, text.data, SYNC_ID_LEN);
    to[SYNC_ID_LEN] = 0;
}
/* A peer must not push the terms to their end. */
static const uint64_t TERM_MAX = UINT64_MAX / 4, VERSION_MAX = UINT64_MAX / 4;

static void term(struct words *words, struct sync_term *to) {
    to->number = number(words, TERM_MAX);
    id(words, to->id, true);
    if ((to->number == 0) != (to->id[0] == 0)) words->ok = false;
}

bool sync_term_parse_words(struct slice number_text, struct slice id_text, struct sync_term *to) {
    if (!parse_uint64(number_text, &to->number) || !to->number || to->number > TERM_MAX || !sync_id_is_valid(id_text))
        return false;
    memcpy(to->id, id_text.data, SYNC_ID_LEN);
    to->id[SYNC_ID_LEN] = 0;
    return true;
}

static struct words words_of(struct slice text) {
    while (text.len && text.data[text.len - 1] == ' ') text.len--;
    return (struct words){text, text.len <= SYNC_TEXT_MAX};
}
static bool words_end(const struct words *words) {
    return words->ok && words->rest.len == 0;
}

/* --- Sets --- */

static void put_members(struct output *out, const struct sync_members *members) {
    put_number(out, (uint64_t)members->replicas);
    put_number(out, (uint64_t)members->count);
    for (int i = 0; i < members->count; i++) {
        put(out, members->list[i].id);
        put(out, members->list[i].host);
        put_number(out, (uint64_t)members->list[i].port);
    }
}

static void read_members(struct words *words, struct sync_members *members) {
    members->replicas = (int)number(words, SYNC_MEMBERS_MAX);
    members->count = (int)number(words, SYNC_MEMBERS_MAX);
    for (int i = 0; i < members->count && words->ok; i++) {
        struct sync_member *member = &members->list[i];
        id(words, member->id, false);
        struct slice host = word(words);
        member->host[0] = 0;
        if (!slice_is(host, "-")) {
            if (!sync_host_is_valid(host)) {
                words->ok = false;
                return;
            }
            memcpy(member->host, host.data, host.len);
            member->host[host.len] = 0;
        }
        member->port = (int)number(words, 65535);
        for (int j = 0; j < i; j++)
            if (strcmp(members->list[j].id, member->id) == 0) words->ok = false;
    }
}

static void read_set(struct words *words, struct sync_set *set) {
    memset(set, 0, sizeof *set);
    term(words, &set->term);
    set->version = number(words, VERSION_MAX);
    read_members(words, &set->now);
    read_members(words, &set->before);
    if ((set->version == 0) != (set->now.count == 0) || (set->version && !set->term.number)) words->ok = false;
    if (set->now.count && !set->now.replicas) words->ok = false;
    if (set->before.count && !set->before.replicas) words->ok = false;
}

void sync_set_print(struct output *out, const struct sync_set *set) {
    put_term(out, &set->term);
    put_number(out, set->version);
    put_members(out, &set->now);
    put_members(out, &set->before);
}

bool sync_set_parse(struct slice text, struct sync_set *set) {
    struct words words = words_of(text);
    read_set(&words, set);
    return words_end(&words);
}

/* --- Messages --- */

void sync_ask_print(struct output *out, const struct sync_ask *ask) {
    put(out, ask->kind == SYNC_PROBE ? "probe" : "stand");
    put(out, ask->group);
    put_term(out, &ask->term);
}

bool sync_ask_parse(struct slice text, struct sync_ask *ask) {
    struct words words = words_of(text);
    struct slice kind = word(&words);
    if (!slice_is(kind, "probe") && !slice_is(kind, "stand")) return false;
    ask->kind = slice_is(kind, "probe") ? SYNC_PROBE : SYNC_STAND;
    id(&words, ask->group, false);
    term(&words, &ask->term);
    return words_end(&words) && ask->term.number;
}

static const char *const answers[] = {[SYNC_PROMISED] = "promised", [SYNC_WAIT] = "wait", [SYNC_REFUSED] = "refused"};

void sync_vote_print(struct output *out, const struct sync_vote *vote) {
    put(out, "VOTE");
    put(out, answers[vote->answer]);
    put(out, vote->kind == SYNC_PROBE ? "probe" : "stand");
    put(out, vote->id);
    put_term(out, &vote->term);
    put_term(out, &vote->promised);
    put_number(out, vote->sure);
    put_term(out, &vote->data);
    put_number(out, (uint64_t)vote->offset);
    sync_set_print(out, &vote->set);
}

bool sync_vote_parse(struct slice text, struct sync_vote *vote) {
    struct words words = words_of(text);
    if (!slice_is(word(&words), "VOTE")) return false;
    struct slice answer = word(&words);
    int found = -1;
    for (int i = SYNC_PROMISED; i <= SYNC_REFUSED; i++)
        if (slice_is(answer, answers[i])) found = i;
    if (found < 0) return false;
    vote->answer = (enum sync_answer)found;
    struct slice kind = word(&words);
    if (!slice_is(kind, "probe") && !slice_is(kind, "stand")) return false;
    vote->kind = slice_is(kind, "probe") ? SYNC_PROBE : SYNC_STAND;
    id(&words, vote->id, false);
    term(&words, &vote->term);
    term(&words, &vote->promised);
    vote->sure = number(&words, 1);
    term(&words, &vote->data);
    vote->offset = (int64_t)number(&words, INT64_MAX / 2);
    read_set(&words, &vote->set);
    return words_end(&words);
}

void sync_hello_print(struct output *out, const struct sync_hello *hello) {
    put(out, hello->group);
    put(out, hello->id);
    put_term(out, &hello->promised);
    put_number(out, hello->eligible);
}

bool sync_hello_parse(struct slice text, struct sync_hello *hello) {
    struct words words = words_of(text);
    id(&words, hello->group, true);
    id(&words, hello->id, false);
    term(&words, &hello->promised);
    hello->eligible = number(&words, 1);
    return words_end(&words);
}

void sync_welcome_print(struct output *out, const struct sync_welcome *welcome) {
    put(out, "SYNC");
    put(out, welcome->leads ? "leads" : "votes");
    put(out, welcome->group);
    put_term(out, &welcome->term);
    put_number(out, (uint64_t)welcome->offset);
}

bool sync_welcome_parse(struct slice text, struct sync_welcome *welcome) {
    struct words words = words_of(text);
    if (!slice_is(word(&words), "SYNC")) return false;
    struct slice mode = word(&words);
    welcome->leads = slice_is(mode, "leads");
    if (!welcome->leads && !slice_is(mode, "votes")) return false;
    id(&words, welcome->group, false);
    term(&words, &welcome->term);
    welcome->offset = (int64_t)number(&words, INT64_MAX / 2);
    return words_end(&words) && welcome->term.number;
}

/* --- The file --- */

void sync_state_print(struct output *out, const struct sync_state *state) {
    output_write(out, SLICE("# Promises of synchronous replication. Do not edit, copy or remove this file: see "
                            "docs/durability.md.\n"));
    output_write(out, SLICE("group "));
    put(out, state->group);
    output_write(out, SLICE("\nid "));
    put(out, state->id);
    output_write(out, SLICE("\npromised "));
    put_term(out, &state->promised);
    output_write(out, SLICE("\nset "));
    sync_set_print(out, &state->set);
    output_write(out, SLICE("\nend \n"));
}

bool sync_state_parse(struct slice text, struct sync_state *state) {
    bool group = false, own = false, promised = false, set = false, end = false;
    memset(state, 0, sizeof *state);
    while (text.len) {
        const char *newline = memchr(text.data, '\n', text.len);
        if (!newline) return false;
        struct slice line = {text.data, (size_t)(newline - text.data)};
        text = (struct slice){newline + 1, text.len - line.len - 1};
        if (line.len && line.data[0] == '#') continue;
        struct words words = words_of(line);
        struct slice key = word(&words);
        if (slice_is(key, "group") && !group) {
            id(&words, state->group, true);
            group = words_end(&words);
            if (!group) return false;
        } else if (slice_is(key, "id") && !own) {
            id(&words, state->id, false);
            own = words_end(&words);
            if (!own) return false;
        } else if (slice_is(key, "promised") && !promised) {
            term(&words, &state->promised);
            promised = words_end(&words);
            if (!promised) return false;
        } else if (slice_is(key, "set") && !set) {
            read_set(&words, &state->set);
            set = words_end(&words);
            if (!set) return false;
        } else if (slice_is(key, "end") && !end) {
            end = true;
        } else {
            return false;
        }
    }
    return group && own && promised && set && end;
}
