/* user.c: see user.h. Users are an array sorted by name: there are few, and they change rarely. */
#include "server/clients/user.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"
#include <stdio.h>

enum { NAME_SHOWN = 256 };

struct user user_default = {.name = "default", .flags = USER_ENABLED | USER_NO_PASSWORD | USER_ALL_RIGHTS};
struct user user_superuser = {.name = "(superuser)", .flags = USER_ENABLED | USER_ALL_RIGHTS};
/* The user of clients whose user was removed: they are about to be closed, or are internal. */
static struct user user_removed = {.name = "(removed)"};
void (*user_removing)(struct user *user);
const struct user_hooks *user_hooks;

static struct user *only_default[] = {&user_default};
static struct {
    struct user **items;
    size_t count, capacity;
} users = {only_default, 1, 1};

/* The index of the user, or the index at which a user of this name would be inserted. */
static size_t position_of(struct slice name) {
    size_t low = 0, high = users.count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (slice_compare(slice_of(users.items[middle]->name), name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct user *user_find(struct slice name) {
    size_t at = position_of(name);
    return at < users.count && slice_equal(slice_of(users.items[at]->name), name) ? users.items[at] : NULL;
}

struct user *user_add(struct slice name) {
    struct user *user = mem_calloc(1, sizeof *user);
    user->name = mem_strndup(name.data, name.len);
    size_t at = position_of(name);
    if (users.count == users.capacity) {
        struct user **items = mem_alloc(users.capacity * 2 * sizeof *items);
        memcpy(items, users.items, users.count * sizeof *items);
        if (users.items != only_default) mem_free(users.items);
        users.items = items;
        users.capacity *= 2;
    }
    memmove(users.items + at + 1, users.items + at, (users.count - at) * sizeof *users.items);
    users.items[at] = user;
    users.count++;
    return user;
}

static bool caller_closes;

void user_close_client(struct client *client) {
    const struct call *running = dispatch_running();
    if (running && running->client == client)
        caller_closes = true;
    else if (dispatch_is_running(client))
        client_free_after_reply(client);
    else
        client_free(client);
}

void user_close_caller(struct client *caller) {
    if (caller_closes) client_free_after_reply(caller);
    caller_closes = false;
}

void user_leave_internal(const struct user *user) {
    list_each_entry(clients_internal(), struct client, link, client) {
        if (client->user == user) client->user = &user_removed;
    }
}

void user_remove(struct user *user) {
    if (user_removing) user_removing(user);
    user_leave_internal(user);
    list_each_entry(clients_all(), struct client, link, client) {
        if (client->user != user) continue;
        client->user = &user_removed;
        client->authenticated = false;
        user_close_client(client);
    }
    size_t at = position_of(slice_of(user->name));
    must(at < users.count && users.items[at] == user && user != &user_default);
    users.count--;
    memmove(users.items + at, users.items + at + 1, (users.count - at) * sizeof *users.items);
    user_clear_passwords(user);
    mem_free((char *)(uintptr_t)user->name);
    mem_free(user);
}

size_t users_count(void) {
    return users.count;
}
struct user *user_at(size_t index) {
    must_less(index, users.count);
    return users.items[index];
}

/* --- Passwords --- */

static bool digests_equal(const unsigned char *a, const unsigned char *b) {
    unsigned difference = 0;
    for (int i = 0; i < SHA256_SIZE; i++) difference |= (unsigned)(a[i] ^ b[i]);
    return difference == 0;
}

static unsigned password_index(const struct user *user, const unsigned char *digest) {
    unsigned found = user->password_count;
    for (unsigned i = 0; i < user->password_count; i++)
        if (digests_equal(user->passwords[i], digest)) found = i;
    return found;
}

bool user_accepts(const struct user *user, struct slice password) {
    if (!(user->flags & USER_ENABLED)) return false;
    if (user->flags & USER_NO_PASSWORD) return true;
    unsigned char digest[SHA256_SIZE];
    sha256_digest(password, digest);
    return password_index(user, digest) < user->password_count;
}

void user_add_password(struct user *user, const unsigned char digest[static SHA256_SIZE]) {
    user->flags &= ~(uint32_t)USER_NO_PASSWORD;
    if (password_index(user, digest) < user->password_count) return;
    user->passwords = mem_realloc(user->passwords, (user->password_count + 1) * sizeof *user->passwords);
    memcpy(user->passwords[user->password_count++], digest, SHA256_SIZE);
}

bool user_remove_password(struct user *user, const unsigned char digest[static SHA256_SIZE]) {
    unsigned at = password_index(user, digest);
    if (at == user->password_count) return false;
    user->password_count--;
    memmove(user->passwords[at], user->passwords[at + 1], (user->password_count - at) * sizeof *user->passwords);
    return true;
}

void user_clear_passwords(struct user *user) {
    mem_free(user->passwords);
    user->passwords = NULL;
    user->password_count = 0;
    user->flags &= ~(uint32_t)USER_NO_PASSWORD;
}

/* --- Permissions --- */

/* Commands of the primary and of files are executed unconditionally. The source of a slot migration has a user. */
static bool is_exempt(const struct client *client) {
    return client->user->flags & USER_ALL_RIGHTS || !user_hooks ||
           (client_must_be_obeyed(client) && !(client->flags & CLIENT_MIGRATION));
}

static int denied_argument;
int user_denied_argument(void) {
    return denied_argument;
}
static enum user_denial denial_of(struct client *client, const struct command *command, int argc,
                                  const struct slice *argv) {
    if (__builtin_expect(is_exempt(client), 1)) return USER_ALLOWED;
    int at;
    enum user_denial denial = user_hooks->check(client, command, argc, argv, &at);
    denied_argument = at;
    if (denial != USER_ALLOWED) user_hooks->denied(client, denial, command, argv, at);
    return denial;
}

const char *user_refusal(struct client *client, const struct command *command, int argc, const struct slice *argv) {
    static char text[NAME_SHOWN + 256];
    switch (denial_of(client, command, argc, argv)) {
    case USER_DENIED_COMMAND:
        snprintf(text, sizeof text, "NOPERM User %.*s has no permissions to run the '%.128s' command", NAME_SHOWN,
                 client->user->name, command->full_name);
        return text;
    case USER_DENIED_KEY: return "NOPERM No permissions to access a key";
    case USER_DENIED_CHANNEL: return "NOPERM No permissions to access a channel";
    case USER_DENIED_DATABASE: return "NOPERM No permissions to access database";
    case USER_ALLOWED: break;
    }
    return NULL;
}

#define CHANGED                                                                                                        \
    "NOPERM ACLs rules changed between the moment the transaction was accumulated and the EXEC call. This command is " \
    "no longer allowed for the following reason: "
const char *user_refusal_at_exec(struct client *client, const struct command *command, int argc,
                                 const struct slice *argv) {
    switch (denial_of(client, command, argc, argv)) {
    case USER_DENIED_COMMAND: return CHANGED "no permission to execute the command or subcommand";
    case USER_DENIED_KEY: return CHANGED "no permission to touch the specified keys";
    case USER_DENIED_CHANNEL: return CHANGED "no permission to access one of the channels used as arguments";
    case USER_DENIED_DATABASE: return CHANGED "no permission";
    case USER_ALLOWED: break;
    }
    return NULL;
}

bool user_may(const struct client *client, const struct command *command, int argc, const struct slice *argv) {
    int at;
    return is_exempt(client) || user_hooks->check(client, command, argc, argv, &at) == USER_ALLOWED;
}

bool user_reads_all_keys(const struct client *client, const struct command *command, int argc,
                         const struct slice *argv) {
    return is_exempt(client) || user_hooks->reads_all_keys(client->user, command, argc, argv);
}
