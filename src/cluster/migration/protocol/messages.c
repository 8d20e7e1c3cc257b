/* messages.c: see messages.h. */
#include "cluster/migration/protocol/messages.h"
#include "lib/system/memory.h"
#include <string.h>

static const char *const verbs[] = {[VERB_ACK] = "ACK",
                                    [VERB_CAPA] = "CAPA",
                                    [VERB_OFFER] = "OFFER",
                                    [VERB_CHUNK] = "CHUNK",
                                    [VERB_SNAPSHOT_EOF] = "SNAPSHOT-EOF",
                                    [VERB_PAUSED] = "PAUSED",
                                    [VERB_FAILOVER_GRANTED] = "FAILOVER-GRANTED",
                                    [VERB_PULLED] = "PULLED",
                                    [VERB_REQUEST_PAUSE] = "REQUEST-PAUSE",
                                    [VERB_REQUEST_FAILOVER] = "REQUEST-FAILOVER",
                                    [VERB_ESTABLISH] = "ESTABLISH",
                                    [VERB_TAKE] = "TAKE",
                                    [VERB_GRANT] = "GRANT",
                                    [VERB_MOVED] = "MOVED",
                                    [VERB_FINISH] = "FINISH",
                                    [VERB_OUTCOME] = "OUTCOME"};
static const char *const finishes[] = {
    [FINISH_FAILED] = "FAILED", [FINISH_CANCELLED] = "CANCELLED", [FINISH_SUCCESS] = "SUCCESS"};
#define CHUNKS "slot-chunks"
#define PULL   "slot-pull"

const char *slot_verb_name(enum slot_verb verb) {
    return verbs[verb];
}
enum slot_verb slot_verb_find(struct slice name) {
    enum slot_verb verb = 0;
    while (verb < VERB_UNKNOWN && !slice_is(name, verbs[verb])) verb++;
    return verb;
}

/* --- Reading --- */

bool slot_ranges_add(struct slot_ranges *ranges, int64_t first, int64_t last) {
    if (first < 0 || last >= HASH_SLOTS || first > last) return false;
    for (int64_t slot = first; slot <= last; slot++)
        if (slot_bitmap_has(&ranges->slots, (unsigned)slot)) return false;
    for (int64_t slot = first; slot <= last; slot++) slot_bitmap_set(&ranges->slots, (unsigned)slot);
    ranges->list[ranges->count][0] = (uint16_t)first;
    ranges->list[ranges->count++][1] = (uint16_t)last;
    return true;
}

/* Numbers from argument *at on, two for each range. */
static bool read_ranges(int argc, const struct slice *argv, int *at, struct slot_ranges *ranges) {
    int64_t first, last;
    for (; *at + 1 < argc && parse_int64(argv[*at], &first); *at += 2)
        if (!parse_int64(argv[*at + 1], &last) || !slot_ranges_add(ranges, first, last)) return false;
    return true;
}

static bool read_id(struct slice text, struct node_id *id) {
    if (text.len != NODE_ID_LEN) return false;
    memcpy(id->text, text.data, NODE_ID_LEN);
    return node_id_valid(id);
}

static bool read_finish(struct slice text, enum slot_finish *finish) {
    *finish = slice_is(text, "success")     ? FINISH_SUCCESS
              : slice_is(text, "cancelled") ? FINISH_CANCELLED
                                            : FINISH_FAILED;
    return true;
}

/* A pair of the messages of streams. FINISH has no others; the others may have more, of a later version. */
static bool read_pair(struct slot_message *message, struct slice name, struct slice value) {
    if (slice_is(name, "name")) {
        message->name = value;
        return value.len == JOB_NAME_LEN;
    }
    if (slice_is(name, "epoch")) return parse_uint64(value, &message->epoch) && message->epoch <= INT64_MAX;
    if (message->verb == VERB_FINISH) {
        if (slice_is(name, "state")) return read_finish(value, &message->finish);
        message->text = value;
        return slice_is(name, "message");
    }
    if (slice_is(name, "source")) return read_id(value, &message->source);
    if (slice_is(name, "target")) return read_id(value, &message->target);
    if (slice_is(name, "shard")) return read_id(value, &message->shard);
    return true;
}

