/* commands.c: CreateCommand and what describes a command. See commands.h. */
#include "module/commands.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "module/blocked.h"
#include "module/context.h"
#include "server/command/command_names.h"
#include "server/command/command_syntax.h"
#include "server/command/propagate.h"
#include "server/server.h"
#include <ctype.h>
#include <errno.h>

/* --- The call --- */

static struct ValkeyModuleCommand *module_command_of(const struct command *command); /* NULL: it is the server's */

static void module_command_run(struct call *call) {
    struct ValkeyModuleCommand *command = module_command_of(call->command);
    struct ValkeyModuleCtx ctx;
    context_init_command(&ctx, command->module, call);
    struct ValkeyModuleBlockedClient *waits = blocked_of_call(call);
    struct ValkeyModuleString **argv =
        waits ? module_strings_of(call->argc, call->argv) : module_strings_try_of(call->argc, call->argv);
    if (!argv) {
        reply_error(call->reply, "OOM no memory is left for the arguments of the command");
        call_propagate_nothing(call);
        return;
    }
    ctx.argv = argv;
    ctx.argc = call->argc;
    if (waits)
        blocked_serve(&ctx, waits);
    else if (!command->function) /* a container, called without a subcommand */
        api_WrongArity(&ctx);
    else
        command->function(&ctx, argv, call->argc);
    context_end(&ctx);
    /* Modules say what is to be propagated. */
    call_propagate_nothing(call);
    module_strings_free(call->argc, argv);
}

static struct ValkeyModuleCommand *module_command_of(const struct command *command) {
    if (command->spec->run != module_command_run) return NULL;
    return container_of(command->spec, struct ValkeyModuleCommand, spec[0]);
}

/* --- Positions of keys and channels --- */

static int module_find(const struct command *found, uint32_t what, int argc, const struct slice *argv,
                       struct key_position *positions, int max) {
    struct ValkeyModuleCommand *command = module_command_of(found);
    struct ValkeyModuleCtx ctx;
    if (!command->function) return 0;
    context_init(&ctx, command->module);
    ctx.flags |= what;
    ctx.argc = argc;
    ctx.positions = positions;
    ctx.positions_max = max;
    struct ValkeyModuleString **strings = module_strings_of(argc, argv);
    command->function(&ctx, strings, argc);
    context_end(&ctx);
    module_strings_free(argc, strings);
    return ctx.positions_count;
}
static int module_find_keys(const struct command *found, int argc, const struct slice *argv,
                            struct key_position *positions, int max) {
    return module_find(found, CONTEXT_KEYS_REQUEST, argc, argv, positions, max);
}
static int module_find_channels(const struct command *found, int argc, const struct slice *argv,
                                struct key_position *positions, int max) {
    return module_find(found, CONTEXT_CHANNELS_REQUEST, argc, argv, positions, max);
}
static void position_add(ValkeyModuleCtx *ctx, uint32_t what, int pos, uint32_t flags) {
    if (!(ctx->flags & what) || pos <= 0 || pos >= ctx->argc) return; /* not an argument */
    if (ctx->positions_count == ctx->positions_max) return;
    ctx->positions[ctx->positions_count++] = (struct key_position){pos, flags};
}

int api_IsKeysPositionRequest(ValkeyModuleCtx *ctx) {
    return !!(ctx->flags & CONTEXT_KEYS_REQUEST);
}
static uint32_t key_flags_of(uint64_t flags) {
    return (uint32_t)flags; /* the values of valkeymodule.h are those of enum key_flag */
}
_Static_assert(VALKEYMODULE_CMD_KEY_RO == KEY_RO && VALKEYMODULE_CMD_KEY_VARIABLE_FLAGS == KEY_VARIABLE_FLAGS &&
                   VALKEYMODULE_CMD_KEY_DELETE == KEY_DELETE,
               "the flags of keys have the values of the interface");
void api_KeyAtPosWithFlags(ValkeyModuleCtx *ctx, int pos, int flags) {
    position_add(ctx, CONTEXT_KEYS_REQUEST, pos, key_flags_of((uint64_t)flags));
}
void api_KeyAtPos(ValkeyModuleCtx *ctx, int pos) {
    api_KeyAtPosWithFlags(ctx, pos,
                          VALKEYMODULE_CMD_KEY_RW | VALKEYMODULE_CMD_KEY_ACCESS | VALKEYMODULE_CMD_KEY_UPDATE);
}
int api_IsChannelsPositionRequest(ValkeyModuleCtx *ctx) {
    return !!(ctx->flags & CONTEXT_CHANNELS_REQUEST);
}
_Static_assert((int)VALKEYMODULE_CMD_CHANNEL_PATTERN == CHANNEL_PATTERN &&
                   (int)VALKEYMODULE_CMD_CHANNEL_UNSUBSCRIBE == CHANNEL_UNSUBSCRIBE,
               "the flags of channels have the values of the interface");
