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
/* The hash to be changed, where the call is going to look at or write to the fields argv[first], every `step`, `count`
 * of them: those that have expired are deleted before, here and wherever this call is repeated. */
static inline bool find_hash_write(struct call *call, struct entry **entry, int first, int count, int step) {
    *entry = find_write(call, call->argv[1]);
    if (!type_ok(call, *entry, TYPE_HASH)) return false;
    if (*entry && hash_expire_named(call->db, *entry, call->argv + first, (size_t)count, (size_t)step)) *entry = NULL;
    return true;
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
