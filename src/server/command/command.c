/* command.c: the registry of commands: lookup, attributes, key positions.
 *
 * Lookup is on the path of every request. It compares a name as two words, the first and the last eight bytes with bit
 * 5 set, and its length: no loop, no table of lower-case letters. Setting bit 5 maps both cases of a letter to one
 * value, and also maps some non-letters to each other. So the two words are enough for names of at most 16 letters;
 * other names are compared in full if the words are equal. The words are hashed into a sparse open-addressing table of
 * pointers. A client that repeats its command skips the lookup: see command_is_named().
 *
 * Rejected: a generated perfect hash (it saves one comparison and costs a build step, and modules and renamed commands
 * need a real table anyway). */
#include "server/command/command.h"
#include "lib/structures/hashtable.h"
#include "lib/structures/histogram.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/system/ticks.h"
#include "lib/text/number.h"
#include "server/command/command_syntax.h"
#include "server/script_hooks.h"
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

static struct {
    struct command **table;   /* open addressing, linear; NULL: free */
    uint32_t size, top_level; /* size is a power of two */
    struct command **sorted;  /* top level; NULL: to be rebuilt */
    struct command *first, **last;
    struct command *removed; /* kept, because clients may still point at them */
    uint32_t count;
} registry = {.last = &registry.first};

/* --- Names as words --- */

static inline uint64_t command_load(const char *from, size_t len) {
    uint64_t word = 0;
    memcpy(&word, from, len);
    return word;
}

static inline struct command_key key_of(struct slice name) {
    const uint64_t lower = 0x2020202020202020ULL;
    struct command_key key = {.len = (uint32_t)name.len};
    const char *p = name.data;
    if (name.len >= 8) {
        key.first = command_load(p, 8) | lower;
        key.last = command_load(p + name.len - 8, 8) | lower;
    } else if (name.len >= 4) {
        key.first = command_load(p, 4) | lower;
        key.last = command_load(p + name.len - 4, 4) | lower;
    } else if (name.len) {
        key.first = (uint64_t)(unsigned char)p[0] << 16 | (uint64_t)(unsigned char)p[name.len / 2] << 8 |
                    (unsigned char)p[name.len - 1] | lower;
    }
    return key;
}

static inline bool key_equal(const struct command *command, const struct command_key *key, struct slice name) {
    if (command->key.first != key->first || command->key.last != key->last || command->key.len != key->len)
        return false;
    return command->key.exact || slice_is(name, command->name);
}

static inline uint32_t key_hash(const struct command_key *key) {
    uint64_t mixed = (key->first ^ (key->last << 1) ^ key->len) * 0x9E3779B97F4A7C15ULL;
    return (uint32_t)(mixed >> 40);
}

bool command_is_named(const struct command *command, struct slice name) {
    struct command_key key = key_of(name);
    return key_equal(command, &key, name);
}

static void table_put(struct command *command) {
    uint32_t mask = registry.size - 1, at = key_hash(&command->key) & mask;
    while (registry.table[at]) at = (at + 1) & mask;
    registry.table[at] = command;
}

static void table_rebuild(void) {
    mem_free(registry.table);
    registry.size = 256;
    while (registry.size < registry.top_level * 4) registry.size *= 2;
    registry.table = mem_calloc(registry.size, sizeof *registry.table);
    for (struct command *command = registry.first; command; command = command->next_all)
        if (!command->parent && command->name[0]) table_put(command);
    mem_free(registry.sorted);
    registry.sorted = NULL;
}

static struct command *table_find(struct slice name) {
    if (!registry.table) return NULL;
    struct command_key key = key_of(name);
    uint32_t mask = registry.size - 1, at = key_hash(&key) & mask;
    for (; registry.table[at]; at = (at + 1) & mask)
        if (key_equal(registry.table[at], &key, name)) return registry.table[at];
    return NULL;
}

struct command *command_lookup(int argc, const struct slice *argv, struct command **known_parent) {
    if (known_parent) *known_parent = NULL;
    struct command *command = table_find(argv[0]);
    if (!command || !command->subcommands || argc < 2) return command;
    struct command *sub = hashtable_find(command->subcommands, argv[1]);
    if (!sub && known_parent) *known_parent = command;
    return sub;
}

