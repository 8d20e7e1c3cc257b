/* zset_common.h: functions shared by the files of the sorted set commands. */
#pragma once
#include "commands/lookup.h"
#include "commands/multi_pop.h"
#include "store/zset.h"

/* Finds a sorted set for reading. False: the key has another type; replied with the error. */
static inline bool find_zset(struct call *call, struct slice key, struct entry **entry, struct zset *zset) {
    *entry = find_read(call, key);
    if (!type_ok(call, *entry, TYPE_ZSET)) return false;
    if (*entry) *zset = zset_of(*entry);
    return true;
}
static inline bool find_zset_write(struct call *call, struct slice key, struct entry **entry, struct zset *zset) {
    *entry = find_write(call, key);
    if (!type_ok(call, *entry, TYPE_ZSET)) return false;
    if (*entry) *zset = zset_of(*entry);
    return true;
}
void zadd_run(struct call *call);                  /* ZADD, with the call's arguments */
extern const struct multi_pop_kind zset_multi_pop; /* ZMPOP, BZMPOP */
/* Call after removing members: notifies, and deletes an empty sorted set. */
void zset_members_removed(struct call *call, struct slice key, struct entry *entry, const struct zset *zset,
                          const char *event);
/* Replaces the key with the sorted set, which is taken over, or deletes the key if the sorted set is empty; notifies,
 * counts and replies with the size. */
void zset_store_result(struct call *call, struct slice key, struct zset *zset, const char *event);

/* Replies with the head of `count` members and then each; with scores they are pairs in RESP3, flat in RESP2. */
static inline void reply_items(struct reply *reply, size_t count, bool scores) {
    reply_array(reply, scores && reply->protocol == 2 ? count * 2 : count);
}
static inline void reply_item(struct reply *reply, const struct zset_item *item, bool scores) {
    if (scores && reply->protocol > 2) reply_array(reply, 2);
    reply_element(reply, &item->member);
    if (scores) reply_double(reply, item->score);
}
