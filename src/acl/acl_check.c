/* acl_check.c: decides whether a user may run a command, and installs the filter for it in dispatch.
 *
 * A selector allows a command if it includes the command, the databases that it uses, its keys (found once, by the key
 * specs) and its channels. The databases and channels that a command uses follow from a table of the few commands with
 * such arguments, and from the command's categories; the result is cached for each command.
 *
 * Most requests take a shortcut: until one of its rules changes, the root selector stores for each command that it
 * always allows the command, or that it allows the command if argument 1, the only key, may be accessed. The prefix
 * that a key matched last is compared first. The full check runs only if the shortcut does not allow the request.
 *
 * The filter is installed only while a user without all permissions exists. */
#include "acl/acl.h"
#include "acl/rights.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/number.h"
#include "pubsub/pubsub.h"
#include "server/clients/client.h"
#include "server/clients/transactions.h"
#include "server/command/dispatch.h"
#include <stdlib.h>

enum { KEYS_ON_STACK = 64 };

/* --- Databases and channels of a command --- */

enum channels_use { CHANNELS_NONE, CHANNELS_FIRST, CHANNELS_ALL, CHANNELS_PATTERNS, CHANNELS_FOUND };
enum databases_use {
    DATABASES_NONE,
    DATABASES_CURRENT,
    DATABASES_SELECT, /* argument 1 */
    DATABASES_SWAP,   /* arguments 1 and 2 */
    DATABASES_MOVE,   /* argument 2, and the current one */
    DATABASES_COPY,   /* the arguments after DB, and the current one */
    DATABASES_ALL
};
struct traits {
    bool known;
    uint8_t channels, databases;
};

static const struct {
    const char *command;
    uint8_t channels, databases;
} special[] = {{"publish", CHANNELS_FIRST, 0},  {"spublish", CHANNELS_FIRST, 0},      {"subscribe", CHANNELS_ALL, 0},
               {"ssubscribe", CHANNELS_ALL, 0}, {"psubscribe", CHANNELS_PATTERNS, 0}, {"select", 0, DATABASES_SELECT},
               {"swapdb", 0, DATABASES_SWAP},   {"move", 0, DATABASES_MOVE},          {"copy", 0, DATABASES_COPY}};

static struct {
    struct traits *items; /* indexed by command->id */
    size_t count;
} traits;

static struct traits traits_make(const struct command *command) {
    const struct command_spec *spec = command->spec;
    struct traits made = {.known = true};
    bool uses_data = command->categories & (CAT_KEYSPACE | CAT_READ | CAT_WRITE);
    for (int i = 0; i < COMMAND_KEY_SPECS_MAX; i++)
        uses_data |= spec->keys[i].begin != BEGIN_NONE && !(spec->keys[i].flags & KEY_NOT_KEY);
    if (uses_data) made.databases = DATABASES_CURRENT;
    if (spec->flags & CMD_ALL_DATABASES) made.databases = DATABASES_ALL;
    if (spec->find_channels) made.channels = CHANNELS_FOUND;
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) {
        if (strcmp(command->full_name, special[i].command) != 0) continue;
        made.channels = special[i].channels;
        if (special[i].databases) made.databases = special[i].databases;
    }
    return made;
}

static struct traits traits_of(const struct command *command) {
    size_t id = command->id;
    if (__builtin_expect(id >= traits.count, 0)) {
        traits.items = mem_realloc(traits.items, (id + 1) * sizeof *traits.items);
        memset(traits.items + traits.count, 0, (id + 1 - traits.count) * sizeof *traits.items);
        traits.count = id + 1;
    }
    if (__builtin_expect(!traits.items[id].known, 0)) traits.items[id] = traits_make(command);
    return traits.items[id];
}

/* --- One selector --- */

struct acl_request {
    const struct command *command;
    int argc;
    const struct slice *argv;
    int db;
    struct traits traits;
    const struct key_position *keys;
    int key_count;
};

/* The number of the database in an argument; -1: invalid; the command will reply with an error. */
static int database_at(const struct acl_request *request, int at) {
    int64_t db;
    if (at >= request->argc || !parse_int64(request->argv[at], &db)) return -1;
    return db < 0 || db >= keyspace_databases(server.keyspace) ? -1 : (int)db;
}

static bool database_denied(const struct acl_selector *selector, const struct acl_request *request, int at) {
    int db = database_at(request, at);
    return db >= 0 && !selector_has_database(selector, db);
}