struct command *command_lookup_original(int argc, const struct slice *argv, struct command **known_parent) {
    struct command *command = command_find_original(argv[0]);
    *known_parent = NULL;
    if (!command || !command->subcommands || argc < 2) return command;
    struct command *sub = hashtable_find(command->subcommands, argv[1]);
    if (!sub) *known_parent = command;
    return sub;
}

struct command *command_find(struct slice full_name) {
    const char *bar = memchr(full_name.data, '|', full_name.len);
    if (!bar) return table_find(full_name);
    struct command *parent = table_find((struct slice){full_name.data, (size_t)(bar - full_name.data)});
    if (!parent || !parent->subcommands) return NULL;
    return hashtable_find(parent->subcommands,
                          (struct slice){bar + 1, (size_t)(full_name.data + full_name.len - bar - 1)});
}

struct command *command_find_original(struct slice full_name) {
    const char *bar = memchr(full_name.data, '|', full_name.len);
    struct slice name = {full_name.data, bar ? (size_t)(bar - full_name.data) : full_name.len};
    struct command *command = registry.first;
    while (command && (command->parent || !slice_is(name, command->spec->name))) command = command->next_all;
    if (!bar || !command) return command;
    struct slice sub = {bar + 1, (size_t)(full_name.data + full_name.len - bar - 1)};
    return command->subcommands ? hashtable_find(command->subcommands, sub) : NULL;
}

/* --- Registration --- */

/* What is wrong with a command table is a defect of this program. */
#define must_describe(name, condition, what) must_hold(condition, "the command %s: %s", name, what)

static struct slice subcommand_key(const void *entry) {
    return slice_of(((const struct command *)entry)->spec->name);
}
static const struct hashtable_type subcommand_type = {.key = subcommand_key, .ignore_case = true};

static uint32_t categories_of(const struct command_spec *spec) {
    uint32_t categories = spec->categories, flags = spec->flags;
    if (spec->module) return categories; /* as in Valkey: what the module says */
    if (flags & CMD_WRITE) categories |= CAT_WRITE;
    if ((flags & CMD_READONLY) && !(spec->categories & CAT_SCRIPTING)) categories |= CAT_READ;
    if (flags & CMD_ADMIN) categories |= CAT_ADMIN | CAT_DANGEROUS;
    if (flags & CMD_PUBSUB) categories |= CAT_PUBSUB;
    if (flags & CMD_BLOCKING) categories |= CAT_BLOCKING;
    return categories | ((flags & CMD_FAST) ? CAT_FAST : CAT_SLOW);
}

static void key_specs_check(const struct command_spec *spec, const char *name) {
    for (int i = 0; i < COMMAND_KEY_SPECS_MAX; i++) {
        const struct key_spec *keys = &spec->keys[i];
        if (keys->begin == BEGIN_NONE) continue;
        must_describe(name, keys->begin != BEGIN_INDEX || keys->index >= 1,
                      "a key spec begins before the first argument");
        must_describe(name, keys->begin != BEGIN_KEYWORD || keys->keyword, "a key spec lacks its keyword");
        must_describe(name, keys->find != FIND_NONE, "a key spec tells where keys begin but not how they are found");
        must_describe(name, keys->find != FIND_RANGE || keys->b >= 1, "the step of a key range is not positive");
        must_describe(name, keys->find != FIND_KEYNUM || keys->c >= 1, "the step of counted keys is not positive");
        must_describe(name, keys->flags & (KEY_RO | KEY_RW | KEY_OW | KEY_RM | KEY_NOT_KEY),
                      "a key spec does not say what is done to its keys");
    }
}