void api_ChannelAtPosWithFlags(ValkeyModuleCtx *ctx, int pos, int flags) {
    position_add(ctx, CONTEXT_CHANNELS_REQUEST, pos, (uint32_t)flags);
}

/* --- Creation --- */

enum { IS_GETKEYS = 1, IS_GETCHANNELS = 2, IS_NO_CLUSTER = 4 };
static const struct {
    const char *name;
    uint32_t flags;
    int special;
} flag_words[] = {
    {"write", CMD_WRITE, 0},
    {"readonly", CMD_READONLY, 0},
    {"admin", CMD_ADMIN, 0},
    {"deny-oom", CMD_DENYOOM, 0},
    {"deny-script", CMD_NOSCRIPT, 0},
    {"allow-loading", CMD_LOADING, 0},
    {"pubsub", CMD_PUBSUB, 0},
    {"random", 0, 0}, /* deprecated */
    {"blocking", CMD_BLOCKING, 0},
    {"allow-stale", CMD_STALE, 0},
    {"no-monitor", CMD_SKIP_MONITOR, 0},
    {"no-slowlog", CMD_SKIP_COMMANDLOG, 0},
    {"no-commandlog", CMD_SKIP_COMMANDLOG, 0},
    {"fast", CMD_FAST, 0},
    {"no-auth", CMD_NO_AUTH, 0},
    {"may-replicate", CMD_MAY_REPLICATE, 0},
    {"getkeys-api", CMD_MOVABLE_KEYS, IS_GETKEYS},
    {"getchannels-api", 0, IS_GETCHANNELS},
    {"no-cluster", 0, IS_NO_CLUSTER},
    {"no-mandatory-keys", CMD_NO_MANDATORY_KEYS, 0},
    {"allow-busy", CMD_ALLOW_BUSY, 0},
    {"all-dbs", CMD_ALL_DATABASES, 0},
};

/* Splits a text into words. Returns false at its end. */
static bool next_word(const char **at, struct slice *word) {
    while (**at == ' ') (*at)++;
    const char *end = *at;
    while (*end && *end != ' ') end++;
    *word = (struct slice){*at, (size_t)(end - *at)};
    *at = end;
    return word->len > 0;
}

static bool parse_flags(const char *text, uint32_t *flags, int *special) {
    *flags = 0;
    *special = 0;
    struct slice word;
    while (text && next_word(&text, &word)) {
        size_t i = 0, count = sizeof flag_words / sizeof *flag_words;
        while (i < count && !slice_is(word, flag_words[i].name)) i++;
        if (i == count) return false;
        *flags |= flag_words[i].flags;
        *special |= flag_words[i].special;
    }
    if (*flags & CMD_WRITE) *flags &= ~(uint32_t)CMD_READONLY; /* Valkey accepts both */
    /* Its reply may say anything about the data. */
    if (!(*flags & (CMD_WRITE | CMD_READONLY))) *flags |= CMD_SHOWS_DATA;
    return true;
}

static bool name_is_valid(const char *name) {
    if (!*name) return false;
    for (const char *p = name; *p; p++)
        if (isspace((unsigned char)*p) || strchr("|@=", *p) || (unsigned char)*p < ' ') return false;
    return true;
}

