/* options.c: a module with an option of each type. Arguments of the load ask for other variants:
 *
 *   unloaded     does not call LoadConfigs
 *   early        calls LoadConfigs before an option is registered
 *   bad-default  registers an option whose default its set function refuses
 *   invalid      records how invalid registrations are refused; options.refusals replies with it
 *
 * options.calls replies with the calls of functions since the last time. */
#include "module/valkeymodule.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static int flag = 1, shared_flag, color = 1, bits = 3;
static long long number = 7, memory = 1024;
static unsigned long long large = 9;
static ValkeyModuleString *text;
static char calls[4096], refusals[2048];

static void note(char *list, size_t size, const char *what, const char *name, const char *value) {
    size_t len = strlen(list);
    snprintf(list + len, size - len, "%s%s:%s=%s", len ? " " : "", what, name, value);
}
static void note_number(const char *what, const char *name, long long value) {
    char digits[32];
    snprintf(digits, sizeof digits, "%lld", value);
    note(calls, sizeof calls, what, name, digits);
}

static int get_int(const char *name, void *data) {
    (void)name;
    return *(int *)data;
}
static int set_int(const char *name, int value, void *data, ValkeyModuleString **error) {
    (void)error;
    note_number("set", name, value);
    *(int *)data = value;
    return VALKEYMODULE_OK;
}
static long long get_number(const char *name, void *data) {
    (void)name;
    return *(long long *)data;
}
static int set_number(const char *name, long long value, void *data, ValkeyModuleString **error) {
    note_number("set", name, value);
    if (value == 13) {
        *error = ValkeyModule_CreateStringPrintf(NULL, "%lld is not for %s", value, name);
        return VALKEYMODULE_ERR;
    }
    if (value == 14) return VALKEYMODULE_ERR;
    *(long long *)data = value;
    return VALKEYMODULE_OK;
}
static unsigned long long get_unsigned(const char *name, void *data) {
    (void)name;
    return *(unsigned long long *)data;
}
static int set_unsigned(const char *name, unsigned long long value, void *data, ValkeyModuleString **error) {
    (void)error;
    note_number("set", name, (long long)value);
    *(unsigned long long *)data = value;
    return VALKEYMODULE_OK;
}
static ValkeyModuleString *get_text(const char *name, void *data) {
    (void)name, (void)data;
    return text;
}
static int set_text(const char *name, ValkeyModuleString *value, void *data, ValkeyModuleString **error) {
    (void)data;
    size_t len;
    const char *bytes = ValkeyModule_StringPtrLen(value, &len);
    note(calls, sizeof calls, "set", name, bytes);
    if (len == 6 && memcmp(bytes, "refuse", 6) == 0) {
        *error = ValkeyModule_CreateString(NULL, "the text is refused", 19);
        return VALKEYMODULE_ERR;
    }
    if (text) ValkeyModule_FreeString(NULL, text);
    ValkeyModule_RetainString(NULL, value);
    text = value;
    return VALKEYMODULE_OK;
}
static int apply(ValkeyModuleCtx *ctx, void *data, ValkeyModuleString **error) {
    (void)ctx, (void)data;
    note_number("apply", "flag", flag);
    if (flag && number == 99) {
        *error = ValkeyModule_CreateString(NULL, "not both", 8);
        return VALKEYMODULE_ERR;
    }
    return VALKEYMODULE_OK;
}
static int apply_text(ValkeyModuleCtx *ctx, void *data, ValkeyModuleString **error) {
    (void)ctx, (void)data;
    size_t len;
    const char *bytes = ValkeyModule_StringPtrLen(text, &len);
    note(calls, sizeof calls, "apply", "text", bytes);
    if (len == 5 && memcmp(bytes, "never", 5) == 0) {
        *error = ValkeyModule_CreateString(NULL, "text is never applied", 21);
        return VALKEYMODULE_ERR;
    }
    return VALKEYMODULE_OK;
}

static int calls_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    ValkeyModule_ReplyWithCString(ctx, calls);
    calls[0] = 0;
    return VALKEYMODULE_OK;
}
static int refusals_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    return ValkeyModule_ReplyWithCString(ctx, refusals);
}

static int register_flag(ValkeyModuleCtx *ctx, const char *name, unsigned flags) {
    return ValkeyModule_RegisterBoolConfig(ctx, name, 0, flags, get_int, set_int, NULL, &shared_flag);
}
/* Notes the result of a registration as NAME:RESULT=ERRNO. */
static void note_result(const char *name, int result) {
    char digits[32];
    snprintf(digits, sizeof digits, "%d", result == VALKEYMODULE_OK ? 0 : errno);
    note(refusals, sizeof refusals, name, result == VALKEYMODULE_OK ? "ok" : "error", digits);
}
/* After OnLoad everything is refused. */
static int late_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    refusals[0] = 0;
    errno = 0;
    note_result("late", register_flag(ctx, "late", 0));
    errno = 0;
    note_result("load", ValkeyModule_LoadConfigs(ctx));
    return ValkeyModule_ReplyWithCString(ctx, refusals);
}

static const char *colors[] = {"red", "green", "blue"};
static const int color_values[] = {1, 2, 4};
static const char *bit_names[] = {"none", "one", "two", "four"};
static const int bit_values[] = {0, 1, 2, 4};

