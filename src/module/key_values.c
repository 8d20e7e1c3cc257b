/* key_values.c: lists, hashes and sorted sets of open keys. See keys.h. */
#include "lib/system/memory.h"
#include "module/keys.h"
#include "store/hash.h"
#include "store/list_type.h"
#include <errno.h>
#include <math.h>

/* --- Lists --- */

static int failed(int error) {
    errno = error;
    return VALKEYMODULE_ERR;
}
/* The list of the key for a change; NULL: an error, for errno. */
static struct entry *list_for(ValkeyModuleKey *key, bool creates) {
    struct entry *entry = key_entry(key);
    if (!key)
        errno = EINVAL;
    else if (!key_has_type(entry, TYPE_LIST, creates))
        errno = ENOTSUP;
    else if (!key_is_writable(key))
        errno = EBADF;
    else {
        if (entry) return entry;
        entry = list_type_create(key->db, key_name(key));
        key_created(key);
        return entry;
    }
    return NULL;
}
int api_ListPush(ValkeyModuleKey *key, int where, ValkeyModuleString *ele) {
    if (!key || !ele) return failed(EINVAL);
    struct entry *entry = list_for(key, true);
    if (!entry) return VALKEYMODULE_ERR;
    struct slice text = module_string_slice(ele);
    list_type_expect(key->db, entry, 1, text.len);
    list_type_push(key->db, key_entry(key), where == VALKEYMODULE_LIST_HEAD ? LIST_TYPE_HEAD : LIST_TYPE_TAIL, text,
                   NULL);
    db_changed(key->db, key_name(key));
    return VALKEYMODULE_OK;
}
static ValkeyModuleString *list_get(ValkeyModuleKey *key, const struct entry *entry, int64_t index) {
    struct list_type_iterator it;
    struct list_type_element element;
    char text[LISTPACK_TEXT];
    int64_t len = (int64_t)list_type_len(entry);
    if (index < -len || index >= len) return NULL;
    list_type_iterate(&it, entry, index, false);
    ValkeyModuleString *string = NULL;
    if (list_type_next(&it, &element)) string = context_string(key->ctx, listpack_value_text(&element.value, text));
    list_type_iterate_end(&it);
    return string;
}
static void list_deleted(ValkeyModuleKey *key) {
    struct entry *entry = key_entry(key);
    bool empty = list_type_len(entry) == 0;
    if (!empty) list_type_shrunk(key->db, entry);
    key_removed(key, empty);
}
ValkeyModuleString *api_ListPop(ValkeyModuleKey *key, int where) {
    struct entry *entry = key_entry(key);
    if (!list_for(key, false)) return NULL;
    int64_t index = where == VALKEYMODULE_LIST_HEAD ? 0 : -1;
    ValkeyModuleString *string = list_get(key, entry, index);
    list_type_delete(key->db, entry, index, 1);
    list_deleted(key);
    return string;
}
ValkeyModuleString *api_ListGet(ValkeyModuleKey *key, long index) {
    const struct entry *entry = key_entry(key);
    if (!key)
        errno = EINVAL;
    else if (!entry || entry_type(entry) != TYPE_LIST)
        errno = ENOTSUP;
    else if (!(key->mode & VALKEYMODULE_READ))
        errno = EBADF;
    else {
        ValkeyModuleString *string = list_get(key, entry, index);
        if (!string) errno = EDOM;
        return string;
    }
    return NULL;
}
int api_ListSet(ValkeyModuleKey *key, long index, ValkeyModuleString *value) {
    if (!key || !value) return failed(EINVAL);
    struct entry *entry = list_for(key, false);
    if (!entry) return VALKEYMODULE_ERR;
    struct slice text = module_string_slice(value);
    int64_t len = (int64_t)list_type_len(entry);
    if (index < -len || index >= len) return failed(EDOM);
    list_type_expect(key->db, entry, 1, text.len);
    list_type_replace(key->db, key_entry(key), index, text, NULL);
    db_changed(key->db, key_name(key));
    return VALKEYMODULE_OK;
}
/* Moves the elements behind the place: the list type inserts beside a value only. */
int api_ListInsert(ValkeyModuleKey *key, long index, ValkeyModuleString *value) {
    if (!key || !value) return failed(EINVAL);
    struct entry *entry = key_entry(key);
    if (!entry && index != 0 && index != -1) return failed(EDOM);
    if (!entry) return api_ListPush(key, VALKEYMODULE_LIST_TAIL, value);
    if (!list_for(key, false)) return VALKEYMODULE_ERR;
    int64_t len = (int64_t)list_type_len(entry);
    if (index > len || index < -len - 1) return failed(EDOM);
    int64_t at = index < 0 ? len + index + 1 : index;
    size_t behind = (size_t)(len - at);
    struct ValkeyModuleString **kept = mem_alloc((behind + 1) * sizeof(*kept));
    struct ValkeyModuleKey plain = *key;
    plain.ctx = NULL; /* the strings are released here */
    for (size_t i = 0; i < behind; i++) kept[i] = list_get(&plain, entry, at + (int64_t)i);
    if (behind) list_type_delete(key->db, entry, at, behind);
    kept[behind] = NULL;
    api_ListPush(key, VALKEYMODULE_LIST_TAIL, value);
    for (size_t i = 0; i < behind; i++) {
        api_ListPush(key, VALKEYMODULE_LIST_TAIL, kept[i]);
        module_string_release(kept[i]);
    }
    mem_free(kept);
    return VALKEYMODULE_OK;
}
int api_ListDelete(ValkeyModuleKey *key, long index) {
    if (!key) return failed(EINVAL);
    struct entry *entry = list_for(key, false);
    if (!entry) return VALKEYMODULE_ERR;
    int64_t len = (int64_t)list_type_len(entry);
    if (index < -len || index >= len) return failed(EDOM);
    list_type_delete(key->db, entry, index, 1);
    list_deleted(key);
    return VALKEYMODULE_OK;
}