static struct ValkeyModuleCommand *command_new(struct module *module, const char *name, ValkeyModuleCmdFunc function,
                                               uint32_t flags, int special, int first, int last, int step) {
    struct ValkeyModuleCommand *command = mem_calloc(1, sizeof *command);
    command->module = module;
    command->function = function;
    command->finds_keys = special & IS_GETKEYS;
    command->finds_channels = special & IS_GETCHANNELS;
    command->name = mem_strdup(name);
    struct command_spec *spec = &command->spec[0];
    *spec = (struct command_spec){.name = command->name,
                                  .run = module_command_run,
                                  .arity = -1,
                                  .flags = flags | CMD_MODULE,
                                  .group = GROUP_MODULE,
                                  .module = module->name,
                                  .find_keys = command->finds_keys ? module_find_keys : NULL,
                                  .find_channels = command->finds_channels ? module_find_channels : NULL};
    if (first > 0) {
        uint32_t use = KEY_RW | KEY_ACCESS | KEY_UPDATE; /* of a command that only reads, too, as in Valkey */
        if (command->finds_keys) use |= KEY_VARIABLE_FLAGS;
        spec->keys[0] = (struct key_spec){.flags = use,
                                          .begin = BEGIN_INDEX,
                                          .index = first,
                                          .find = FIND_RANGE,
                                          .a = last >= 0 ? last - first : last,
                                          .b = step > 0 ? step : 1};
    }
    list_append(&module->commands, &command->link);
    return command;
}

int api_CreateCommand(ValkeyModuleCtx *ctx, const char *name, ValkeyModuleCmdFunc cmdfunc, const char *strflags,
                      int firstkey, int lastkey, int keystep) {
    uint32_t flags;
    int special;
    if (!ctx->module->loading || !name_is_valid(name) || !parse_flags(strflags, &flags, &special))
        return VALKEYMODULE_ERR;
    if ((special & IS_NO_CLUSTER) && server.cluster_enabled) return VALKEYMODULE_ERR;
    if (command_find(slice_of(name))) return VALKEYMODULE_ERR;
    struct ValkeyModuleCommand *command =
        command_new(ctx->module, name, cmdfunc, flags, special, firstkey, lastkey, keystep);
    commands_register(command->spec);
    return VALKEYMODULE_OK;
}

ValkeyModuleCommand *api_GetCommand(ValkeyModuleCtx *ctx, const char *name) {
    const struct command *found = command_find(slice_of(name));
    struct ValkeyModuleCommand *command = found ? module_command_of(found) : NULL;
    return command && command->module == ctx->module ? command : NULL;
}

int api_CreateSubcommand(ValkeyModuleCommand *parent, const char *name, ValkeyModuleCmdFunc cmdfunc,
                         const char *strflags, int firstkey, int lastkey, int keystep) {
    uint32_t flags;
    int special;
    if (!parent->module->loading || !name_is_valid(name) || !parse_flags(strflags, &flags, &special))
        return VALKEYMODULE_ERR;
    if (((special & IS_NO_CLUSTER) && server.cluster_enabled) || parent->parent || parent->function)
        return VALKEYMODULE_ERR;
    struct slice words[2] = {slice_of(parent->name), slice_of(name)};
    struct command *unknown, *found = command_lookup(2, words, &unknown);
    if (found && found->parent) return VALKEYMODULE_ERR;
    struct ValkeyModuleCommand *command =
        command_new(parent->module, name, cmdfunc, flags, special, firstkey, lastkey, keystep);
    command->parent = parent;
    command->spec[0].arity = -2; /* with the name */
    if (parent->spec[0].arity == -1) parent->spec[0].arity = -2;
    commands_register_subcommands(parent->name, command->spec);
    return VALKEYMODULE_OK;
}

/* --- Description --- */

int api_AddACLCategory(ValkeyModuleCtx *ctx, const char *name) {
    errno = EINVAL;
    if (!ctx->module->loading || !*name) return VALKEYMODULE_ERR;
    for (const char *p = name; *p; p++)
        if (!isalnum((unsigned char)*p) && *p != '_' && *p != '-') return VALKEYMODULE_ERR;
    errno = EBUSY;
    if (slice_is(slice_of(name), "all") || command_category_by_name(slice_of(name))) return VALKEYMODULE_ERR;
    uint32_t flag = command_category_add(name);
    errno = ENOMEM;
    if (!flag) return VALKEYMODULE_ERR;
    errno = 0;
    ctx->module->categories |= flag;
    return VALKEYMODULE_OK;
}
int api_SetCommandACLCategories(ValkeyModuleCommand *command, const char *ctgrsflags) {
    if (!command || !command->module->loading) return VALKEYMODULE_ERR;
    struct slice word;
    uint32_t categories = 0;
    const char *at = ctgrsflags;
    while (next_word(&at, &word)) {
        uint32_t category = command_category_by_name(word);
        if (!category) {
            log_warning("Unrecognized categories flag %s on module load", ctgrsflags);
            return VALKEYMODULE_ERR;
        }
        categories |= category;
    }
    command->spec[0].categories = categories;
    command_spec_changed(command->spec);
    return VALKEYMODULE_OK;
}

