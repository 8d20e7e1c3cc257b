/* record.c: see record.h. The text consists of words between single spaces; "-" stands for an empty word. A
 * set ends the text that contains it. */
#include "repl/quorum/protocol/record.h"
#include "lib/text/number.h"
#include <stdio.h>
#include <string.h>

int quorum_term_compare(const struct quorum_term *a, const struct quorum_term *b) {
    if (a->number != b->number) return a->number < b->number ? -1 : 1;
    return strcmp(a->id, b->id);
}

int quorum_set_compare(const struct quorum_set *a, const struct quorum_set *b) {
    int order = quorum_term_compare(&a->term, &b->term);
    return order ? order : (a->version > b->version) - (a->version < b->version);
}

const struct quorum_member *quorum_members_find(const struct quorum_members *members, const char *id) {
    for (int i = 0; i < members->count; i++)
        if (strcmp(members->list[i].id, id) == 0) return &members->list[i];
    return NULL;
}

/* --- Words --- */

static const char HEX[] = "0123456789abcdef";

static bool quorum_id_is_valid(struct slice id) {
    if (id.len != QUORUM_ID_LEN) return false;
    for (size_t i = 0; i < id.len; i++)
        if (!id.data[i] || !strchr(HEX, id.data[i])) return false;
    return true;
}

