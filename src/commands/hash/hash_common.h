/* hash_common.h: functions shared by the files of the hash commands. */
#pragma once
#include "commands/lookup.h"
#include "store/hash.h"

/* Finds a hash for reading. False: the key has another type; replied with the error. */
static inline bool find_hash(struct call *call, struct entry **entry) {
    *entry = find_read(call, call->argv[1]);
    return type_ok(call, *entry, TYPE_HASH);
}
/* For a command that counts as a read, but may change the expiry of fields. */
static inline bool find_hash_to_retime(struct call *call, struct entry **entry) {
    *entry = find_read_with(call, call->argv[1], LOOKUP_CHANGES);
    return type_ok(call, *entry, TYPE_HASH);
}
/* Finds a hash for writing. False: the key has another type; replied with the error. */
static inline bool find_hash_write(struct call *call, struct entry **entry) {
    *entry = find_write(call, call->argv[1]);
    return type_ok(call, *entry, TYPE_HASH);
}
/* Call before setting the fields argv[first], argv[first + step], … before argv[end]: deletes the expired ones among
 * them, so that they become new fields, and sends one `hexpired` event. Stores their names in `dropped` unless it is
 * NULL. Returns their number. No propagation is needed, because the call that follows overwrites the fields. */
int drop_expired_fields(struct call *call, struct entry *entry, int first, int end, int step, struct slice *dropped);
/* Deletes a field unless it has expired. */
static inline bool delete_field(struct call *call, struct entry *entry, struct slice field) {
    return (!hash_is_volatile(entry) || hash_has(entry, field)) && hash_delete(call->db, entry, field);
}
static inline struct entry *hash_need(struct call *call, struct entry *entry) {
    if (entry) return entry;
    entry = hash_create(call->db, call->argv[1]);
    notify(call->db, NOTIFY_NEW, "new", call->argv[1]);
    return entry;
}
/* Call after changing the fields argv[first], argv[first + 1], … (preceded by their number if first > 2), and before
 * deleting an empty hash. If some of the fields have expired, the command did not change them, but replicas and the AOF
 * do not check expiry: the call is propagated without these fields. `argv` is propagated in place of call->argv, with
 * another command name or another time. False: no field has expired, and nothing was propagated. */
bool propagate_without_expired(struct call *call, const struct entry *entry, const struct slice *argv, int first);
/* Call after deleting at least one field: notifies, counts, and deletes the key if it was the last. */
void hash_fields_removed(struct call *call, struct entry *entry, int64_t deleted, const char *event);

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
