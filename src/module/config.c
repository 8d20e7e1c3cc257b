/* config.c: options of modules, named MODULE.OPTION.
 *
 * A module registers its options while OnLoad runs and then calls LoadConfigs, which gives them their first values:
 * those of MODULE LOADEX or of the configuration file if there are any, else the defaults. The file is read before any
 * module is loaded, so that its lines wait here. Each option is a row of the table of options whose value the module
 * keeps: CONFIG GET and SET call the module's functions. */
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "module/context.h"
#include "module/parts.h"
#include "server/config/config.h"
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* --- Values that wait for their options --- */

struct waiting_value {
    struct list_link link;
    int count; /* of the words after the name */
    char *words[];
};
static struct list waiting = LIST_INIT(waiting);

static void waiting_free(struct waiting_value *value) {
    list_remove(&waiting, &value->link);
    for (int i = 0; i <= value->count; i++) mem_free(value->words[i]);
    mem_free(value);
}
static struct waiting_value *waiting_find(const char *name) {
    list_each(&waiting, link) {
        struct waiting_value *value = container_of(link, struct waiting_value, link);
        if (slice_is(slice_of(value->words[0]), name)) return value;
    }
    return NULL;
}
/* A later value replaces an earlier one. */
static void waiting_add(int count, const struct slice *words) {
    struct waiting_value *value = mem_calloc(1, sizeof *value + (size_t)count * sizeof *value->words);
    value->count = count - 1;
    for (int i = 0; i < count; i++) value->words[i] = mem_strndup(words[i].data, words[i].len);
    struct waiting_value *earlier = waiting_find(value->words[0]);
    if (earlier) waiting_free(earlier);
    list_append(&waiting, &value->link);
}
static const char *waiting_line(int count, const struct slice *words) {
    if (count < 2) return "Module config specified without value";
    waiting_add(count, words);
    return NULL;
}

void module_configs_start(void) {
    config_set_late_options(waiting_line);
}
void module_configs_check_waiting(void) {
    if (!waiting.len) return;
    list_each(&waiting, link) {
        log_warning("Unused Module Configuration: %s", container_of(link, struct waiting_value, link)->words[0]);
    }
    log_warning("Module Configuration detected without loadmodule directive or no ApplyConfig call: aborting");
    exit(1);
}

/* --- An option --- */

struct module_config {
    struct list_link link; /* in module->configs */
    struct module *module;
    char *name, *full_name;
    struct config_option table[2];
    struct config_name *names; /* of an enumeration */
    bool is_unsigned;
    int64_t initial;
    char *initial_text;
    union {
        ValkeyModuleConfigGetBoolFunc get_bool;
        ValkeyModuleConfigGetEnumFunc get_enum;
        ValkeyModuleConfigGetNumericFunc get_numeric;
        ValkeyModuleConfigGetUnsignedNumericFunc get_unsigned;
        ValkeyModuleConfigGetStringFunc get_string;
    };
    union {
        ValkeyModuleConfigSetBoolFunc set_bool;
        ValkeyModuleConfigSetEnumFunc set_enum;
        ValkeyModuleConfigSetNumericFunc set_numeric;
        ValkeyModuleConfigSetUnsignedNumericFunc set_unsigned;
        ValkeyModuleConfigSetStringFunc set_string;
    };
    ValkeyModuleConfigApplyFunc apply;
    void *data;
};