bool quorum_host_is_valid(struct slice host) {
    static const char others[] = ".:_%-";
    if (!host.len || host.len > QUORUM_HOST_MAX) return false;
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
static void put_term(struct output *out, const struct quorum_term *term) {
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
static void id(struct words *words, char to[static QUORUM_ID_LEN + 1], bool may_be_empty) {
    struct slice text = word(words);
    to[0] = 0;
    if (may_be_empty && slice_is(text, "-")) return;
    if (!quorum_id_is_valid(text)) {
        words->ok = false;
        return;
    }
    memcpy(to, text.data, QUORUM_ID_LEN);
    to[QUORUM_ID_LEN] = 0;
}
/* A peer must not push the terms to their end. */
static const uint64_t TERM_MAX = UINT64_MAX / 4, VERSION_MAX = UINT64_MAX / 4;

static void term(struct words *words, struct quorum_term *to) {
    to->number = number(words, TERM_MAX);
    id(words, to->id, true);
    if ((to->number == 0) != (to->id[0] == 0)) words->ok = false;
}

bool quorum_term_parse_words(struct slice number_text, struct slice id_text, struct quorum_term *to) {
    if (!parse_uint64(number_text, &to->number) || !to->number || to->number > TERM_MAX || !quorum_id_is_valid(id_text))
        return false;
    memcpy(to->id, id_text.data, QUORUM_ID_LEN);
    to->id[QUORUM_ID_LEN] = 0;
    return true;
}

static struct words words_of(struct slice text) {
    while (text.len && text.data[text.len - 1] == ' ') text.len--;
    return (struct words){text, text.len <= QUORUM_TEXT_MAX};
}
static bool words_end(const struct words *words) {
    return words->ok && words->rest.len == 0;
}

/* --- Sets --- */

static void put_members(struct output *out, const struct quorum_members *members) {
    put_number(out, (uint64_t)members->replicas);
    put_number(out, (uint64_t)members->count);
    for (int i = 0; i < members->count; i++) {
        put(out, members->list[i].id);
        put(out, members->list[i].host);
        put_number(out, (uint64_t)members->list[i].port);
    }
}

static void read_members(struct words *words, struct quorum_members *members) {
    members->replicas = (int)number(words, QUORUM_MEMBERS_MAX);
    members->count = (int)number(words, QUORUM_MEMBERS_MAX);
    for (int i = 0; i < members->count && words->ok; i++) {
        struct quorum_member *member = &members->list[i];
        id(words, member->id, false);
        struct slice host = word(words);
        member->host[0] = 0;
        if (!slice_is(host, "-")) {
            if (!quorum_host_is_valid(host)) {
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

static void read_set(struct words *words, struct quorum_set *set) {
    memset(set, 0, sizeof *set);
    term(words, &set->term);
    set->version = number(words, VERSION_MAX);
    read_members(words, &set->now);
    read_members(words, &set->before);
    if ((set->version == 0) != (set->now.count == 0) || (set->version && !set->term.number)) words->ok = false;
    if (set->now.count && !set->now.replicas) words->ok = false;
    if (set->before.count && !set->before.replicas) words->ok = false;
}

void quorum_set_print(struct output *out, const struct quorum_set *set) {
    put_term(out, &set->term);
    put_number(out, set->version);
    put_members(out, &set->now);
    put_members(out, &set->before);
}

bool quorum_set_parse(struct slice text, struct quorum_set *set) {
    struct words words = words_of(text);
    read_set(&words, set);
    return words_end(&words);
}

/* --- Messages --- */

void quorum_vote_request_print(struct output *out, const struct quorum_vote_request *request) {
    put(out, request->kind == QUORUM_PRE_VOTE ? "probe" : "stand");
    put(out, request->group);
    put_term(out, &request->term);
}

bool quorum_vote_request_parse(struct slice text, struct quorum_vote_request *request) {
    struct words words = words_of(text);
    struct slice kind = word(&words);
    if (!slice_is(kind, "probe") && !slice_is(kind, "stand")) return false;
    request->kind = slice_is(kind, "probe") ? QUORUM_PRE_VOTE : QUORUM_VOTE;
    id(&words, request->group, false);
    term(&words, &request->term);
    return words_end(&words) && request->term.number;
}

static const char *const answers[] = {
    [QUORUM_PROMISED] = "promised", [QUORUM_WAIT] = "wait", [QUORUM_REFUSED] = "refused"};

void quorum_vote_print(struct output *out, const struct quorum_vote *vote) {
    put(out, "VOTE");
    put(out, answers[vote->answer]);
    put(out, vote->kind == QUORUM_PRE_VOTE ? "probe" : "stand");
    put(out, vote->id);
    put_term(out, &vote->term);
    put_term(out, &vote->promised);
    put_number(out, vote->complete);
    put_term(out, &vote->data_term);
    put_number(out, (uint64_t)vote->offset);
    quorum_set_print(out, &vote->set);
}

bool quorum_vote_parse(struct slice text, struct quorum_vote *vote) {
    struct words words = words_of(text);
    if (!slice_is(word(&words), "VOTE")) return false;
    struct slice answer = word(&words);
    int found = -1;
    for (int i = QUORUM_PROMISED; i <= QUORUM_REFUSED; i++)
        if (slice_is(answer, answers[i])) found = i;
    if (found < 0) return false;
    vote->answer = (enum quorum_answer)found;
    struct slice kind = word(&words);
    if (!slice_is(kind, "probe") && !slice_is(kind, "stand")) return false;
    vote->kind = slice_is(kind, "probe") ? QUORUM_PRE_VOTE : QUORUM_VOTE;
    id(&words, vote->id, false);
    term(&words, &vote->term);
    term(&words, &vote->promised);
    vote->complete = number(&words, 1);
    term(&words, &vote->data_term);
    vote->offset = (int64_t)number(&words, INT64_MAX / 2);
    read_set(&words, &vote->set);
    return words_end(&words);
}

void quorum_hello_print(struct output *out, const struct quorum_hello *hello) {
    put(out, hello->group);
    put(out, hello->id);
    put_term(out, &hello->promised);
    put_number(out, hello->eligible);
}

bool quorum_hello_parse(struct slice text, struct quorum_hello *hello) {
    struct words words = words_of(text);
    id(&words, hello->group, true);
    id(&words, hello->id, false);
    term(&words, &hello->promised);
    hello->eligible = number(&words, 1);
    return words_end(&words);
}

void quorum_welcome_print(struct output *out, const struct quorum_welcome *welcome) {
    put(out, "SYNC");
    put(out, welcome->leads ? "leads" : "votes");
    put(out, welcome->group);
    put_term(out, &welcome->term);
    put_number(out, (uint64_t)welcome->offset);
}

bool quorum_welcome_parse(struct slice text, struct quorum_welcome *welcome) {
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

void quorum_state_print(struct output *out, const struct quorum_state *state) {
    output_write(out, SLICE("# Promises of synchronous replication. Do not edit, copy or remove this file: see "
                            "docs/durability.md.\n"));
    output_write(out, SLICE("group "));
    put(out, state->group);
    output_write(out, SLICE("\nid "));
    put(out, state->id);
    output_write(out, SLICE("\npromised "));
    put_term(out, &state->promised);
    output_write(out, SLICE("\nset "));
    quorum_set_print(out, &state->set);
    output_write(out, SLICE("\nend \n"));
}

bool quorum_state_parse(struct slice text, struct quorum_state *state) {
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