static bool read_pairs(struct slot_message *message, int argc, const struct slice *argv, struct slot_ranges *ranges) {
    bool stated = false, needs_ranges = message->verb != VERB_FINISH && message->verb != VERB_TAKE;
    for (int at = 3; at < argc;) {
        if (needs_ranges && slice_is(argv[at], "slotsrange")) {
            at++;
            if (!read_ranges(argc, argv, &at, ranges)) return false;
            continue;
        }
        if (at + 1 == argc) {
            if (message->verb == VERB_FINISH) return false;
            break;
        }
        stated |= slice_is(argv[at], "state");
        if (!read_pair(message, argv[at], argv[at + 1])) return false;
        at += 2;
    }
    message->count = ranges->count;
    message->ranges = (const uint16_t(*)[2])ranges->list;
    bool targeted = message->verb == VERB_GRANT || message->verb == VERB_MOVED, asks = message->verb == VERB_OUTCOME;
    return message->name.len && (stated || message->verb != VERB_FINISH) && (ranges->count || !needs_ranges) &&
           (!targeted || !node_id_is_zero(&message->target)) && (!asks || !node_id_is_zero(&message->source)) &&
           (!(targeted || asks) || !node_id_is_zero(&message->shard));
}

static void read_capability(struct slot_message *message, int argc, const struct slice *argv) {
    if (argc < 4 || !slice_is(argv[3], CHUNKS)) return;
    message->capability = argc > 4 && slice_is(argv[4], PULL) ? CAPABILITY_PULL : CAPABILITY_CHUNKS;
    if (argc > 5) message->key = argv[5];
}

bool slot_message_parse(struct slot_message *message, int argc, const struct slice *argv, struct slot_ranges *ranges) {
    *message = (struct slot_message){.verb = argc > 2 ? slot_verb_find(argv[2]) : VERB_UNKNOWN,
                                     .name = SLICE(""),
                                     .key = SLICE(""),
                                     .text = SLICE(""),
                                     .pulled = -1};
    ranges->count = 0;
    memset(&ranges->slots, 0, sizeof ranges->slots);
    switch (message->verb) {
    case VERB_CAPA: read_capability(message, argc, argv); return true;
    case VERB_PULLED:
        if (argc != 4 || !parse_int64(argv[3], &message->pulled)) message->pulled = -1;
        return true;
    case VERB_FAILOVER_GRANTED: {
        int64_t epoch;
        if (argc == 5 && slice_is(argv[3], "epoch") && parse_int64(argv[4], &epoch) && epoch > 0)
            message->epoch = (uint64_t)epoch;
        return true;
    }
    case VERB_ESTABLISH:
    case VERB_TAKE:
    case VERB_GRANT:
    case VERB_MOVED:
    case VERB_FINISH:
    case VERB_OUTCOME: return read_pairs(message, argc, argv, ranges);
    default: return true;
    }
}

/* --- Writing --- */

static void messages_add(struct slot_arguments *arguments, struct slice argument) {
    arguments->argv[arguments->argc++] = argument;
}
static void add_id(struct slot_arguments *arguments, const char *name, const struct node_id *id) {
    if (node_id_is_zero(id)) return;
    messages_add(arguments, slice_of(name));
    messages_add(arguments, slice_make(id->text, NODE_ID_LEN));
}
static void add_number(struct slot_arguments *arguments, uint64_t number) {
    char *text = arguments->numbers[arguments->number_count++];
    messages_add(arguments, slice_make(text, format_uint64(text, number)));
}

