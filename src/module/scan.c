/* scan.c: Scan and ScanKey: cursors over the keys of a database, and over the elements of a key. */
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "module/keys.h"
#include "store/hash.h"
#include "store/set.h"
#include <errno.h>

struct ValkeyModuleScanCursor {
    uint64_t cursor;
    bool done;
};
ValkeyModuleScanCursor *api_ScanCursorCreate(void) {
    return mem_calloc(1, sizeof(ValkeyModuleScanCursor));
}
void api_ScanCursorRestart(ValkeyModuleScanCursor *cursor) {
    *cursor = (ValkeyModuleScanCursor){0};
}
void api_ScanCursorDestroy(ValkeyModuleScanCursor *cursor) {
    mem_free(cursor);
}
static int scanned(ValkeyModuleScanCursor *cursor, uint64_t next) {
    cursor->cursor = next;
    cursor->done = next == 0;
    return !cursor->done;
}

/* What one step of a cursor has found. The function of the module may change the data, so it is called afterwards. */
struct scan_found {
    size_t count, capacity;
    struct ValkeyModuleString **strings; /* of elements: two for each */
};
static void found_add(struct scan_found *found, struct ValkeyModuleString *string) {
    if (found->count == found->capacity) {
        found->capacity = found->capacity ? 2 * found->capacity : 16;
        found->strings = mem_realloc(found->strings, found->capacity * sizeof(*found->strings));
    }
    found->strings[found->count++] = string;
}
static void found_free(struct scan_found *found) {
    for (size_t i = 0; i < found->count; i++)
        if (found->strings[i]) module_string_release(found->strings[i]);
    mem_free(found->strings);
}

static void scan_key_found(void *context, struct entry *entry) {
    if (!entry_is_expired(entry)) found_add(context, module_string_new(entry_key(entry)));
}
int api_Scan(ValkeyModuleCtx *ctx, ValkeyModuleScanCursor *cursor, ValkeyModuleScanCB fn, void *privdata) {
    if (cursor->done) {
        errno = ENOENT;
        return 0;
    }
    struct scan_found found = {0};
    int more = scanned(cursor, db_scan(ctx->db, -1, cursor->cursor, scan_key_found, &found));
    for (size_t i = 0; i < found.count; i++) {
        struct ValkeyModuleKey key;
        key_init(&key, ctx, found.strings[i], VALKEYMODULE_READ);
        if (key_entry(&key)) fn(ctx, found.strings[i], &key, privdata);
        key_stream_stop(&key);
    }
    found_free(&found);
    errno = 0;
    return more;
}

static void scan_field(void *context, const struct hash_item *item) {
    found_add(context, module_string_new(item->field));
    found_add(context, module_string_new(item->value.bytes));
}
static void scan_member(void *context, const struct listpack_value *member) {
    char text[LISTPACK_TEXT];
    found_add(context, module_string_new(listpack_value_text(member, text)));
    found_add(context, NULL);
}
static void scan_scored(void *context, const struct zset_item *item) {
    char text[LISTPACK_TEXT], score[40];
    found_add(context, module_string_new(listpack_value_text(&item->member, text)));
    found_add(context, module_string_new((struct slice){score, format_double(score, item->score)}));
}
int api_ScanKey(ValkeyModuleKey *key, ValkeyModuleScanCursor *cursor, ValkeyModuleScanKeyCB fn, void *privdata) {
    const struct entry *entry = key_entry(key);
    if (!entry) {
        errno = EINVAL;
        return 0;
    }
    if (cursor->done) {
        errno = ENOENT;
        return 0;
    }
    struct scan_found found = {0};
    uint64_t next = 0;
    switch (entry_type(entry)) {
    case TYPE_HASH: next = hash_scan(entry, cursor->cursor, scan_field, &found); break;
    case TYPE_SET: {
        struct set set = set_of(entry);
        next = set_scan(&set, cursor->cursor, scan_member, &found);
        break;
    }
    case TYPE_ZSET: {
        struct zset zset = zset_of(entry);
        next = zset_scan(&zset, cursor->cursor, scan_scored, &found);
        break;
    }
    default: errno = EINVAL; return 0;
    }
    int more = scanned(cursor, next);
    for (size_t i = 0; i < found.count; i += 2) fn(key, found.strings[i], found.strings[i + 1], privdata);
    found_free(&found);
    errno = 0;
    return more;
}
