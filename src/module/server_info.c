/* server_info.c: GetServerInfo: modules read the fields of INFO. */
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "module/context.h"
#include "server/stats/info.h"

struct ValkeyModuleServerInfoData {
    struct memory_output text; /* what INFO writes */
};

ValkeyModuleServerInfoData *api_GetServerInfo(ValkeyModuleCtx *ctx, const char *section) {
    struct ValkeyModuleServerInfoData *data = mem_calloc(1, sizeof *data);
    memory_output_init(&data->text);
    struct slice name = section ? slice_of(section) : (struct slice){0};
    info_write(&data->text.out, section ? 1 : 0, &name, true);
    *output_reserve(&data->text.out, 1) = 0;
    context_keep(ctx, OBJECT_INFO, data);
    return data;
}
void api_FreeServerInfo(ValkeyModuleCtx *ctx, ValkeyModuleServerInfoData *data) {
    context_forget(ctx, OBJECT_INFO, data);
    memory_output_free(&data->text);
    mem_free(data);
}

/* The value of a field: the rest of a line "name:value". Lines end with two bytes, of which the first may be a NUL. */
static bool info_find(const ValkeyModuleServerInfoData *data, const char *field, struct slice *value) {
    struct slice text = memory_output_slice(&data->text);
    size_t len = strlen(field);
    for (size_t at = 0; at < text.len;) {
        const char *line = text.data + at, *end = memchr(line, '\n', text.len - at);
        size_t line_len = end && end > line ? (size_t)(end - line) - 1 : text.len - at;
        if (line_len > len && line[len] == ':' && memcmp(line, field, len) == 0) {
            *value = (struct slice){line + len + 1, line_len - len - 1};
            return true;
        }
        at += line_len + 2;
    }
    return false;
}
ValkeyModuleString *api_ServerInfoGetField(ValkeyModuleCtx *ctx, ValkeyModuleServerInfoData *data, const char *field) {
    struct slice value;
    return info_find(data, field, &value) ? context_string(ctx, value) : NULL;
}
/* The text ends where its line does: the line end is replaced. */
const char *api_ServerInfoGetFieldC(ValkeyModuleServerInfoData *data, const char *field) {
    struct slice value;
    if (!info_find(data, field, &value)) return NULL;
    ((char *)(uintptr_t)value.data)[value.len] = 0;
    return value.data;
}
static int info_error(int *out_err, bool failed) {
    if (out_err) *out_err = failed ? VALKEYMODULE_ERR : VALKEYMODULE_OK;
    return failed;
}
long long api_ServerInfoGetFieldSigned(ValkeyModuleServerInfoData *data, const char *field, int *out_err) {
    struct slice value;
    int64_t number = 0;
    info_error(out_err, !info_find(data, field, &value) || !parse_int64(value, &number));
    return number;
}
unsigned long long api_ServerInfoGetFieldUnsigned(ValkeyModuleServerInfoData *data, const char *field, int *out_err) {
    struct slice value;
    uint64_t number = 0;
    info_error(out_err, !info_find(data, field, &value) || !parse_uint64(value, &number));
    return number;
}
double api_ServerInfoGetFieldDouble(ValkeyModuleServerInfoData *data, const char *field, int *out_err) {
    struct slice value;
    double number = 0;
    info_error(out_err, !info_find(data, field, &value) || !parse_double(value, &number));
    return number;
}