static void spec_check(const struct command_spec *spec, const struct command *parent) {
    const char *name = spec->name;
    must_describe(name, name[0], "an empty name");
    for (const char *p = name; *p; p++)
        must_describe(name, (!isupper((unsigned char)*p) || spec->module) && !isspace((unsigned char)*p) && *p != '|',
                      "a name that is not lower case");
    must_describe(name, spec->arity != 0, "no arity");
    must_describe(name, spec->run || spec->subcommands, "neither a handler nor subcommands");
    must_describe(name, !parent || spec->arity != 1, "the arity of a subcommand counts both words");
    must_describe(name, !(spec->flags & CMD_WRITE) || !(spec->flags & CMD_READONLY), "it both writes and only reads");
    bool on_data = spec->flags & (CMD_WRITE | CMD_READONLY | CMD_RUNS_SCRIPT | CMD_SHOWS_DATA);
    must_describe(name, !spec->run || on_data != !!(spec->flags & CMD_NO_DATA),
                  "it does not declare what its reply says of data (command.h: CMD_SHOWS_DATA)");
    must_describe(name, spec->module || (spec->since && spec->summary), "no version or no summary");
    key_specs_check(spec, name);
    char why[128] = "";
    if (spec->syntax) syntax_free(syntax_parse(spec->syntax, why));
    must_describe(name, !why[0], why);
}

static bool only_letters(const char *name) {
    for (; *name; name++)
        if (!isalpha((unsigned char)*name)) return false;
    return true;
}

/* Most commands have a single key at a fixed position, or none. These need no search for keys. */
static void find_simple_keys(struct command *command) {
    const struct key_spec *keys = command->spec->keys;
    if (command->spec->subcommands) return;
    /* With variable flags the function finds the key of the spec, and its flags by the arguments (SET … GET). */
    bool finds_others = !(keys[0].flags & KEY_VARIABLE_FLAGS) || command->spec->module;
    if (command->spec->find_keys && finds_others) return;
    command->keyless = keys[0].begin == BEGIN_NONE;
    bool simple = keys[0].begin == BEGIN_INDEX && keys[0].find == FIND_RANGE && keys[0].a == 0;
    if (simple && keys[1].begin == BEGIN_NONE && !(keys[0].flags & KEY_NOT_KEY) && keys[0].index < UINT8_MAX)
        command->only_key = (uint8_t)keys[0].index;
}

static struct command *command_add(const struct command_spec *spec, struct command *parent) {
    spec_check(spec, parent);
    struct command *command = mem_calloc(1, sizeof *command);
    command->spec = spec;
    command->parent = parent;
    command->id = registry.count++;
    command->categories = categories_of(spec);
    command->name = mem_strdup(spec->name);
    command->key = key_of(slice_of(spec->name));
    command->key.exact = command->key.len <= 16 && only_letters(spec->name);
    find_simple_keys(command);
    if (parent) {
        size_t size = strlen(parent->spec->name) + strlen(spec->name) + 2;
        char *full = mem_alloc(size);
        snprintf(full, size, "%s|%s", parent->spec->name, spec->name);
        command->full_name = full;
    } else {
        command->full_name = spec->name;
    }
    *registry.last = command;
    registry.last = &command->next_all;
    return command;
}

static bool (*offers_command)(const char *container, const char *name); /* NULL: all */
void commands_offer(bool (*offers)(const char *container, const char *name)) {
    offers_command = offers;
}
static bool is_offered(const char *container, const char *name) {
    return !offers_command || offers_command(container, name);
}

static void subcommands_add(struct command *command, const struct command_spec *specs) {
    struct command **last = &command->first_sub;
    while (*last) last = &(*last)->next_sub;
    for (const struct command_spec *spec = specs; spec->name; spec++) {
        if (!is_offered(command->spec->name, spec->name)) continue;
        struct command *sub = command_add(spec, command);
        bool added = hashtable_add(command->subcommands, sub);
        must_describe(spec->name, added, "a subcommand twice");
        *last = sub;
        last = &sub->next_sub;
    }
}

void (*commands_changed)(void);

void commands_register(const struct command_spec *specs) {
    for (const struct command_spec *spec = specs; spec->name; spec++) {
        if (!is_offered(NULL, spec->name)) continue;
        must_describe(spec->name, !table_find(slice_of(spec->name)), "registered twice");
        struct command *command = command_add(spec, NULL);
        registry.top_level++;
        if (spec->subcommands) command->subcommands = hashtable_new(&subcommand_type);
        if (spec->subcommands) subcommands_add(command, spec->subcommands);
        table_rebuild();
    }
}