/* What one version of the interface describes may have more members in a later one: elements have the sizes that the
 * module was compiled with. */
static const void *element(const void *array, size_t size, size_t index) {
    return (const char *)array + size * index;
}

static bool arguments_are_valid(const ValkeyModuleCommandArg *list, size_t size) {
    enum {
        FLAGS = VALKEYMODULE_CMD_ARG_OPTIONAL | VALKEYMODULE_CMD_ARG_MULTIPLE | VALKEYMODULE_CMD_ARG_MULTIPLE_TOKEN
    };
    for (const ValkeyModuleCommandArg *arg = list; arg && arg->name; arg = element(arg, size, 1)) {
        bool has_parts = arg->type == VALKEYMODULE_ARG_TYPE_ONEOF || arg->type == VALKEYMODULE_ARG_TYPE_BLOCK;
        bool is_key = arg->type == VALKEYMODULE_ARG_TYPE_KEY;
        if ((int)arg->type < 0 || arg->type > VALKEYMODULE_ARG_TYPE_BLOCK || arg->flags & ~FLAGS) return false;
        if (arg->type == VALKEYMODULE_ARG_TYPE_PURE_TOKEN && !arg->token) return false;
        if (is_key ? arg->key_spec_index < 0 : arg->key_spec_index > 0) return false;
        if (has_parts != (arg->subargs != NULL) || !arguments_are_valid(arg->subargs, size)) return false;
    }
    return true;
}
static bool history_is_valid(const ValkeyModuleCommandHistoryEntry *list, size_t size) {
    for (const ValkeyModuleCommandHistoryEntry *entry = list; entry && entry->since; entry = element(entry, size, 1))
        if (!entry->changes) return false;
    return true;
}

static char *text_copy(const char *text) {
    return text ? mem_strdup(text) : NULL;
}
static struct command_argument *arguments_copy(const ValkeyModuleCommandArg *list, size_t size) {
    struct command_argument *first = NULL, **last = &first;
    for (const ValkeyModuleCommandArg *from = list; from && from->name; from = element(from, size, 1)) {
        struct command_argument *to = mem_calloc(1, sizeof *to);
        to->name = mem_strdup(from->name);
        to->type = (enum argument_type)from->type;
        to->token = text_copy(from->token);
        to->display = text_copy(from->display_text);
        to->summary = text_copy(from->summary);
        to->since = text_copy(from->since);
        to->deprecated_since = text_copy(from->deprecated_since);
        to->key_spec = from->type == VALKEYMODULE_ARG_TYPE_KEY ? from->key_spec_index : -1;
        to->optional = from->flags & VALKEYMODULE_CMD_ARG_OPTIONAL;
        to->multiple = from->flags & (VALKEYMODULE_CMD_ARG_MULTIPLE | VALKEYMODULE_CMD_ARG_MULTIPLE_TOKEN);
        to->multiple_token = from->flags & VALKEYMODULE_CMD_ARG_MULTIPLE_TOKEN;
        to->children = arguments_copy(from->subargs, size);
        *last = to;
        last = &to->next;
    }
    return first;
}
_Static_assert((int)VALKEYMODULE_ARG_TYPE_BLOCK == ARGUMENT_BLOCK &&
                   (int)VALKEYMODULE_ARG_TYPE_UNIX_TIME == ARGUMENT_UNIX_TIME,
               "the types of arguments have the values of the interface");

static const char **tips_split(const char *text) {
    const char **words = NULL;
    size_t count = 0;
    struct slice word;
    while (text && next_word(&text, &word)) {
        words = mem_realloc(words, (count + 2) * sizeof *words);
        words[count++] = mem_strndup(word.data, word.len);
        words[count] = NULL;
    }
    return words;
}
static void tips_free(const char *const *words) {
    for (size_t i = 0; words && words[i]; i++) mem_free((void *)(uintptr_t)words[i]);
    mem_free((void *)(uintptr_t)words);
}

