/* messages.h: CLUSTER SYNCSLOTS: what the two ends of a slot migration tell each other, and what the streams and files
 * of their shards say of it, as arguments and as a struct. No message has a reply, except for ESTABLISH on a link, and
 * OUTCOME.
 *
 *     source -> target             ESTABLISH SOURCE id NAME job SLOTSRANGE a b …: +OK or an error
 *                                  ACK, each second
 *                                  CAPA slot-chunks [slot-pull [key]]: does the target take (and fetch) chunks?
 *                                  OFFER number address length rkey checksum: pull.h
 *                                  CHUNK job bytes
 *                                  SNAPSHOT-EOF
 *                                  PAUSED
 *                                  FAILOVER-GRANTED [EPOCH epoch]: of the source's node
 *     target -> source             ACK, each second
 *                                  CAPA slot-chunks [slot-pull], or CAPA none
 *                                  PULLED count: pull.h
 *                                  REQUEST-PAUSE
 *                                  REQUEST-FAILOVER
 *     in the target's stream and   ESTABLISH NAME job SLOTSRANGE a b …
 *     append-only file             TAKE NAME job
 *     … in the source's            GRANT NAME job TARGET id SHARD id EPOCH epoch SLOTSRANGE a b …
 *                                  MOVED NAME job TARGET id SHARD id EPOCH epoch SLOTSRANGE a b …: owner of the slots,
 *                                  before FINISH STATE SUCCESS
 *     … in both                    FINISH STATE state NAME job MESSAGE text [EPOCH epoch]: of the claim of a server
 *                                  that has taken the slots, or has taken them back
 *     in RDB files                 AUX cluster-slot-grants: "job target shard epoch a b …," for each GRANT
 *                                  AUX cluster-slot-takes: the names of jobs with TAKE, one after the other
 *     leader of the source's       OUTCOME SOURCE id NAME job SHARD id EPOCH epoch SLOTSRANGE a b …: to this shard
 *     shard -> of the target's     +TAKEN or +REFUSED; an error: not decided yet */
#pragma once
#include "cluster/protocol/bus_wire.h"
#include "lib/text/number.h"
#include "lib/text/output.h"

enum { JOB_NAME_LEN = 40 };

enum slot_verb {
    VERB_ACK,
    VERB_CAPA,
    VERB_OFFER,
    VERB_CHUNK,
    VERB_SNAPSHOT_EOF,
    VERB_PAUSED,
    VERB_FAILOVER_GRANTED,
    VERB_PULLED,
    VERB_REQUEST_PAUSE,
    VERB_REQUEST_FAILOVER,
    VERB_ESTABLISH,
    VERB_TAKE,
    VERB_GRANT,
    VERB_MOVED,
    VERB_FINISH,
    VERB_OUTCOME,
    VERB_UNKNOWN
};
const char *slot_verb_name(enum slot_verb verb); /* "REQUEST-PAUSE" */
enum slot_verb slot_verb_find(struct slice name);

enum slot_capability { CAPABILITY_NONE, CAPABILITY_CHUNKS, CAPABILITY_PULL };
enum slot_finish { FINISH_FAILED, FINISH_CANCELLED, FINISH_SUCCESS };

/* Ranges of slots that do not overlap. */
struct slot_ranges {
    size_t count;
    struct slot_bitmap slots;
    uint16_t list[HASH_SLOTS][2];
};
/* Returns false if the range is not one, or has slots that are there already. */
bool slot_ranges_add(struct slot_ranges *ranges, int64_t first, int64_t last);

struct slot_message {
    enum slot_verb verb;
    struct slice name; /* of the job; "": the message has none */
    struct node_id source, target, shard;
    uint64_t epoch; /* 0: the message has none */
    size_t count;   /* of ranges */
    const uint16_t (*ranges)[2];
    enum slot_capability capability; /* CAPA */
    struct slice key;                /* … with slot-pull, on a link with TLS */
    enum slot_finish finish;         /* FINISH */
    struct slice text;               /* … its message */
    int64_t pulled;                  /* PULLED; -1: it is malformed */
    const void *payload;             /* OFFER, CHUNK: the host's own */
};

/* Reads a message from its arguments, the first two of which are CLUSTER and SYNCSLOTS. Slices refer to these. The
 * ranges are put into `ranges`. Returns false if the message is malformed, but for ESTABLISH on a link: that is read by
 * commands.c, which answers each error as Valkey does. */
bool slot_message_parse(struct slot_message *message, int argc, const struct slice *argv, struct slot_ranges *ranges);

/* The arguments of a message; slices refer to the message, and to this struct. */
struct slot_arguments {
    int argc;
    struct slice *argv;
    char (*numbers)[NUMBER_TEXT_MAX];
    size_t number_count;
};
void slot_message_arguments(const struct slot_message *message, struct slot_arguments *arguments);
void slot_arguments_free(struct slot_arguments *arguments);

/* --- RDB files --- */

extern const char slot_grants_aux[], slot_takes_aux[]; /* the names of the fields */
void slot_grants_write(struct output *out, const struct slot_message *grant);
/* Reads the next GRANT from the field and advances it; entries that are damaged are passed over. False: the end. */
bool slot_grants_read(struct slice *field, struct slot_message *grant, struct slot_ranges *ranges);
/* Whether the field of the names of jobs with TAKE has this one. */
bool slot_takes_has(struct slice field, struct slice name);
