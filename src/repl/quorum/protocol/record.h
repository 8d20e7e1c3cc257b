/* record.h: what the servers of a group with synchronous replication know and tell each other: terms, sets,
 * votes, and their text, in the file of promises and in messages. machine.h explains what they mean. No sockets, no
 * clocks, no files. */
#pragma once
#include "lib/text/output.h"
#include "lib/text/slice.h"
#include <stdbool.h>
#include <stdint.h>

enum { QUORUM_ID_LEN = 40, QUORUM_MEMBERS_MAX = 16, QUORUM_HOST_MAX = 255, QUORUM_TEXT_MAX = 32 * 1024 };

/* A period in which one server leads. Unique: the number is chosen by the candidate whose id it has. */
struct quorum_term {
    uint64_t number; /* 0: none */
    char id[QUORUM_ID_LEN + 1];
};
int quorum_term_compare(const struct quorum_term *a, const struct quorum_term *b);

struct quorum_member {
    char id[QUORUM_ID_LEN + 1], host[QUORUM_HOST_MAX + 1];
    int port; /* 0: its address is not known */
};
/* Servers, and how many replicas among them must have a write (min-sync-replicas). */
struct quorum_members {
    int replicas, count;
    struct quorum_member list[QUORUM_MEMBERS_MAX];
};
/* The set of in-sync servers, the primary included. While it changes, both the new members (`now`) and the old ones
 * (`before`) count. */
struct quorum_set {
    struct quorum_term term;           /* of the primary that has written it */
    uint64_t version;                  /* 0: none */
    struct quorum_members now, before; /* before.count 0: the change is complete */
};
int quorum_set_compare(const struct quorum_set *a, const struct quorum_set *b); /* by term and version */
const struct quorum_member *quorum_members_find(const struct quorum_members *members, const char *id);
static inline bool quorum_set_has(const struct quorum_set *set, const char *id) {
    return quorum_members_find(&set->now, id) || quorum_members_find(&set->before, id);
}
/* How many of the members must have a write or a set (the primary counts), and how many must vote for a candidate, so
 * that one of the voters has it. */
static inline int quorum_members_needed(const struct quorum_members *members) {
    return members->replicas + 1 < members->count ? members->replicas + 1 : members->count;
}
static inline int quorum_members_electing(const struct quorum_members *members) {
    return members->count - quorum_members_needed(members) + 1;
}

/* What a server keeps on disk. */
struct quorum_state {
    char group[QUORUM_ID_LEN + 1]; /* "": the server has never belonged to a group */
    char id[QUORUM_ID_LEN + 1];    /* of the server */
    struct quorum_term promised;   /* the server follows no primary of a lower term, and votes for no other candidate */
    struct quorum_set set;         /* the newest set that the server has received */
};

/* A candidate's request, and the answer. */
enum quorum_vote_kind { QUORUM_PRE_VOTE, QUORUM_VOTE }; /* a pre-vote changes nothing at the voter */
struct quorum_vote_request {
    enum quorum_vote_kind kind;
    char group[QUORUM_ID_LEN + 1];
    struct quorum_term term; /* that the candidate wants to lead in; its id is that of the candidate */
};
enum quorum_answer {
    QUORUM_PROMISED, /* or, as a pre-vote: would promise */
    QUORUM_WAIT,     /* ask again soon */
    QUORUM_REFUSED
};
struct quorum_vote {
    enum quorum_answer answer;
    enum quorum_vote_kind kind;
    char id[QUORUM_ID_LEN + 1];
    struct quorum_term term;      /* of the request */
    struct quorum_term promised;  /* of the voter */
    bool complete;                /* its data include all that it has ever acknowledged */
    struct quorum_term data_term; /* of its data: the last primary whose stream they have caught up with */
    int64_t offset;               /* of its data */
    struct quorum_set set;
};

/* Text. A parser returns false for text that it could not have written; the result is then undefined. */
bool quorum_host_is_valid(struct slice host);
void quorum_state_print(struct output *out, const struct quorum_state *state);
bool quorum_state_parse(struct slice text, struct quorum_state *state);
void quorum_set_print(struct output *out, const struct quorum_set *set);
bool quorum_set_parse(struct slice text, struct quorum_set *set);
void quorum_vote_request_print(struct output *out, const struct quorum_vote_request *request);
bool quorum_vote_request_parse(struct slice text, struct quorum_vote_request *request);
void quorum_vote_print(struct output *out, const struct quorum_vote *vote);
bool quorum_vote_parse(struct slice text, struct quorum_vote *vote);

/* What a replica says when it connects, and the answer. */
struct quorum_hello {
    char group[QUORUM_ID_LEN + 1], id[QUORUM_ID_LEN + 1]; /* group "": none yet */
    struct quorum_term promised;
    bool eligible; /* sync-eligible */
};
struct quorum_welcome {
    char group[QUORUM_ID_LEN + 1];
    struct quorum_term term; /* of the data that the replica will have when it has reached the offset */
    int64_t offset;
    bool leads; /* false: a voter that hands its data to a candidate */
};
void quorum_hello_print(struct output *out, const struct quorum_hello *hello);
bool quorum_hello_parse(struct slice text, struct quorum_hello *hello);
void quorum_welcome_print(struct output *out, const struct quorum_welcome *welcome);
bool quorum_welcome_parse(struct slice text, struct quorum_welcome *welcome);
bool quorum_term_parse_words(struct slice number, struct slice id, struct quorum_term *term);
