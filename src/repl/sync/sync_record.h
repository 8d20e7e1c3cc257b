/* sync_record.h: what the servers of a group with synchronous replication know and tell each other: terms, sets,
 * votes, and their text, in the file of promises and in messages. sync_who.h explains what they mean. No sockets, no
 * clocks, no files. */
#ifndef REPL_SYNC_RECORD_H
#define REPL_SYNC_RECORD_H
#include "lib/text/output.h"
#include "lib/text/slice.h"
#include <stdbool.h>
#include <stdint.h>

enum { SYNC_ID_LEN = 40, SYNC_MEMBERS_MAX = 16, SYNC_HOST_MAX = 255, SYNC_TEXT_MAX = 32 * 1024 };

/* A period in which one server leads. Unique: the number is chosen by the candidate whose id it has. */
struct sync_term {
    uint64_t number; /* 0: none */
    char id[SYNC_ID_LEN + 1];
};
int sync_term_compare(const struct sync_term *a, const struct sync_term *b);

struct sync_member {
    char id[SYNC_ID_LEN + 1], host[SYNC_HOST_MAX + 1];
    int port; /* 0: its address is not known */
};
/* Servers, and how many replicas among them must have a write (min-sync-replicas). */
struct sync_members {
    int replicas, count;
    struct sync_member list[SYNC_MEMBERS_MAX];
};
/* The set of in-sync servers, the primary included. While it changes, both the new members (`now`) and the old ones
 * (`before`) count. */
struct sync_set {
    struct sync_term term;           /* of the primary that has written it */
    uint64_t version;                /* 0: none */
    struct sync_members now, before; /* before.count 0: the change is complete */
};
int sync_set_compare(const struct sync_set *a, const struct sync_set *b); /* by term and version */
const struct sync_member *sync_members_find(const struct sync_members *members, const char *id);
static inline bool sync_set_has(const struct sync_set *set, const char *id) {
    return sync_members_find(&set->now, id) || sync_members_find(&set->before, id);
}
/* How many of the members must have a write or a set (the primary counts), and how many must vote for a candidate, so
 * that one of the voters has it. */
static inline int sync_members_needed(const struct sync_members *members) {
    return members->replicas + 1 < members->count ? members->replicas + 1 : members->count;
}
static inline int sync_members_electing(const struct sync_members *members) {
    return members->count - sync_members_needed(members) + 1;
}

/* What a server keeps on disk. */
struct sync_state {
    char group[SYNC_ID_LEN + 1]; /* "": the server has never belonged to a group */
    char id[SYNC_ID_LEN + 1];    /* of the server */
    struct sync_term promised;   /* it follows no primary of a lower term */
    struct sync_set set;         /* the newest it has heard of */
};

/* A candidate's request, and the answer. */
enum sync_ask_kind { SYNC_PROBE, SYNC_STAND };
struct sync_ask {
    enum sync_ask_kind kind;
    char group[SYNC_ID_LEN + 1];
    struct sync_term term; /* that the candidate wants to lead in; its id is that of the candidate */
};
enum sync_answer {
    SYNC_PROMISED, /* or, to a probe: would promise */
    SYNC_WAIT,     /* ask again soon */
    SYNC_REFUSED
};
struct sync_vote {
    enum sync_answer answer;
    enum sync_ask_kind kind;
    char id[SYNC_ID_LEN + 1];
    struct sync_term term;     /* of the request */
    struct sync_term promised; /* of the voter */
    bool sure;                 /* its data include all that it has ever acknowledged */
    struct sync_term data;     /* the last primary whose stream is part of its data */
    int64_t offset;            /* and how far */
    struct sync_set set;
};

/* Text. A parser returns false for text that it could not have written; the result is then undefined. */
bool sync_host_is_valid(struct slice host);
void sync_state_print(struct output *out, const struct sync_state *state);
bool sync_state_parse(struct slice text, struct sync_state *state);
void sync_set_print(struct output *out, const struct sync_set *set);
bool sync_set_parse(struct slice text, struct sync_set *set);
void sync_ask_print(struct output *out, const struct sync_ask *ask);
bool sync_ask_parse(struct slice text, struct sync_ask *ask);
void sync_vote_print(struct output *out, const struct sync_vote *vote);
bool sync_vote_parse(struct slice text, struct sync_vote *vote);

/* What a replica says when it connects, and the answer. */
struct sync_hello {
    char group[SYNC_ID_LEN + 1], id[SYNC_ID_LEN + 1]; /* group "": none yet */
    struct sync_term promised;
    bool eligible; /* sync-eligible */
};
struct sync_welcome {
    char group[SYNC_ID_LEN + 1];
    struct sync_term term; /* of the data that the replica will have when it has reached the offset */
    int64_t offset;
    bool leads; /* false: a voter that hands its data to a candidate */
};
void sync_hello_print(struct output *out, const struct sync_hello *hello);
bool sync_hello_parse(struct slice text, struct sync_hello *hello);
void sync_welcome_print(struct output *out, const struct sync_welcome *welcome);
bool sync_welcome_parse(struct slice text, struct sync_welcome *welcome);
bool sync_term_parse_words(struct slice number, struct slice id, struct sync_term *term);
#endif