/* True: COPY will accept its options. */
static bool copy_is_valid(const struct acl_request *request) {
    int at = 3;
    for (; at < request->argc; at++)
        if (!slice_is(request->argv[at], "replace") && !slice_is(request->argv[at++], "db")) return false;
    return at == request->argc;
}

/* Returns the index of the argument with the denied database, or 0 for a denied database that is not an argument; -1:
 * none is denied. */
static int denied_database(const struct acl_selector *selector, const struct acl_request *request) {
    if (selector->all_databases) return -1;
    switch (request->traits.databases) {
    case DATABASES_NONE: return -1;
    case DATABASES_SELECT: return database_denied(selector, request, 1) ? 1 : -1;
    case DATABASES_SWAP:
        if (database_at(request, 1) < 0 || database_at(request, 2) < 0) return -1;
        return database_denied(selector, request, 1) ? 1 : database_denied(selector, request, 2) ? 2 : -1;
    case DATABASES_MOVE:
        if (database_denied(selector, request, 2)) return 2;
        break;
    case DATABASES_COPY:
        for (int at = 3; copy_is_valid(request) && at + 1 < request->argc; at++)
            if (slice_is(request->argv[at], "db") && database_denied(selector, request, ++at)) return at;
        break;
    case DATABASES_ALL:
        for (int db = 0; db < keyspace_databases(server.keyspace); db++)
            if (!selector_has_database(selector, db)) return 0;
        return -1;
    default: break;
    }
    return selector_has_database(selector, request->db) ? -1 : 0;
}

static uint32_t access_of(uint32_t key_flags) {
    uint32_t access = key_flags & KEY_ACCESS ? ACCESS_READ : 0;
    return key_flags & (KEY_INSERT | KEY_DELETE | KEY_UPDATE) ? access | ACCESS_WRITE : access;
}

/* The pattern that grants all of the access; NULL: none. */
static const struct acl_pattern *selector_find_key(const struct acl_selector *selector, struct slice key,
                                                   uint32_t access) {
    for (size_t i = 0; i < selector->keys.count; i++) {
        const struct acl_pattern *pattern = &selector->keys.items[i];
        if ((pattern->access & access) == access && pattern_matches(pattern, key)) return pattern;
    }
    return NULL;
}

static int denied_key(const struct acl_selector *selector, const struct acl_request *request) {
    if (selector->keys.all) return -1;
    for (int i = 0; i < request->key_count; i++) {
        const struct key_position *key = &request->keys[i];
        if (!selector_find_key(selector, request->argv[key->index], access_of(key->flags))) return key->index;
    }
    return -1;
}

/* The command finds its channels itself. Everybody may unsubscribe. */
static int denied_found(const struct acl_selector *selector, const struct acl_request *request) {
    struct key_position *found = mem_alloc((size_t)request->argc * sizeof *found);
    int count =
        request->command->spec->find_channels(request->command, request->argc, request->argv, found, request->argc);
    int denied = -1;
    for (int i = 0; i < count && denied < 0; i++) {
        if (!(found[i].flags & (CHANNEL_PUBLISH | CHANNEL_SUBSCRIBE))) continue;
        bool pattern = found[i].flags & CHANNEL_PATTERN;
        if (!selector_has_channel(selector, request->argv[found[i].index], pattern)) denied = found[i].index;
    }
    mem_free(found);
    return denied;
}
static int denied_channel(const struct acl_selector *selector, const struct acl_request *request) {
    if (selector->channels.all || request->traits.channels == CHANNELS_NONE) return -1;
    if (request->traits.channels == CHANNELS_FOUND) return denied_found(selector, request);
    int last = request->traits.channels == CHANNELS_FIRST ? 1 : request->argc - 1;
    for (int at = 1; at <= last; at++)
        if (!selector_has_channel(selector, request->argv[at], request->traits.channels == CHANNELS_PATTERNS))
            return at;
    return -1;
}

static enum user_denial selector_check(const struct acl_selector *selector, const struct acl_request *request,
                                       int *at) {
    if ((*at = denied_database(selector, request)) >= 0) return USER_DENIED_DATABASE;
    *at = 0;
    if (!selector_has_command(selector, request->command, request->argc, request->argv)) return USER_DENIED_COMMAND;
    if ((*at = denied_key(selector, request)) >= 0) return USER_DENIED_KEY;
    if ((*at = denied_channel(selector, request)) >= 0) return USER_DENIED_CHANNEL;
    return USER_ALLOWED;
}

/* --- A user --- */

