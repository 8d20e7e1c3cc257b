/* info.c: sections of INFO that modules write, and the parts of a crash report that are like them.
 *
 * A section is named MODULE or MODULE_SECTION, and a field MODULE_FIELD. The server does not know the names before it
 * calls the module: a section that was not asked for is refused, and so are its fields. */
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "module/context.h"
#include "module/parts.h"
#include "server/stats/info.h"
#include <stdio.h>

struct ValkeyModuleInfoCtx {
    struct module *module;
    struct output *out;
    int count; /* of the names that are wanted; -1: all sections are */
    const struct slice *names;
    bool separate; /* something precedes the next section */
    bool in_section, in_dict, dict_has_fields;
};

/* The symbol is that of Valkey: people look for it in the stack of a crash report to learn whether a module crashed. */
void module_sections_write(struct module *module, struct output *out, int count, const struct slice *names,
                           bool *separate, bool for_crash_report) __asm__("modulesCollectInfo")
    __attribute__((noinline));
void module_sections_write(struct module *module, struct output *out, int count, const struct slice *names,
                           bool *separate, bool for_crash_report) {
    if (!module->write_info) return;
    struct ValkeyModuleInfoCtx ctx = {
        .module = module, .out = out, .count = count, .names = names, .separate = *separate};
    module->write_info(&ctx, for_crash_report);
    if (ctx.in_dict) api_InfoEndDictField(&ctx);
    *separate = ctx.separate;
}
/* Writes the sections with these names, or of modules with these names; all if `count` is -1. `separate`: something
 * precedes them. */
static void module_info_write(struct output *out, int count, const struct slice *names, bool separate) {
    list_each(modules_all(), link)
        module_sections_write(container_of(link, struct module, link), out, count, names, &separate, false);
}
int api_RegisterInfoFunc(ValkeyModuleCtx *ctx, ValkeyModuleInfoFunc cb) {
    ctx->module->write_info = cb;
    info_set_late_sections(module_info_write);
    return VALKEYMODULE_OK;
}
void module_info_write_crash(struct output *out) {
    bool separate = false;
    list_each(modules_all(), link)
        module_sections_write(container_of(link, struct module, link), out, -1, NULL, &separate, true);
}

static bool info_wants(const struct ValkeyModuleInfoCtx *ctx, const char *name) {
    if (ctx->count < 0) return true;
    for (int i = 0; i < ctx->count; i++)
        if (slice_is(ctx->names[i], name) || slice_is(ctx->names[i], ctx->module->name)) return true;
    return false;
}
int api_InfoAddSection(ValkeyModuleInfoCtx *ctx, const char *name) {
    char title[512];
    snprintf(title, sizeof title, name && *name ? "%s_%s" : "%s", ctx->module->name, name);
    if (ctx->in_dict) api_InfoEndDictField(ctx);
    ctx->in_section = info_wants(ctx, title);
    if (!ctx->in_section) return VALKEYMODULE_ERR;
    if (ctx->separate) output_write(ctx->out, SLICE("\r\n"));
    ctx->separate = true;
    output_write(ctx->out, SLICE("# "));
    output_write(ctx->out, slice_of(title));
    output_write(ctx->out, SLICE("\r\n"));
    return VALKEYMODULE_OK;
}

static void field_begin(ValkeyModuleInfoCtx *ctx, const char *name) {
    if (ctx->in_dict) {
        if (ctx->dict_has_fields) output_write(ctx->out, SLICE(","));
        ctx->dict_has_fields = true;
        output_write(ctx->out, slice_of(name));
        output_write(ctx->out, SLICE("="));
        return;
    }
    output_write(ctx->out, slice_of(ctx->module->name));
    output_write(ctx->out, SLICE("_"));
    output_write(ctx->out, slice_of(name));
    output_write(ctx->out, SLICE(":"));
}
/* As in Valkey, only this name may not contain what would end it. */
int api_InfoBeginDictField(ValkeyModuleInfoCtx *ctx, const char *name) {
    if (ctx->in_dict) api_InfoEndDictField(ctx);
    if (!ctx->in_section) return VALKEYMODULE_ERR;
    char *safe = mem_strdup(name);
    for (char *p = safe; *p; p++)
        if (strchr("#:\n\r", *p)) *p = '_';
    field_begin(ctx, safe);
    mem_free(safe);
    ctx->in_dict = true;
    ctx->dict_has_fields = false;
    return VALKEYMODULE_OK;
}
int api_InfoEndDictField(ValkeyModuleInfoCtx *ctx) {
    if (!ctx->in_dict) return VALKEYMODULE_ERR;
    output_write(ctx->out, SLICE("\r\n"));
    ctx->in_dict = false;
    return VALKEYMODULE_OK;
}

static int field_add(ValkeyModuleInfoCtx *ctx, const char *name, struct slice value) {
    if (!ctx->in_section) return VALKEYMODULE_ERR;
    field_begin(ctx, name);
    output_write(ctx->out, value);
    if (!ctx->in_dict) output_write(ctx->out, SLICE("\r\n"));
    return VALKEYMODULE_OK;
}
int api_InfoAddFieldString(ValkeyModuleInfoCtx *ctx, const char *field, ValkeyModuleString *value) {
    return field_add(ctx, field, module_string_slice(value));
}
int api_InfoAddFieldCString(ValkeyModuleInfoCtx *ctx, const char *field, const char *value) {
    return field_add(ctx, field, slice_of(value));
}
int api_InfoAddFieldDouble(ValkeyModuleInfoCtx *ctx, const char *field, double value) {
    char text[64];
    return field_add(ctx, field, (struct slice){text, (size_t)snprintf(text, sizeof text, "%.17g", value)});
}
int api_InfoAddFieldLongLong(ValkeyModuleInfoCtx *ctx, const char *field, long long value) {
    char text[NUMBER_TEXT_MAX];
    return field_add(ctx, field, (struct slice){text, format_int64(text, value)});
}
int api_InfoAddFieldULongLong(ValkeyModuleInfoCtx *ctx, const char *field, unsigned long long value) {
    char text[NUMBER_TEXT_MAX];
    return field_add(ctx, field, (struct slice){text, format_uint64(text, value)});
}
