/* hash_common.h: what the files of the hash commands share. */
#ifndef COMMANDS_HASH_COMMON_H
#define COMMANDS_HASH_COMMON_H
#include "commands/lookup.h"
#include "store/hash.h"

/* The hash to be read. False: the key has another type, and that is replied. */
static inline bool find_hash(struct call *call, struct entry **entry) {
    *entry = find_read(call, call->argv[1]);
    return type_ok(call, *entry, TYPE_HASH);
}
/* The hash to be changed. False: the key has another type, and that is replied. */
static inline bool find_hash_write(struct call *call, struct entry **entry) {
    *entry = find_write(call, call->argv[1]);
    return type_ok(call, *entry, TYPE_HASH);
}
/* The call is about to set the fields argv[first], every `step`, before argv[end]: those that have expired are deleted
 * before, so that they are new. Sends one `hexpired` event for them. Their names go into `dropped`, where that is not
 * NULL. Returns how many there were. Replicas and AOF need not know: the call that follows overwrites the fields. */
int drop_expired_fields(struct call *call, struct entry *entry, int first, int end, int step, struct slice *dropped);
/* Deletes a field, but not one that has expired. */
static inline bool delete_field(struct call *call, struct entry *entry, struct slice field) {
    return (!hash_is_volatile(entry) || hash_has(entry, field)) && hash_delete(call->db, entry, field);
}
static inline struct entry *hash_need(struct call *call, struct entry *entry) {
    if (entry) return entry;
    entry = hash_create(call->db, call->argv[1]);
    notify(call->db, NOTIFY_NEW, "new", call->argv[1]);
    return entry;
}
/* Fields were deleted, one at least: tells that, counts it, and deletes the key with the last. */
void hash_lost(struct call *call, struct entry *entry, int64_t deleted, const char *event);

static inline void reply_value(struct reply *reply, const struct hash_value *value) {
    if (__builtin_expect(value->blob != NULL, 0))
        reply_bulk_blob(reply, value->blob);
    else
        reply_bulk(reply, value->bytes);
}
static inline void reply_field(struct call *call, const struct entry *entry, struct slice field) {
    struct hash_value value;
    if (entry && hash_get(entry, field, &value))
        reply_value(call->reply, &value);
    else
        reply_null(call->reply);
}
#endif