static bool needs_keys(const struct user *user) {
    for (size_t i = 0; i < user->rights->count; i++)
        if (!user->rights->selectors[i].keys.all) return true;
    return false;
}

enum user_denial acl_check(const struct user *user, int db, const struct command *command, int argc,
                           const struct slice *argv, int *at) {
    *at = 0;
    if (user->flags & USER_ALL_RIGHTS) return USER_ALLOWED;
    if (!user->rights) return USER_DENIED_COMMAND;
    struct key_position few[KEYS_ON_STACK], *keys = NULL;
    struct acl_request request = {
        .command = command, .argc = argc, .argv = argv, .db = db, .traits = traits_of(command)};
    if (needs_keys(user)) {
        keys = argc <= KEYS_ON_STACK ? few : mem_alloc((size_t)argc * sizeof *keys);
        request.keys = keys;
        /* Negative: the arguments are malformed; the command will reply with an error. */
        request.key_count = command_find_keys(command, argc, argv, keys, argc);
    }
    enum user_denial denial = USER_ALLOWED;
    for (size_t i = 0; i < user->rights->count; i++) {
        int where;
        enum user_denial here = selector_check(&user->rights->selectors[i], &request, &where);
        if (here == USER_ALLOWED) {
            denial = USER_ALLOWED;
            break;
        }
        if (here < denial || (here == denial && where <= *at)) continue;
        denial = here;
        *at = where;
    }
    if (keys != few) mem_free(keys);
    return denial;
}

static bool acl_reads_all_keys(const struct user *user, const struct command *command, int argc,
                               const struct slice *argv) {
    if (user->flags & USER_ALL_RIGHTS) return true;
    for (size_t i = 0; user->rights && i < user->rights->count; i++) {
        const struct acl_selector *selector = &user->rights->selectors[i];
        if (!selector_has_command(selector, command, argc, argv)) continue;
        bool all = selector->keys.all;
        for (size_t j = 0; j < selector->keys.count; j++) {
            const struct acl_pattern *pattern = &selector->keys.items[j];
            all |= pattern->access & ACCESS_READ && slice_equal(pattern->text, SLICE("*"));
        }
        if (all) return true;
    }
    return false;
}

/* --- Shortcuts --- */

/* The condition under which the root selector allows a command; 0: always. SHORTCUT_KEY: argument 1 is the only key and
 * needs the access in the bits of enum access. */
enum shortcut { SHORTCUT_UNKNOWN = 1 << 2, SHORTCUT_NONE = 1 << 3, SHORTCUT_KEY = 1 << 4 };

static uint8_t shortcut_make(const struct acl_selector *selector, const struct command *command) {
    const struct key_spec *spec = NULL;
    if (!selector->all_databases || !selector_has_command(selector, command, 0, NULL)) return SHORTCUT_NONE;
    if (!selector->channels.all && traits_of(command).channels != CHANNELS_NONE) return SHORTCUT_NONE;
    if (selector->keys.all) return 0;
    for (int i = 0; i < COMMAND_KEY_SPECS_MAX; i++) {
        const struct key_spec *here = &command->spec->keys[i];
        if (here->begin == BEGIN_NONE || here->flags & KEY_NOT_KEY) continue;
        if (spec) return SHORTCUT_NONE;
        spec = here;
    }
    if (command->spec->module && command->spec->find_keys) return SHORTCUT_NONE;
    bool fixed = !command->spec->find_keys; /* the function finds the keys of the spec, except with these flags */
    if (!spec) return fixed ? 0 : SHORTCUT_NONE;
    bool variable = spec->flags & KEY_VARIABLE_FLAGS, first = spec->begin == BEGIN_INDEX && spec->index == 1;
    if ((!fixed && !variable) || !first || spec->find != FIND_RANGE || spec->a != 0) return SHORTCUT_NONE;
    if (abs(command->spec->arity) < 2) return SHORTCUT_NONE; /* argument 1 is optional */
    return (uint8_t)(SHORTCUT_KEY | (variable ? ACCESS_READ | ACCESS_WRITE : access_of(spec->flags)));
}

static uint8_t shortcut_find(struct acl_shortcuts *shortcuts, const struct acl_selector *selector,
                             const struct command *command) {
    size_t id = command->id;
    if (id >= shortcuts->count) {
        shortcuts->commands = mem_realloc(shortcuts->commands, id + 1);
        memset(shortcuts->commands + shortcuts->count, SHORTCUT_UNKNOWN, id + 1 - shortcuts->count);
        shortcuts->count = id + 1;
    }
    return shortcuts->commands[id] = shortcut_make(selector, command);
}