static bool key_spec_convert(struct key_spec *to, const ValkeyModuleCommandKeySpec *from) {
    *to = (struct key_spec){.flags = key_flags_of(from->flags), .notes = text_copy(from->notes)};
    switch (from->begin_search_type) {
    case VALKEYMODULE_KSPEC_BS_UNKNOWN: to->begin = BEGIN_UNKNOWN; break;
    case VALKEYMODULE_KSPEC_BS_INDEX:
        to->begin = BEGIN_INDEX;
        to->index = from->bs.index.pos;
        break;
    case VALKEYMODULE_KSPEC_BS_KEYWORD:
        to->begin = BEGIN_KEYWORD;
        to->keyword = text_copy(from->bs.keyword.keyword);
        to->index = from->bs.keyword.startfrom;
        break;
    default: return false;
    }
    switch (from->find_keys_type) {
    case VALKEYMODULE_KSPEC_FK_OMITTED: /* one key */
        to->find = FIND_RANGE;
        to->b = 1;
        break;
    case VALKEYMODULE_KSPEC_FK_UNKNOWN: to->find = FIND_UNKNOWN; break;
    case VALKEYMODULE_KSPEC_FK_RANGE:
        to->find = FIND_RANGE;
        to->a = from->fk.range.lastkey;
        to->b = from->fk.range.keystep;
        to->c = from->fk.range.limit;
        break;
    case VALKEYMODULE_KSPEC_FK_KEYNUM:
        to->find = FIND_KEYNUM;
        to->a = from->fk.keynum.keynumidx;
        to->b = from->fk.keynum.firstkey;
        to->c = from->fk.keynum.keystep;
        break;
    default: return false;
    }
    uint32_t uses = to->flags & (KEY_RO | KEY_RW | KEY_OW | KEY_RM);
    bool one_use = uses && !(uses & (uses - 1));
    return one_use && (to->begin != BEGIN_INDEX || to->index >= 1) && (to->find != FIND_RANGE || to->b >= 1) &&
           (to->find != FIND_KEYNUM || to->c >= 1);
}
static void key_specs_free(struct command_spec *spec) {
    for (int i = 0; i < COMMAND_KEY_SPECS_MAX; i++) {
        mem_free((void *)(uintptr_t)spec->keys[i].notes);
        mem_free((void *)(uintptr_t)spec->keys[i].keyword);
        spec->keys[i] = (struct key_spec){0};
    }
}

static void info_free(struct command_spec *spec) {
    mem_free((void *)(uintptr_t)spec->summary);
    mem_free((void *)(uintptr_t)spec->complexity);
    mem_free((void *)(uintptr_t)spec->since);
    tips_free(spec->tips);
    tips_free(spec->history);
    syntax_free((struct command_argument *)(uintptr_t)spec->arguments);
    key_specs_free(spec);
}

int api_SetCommandInfo(ValkeyModuleCommand *command, const ValkeyModuleCommandInfo *info) {
    struct command_spec *spec = &command->spec[0];
    if (!command->module->loading || !info->version || spec->summary || spec->complexity || spec->since ||
        spec->history || spec->tips || spec->arguments) {
        errno = spec->summary ? EEXIST : EINVAL;
        return VALKEYMODULE_ERR;
    }
    if (!arguments_are_valid(info->args, info->version->sizeof_arg) ||
        !history_is_valid(info->history, info->version->sizeof_historyentry)) {
        log_warning("Invalid command info for the command %s of module %s", command->name, command->module->name);
        errno = EINVAL;
        return VALKEYMODULE_ERR;
    }
    struct command_spec changed = {0};
    size_t specs = 0;
    for (const ValkeyModuleCommandKeySpec *from = info->key_specs; from && from->begin_search_type;
         from = element(from, info->version->sizeof_keyspec, 1)) {
        if (specs == COMMAND_KEY_SPECS_MAX || !key_spec_convert(&changed.keys[specs++], from)) {
            log_warning("Invalid command info for the command %s of module %s: key specs", command->name,
                        command->module->name);
            key_specs_free(&changed);
            errno = EINVAL;
            return VALKEYMODULE_ERR;
        }
    }
    spec->summary = text_copy(info->summary);
    spec->complexity = text_copy(info->complexity);
    spec->since = text_copy(info->since);
    spec->tips = tips_split(info->tips);
    if (info->history) {
        size_t count = 0;
        const char **history = NULL;
        for (const ValkeyModuleCommandHistoryEntry *from = info->history; from->since;
             from = element(from, info->version->sizeof_historyentry, 1)) {
            history = mem_realloc(history, (count + 3) * sizeof *history);
            history[count++] = mem_strdup(from->since);
            history[count++] = mem_strdup(from->changes);
            history[count] = NULL;
        }
        spec->history = history;
    }
    if (info->arity) spec->arity = info->arity;
    spec->arguments = arguments_copy(info->args, info->version->sizeof_arg);
    if (specs) {
        key_specs_free(spec);
        memcpy(spec->keys, changed.keys, sizeof changed.keys);
    }
    command_spec_changed(spec);
    return VALKEYMODULE_OK;
}