#define NOTE_RESULT(name, call) (errno = 0, note_result(name, call))
static void register_invalid(ValkeyModuleCtx *ctx) {
    NOTE_RESULT("twice", register_flag(ctx, "flag", 0));
    NOTE_RESULT("name", register_flag(ctx, "a.b", 0));
    NOTE_RESULT("space", register_flag(ctx, "a b", 0));
    NOTE_RESULT("empty", register_flag(ctx, "", 0));
    NOTE_RESULT("dash", register_flag(ctx, "a-b_C9", 0));
    NOTE_RESULT("bitflags", register_flag(ctx, "e1", VALKEYMODULE_CONFIG_BITFLAGS));
    NOTE_RESULT("memory", register_flag(ctx, "e2", VALKEYMODULE_CONFIG_MEMORY));
    NOTE_RESULT("unsigned", register_flag(ctx, "e3", VALKEYMODULE_CONFIG_UNSIGNED));
    NOTE_RESULT("bit2", register_flag(ctx, "e4", 1 << 2));
    NOTE_RESULT("bit20", register_flag(ctx, "e5", 1 << 20));
    NOTE_RESULT("limits",
                ValkeyModule_RegisterNumericConfig(ctx, "e6", 5, 0, 10, 20, get_number, set_number, NULL, &memory));
    NOTE_RESULT("enum", ValkeyModule_RegisterEnumConfig(ctx, "e7", 3, 0, colors, color_values, 3, get_int, set_int,
                                                        NULL, &color));
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    if (ValkeyModule_Init(ctx, "options", 1, VALKEYMODULE_APIVER_1) != VALKEYMODULE_OK) return VALKEYMODULE_ERR;
    const char *variant = argc ? ValkeyModule_StringPtrLen(argv[0], NULL) : "";
    calls[0] = refusals[0] = 0;
    if (strcmp(variant, "early") == 0) note_result("early", ValkeyModule_LoadConfigs(ctx));
    int result =
        ValkeyModule_RegisterBoolConfig(ctx, "flag", 1, VALKEYMODULE_CONFIG_DEFAULT, get_int, set_int, apply, &flag);
    result |= ValkeyModule_RegisterNumericConfig(ctx, "number", 7, VALKEYMODULE_CONFIG_DEFAULT, -5, 2000, get_number,
                                                 set_number, apply, &number);
    result |= ValkeyModule_RegisterNumericConfig(ctx, "memory", 1024, VALKEYMODULE_CONFIG_MEMORY, 0, 3000000,
                                                 get_number, set_number, NULL, &memory);
    result |= ValkeyModule_RegisterUnsignedNumericConfig(ctx, "large", 1ULL << 63, 0, 5, ~0ULL, get_unsigned,
                                                         set_unsigned, NULL, &large);
    result |= ValkeyModule_RegisterStringConfig(ctx, "text", "secret password", VALKEYMODULE_CONFIG_DEFAULT, get_text,
                                                set_text, apply_text, NULL);
    result |= ValkeyModule_RegisterEnumConfig(ctx, "color", 1, VALKEYMODULE_CONFIG_DEFAULT, colors, color_values, 3,
                                              get_int, set_int, NULL, &color);
    result |= ValkeyModule_RegisterEnumConfig(ctx, "bits", 3, VALKEYMODULE_CONFIG_BITFLAGS, bit_names, bit_values, 4,
                                              get_int, set_int, NULL, &bits);
    result |= register_flag(ctx, "fixed", VALKEYMODULE_CONFIG_IMMUTABLE);
    result |= register_flag(ctx, "hidden", VALKEYMODULE_CONFIG_HIDDEN);
    result |= register_flag(ctx, "protected", VALKEYMODULE_CONFIG_PROTECTED);
    result |= register_flag(ctx, "no-loading", VALKEYMODULE_CONFIG_DENY_LOADING);
    result |= register_flag(ctx, "sensitive", VALKEYMODULE_CONFIG_SENSITIVE);
    if (strcmp(variant, "bad-default") == 0)
        result |= ValkeyModule_RegisterNumericConfig(ctx, "bad", 13, 0, 0, 100, get_number, set_number, NULL, &memory);
    if (strcmp(variant, "invalid") == 0) register_invalid(ctx);
    if (result != VALKEYMODULE_OK) return VALKEYMODULE_ERR;
    if (strcmp(variant, "unloaded") != 0 && ValkeyModule_LoadConfigs(ctx) != VALKEYMODULE_OK) {
        if (text) ValkeyModule_FreeString(ctx, text);
        text = NULL;
        return VALKEYMODULE_ERR;
    }
    result |= ValkeyModule_CreateCommand(ctx, "options.calls", calls_command, "", 0, 0, 0);
    result |= ValkeyModule_CreateCommand(ctx, "options.refusals", refusals_command, "", 0, 0, 0);
    result |= ValkeyModule_CreateCommand(ctx, "options.late", late_command, "", 0, 0, 0);
    return result;
}
int ValkeyModule_OnUnload(ValkeyModuleCtx *ctx) {
    if (text) ValkeyModule_FreeString(ctx, text);
    text = NULL;
    return VALKEYMODULE_OK;
}
