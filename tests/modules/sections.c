/* sections.c: a module with sections of INFO. sections.refused replies with how often the server refused a section or a
 * field since the module was loaded. */
#include "module/valkeymodule.h"

static long long refused;

static void count(int result) {
    if (result != VALKEYMODULE_OK) refused++;
}
static void write_info(ValkeyModuleInfoCtx *ctx, int for_crash_report) {
    count(ValkeyModule_InfoAddFieldLongLong(ctx, "before", 1)); /* in no section: always refused */
    if (ValkeyModule_InfoAddSection(ctx, "") == VALKEYMODULE_OK) {
        count(ValkeyModule_InfoAddFieldLongLong(ctx, "signed", -2));
        count(ValkeyModule_InfoAddFieldULongLong(ctx, "unsigned", 18446744073709551615ULL));
        count(ValkeyModule_InfoAddFieldDouble(ctx, "double", 0.25));
    }
    if (ValkeyModule_InfoAddSection(ctx, "texts") == VALKEYMODULE_OK) {
        ValkeyModuleString *string = ValkeyModule_CreateString(NULL, "a:b", 3);
        count(ValkeyModule_InfoAddFieldString(ctx, "string", string));
        ValkeyModule_FreeString(NULL, string);
        count(ValkeyModule_InfoAddFieldCString(ctx, "odd#name", "a:b,c=d"));
        count(ValkeyModule_InfoBeginDictField(ctx, "di:ct"));
        count(ValkeyModule_InfoAddFieldLongLong(ctx, "one", 1));
        count(ValkeyModule_InfoAddFieldCString(ctx, "two", "2,=3"));
        count(ValkeyModule_InfoBeginDictField(ctx, "other")); /* ends the one before */
        count(ValkeyModule_InfoAddFieldLongLong(ctx, "three", 3));
        count(ValkeyModule_InfoEndDictField(ctx));
        count(ValkeyModule_InfoEndDictField(ctx)); /* refused */
    }
    if (ValkeyModule_InfoAddSection(ctx, "Open") == VALKEYMODULE_OK) {
        count(ValkeyModule_InfoBeginDictField(ctx, "unfinished"));
        count(ValkeyModule_InfoAddFieldLongLong(ctx, "one", 1));
    }
    if (for_crash_report) {
        ValkeyModule_InfoAddSection(ctx, "crash");
        ValkeyModule_InfoAddFieldCString(ctx, "only", "in a crash report");
    }
}
static int refused_command(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    return ValkeyModule_ReplyWithLongLong(ctx, refused);
}

int ValkeyModule_OnLoad(ValkeyModuleCtx *ctx, ValkeyModuleString **argv, int argc) {
    (void)argv, (void)argc;
    if (ValkeyModule_Init(ctx, "sections", 7, VALKEYMODULE_APIVER_1) != VALKEYMODULE_OK) return VALKEYMODULE_ERR;
    if (ValkeyModule_RegisterInfoFunc(ctx, write_info) != VALKEYMODULE_OK) return VALKEYMODULE_ERR;
    ValkeyModule_GetSharedAPI(ctx, "watching_filtered"); /* of watching.c, if it is loaded */
    return ValkeyModule_CreateCommand(ctx, "sections.refused", refused_command, "", 0, 0, 0);
}