void commands_register_subcommands(const char *container, const struct command_spec *specs) {
    struct command *command = table_find(slice_of(container));
    if (!command && !is_offered(NULL, container)) return;
    must_describe(container, command != NULL, "subcommands of something else than a container");
    if (!command->subcommands) {
        command->subcommands = hashtable_new(&subcommand_type);
        command->only_key = 0; /* of its subcommands */
        command->keyless = false;
    }
    subcommands_add(command, specs);
}

/* A removed command stays allocated while clients refer to it, and replies with this error. */
static void removed_run(struct call *call) {
    reply_error_format(call->reply, "ERR unknown command '%s'", call->command->full_name);
}
static const struct command_spec removed_spec = {
    .name = "", .run = removed_run, .arity = -1, .since = "", .summary = "A command that was removed."};

static void command_remove(struct command *command) {
    struct command **place = &registry.first;
    while (*place != command) place = &(*place)->next_all;
    *place = command->next_all;
    if (!*place) registry.last = place;
    if (command->latency) histogram_free(command->latency);
    command->latency = NULL;
    if (!command->parent) command->full_name = mem_strdup(command->full_name);
    command->spec = &removed_spec;
    command->categories = 0;
    command->name[0] = 0;
    command->key = (struct command_key){.len = UINT32_MAX}; /* matches no name */
    command->next_all = registry.removed;
    registry.removed = command;
}

static struct command *command_of_spec(const struct command_spec *spec) {
    struct command *command = registry.first;
    while (command && command->spec != spec) command = command->next_all;
    return command;
}

void commands_unregister(const struct command_spec *specs) {
    for (const struct command_spec *spec = specs; spec->name; spec++) {
        struct command *command = command_of_spec(spec);
        if (!command) continue;
        struct hashtable *subcommands = command->subcommands;
        command->subcommands = NULL;
        for (struct command *sub = command->first_sub; sub; sub = sub->next_sub) {
            hashtable_pop(subcommands, slice_of(sub->spec->name));
            command_remove(sub);
            sub->parent = NULL;
        }
        command->first_sub = NULL;
        if (subcommands) hashtable_free(subcommands);
        command_remove(command);
        registry.top_level--;
    }
    table_rebuild();
}

void command_spec_changed(const struct command_spec *spec) {
    struct command *command = command_of_spec(spec);
    spec_check(spec, command->parent);
    command->categories = categories_of(spec);
    command->only_key = 0;
    command->keyless = false;
    if (!command->subcommands) find_simple_keys(command);
}

const char *command_rename(struct slice from, struct slice to) {
    struct command *command = table_find(from);
    if (!command) return "No such command in rename-command";
    struct command *other = to.len ? table_find(to) : NULL;
    if (other && other != command) return "Target command name already exists";
    mem_free(command->name);
    command->name = mem_strndup(to.data, to.len);
    command->key = key_of(to);
    command->key.exact = false;
    table_rebuild();
    return NULL;
}

/* --- Walking --- */

size_t commands_count(void) {
    size_t count = 0;
    for (struct command *command = registry.first; command; command = command->next_all)
        if (!command->parent && command->name[0]) count++;
    return count;
}

static int by_name(const void *a, const void *b) {
    return strcmp((*(struct command *const *)a)->name, (*(struct command *const *)b)->name);
}

void commands_each(void (*visit)(struct command *command, void *context), void *context) {
    size_t count = commands_count();
    if (!registry.sorted) {
        size_t at = 0;
        registry.sorted = mem_alloc((count + 1) * sizeof *registry.sorted);
        for (struct command *command = registry.first; command; command = command->next_all)
            if (!command->parent && command->name[0]) registry.sorted[at++] = command;
        qsort(registry.sorted, count, sizeof *registry.sorted, by_name);
    }
    for (size_t i = 0; i < count; i++) visit(registry.sorted[i], context);
}

void commands_each_all(void (*visit)(struct command *command, void *context), void *context) {
    for (struct command *command = registry.first; command; command = command->next_all) visit(command, context);
}

uint64_t command_usec(const struct command *command) {
    return ticks_to_us(command->ticks);
}