/* --- Hashes --- */

static struct slice field_of(va_list *arguments, int flags, bool *end) {
    if (flags & VALKEYMODULE_HASH_CFIELDS) {
        const char *text = va_arg(*arguments, const char *);
        *end = !text;
        return text ? slice_of(text) : (struct slice){0};
    }
    const ValkeyModuleString *string = va_arg(*arguments, const ValkeyModuleString *);
    *end = !string;
    return string ? module_string_slice(string) : (struct slice){0};
}

int api_HashSet(ValkeyModuleKey *key, int flags, ...) {
    enum {
        KNOWN = VALKEYMODULE_HASH_NX | VALKEYMODULE_HASH_XX | VALKEYMODULE_HASH_CFIELDS | VALKEYMODULE_HASH_COUNT_ALL
    };
    errno = 0;
    struct entry *entry = key_entry(key);
    if (!key || flags & ~KNOWN) {
        errno = EINVAL;
        return 0;
    }
    if (!key_has_type(entry, TYPE_HASH, true)) {
        errno = ENOTSUP;
        return 0;
    }
    if (!key_is_writable(key)) {
        errno = EBADF;
        return 0;
    }
    int count = 0;
    va_list arguments;
    va_start(arguments, flags);
    for (;;) {
        bool end;
        struct slice field = field_of(&arguments, flags, &end);
        if (end) break;
        ValkeyModuleString *value = va_arg(arguments, ValkeyModuleString *);
        entry = key_entry(key);
        bool exists = entry && hash_has(entry, field);
        if ((flags & VALKEYMODULE_HASH_XX && !exists) || (flags & VALKEYMODULE_HASH_NX && exists)) continue;
        if (value == VALKEYMODULE_HASH_DELETE) {
            if (entry) count += hash_delete(key->db, entry, field);
            continue;
        }
        if (!entry) {
            entry = hash_create(key->db, key_name(key));
            key_created(key);
        }
        hash_put(key->db, entry, field, module_string_slice(value), NULL);
        if (exists || flags & VALKEYMODULE_HASH_COUNT_ALL) count++;
    }
    va_end(arguments);
    entry = key_entry(key);
    if (entry) key_removed(key, hash_len(entry) == 0);
    if (!count) errno = ENOENT;
    return count;
}

int api_HashGet(ValkeyModuleKey *key, int flags, ...) {
    const struct entry *entry = key_entry(key);
    if (entry && entry_type(entry) != TYPE_HASH) return VALKEYMODULE_ERR;
    va_list arguments;
    va_start(arguments, flags);
    for (;;) {
        bool end;
        struct slice field = field_of(&arguments, flags, &end);
        if (end) break;
        if (flags & VALKEYMODULE_HASH_EXISTS) {
            int *exists = va_arg(arguments, int *);
            *exists = entry && hash_has(entry, field);
            continue;
        }
        ValkeyModuleString **to = va_arg(arguments, ValkeyModuleString **);
        struct hash_value value;
        *to = entry && hash_get(entry, field, &value) ? context_string(key->ctx, value.bytes) : NULL;
    }
    va_end(arguments);
    return VALKEYMODULE_OK;
}

