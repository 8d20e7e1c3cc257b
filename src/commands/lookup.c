/* lookup.c: the functions of lookup.h that are not inline. */
#include "commands/lookup.h"
#include "lib/system/memory.h"
#include "server/config/config.h"

enum { STRING_SIZE_MAX = 512 * 1024 * 1024 };

static uint64_t string_size_max(void) {
    static const struct config_option *option;
    if (!option) option = config_find(SLICE("proto-max-bulk-len"));
    return option ? (uint64_t) * (const int64_t *)option->value : STRING_SIZE_MAX;
}

void keys_fetch(struct call *call, int index, int step, int end) {
    struct slice keys[KEYS_AHEAD];
    size_t count = 0;
    for (; index < end && count < KEYS_AHEAD; index += step) keys[count++] = call->argv[index];
    db_prefetch(call->db, keys, count);
}

enum { LARGE_STRING = 1024 * 1024 };

/* A quarter more, because the allocator rounds up and a string grows with spare capacity. */
bool string_memory_ok(struct call *call, uint64_t len) {
    if (len < LARGE_STRING || mem_is_available(len + len / 4)) return true;
    return reply_no_memory(call->reply);
}

bool string_size_ok(struct call *call, uint64_t len, uint64_t more) {
    uint64_t total = len + more;
    if ((total > string_size_max() || total < len) && !client_must_be_obeyed(call->client))
        return reply_error(call->reply, "ERR string exceeds maximum allowed size (proto-max-bulk-len)");
    return string_memory_ok(call, total);
}

bool string_size_fits(uint64_t count, uint64_t size) {
    uint64_t total;
    return !__builtin_mul_overflow(count, size, &total) && total <= string_size_max();
}

void delete_destination(struct call *call, struct slice key) {
    if (!db_delete(call->db, key, store_settings.lazy_server_del)) return;
    notify(call->db, NOTIFY_GENERIC, "del", key);
    call->dirty++;
}