void module_commands_drop(struct module *module) {
    for (uint32_t flag = 1; flag; flag <<= 1)
        if (module->categories & flag) command_category_remove(flag);
    module->categories = 0;
    /* Containers first: their subcommands go with them. */
    for (int pass = 0; pass < 2; pass++) list_each(&module->commands, link) {
            struct ValkeyModuleCommand *command = container_of(link, struct ValkeyModuleCommand, link);
            if (pass == 0 && !command->parent) commands_unregister(command->spec);
            if (pass == 0) continue;
            list_remove(&module->commands, link);
            info_free(&command->spec[0]);
            mem_free(command->name);
            mem_free(command);
        }
}

/* --- Propagation --- */

int api_ReplicateVerbatim(ValkeyModuleCtx *ctx) {
    if (!ctx->call) return VALKEYMODULE_ERR;
    if (store_settings.saving) return VALKEYMODULE_OK;
    context_group(ctx);
    propagate(db_id(ctx->call->db), ctx->call->argc, ctx->call->argv, NULL);
    ctx->call->dirty++;
    return VALKEYMODULE_OK;
}

/* --- The keys of a request --- */

/* Valkey tells how a command uses its keys only if the table of commands does not say all about them; the flags of
 * others are 0. */
static bool tells_flags(const struct command *command) {
    const struct command_spec *spec = command->spec;
    if (!spec->find_keys) return false;
    if (module_command_of(command)) return true;
    for (int i = 0; i < COMMAND_KEY_SPECS_MAX && spec->keys[i].flags; i++)
        if (spec->keys[i].flags & (KEY_VARIABLE_FLAGS | KEY_INCOMPLETE) || spec->keys[i].begin == BEGIN_UNKNOWN)
            return true;
    return false;
}
/* The key of the result comes last where the others are counted, as in ZUNIONSTORE. */
static void result_last(const struct command *command, struct key_position *positions, int count) {
    const struct key_spec *specs = command->spec->keys;
    if (command->spec->find_keys || count < 2 || specs[1].find != FIND_KEYNUM || specs[1].begin != BEGIN_INDEX) return;
    struct key_position result = positions[0];
    memmove(positions, positions + 1, (size_t)(count - 1) * sizeof *positions);
    positions[count - 1] = result;
}

int *api_GetCommandKeysWithFlags(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc, int *num_keys,
                                 int **out_flags) {
    (void)ctx;
    *num_keys = 0;
    if (out_flags) *out_flags = NULL;
    struct slice *arguments = mem_alloc((size_t)(argc > 0 ? argc : 1) * sizeof *arguments);
    for (int i = 0; i < argc; i++) arguments[i] = module_string_slice(argv[i]);
    const struct command *command = argc > 0 ? command_lookup(argc, arguments, NULL) : NULL;
    int *keys = NULL;
    errno = !command ? ENOENT : !command_arity_ok(command, argc) ? EINVAL : 0;
    if (!errno) {
        int max = argc * COMMAND_KEY_SPECS_MAX;
        struct key_position *positions = mem_alloc((size_t)max * sizeof *positions);
        int count = command_find_keys(command, argc, arguments, positions, max);
        if (count > 0) {
            result_last(command, positions, count);
            keys = mem_alloc((size_t)count * sizeof *keys);
            if (out_flags) *out_flags = mem_alloc((size_t)count * sizeof **out_flags);
            for (int i = 0; i < count; i++) {
                keys[i] = positions[i].index;
                if (out_flags) (*out_flags)[i] = tells_flags(command) ? (int)positions[i].flags : 0;
            }
            *num_keys = count;
        }
        mem_free(positions);
    }
    mem_free(arguments);
    return keys;
}
/* The indexes of the keys, which the module frees. NULL: there is none, and errno is 0, ENOENT or EINVAL. */
int *api_GetCommandKeys(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc, int *num_keys) {
    return api_GetCommandKeysWithFlags(ctx, argv, argc, num_keys, NULL);
}
