/* lookup.h: lookup of keys by command handlers. All functions refer to one call: its database, its client's flags, its
 * reply.
 *
 * find_read() counts a hit or a miss and notifies a miss; find_write() is for a key about to be changed. A returned
 * entry is valid until the next function of keyspace.h that changes something. */
#pragma once
#include "lib/structures/listpack.h"
#include "lib/text/number.h"
#include "resp/request.h"
#include "server/clients/client.h"
#include "server/command/command.h"
#include "server/notify.h"
#include "store/keyspace.h"

/* The lookup flags that follow from the client's settings. */
static inline int lookup_flags(const struct call *call) {
    return __builtin_expect(call->client->flags & CLIENT_NO_TOUCH, 0) ? LOOKUP_NOTOUCH : 0;
}

/* The same for db_put_string(). */
static inline int put_flags(const struct call *call) {
    return __builtin_expect(call->client->flags & CLIENT_NO_TOUCH, 0) ? PUT_NO_TOUCH : 0;
}

static inline struct entry *find_read_with(struct call *call, struct slice key, int flags) {
    struct entry *entry = db_find(call->db, key, flags | lookup_flags(call));
    if (!entry) notify(call->db, NOTIFY_KEY_MISS, "keymiss", key);
    return entry;
}
static inline struct entry *find_read(struct call *call, struct slice key) {
    return find_read_with(call, key, 0);
}

static inline struct entry *find_write(struct call *call, struct slice key) {
    return db_find(call->db, key, LOOKUP_WRITE | lookup_flags(call));
}

/* The same for a caller that replaces or removes the value, or changes its expiry, and not the value in place. */
static inline struct entry *find_replace(struct call *call, struct slice key) {
    return db_find(call->db, key, LOOKUP_WRITE | LOOKUP_REPLACES | lookup_flags(call));
}

/* False: the entry has another type; replied with the error. */
static inline bool type_ok(struct call *call, const struct entry *entry, enum value_type type) {
    if (!entry || entry_type(entry) == type) return true;
    reply_wrong_type(call->reply);
    return false;
}

/* Call after a handler has removed elements of a value: reports `event` (NULL: none), and deletes the key if its value
 * is empty now. */
static inline void key_elements_removed(struct call *call, struct slice key, bool empty, enum notify_class class,
                                        const char *event) {
    if (!empty) db_changed(call->db, key);
    if (event) notify(call->db, class, event, key);
    if (!empty) return;
    db_delete(call->db, key, store_settings.lazy_server_del);
    notify(call->db, NOTIFY_GENERIC, "del", key);
}

/* Replies with the value of a string entry. */
static inline void reply_string_value(struct call *call, const struct entry *entry) {
    struct blob *blob = entry_blob(entry);
    if (__builtin_expect(blob != NULL, 0)) {
        reply_bulk_blob(call->reply, blob);
    } else {
        char text[STRING_NUMBER_TEXT];
        reply_bulk(call->reply, entry_string(entry, text));
    }
}

/* Replies with an element of a set, a list or a sorted set. */
static inline void reply_element(struct reply *reply, const struct listpack_value *element) {
    if (element->data)
        reply_bulk(reply, (struct slice){element->data, element->len});
    else
        reply_bulk_integer(reply, element->number);
}

/* Returns the blob of a large argument to pass to the store; NULL: none. */
static inline struct blob *argument_blob(struct call *call, int index) {
    return __builtin_expect(call->argv[index].len >= REQUEST_LARGE_MIN, 0) ? call_take_blob(call, index) : NULL;
}

/* Deletes the destination of a command whose result is empty, notifies "del" and counts the change. It also deletes a
 * key that has expired, which then does not count as expired. */
void delete_destination(struct call *call, struct slice key);

/* Reads an integer argument; false: replied with an error. */
static inline bool argument_int64(struct call *call, int index, int64_t *value) {
    if (parse_int64(call->argv[index], value)) return true;
    reply_not_integer(call->reply);
    return false;
}

/* For loops over the keys argv[index], argv[index + step], … before argv[end]: call it for each key; it prefetches the
 * next keys in batches, so that the loop does not wait for memory at every key. */
enum { KEYS_AHEAD = 16 };
void keys_fetch(struct call *call, int index, int step, int end);
static inline void keys_ahead(struct call *call, int first, int index, int step, int end) {
    if ((index - first) / step % KEYS_AHEAD == 0 && index + step < end) keys_fetch(call, index, step, end);
}

/* An argument in an error text: the length for "%.*s". */
enum { SHOWN_MAX = 64 * 1024 };
static inline int shown_len(struct slice word) {
    return word.len < SHOWN_MAX ? (int)word.len : SHOWN_MAX;
}

/* False: a string of `len + more` bytes would exceed proto-max-bulk-len; replied with the error. */
bool string_size_ok(struct call *call, uint64_t len, uint64_t more);
/* False: there is no memory for a string of that size, which the client determines; replied with the error. */
bool string_memory_ok(struct call *call, uint64_t len);
/* True: `count` items of `size` bytes are within proto-max-bulk-len. */
bool string_size_fits(uint64_t count, uint64_t size);