void slot_message_arguments(const struct slot_message *message, struct slot_arguments *arguments) {
    enum { PAIRS = 7, FIXED = 3 + 2 * PAIRS + 1, NUMBERS = 2 }; /* at most, without ranges */
    size_t slots = 2 * message->count;
    *arguments = (struct slot_arguments){.argv = mem_alloc((FIXED + slots) * sizeof(*arguments->argv)),
                                         .numbers = mem_alloc((NUMBERS + slots) * sizeof(*arguments->numbers))};
    messages_add(arguments, SLICE("CLUSTER"));
    messages_add(arguments, SLICE("SYNCSLOTS"));
    messages_add(arguments, slice_of(verbs[message->verb]));
    if (message->verb == VERB_CAPA) {
        messages_add(arguments, message->capability == CAPABILITY_NONE ? SLICE("none") : SLICE(CHUNKS));
        if (message->capability == CAPABILITY_PULL) messages_add(arguments, SLICE(PULL));
        if (message->key.len) messages_add(arguments, message->key);
    }
    if (message->verb == VERB_PULLED) add_number(arguments, (uint64_t)message->pulled);
    if (message->verb == VERB_FINISH) {
        messages_add(arguments, SLICE("STATE"));
        messages_add(arguments, slice_of(finishes[message->finish]));
    }
    add_id(arguments, "SOURCE", &message->source);
    if (message->name.len) {
        messages_add(arguments, SLICE("NAME"));
        messages_add(arguments, message->name);
    }
    if (message->verb == VERB_FINISH) {
        messages_add(arguments, SLICE("MESSAGE"));
        messages_add(arguments, message->text);
    }
    add_id(arguments, "TARGET", &message->target);
    add_id(arguments, "SHARD", &message->shard);
    bool has_epoch = message->verb == VERB_GRANT || message->verb == VERB_MOVED || message->verb == VERB_OUTCOME;
    if (has_epoch || message->epoch) {
        messages_add(arguments, SLICE("EPOCH"));
        add_number(arguments, message->epoch);
    }
    if (message->count) messages_add(arguments, SLICE("SLOTSRANGE"));
    for (size_t i = 0; i < slots; i++) add_number(arguments, message->ranges[i / 2][i % 2]);
}

void slot_arguments_free(struct slot_arguments *arguments) {
    mem_free(arguments->argv);
    mem_free(arguments->numbers);
}

/* --- RDB files --- */

const char slot_grants_aux[] = "cluster-slot-grants", slot_takes_aux[] = "cluster-slot-takes";

static void write_number(struct output *out, uint64_t number) {
    char text[NUMBER_TEXT_MAX];
    output_write(out, SLICE(" "));
    output_write(out, slice_make(text, format_uint64(text, number)));
}

void slot_grants_write(struct output *out, const struct slot_message *grant) {
    output_write(out, grant->name);
    output_write(out, SLICE(" "));
    output_write(out, slice_make(grant->target.text, NODE_ID_LEN));
    output_write(out, SLICE(" "));
    output_write(out, slice_make(grant->shard.text, NODE_ID_LEN));
    write_number(out, grant->epoch);
    for (size_t i = 0; i < 2 * grant->count; i++) write_number(out, grant->ranges[i / 2][i % 2]);
    output_write(out, SLICE(","));
}

/* The next word of the entry; an empty one: there is none. */
static struct slice next_word(struct slice *entry) {
    const char *space = entry->len ? memchr(entry->data, ' ', entry->len) : NULL;
    struct slice word = {entry->data, space ? (size_t)(space - entry->data) : entry->len};
    *entry = space ? slice_make(space + 1, entry->len - word.len - 1) : SLICE("");
    return word;
}

static bool read_entry(struct slice entry, struct slot_message *grant, struct slot_ranges *ranges) {
    *grant = (struct slot_message){.verb = VERB_GRANT, .name = next_word(&entry)};
    ranges->count = 0;
    memset(&ranges->slots, 0, sizeof ranges->slots);
    if (grant->name.len != JOB_NAME_LEN || !read_id(next_word(&entry), &grant->target) ||
        !read_id(next_word(&entry), &grant->shard) || !parse_uint64(next_word(&entry), &grant->epoch))
        return false;
    while (entry.len) {
        int64_t first, last;
        if (!parse_int64(next_word(&entry), &first) || !parse_int64(next_word(&entry), &last) ||
            !slot_ranges_add(ranges, first, last))
            return false;
    }
    grant->count = ranges->count;
    grant->ranges = (const uint16_t(*)[2])ranges->list;
    return ranges->count > 0;
}

bool slot_grants_read(struct slice *field, struct slot_message *grant, struct slot_ranges *ranges) {
    const char *comma;
    while (field->len && (comma = memchr(field->data, ',', field->len))) {
        struct slice entry = {field->data, (size_t)(comma - field->data)};
        *field = slice_make(comma + 1, field->len - entry.len - 1);
        if (read_entry(entry, grant, ranges)) return true;
    }
    return false;
}

bool slot_takes_has(struct slice field, struct slice name) {
    for (size_t at = 0; at + JOB_NAME_LEN <= field.len; at += JOB_NAME_LEN)
        if (slice_equal(slice_make(field.data + at, JOB_NAME_LEN), name)) return true;
    return false;
}
