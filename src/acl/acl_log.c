/* acl_log.c: ACL LOG: denied commands and failed logins, the latest first. Equal events of the same minute share an
 * entry. */
#include "acl/acl.h"
#include "lib/structures/linked_list.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "server/clients/auth.h"
#include "server/clients/client.h"
#include "server/clients/transactions.h"
#include "server/command/dispatch.h"
#include "server/script_hooks.h"

enum { TOGETHER_MS = 60 * 1000, ENTRIES_COMPARED = 10, ENTRIES_SHOWN = 10, TEXT_KEPT = 16 * 1024 };

struct acl_log_entry {
    struct list_link link;
    uint64_t id, count;
    int64_t created_ms, updated_ms;
    const char *reason, *context;
    char *user, *client; /* a line of CLIENT LIST */
    struct slice object; /* allocated */
};
static struct list entries = LIST_INIT(entries);
static uint64_t next_id;
int64_t acl_log_max;

static void entry_free(struct acl_log_entry *entry) {
    mem_free(entry->user);
    mem_free(entry->client);
    mem_free((char *)(uintptr_t)entry->object.data);
    mem_free(entry);
}

static void drop_last(void) {
    struct acl_log_entry *last = container_of(entries.head.prev, struct acl_log_entry, link);
    list_remove(&entries, &last->link);
    entry_free(last);
}

static struct acl_log_entry *find_equal(const struct acl_log_entry *wanted) {
    int compared = 0;
    list_each(&entries, link) {
        if (compared++ == ENTRIES_COMPARED) break;
        struct acl_log_entry *entry = container_of(link, struct acl_log_entry, link);
        if (strcmp(entry->reason, wanted->reason) == 0 && strcmp(entry->context, wanted->context) == 0 &&
            strcmp(entry->user, wanted->user) == 0 && slice_equal(entry->object, wanted->object) &&
            wanted->updated_ms - entry->updated_ms <= TOGETHER_MS)
            return entry;
    }
    return NULL;
}

/* The client determines the length of names and keys. A user without any permission must not fill the memory with
 * them. */
static struct slice shortened(struct slice text) {
    return text.len ? (struct slice){text.data, text.len < TEXT_KEPT ? text.len : TEXT_KEPT} : SLICE("");
}

static char *describe(struct client *client) {
    struct memory_output text = MEMORY_OUTPUT_INIT;
    client_describe(client, &text.out);
    struct slice line = memory_output_slice(&text);
    char *copy = mem_strndup(line.data, line.len);
    memory_output_free(&text);
    return copy;
}

/* `context`: NULL: where the client's command runs. */
static void log_add_in(struct client *client, const char *context, const char *reason, struct slice object,
                       struct slice user) {
    const struct call *running = dispatch_running();
    bool is_nested = client->flags & CLIENT_INTERNAL && running;
    const char *in_script = is_nested && script_hooks ? script_hooks->context() : NULL;
    if (is_nested) client = running->client;
    bool in_transaction = transaction_queued(client) >= 0 || transaction_runs(client);
    struct acl_log_entry *entry = mem_alloc(sizeof *entry);
    object = shortened(object);
    user = shortened(user);
    *entry = (struct acl_log_entry){.id = next_id++,
                                    .count = 1,
                                    .created_ms = clock_ms(),
                                    .updated_ms = clock_ms(),
                                    .reason = reason,
                                    .context = context          ? context
                                               : in_script      ? in_script
                                               : is_nested      ? "module"
                                               : in_transaction ? "multi"
                                                                : "toplevel",
                                    .user = mem_strndup(user.data, user.len),
                                    .client = describe(client),
                                    .object = {mem_strndup(object.data, object.len), object.len}};
    struct acl_log_entry *same = find_equal(entry);
    if (same) { /* the entry keeps its id */
        char *line = same->client;
        same->client = entry->client;
        entry->client = line;
        same->count++;
        same->updated_ms = entry->updated_ms;
        next_id--;
        list_remove(&entries, &same->link);
        entry_free(entry);
        entry = same;
    }
    list_insert_before(&entries, entries.head.next, &entry->link);
    while ((int64_t)entries.len > acl_log_max) drop_last();
}

static void log_add(struct client *client, const char *reason, struct slice object, struct slice user) {
    log_add_in(client, NULL, reason, object, user);
}

static const char *const reasons[] = {[USER_ALLOWED] = "auth",
                                      [USER_DENIED_DATABASE] = "database",
                                      [USER_DENIED_COMMAND] = "command",
                                      [USER_DENIED_KEY] = "key",
                                      [USER_DENIED_CHANNEL] = "channel"};

void acl_log_module(struct client *client, enum user_denial denial, struct slice object, struct slice user) {
    log_add_in(client, "module", reasons[denial], object, user);
}

void acl_log_denied(struct client *client, enum user_denial denial, const struct command *command,
                    const struct slice *argv, int at) {
    auth_count_denial(denial);
    struct slice object = at ? argv[at] : slice_of(command->full_name);
    log_add(client, reasons[denial], object, slice_of(client->user->name));
}

void acl_log_failed_login(struct client *client, struct slice name) {
    const struct call *running = dispatch_running();
    log_add(client, "auth", running ? running->argv[0] : SLICE("AUTH"), name);
}

void acl_log_denied_certificate(struct client *client, struct slice name) {
    log_add(client, "tls-cert", SLICE(""), name);
}

static void entry_reply(struct reply *reply, const struct acl_log_entry *entry, int64_t now) {
    reply_map(reply, 10);
    reply_field_integer(reply, "count", (int64_t)entry->count);
    reply_field_text(reply, "reason", entry->reason);
    reply_field_text(reply, "context", entry->context);
    reply_field_bulk(reply, "object", entry->object);
    reply_field_text(reply, "username", entry->user);
    reply_field_double(reply, "age-seconds", (double)(now - entry->created_ms) / 1000);
    reply_field_text(reply, "client-info", entry->client);
    reply_field_integer(reply, "entry-id", (int64_t)entry->id);
    reply_field_integer(reply, "timestamp-created", entry->created_ms);
    reply_field_integer(reply, "timestamp-last-updated", entry->updated_ms);
}

void acl_log_run(struct call *call) {
    int64_t count = ENTRIES_SHOWN;
    if (call->argc == 3 && slice_is(call->argv[2], "reset")) {
        while (entries.len) drop_last();
        reply_ok(call->reply);
        return;
    }
    if (call->argc == 3 && !parse_int64(call->argv[2], &count)) {
        reply_not_integer(call->reply);
        return;
    }
    if (count < 0) count = 0;
    if (count > (int64_t)entries.len) count = (int64_t)entries.len;
    reply_array(call->reply, (size_t)count);
    int64_t now = clock_ms();
    list_each(&entries, link) {
        if (count-- == 0) break;
        entry_reply(call->reply, container_of(link, struct acl_log_entry, link), now);
    }
}