static struct module_config *config_of(const struct config_option *option) {
    return container_of(option, struct module_config, table[0]);
}
/* The reason that a function of a module gives; NULL: none but its result. */
static const char *reason_of(int result, struct ValkeyModuleString *error) {
    const char *reason = NULL;
    if (result != VALKEYMODULE_OK) reason = error ? config_reason("%s", error->data) : "";
    if (error) module_string_release(error);
    return reason;
}
static const char *module_config_store(const struct config_option *option, int64_t number, struct slice text) {
    struct module_config *config = config_of(option);
    struct ValkeyModuleString *error = NULL;
    int result;
    switch (option->type) {
    case CONFIG_BOOL: result = config->set_bool(config->name, number != 0, config->data, &error); break;
    case CONFIG_ENUM:
    case CONFIG_FLAGS: result = config->set_enum(config->name, (int)number, config->data, &error); break;
    case CONFIG_STRING: {
        struct ValkeyModuleString *string = module_string_new(text);
        result = config->set_string(config->name, string, config->data, &error);
        module_string_release(string);
        break;
    }
    default:
        result = config->is_unsigned ? config->set_unsigned(config->name, (uint64_t)number, config->data, &error)
                                     : config->set_numeric(config->name, number, config->data, &error);
    }
    return reason_of(result, error);
}
static int64_t module_config_fetch(const struct config_option *option, struct output *text) {
    struct module_config *config = config_of(option);
    switch (option->type) {
    case CONFIG_BOOL: return config->get_bool(config->name, config->data);
    case CONFIG_ENUM:
    case CONFIG_FLAGS: return config->get_enum(config->name, config->data);
    case CONFIG_STRING: {
        struct ValkeyModuleString *string = config->get_string(config->name, config->data);
        if (text && string) output_write(text, module_string_slice(string));
        return 0;
    }
    default:
        return config->is_unsigned ? (int64_t)config->get_unsigned(config->name, config->data)
                                   : config->get_numeric(config->name, config->data);
    }
}
/* Options with the same function and data are applied once: the first of them stands for all. */
static const char *module_config_apply(void *context) {
    struct module_config *config = context;
    struct ValkeyModuleString *error = NULL;
    struct ValkeyModuleCtx ctx;
    context_init(&ctx, config->module);
    int result = config->apply(&ctx, config->data, &error);
    context_end(&ctx);
    return reason_of(result, error);
}

/* --- Registration --- */

static void module_config_free(struct module_config *config) {
    if (config->full_name) config_unregister(config->table);
    for (struct config_name *name = config->names; name && name->name; name++) mem_free((char *)(uintptr_t)name->name);
    mem_free(config->names);
    mem_free(config->name);
    mem_free(config->full_name);
    mem_free((char *)(uintptr_t)config->table[0].initial);
    mem_free(config->initial_text);
    mem_free(config);
}
void module_configs_drop(struct module *module) {
    list_each(&module->configs, link) {
        list_remove(&module->configs, link);
        module_config_free(container_of(link, struct module_config, link));
    }
}

static const struct {
    unsigned of_module;
    uint32_t flag;
} config_flags[] = {{VALKEYMODULE_CONFIG_IMMUTABLE, CONFIG_IMMUTABLE},
                    {VALKEYMODULE_CONFIG_SENSITIVE, CONFIG_SENSITIVE},
                    {VALKEYMODULE_CONFIG_HIDDEN, CONFIG_HIDDEN},
                    {VALKEYMODULE_CONFIG_PROTECTED, CONFIG_PROTECTED},
                    {VALKEYMODULE_CONFIG_DENY_LOADING, CONFIG_DENY_LOADING}};