/* Decides by the patterns. Stores a matching prefix of at most 8 bytes, because the next key often has the same
 * prefix. */
static __attribute__((noinline)) bool shortcut_decide(struct acl_selector *selector, const struct command *command,
                                                      const struct slice *argv) {
    struct acl_shortcuts *shortcuts = &selector->shortcuts;
    size_t id = command->id;
    uint8_t needs = id < shortcuts->count ? shortcuts->commands[id] : SHORTCUT_UNKNOWN;
    if (needs == SHORTCUT_UNKNOWN) needs = shortcut_find(shortcuts, selector, command);
    if (!(needs & SHORTCUT_KEY)) return !needs;
    const struct acl_pattern *pattern = selector_find_key(selector, argv[1], needs & (ACCESS_READ | ACCESS_WRITE));
    if (pattern && pattern->kind == PATTERN_PREFIX && pattern->plain <= sizeof pattern->head) {
        shortcuts->head = pattern->head;
        shortcuts->mask = pattern->mask;
        shortcuts->allows = (uint8_t)(SHORTCUT_KEY | pattern->access);
    }
    return pattern;
}

/* Call it only after the number of arguments was checked. */
static bool takes_shortcut(const struct client *client, const struct command *command, int argc,
                           const struct slice *argv) {
    const struct user *user = client->user;
    if (user->flags & USER_ALL_RIGHTS) return true;
    if (!user->rights) return false;
    struct acl_selector *selector = &user->rights->selectors[0];
    const struct acl_shortcuts *shortcuts = &selector->shortcuts;
    size_t id = command->id;
    if (id < shortcuts->count) {
        uint8_t needs = shortcuts->commands[id];
        uint64_t head;
        if (!needs) return true;
        if (!(needs & ~shortcuts->allows) && argv[1].len >= sizeof head) {
            memcpy(&head, argv[1].data, sizeof head);
            if (!((head ^ shortcuts->head) & shortcuts->mask)) return true;
        }
    }
    return shortcut_decide(selector, command, argv);
}

static enum user_denial check_client(const struct client *client, const struct command *command, int argc,
                                     const struct slice *argv, int *at) {
    *at = 0;
    if (command_arity_ok(command, argc) && takes_shortcut(client, command, argc, argv)) return USER_ALLOWED;
    return acl_check(client->user, db_id(transaction_db(client)), command, argc, argv, at);
}

/* --- The filter --- */

static enum filter_answer filter_ask(struct client *client, const struct command *command, int argc,
                                     const struct slice *argv, const char **error) {
    if (client->user->flags & USER_ALL_RIGHTS) return FILTER_PASS;
    *error = user_refusal(client, command, argc, argv);
    return *error ? FILTER_REFUSE : FILTER_PASS;
}
static enum filter_answer filter_look(struct client *client, const struct command *command, int argc,
                                      const struct slice *argv) {
    return takes_shortcut(client, command, argc, argv) ? FILTER_PASS : FILTER_ASK;
}
static struct command_filter filter = {
    .order = FILTER_ACL, .asks_obeyed = true, .look = filter_look, .ask = filter_ask};

static struct { /* users that are in no table */
    struct user **items;
    size_t count;
} outsiders;
static void filter_update(void) {
    bool wanted = outsiders.count > 0;
    for (size_t i = 0; i < users_count(); i++) wanted |= !(user_at(i)->flags & USER_ALL_RIGHTS);
    dispatch_set_filter(&filter, wanted);
}

/* --- Subscriptions without permission --- */

struct subscriptions_check {
    const struct user *user;
    bool is_pattern, denied;
};
static void subscription_check(void *context, struct slice name) {
    struct subscriptions_check *check = context;
    bool allowed = false;
    for (size_t i = 0; i < check->user->rights->count; i++)
        allowed |= selector_has_channel(&check->user->rights->selectors[i], name, check->is_pattern);
    check->denied |= !allowed;
}

static void close_subscribers(const struct user *user) {
    list_each_entry(clients_all(), struct client, link, client) {
        if (client->user != user || !(client->flags & CLIENT_PUBSUB)) continue;
        struct subscriptions_check check = {.user = user};
        for (int kind = 0; kind < PUBSUB_KINDS; kind++) {
            check.is_pattern = kind == PUBSUB_PATTERN;
            pubsub_each_of(client, (enum pubsub_kind)kind, subscription_check, &check);
        }
        if (check.denied) user_close_client(client);
    }
}