void commands_reset_stats(void) {
    commands_reset_latency();
    for (struct command *command = registry.first; command; command = command->next_all)
        command->calls = command->ticks = command->rejected = command->failed = 0;
}

void commands_reset_latency(void) {
    for (struct command *command = registry.first; command; command = command->next_all) {
        if (command->latency) histogram_free(command->latency);
        command->latency = NULL;
    }
}

/* --- Keys --- */

struct key_list {
    struct key_position *positions;
    int count, max;
};

static bool keys_add(struct key_list *list, int index, uint32_t flags) {
    if (list->count == list->max) return false;
    list->positions[list->count++] = (struct key_position){index, flags};
    return true;
}

/* The index of the first key of a spec; 0: the spec does not apply to these arguments. */
static int spec_begin(const struct key_spec *keys, int argc, const struct slice *argv) {
    if (keys->begin == BEGIN_INDEX) return keys->index < argc ? keys->index : 0;
    if (keys->begin != BEGIN_KEYWORD) return 0;
    int step = keys->index > 0 ? 1 : -1, at = keys->index > 0 ? keys->index : argc + keys->index;
    for (; at > 0 && at < argc; at += step)
        if (slice_is(argv[at], keys->keyword)) return at + 1 < argc ? at + 1 : 0;
    return 0;
}

/* 1: found; 0: the spec does not fit the arguments; -1: the list is full. */
static int spec_find(const struct key_spec *keys, int argc, const struct slice *argv, struct key_list *list) {
    int64_t first = spec_begin(keys, argc, argv), last, step;
    if (first == 0) return keys->begin != BEGIN_INDEX; /* a keyword is optional */
    if (keys->find == FIND_RANGE) {
        step = keys->b;
        if (keys->a >= 0)
            last = first + keys->a;
        else if (keys->c <= 1)
            last = argc + keys->a;
        else
            last = first + (argc - first) / keys->c + keys->a;
    } else if (keys->find == FIND_KEYNUM) {
        int64_t count, at = first + keys->a;
        if (at >= argc || !parse_int64(argv[at], &count) || count < 0 || count > argc) return 0;
        step = keys->c;
        first += keys->b;
        last = first + (count - 1) * step;
    } else {
        return 0;
    }
    if (last < first || last >= argc) return 0;
    for (int64_t at = first; at <= last; at += step)
        if (!keys_add(list, (int)at, keys->flags)) return -1;
    return 1;
}

int command_find_keys(const struct command *command, int argc, const struct slice *argv, struct key_position *positions,
                      int max) {
    const struct command_spec *spec = command->spec;
    if (spec->find_keys) return spec->find_keys(command, argc, argv, positions, max);
    struct key_list list = {positions, 0, max};
    for (int i = 0; i < COMMAND_KEY_SPECS_MAX; i++) {
        if (spec->keys[i].begin == BEGIN_NONE || (spec->keys[i].flags & KEY_NOT_KEY)) continue;
        int result = spec_find(&spec->keys[i], argc, argv, &list);
        if (result < 0) break;
        if (result == 0) return -1;
    }
    return list.count;
}

uint32_t command_call_flags(const struct command *command, const struct slice *argv) {
    uint32_t flags = command->spec->flags;
    if (command->spec->call_flags) flags |= command->spec->call_flags(argv[1]);
    if (!(flags & CMD_RUNS_SCRIPT) || !script_hooks) return flags;
    if (script_hooks->declared(command->spec->name, argv[1], &flags) || flags & CMD_READONLY) return flags;
    return flags | CMD_MAY_REPLICATE;
}

static const char no_such_db[] = "ERR DB index is out of range";
static const char no_memory[] = "ERR Insufficient memory for the string";

bool reply_no_such_db(struct reply *reply) {
    return reply_error(reply, no_such_db);
}

bool is_no_such_db(struct slice error) {
    return slice_equal(error, slice_of(no_such_db));
}

bool reply_no_memory(struct reply *reply) {
    return reply_error(reply, no_memory);
}

bool is_no_memory(struct slice error) {
    return slice_equal(error, slice_of(no_memory));
}