static bool name_is_valid(const char *name) {
    if (!*name) return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && *name != '_' && *name != '-') return false;
    return true;
}
enum { FLAGS_OF_NUMBERS = VALKEYMODULE_CONFIG_MEMORY | VALKEYMODULE_CONFIG_UNSIGNED };
/* `of_type`: the flags that only some types have. */
static bool flags_are_valid(unsigned flags, unsigned of_type) {
    unsigned known = of_type;
    for (size_t i = 0; i < sizeof config_flags / sizeof *config_flags; i++) known |= config_flags[i].of_module;
    if (flags & FLAGS_OF_NUMBERS & ~of_type) {
        log_warning("Numeric flag provided for non-numeric configuration.");
        return false;
    }
    if (flags & VALKEYMODULE_CONFIG_BITFLAGS & ~of_type) {
        log_warning("Enum flag provided for non-enum configuration.");
        return false;
    }
    if (flags & ~known) {
        log_warning("Invalid flag(s) for configuration");
        return false;
    }
    return true;
}
/* NULL: refused, and errno says why. Otherwise the caller completes the option and calls config_add(). */
static struct module_config *config_new(ValkeyModuleCtx *ctx, const char *name, enum config_type type, unsigned flags,
                                        unsigned of_type, ValkeyModuleConfigApplyFunc apply, void *data) {
    struct module *module = ctx->module;
    if (!module->loading) {
        errno = EBUSY;
        return NULL;
    }
    errno = EINVAL;
    if (!flags_are_valid(flags, of_type)) return NULL;
    if (!name_is_valid(name)) {
        log_warning("Module config names must consist only of alphanumeric characters, underscores or dashes.");
        return NULL;
    }
    size_t size = strlen(module->name) + strlen(name) + 2;
    char *full_name = mem_alloc(size);
    snprintf(full_name, size, "%s.%s", module->name, name);
    if (config_find(slice_of(full_name))) {
        log_warning("Configuration by the name: %s already registered", full_name);
        mem_free(full_name);
        errno = EALREADY;
        return NULL;
    }
    errno = 0;
    struct module_config *config = mem_calloc(1, sizeof *config);
    config->module = module;
    config->name = mem_strdup(name);
    config->full_name = full_name;
    config->apply = apply;
    config->data = data;
    struct config_option *option = &config->table[0];
    option->name = full_name;
    option->type = type;
    option->store = module_config_store;
    option->fetch = module_config_fetch;
    for (size_t i = 0; i < sizeof config_flags / sizeof *config_flags; i++)
        if (flags & config_flags[i].of_module) option->flags |= config_flags[i].flag;
    if (apply) {
        struct module_config *first = config;
        list_each(&module->configs, link) {
            struct module_config *other = container_of(link, struct module_config, link);
            if (other->apply != apply || other->data != data) continue;
            first = other;
            break;
        }
        option->apply_with = module_config_apply;
        option->apply_context = first;
    }
    return config;
}
/* `text`: the default as CONFIG GET would show it. */
static int config_add(struct module_config *config, const char *text) {
    config->table[0].initial = mem_strdup(text);
    list_append(&config->module->configs, &config->link);
    config_register(config->table);
    return VALKEYMODULE_OK;
}

int api_RegisterBoolConfig(ValkeyModuleCtx *ctx, const char *name, int default_val, unsigned int flags,
                           ValkeyModuleConfigGetBoolFunc getfn, ValkeyModuleConfigSetBoolFunc setfn,
                           ValkeyModuleConfigApplyFunc applyfn, void *privdata) {
    struct module_config *config = config_new(ctx, name, CONFIG_BOOL, flags, 0, applyfn, privdata);
    if (!config) return VALKEYMODULE_ERR;
    config->get_bool = getfn;
    config->set_bool = setfn;
    config->initial = default_val != 0;
    return config_add(config, default_val ? "yes" : "no");
}

static int add_number(struct module_config *config, long long initial, long long min, long long max) {
    char text[NUMBER_TEXT_MAX + 1];
    text[format_int64(text, initial)] = 0;
    config->initial = initial;
    config->table[0].min = min;
    config->table[0].max = max;
    return config_add(config, text);
}
static enum config_type number_type(unsigned flags) {
    return flags & VALKEYMODULE_CONFIG_MEMORY ? CONFIG_MEMORY : CONFIG_INT64;
}
int api_RegisterNumericConfig(ValkeyModuleCtx *ctx, const char *name, long long default_val, unsigned int flags,
                              long long min, long long max, ValkeyModuleConfigGetNumericFunc getfn,
                              ValkeyModuleConfigSetNumericFunc setfn, ValkeyModuleConfigApplyFunc applyfn,
                              void *privdata) {
    struct module_config *config =
        config_new(ctx, name, number_type(flags), flags, FLAGS_OF_NUMBERS, applyfn, privdata);
    if (!config) return VALKEYMODULE_ERR;
    config->get_numeric = getfn;
    config->set_numeric = setfn;
    return add_number(config, default_val, min, max);
}
int api_RegisterUnsignedNumericConfig(ValkeyModuleCtx *ctx, const char *name, unsigned long long default_val,
                                      unsigned int flags, unsigned long long min, unsigned long long max,
                                      ValkeyModuleConfigGetUnsignedNumericFunc getfn,
                                      ValkeyModuleConfigSetUnsignedNumericFunc setfn,
                                      ValkeyModuleConfigApplyFunc applyfn, void *privdata) {
    struct module_config *config =
        config_new(ctx, name, number_type(flags), flags, FLAGS_OF_NUMBERS, applyfn, privdata);
    if (!config) return VALKEYMODULE_ERR;
    config->is_unsigned = true;
    config->get_unsigned = getfn;
    config->set_unsigned = setfn;
    config->table[0].flags |= CONFIG_UNSIGNED_LIMITS;
    return add_number(config, (long long)default_val, (long long)min, (long long)max);
}