void acl_user_changed(struct user *user) {
    if (user) {
        user->flags &= ~(uint32_t)USER_ALL_RIGHTS;
        if (rights_are_all(user->rights)) user->flags |= USER_ALL_RIGHTS;
        if (!(user->flags & USER_ALL_RIGHTS)) close_subscribers(user);
    }
    filter_update();
}

static const struct user_hooks hooks = {.check = check_client,
                                        .denied = acl_log_denied,
                                        .login_failed = acl_log_failed_login,
                                        .certificate_denied = acl_log_denied_certificate,
                                        .reads_all_keys = acl_reads_all_keys};

static void user_apply_again(struct user *user) {
    struct acl_rights *rights = user->rights;
    for (size_t k = 0; rights && k < rights->count; k++) selector_apply_again(&rights->selectors[k]);
}
static void rights_apply_again(void) {
    for (size_t i = 0; i < users_count(); i++) user_apply_again(user_at(i));
    for (size_t i = 0; i < outsiders.count; i++) user_apply_again(outsiders.items[i]);
}

void acl_init(void) {
    commands_changed = rights_apply_again;
    user_default.rights = rights_new();
    static const char *const all[] = {"~*", "&*", "+@all"};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) user_apply_rule(&user_default, slice_of(all[i]));
    user_hooks = &hooks;
}

/* --- For modules --- */

void acl_outsider_add(struct user *user) {
    outsiders.items = mem_realloc(outsiders.items, (outsiders.count + 1) * sizeof *outsiders.items);
    outsiders.items[outsiders.count++] = user;
    filter_update();
}
void acl_outsider_remove(struct user *user) {
    size_t at = 0;
    while (at < outsiders.count && outsiders.items[at] != user) at++;
    must_less(at, outsiders.count);
    outsiders.items[at] = outsiders.items[--outsiders.count];
    filter_update();
}
bool acl_has_key(const struct user *user, struct slice key, uint32_t key_flags) {
    if (user->flags & USER_ALL_RIGHTS) return true;
    for (size_t i = 0; user->rights && i < user->rights->count; i++) {
        const struct acl_selector *selector = &user->rights->selectors[i];
        if (selector->keys.all || selector_find_key(selector, key, access_of(key_flags))) return true;
    }
    return false;
}
/* A pattern grants a prefix if it begins with no more than the prefix and then allows anything. */
static bool pattern_has_prefix(const struct acl_pattern *pattern, struct slice prefix) {
    struct slice text = pattern->text;
    return pattern->kind == PATTERN_PREFIX && text.len && text.len - 1 <= prefix.len &&
           memcmp(text.data, prefix.data, text.len - 1) == 0;
}
bool acl_has_prefix(const struct user *user, struct slice prefix, uint32_t key_flags) {
    if (user->flags & USER_ALL_RIGHTS) return true;
    uint32_t access = access_of(key_flags);
    for (size_t i = 0; user->rights && i < user->rights->count; i++) {
        const struct acl_selector *selector = &user->rights->selectors[i];
        if (selector->keys.all) return true;
        for (size_t k = 0; k < selector->keys.count; k++) {
            const struct acl_pattern *pattern = &selector->keys.items[k];
            if ((pattern->access & access) == access && pattern_has_prefix(pattern, prefix)) return true;
        }
    }
    return false;
}
bool acl_has_channel(const struct user *user, struct slice channel, bool is_pattern) {
    if (user->flags & USER_ALL_RIGHTS) return true;
    for (size_t i = 0; user->rights && i < user->rights->count; i++)
        if (selector_has_channel(&user->rights->selectors[i], channel, is_pattern)) return true;
    return false;
}
static const char *selector_rule_on(const struct acl_selector *selector,
                                    bool (*concerns)(void *context, struct slice command), void *context) {
    for (size_t i = 0; i < selector->rule_count; i++) {
        struct slice name = slice_of(selector->rules[i] + 1);
        const char *bar = memchr(name.data, '|', name.len);
        if (bar) name.len = (size_t)(bar - name.data);
        if (name.len && name.data[0] != '@' && concerns(context, name)) return selector->rules[i];
    }
    return NULL;
}
const char *acl_rule_on(bool (*concerns)(void *context, struct slice command), void *context) {
    for (size_t i = 0; i < users_count(); i++) {
        const struct acl_rights *rights = user_at(i)->rights;
        for (size_t k = 0; rights && k < rights->count; k++) {
            const char *rule = selector_rule_on(&rights->selectors[k], concerns, context);
            if (rule) return rule;
        }
    }
    return NULL;
}