/* The field must exist. The server copies the bytes. */
int api_HashSetStringRef(ValkeyModuleKey *key, ValkeyModuleString *field, const char *buf, size_t len) {
    struct entry *entry = key_entry(key);
    if (!key_is_writable(key) || !key_has_type(entry, TYPE_HASH, false)) return VALKEYMODULE_ERR;
    if (!hash_set_reference(key->db, entry, module_string_slice(field), (struct slice){buf, len}))
        return VALKEYMODULE_ERR;
    db_changed(key->db, key_name(key));
    return VALKEYMODULE_OK;
}
/* Of what is no hash it returns VALKEYMODULE_ERR, which is 1, as Valkey does. */
int api_HashHasStringRef(ValkeyModuleKey *key, ValkeyModuleString *field) {
    const struct entry *entry = key_entry(key);
    if (!key_has_type(entry, TYPE_HASH, false)) return VALKEYMODULE_ERR;
    return hash_is_reference(entry, module_string_slice(field));
}

/* --- Sorted sets --- */

static bool zset_for(ValkeyModuleKey *key, struct zset *zset, bool creates) {
    struct entry *entry = key_entry(key);
    if (!key_is_writable(key) || !key_has_type(entry, TYPE_ZSET, creates)) return false;
    if (!entry) {
        *zset = zset_new(1, 0);
        db_add_value(key->db, key_name(key), TYPE_ZSET, zset->encoding, zset->value);
        key_created(key);
    } else {
        *zset = zset_of(entry);
    }
    return true;
}
static int zset_change(ValkeyModuleKey *key, double score, ValkeyModuleString *ele, int *flagsptr, double *newscore,
                       unsigned conditions) {
    struct zset zset;
    if (isnan(score) || !zset_for(key, &zset, true)) return VALKEYMODULE_ERR;
    int flags = flagsptr ? *flagsptr : 0;
    if (flags & VALKEYMODULE_ZADD_XX) conditions |= ZSET_XX;
    if (flags & VALKEYMODULE_ZADD_NX) conditions |= ZSET_NX;
    if (flags & VALKEYMODULE_ZADD_GT) conditions |= ZSET_GT;
    if (flags & VALKEYMODULE_ZADD_LT) conditions |= ZSET_LT;
    double now = score;
    struct slice member = module_string_slice(ele);
    zset_expect(&zset, zset_len(&zset) + 1, member.len);
    enum zset_result result = zset_put(&zset, score, member, conditions, &now);
    zset_keep(key->db, key_entry(key), &zset);
    static const int answers[] = {[ZSET_NOTHING] = VALKEYMODULE_ZADD_NOP,
                                  [ZSET_ADDED] = VALKEYMODULE_ZADD_ADDED,
                                  [ZSET_UPDATED] = VALKEYMODULE_ZADD_UPDATED,
                                  [ZSET_NAN] = 0};
    if (flagsptr) *flagsptr = answers[result];
    if (newscore && result != ZSET_NOTHING && result != ZSET_NAN) *newscore = now;
    key_removed(key, zset_len(&zset) == 0);
    return result == ZSET_NAN ? VALKEYMODULE_ERR : VALKEYMODULE_OK;
}
int api_ZsetAdd(ValkeyModuleKey *key, double score, ValkeyModuleString *ele, int *flagsptr) {
    return zset_change(key, score, ele, flagsptr, NULL, 0);
}
int api_ZsetIncrby(ValkeyModuleKey *key, double score, ValkeyModuleString *ele, int *flagsptr, double *newscore) {
    return zset_change(key, score, ele, flagsptr, newscore, ZSET_INCREMENT);
}
int api_ZsetRem(ValkeyModuleKey *key, ValkeyModuleString *ele, int *deleted) {
    struct zset zset;
    if (!key_is_writable(key)) return VALKEYMODULE_ERR;
    if (key_entry(key) && !zset_for(key, &zset, false)) return VALKEYMODULE_ERR;
    if (deleted) *deleted = 0;
    if (!key_entry(key)) return VALKEYMODULE_OK;
    if (!zset_remove(&zset, module_string_slice(ele))) return VALKEYMODULE_OK;
    if (deleted) *deleted = 1;
    zset_keep(key->db, key_entry(key), &zset);
    key_removed(key, zset_len(&zset) == 0);
    return VALKEYMODULE_OK;
}
static bool zset_read(ValkeyModuleKey *key, struct zset *zset) {
    const struct entry *entry = key_entry(key);
    if (!entry || entry_type(entry) != TYPE_ZSET) return false;
    *zset = zset_of(entry);
    return true;
}
int api_ZsetScore(ValkeyModuleKey *key, ValkeyModuleString *ele, double *score) {
    struct zset zset;
    if (!zset_read(key, &zset) || !zset_score(&zset, module_string_slice(ele), score)) return VALKEYMODULE_ERR;
    return VALKEYMODULE_OK;
}