int api_RegisterStringConfig(ValkeyModuleCtx *ctx, const char *name, const char *default_val, unsigned int flags,
                             ValkeyModuleConfigGetStringFunc getfn, ValkeyModuleConfigSetStringFunc setfn,
                             ValkeyModuleConfigApplyFunc applyfn, void *privdata) {
    struct module_config *config = config_new(ctx, name, CONFIG_STRING, flags, 0, applyfn, privdata);
    if (!config) return VALKEYMODULE_ERR;
    config->get_string = getfn;
    config->set_string = setfn;
    config->initial_text = mem_strdup(default_val ? default_val : "");
    return config_add(config, config->initial_text);
}

int api_RegisterEnumConfig(ValkeyModuleCtx *ctx, const char *name, int default_val, unsigned int flags,
                           const char **enum_values, const int *int_values, int num_enum_vals,
                           ValkeyModuleConfigGetEnumFunc getfn, ValkeyModuleConfigSetEnumFunc setfn,
                           ValkeyModuleConfigApplyFunc applyfn, void *privdata) {
    bool bits = flags & VALKEYMODULE_CONFIG_BITFLAGS;
    struct module_config *config = config_new(ctx, name, bits ? CONFIG_FLAGS : CONFIG_ENUM, flags,
                                              VALKEYMODULE_CONFIG_BITFLAGS, applyfn, privdata);
    if (!config) return VALKEYMODULE_ERR;
    config->get_enum = getfn;
    config->set_enum = setfn;
    config->initial = default_val;
    size_t count = num_enum_vals > 0 ? (size_t)num_enum_vals : 0;
    config->names = mem_calloc(count + 1, sizeof *config->names);
    for (size_t i = 0; i < count; i++)
        config->names[i] = (struct config_name){mem_strdup(enum_values[i]), int_values[i]};
    config->table[0].names = config->names;
    struct memory_output text;
    memory_output_init(&text);
    config_names_write(config->names, bits, default_val, &text.out);
    output_write(&text.out, (struct slice){"", 1});
    config_add(config, memory_output_slice(&text).data);
    memory_output_free(&text);
    return VALKEYMODULE_OK;
}

/* --- The first values --- */

void module_configs_begin(int options, const struct slice *pairs) {
    for (int i = 0; i < options; i++) waiting_add(2, pairs + 2 * i);
}

static bool config_take_waiting(struct module_config *config, struct waiting_value *value) {
    struct slice *words = mem_calloc((size_t)value->count, sizeof *words);
    for (int i = 0; i < value->count; i++) words[i] = slice_of(value->words[i + 1]);
    const char *reason = value->count == 1 ? config_assign_text(config->full_name, words[0])
                                           : config_assign(config->full_name, value->count, words);
    mem_free(words);
    waiting_free(value);
    if (reason) log_warning("Issue during loading of configuration %s : %s", config->full_name, reason);
    return !reason;
}
int api_LoadConfigs(ValkeyModuleCtx *ctx) {
    struct module *module = ctx->module;
    if (!module->loading) return VALKEYMODULE_ERR;
    module->configs_loaded = true;
    list_each(&module->configs, link) {
        struct module_config *config = container_of(link, struct module_config, link);
        struct waiting_value *value = waiting_find(config->full_name);
        if (value) {
            if (!config_take_waiting(config, value)) return VALKEYMODULE_ERR;
            continue;
        }
        struct slice text = config->initial_text ? slice_of(config->initial_text) : (struct slice){0};
        const char *reason = module_config_store(config->table, config->initial, text);
        if (!reason) continue;
        log_warning("Issue attempting to set default value of configuration %s : %s", config->name, reason);
        return VALKEYMODULE_ERR;
    }
    return VALKEYMODULE_OK;
}

void module_configs_forget(void) {
    list_each(&waiting, link) waiting_free(container_of(link, struct waiting_value, link));
}
bool module_configs_end(const struct module *module, int options) {
    bool unset = module->configs.len && !module->configs_loaded, unused = options && waiting.len;
    if (unset)
        log_warning("Module Configurations were not set, likely a missing LoadConfigs call. Unloading the module.");
    if (unused)
        log_warning("Loadex configurations were not applied, likely due to invalid arguments. Unloading the module.");
    return !unset && !unused;
}