/* A range is a list of ranks; each step searches its rank, so that a change between steps does no harm. */
static int range_start(ValkeyModuleKey *key, const struct zset_bound *low, const struct zset_bound *high, bool down) {
    struct zset zset;
    if (!zset_read(key, &zset)) return VALKEYMODULE_ERR;
    key->range.active = true;
    key->range.count = zset_between(&zset, low, high, down, 0, &key->range.first);
    key->range.at = down && key->range.count ? key->range.count - 1 : 0;
    key->range.ended = key->range.count == 0;
    return VALKEYMODULE_OK;
}
static int range_scores(ValkeyModuleKey *key, double min, double max, int minex, int maxex, bool down) {
    struct zset_bound low = {.kind = BOUND_SCORE, .exclusive = minex, .score = min},
                      high = {.kind = BOUND_SCORE, .exclusive = maxex, .score = max};
    return range_start(key, &low, &high, down);
}
int api_ZsetFirstInScoreRange(ValkeyModuleKey *key, double min, double max, int minex, int maxex) {
    return range_scores(key, min, max, minex, maxex, false);
}
int api_ZsetLastInScoreRange(ValkeyModuleKey *key, double min, double max, int minex, int maxex) {
    return range_scores(key, min, max, minex, maxex, true);
}
/* "-", "+", "[text" or "(text", as in ZRANGEBYLEX. */
static bool bound_parse(const ValkeyModuleString *string, struct zset_bound *bound) {
    struct slice text = module_string_slice(string);
    *bound = (struct zset_bound){.kind = BOUND_LOWEST};
    if (slice_equal(text, SLICE("-"))) return true;
    bound->kind = BOUND_HIGHEST;
    if (slice_equal(text, SLICE("+"))) return true;
    bound->kind = BOUND_TEXT;
    if (!text.len || (text.data[0] != '[' && text.data[0] != '(')) return false;
    bound->exclusive = text.data[0] == '(';
    bound->text = (struct slice){text.data + 1, text.len - 1};
    return true;
}
static int range_texts(ValkeyModuleKey *key, ValkeyModuleString *min, ValkeyModuleString *max, bool down) {
    struct zset_bound low, high;
    key->range.active = false;
    if (!bound_parse(min, &low) || !bound_parse(max, &high)) return VALKEYMODULE_ERR;
    return range_start(key, &low, &high, down);
}
int api_ZsetFirstInLexRange(ValkeyModuleKey *key, ValkeyModuleString *min, ValkeyModuleString *max) {
    return range_texts(key, min, max, false);
}
int api_ZsetLastInLexRange(ValkeyModuleKey *key, ValkeyModuleString *min, ValkeyModuleString *max) {
    return range_texts(key, min, max, true);
}
void api_ZsetRangeStop(ValkeyModuleKey *key) {
    key->range.active = false;
}
int api_ZsetRangeEndReached(ValkeyModuleKey *key) {
    return !key->range.active || key->range.ended;
}
/* Behind the end it is still the last one, as in Valkey. */
ValkeyModuleString *api_ZsetRangeCurrentElement(ValkeyModuleKey *key, double *score) {
    struct zset zset;
    struct zset_iterator it;
    struct zset_item item;
    char text[LISTPACK_TEXT];
    if (!key->range.active || !key->range.count || !zset_read(key, &zset)) return NULL;
    size_t rank = key->range.first + key->range.at;
    if (rank >= zset_len(&zset)) return NULL;
    zset_iterate(&it, &zset, rank, false);
    if (!zset_next(&it, &item)) return NULL;
    if (score) *score = item.score;
    return context_string(key->ctx, listpack_value_text(&item.member, text));
}
/* To the next element, or to the one before. 0: there is none, and the range has ended, which no step back changes. */
static int range_step(ValkeyModuleKey *key, bool up) {
    size_t at = up ? key->range.at + 1 : key->range.at - 1;
    if (!key->range.active || at >= key->range.count) {
        key->range.ended = true;
        return 0;
    }
    key->range.at = at;
    return 1;
}
int api_ZsetRangeNext(ValkeyModuleKey *key) {
    return range_step(key, true);
}
int api_ZsetRangePrev(ValkeyModuleKey *key) {
    return range_step(key, false);
}
