/* types_io.c: how modules read and write their values: Save* and Load* for files and payloads, EmitAOF for commands.
 *
 * Each item has its kind in front (formats/rdb.h), so that a value can be skipped, and that a module which asks for
 * another kind is told. What a source says is not trusted: after the first failure every Load* returns a neutral value,
 * and the value that the module builds is thrown away. A module with VALKEYMODULE_OPTIONS_HANDLE_IO_ERRORS looks at
 * IsIOError(). One without it may loop for as long as a count says that it has read before; so after many such reads
 * the process ends. */
#include "formats/rdb.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "module/call.h"
#include "module/types.h"
#include "resp/request.h"
#include "server/command/command.h"
#include <endian.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum { READS_AFTER_FAILURE = 1 << 20, LONG_DOUBLE_TEXT = 64 };

struct ValkeyModuleIO {
    const struct ValkeyModuleType *type;
    struct rdb_reader *in; /* Load* */
    struct output *out;    /* Save*, EmitAOF */
    struct slice key;      /* data NULL: the data belong to no key */
    struct ValkeyModuleString *name;
    int db; /* -1: none */
    struct ValkeyModuleCtx *ctx;
    uint64_t began; /* offset in the source */
    unsigned reads_after_failure;
    bool emits, failed;
    bool head_due, after_keys; /* aux_save2: the record begins with the first item */
};

static struct ValkeyModuleIO io_of(const struct extension_type *extension, const struct extension_place *place) {
    struct ValkeyModuleIO io = {.type = module_type_of(extension), .db = place ? place->db : -1};
    if (place) io.key = place->key;
    return io;
}
static void io_end(struct ValkeyModuleIO *io) {
    if (io->name) module_string_release(io->name);
    if (!io->ctx) return;
    context_end(io->ctx);
    mem_free(io->ctx);
}

/* --- About the value --- */

int api_IsIOError(ValkeyModuleIO *io) {
    return io->failed || (io->in && io->in->source->failed);
}
const ValkeyModuleString *api_GetKeyNameFromIO(ValkeyModuleIO *io) {
    if (!io->name && io->key.data) io->name = module_string_new(io->key);
    return io->name;
}
int api_GetDbIdFromIO(ValkeyModuleIO *io) {
    return io->db;
}
ValkeyModuleCtx *api_GetContextFromIO(ValkeyModuleIO *io) {
    if (io->ctx) return io->ctx;
    io->ctx = mem_alloc(sizeof *io->ctx);
    context_init(io->ctx, io->type->module);
    return io->ctx;
}
void api_LogIOError(ValkeyModuleIO *io, const char *levelstr, const char *fmt, ...) {
    va_list arguments;
    va_start(arguments, fmt);
    module_log(io->type->module->name, levelstr, fmt, arguments);
    va_end(arguments);
}

/* --- Saving --- */

static struct output *item_begin(ValkeyModuleIO *io, enum rdb_item kind) {
    must(io->out && !io->emits);
    if (io->head_due) rdb_write_extension_aux(io->out, io->type->extension.id, io->after_keys);
    io->head_due = false;
    rdb_write_length(io->out, kind);
    return io->out;
}
void api_SaveUnsigned(ValkeyModuleIO *io, uint64_t value) {
    rdb_write_length(item_begin(io, RDB_ITEM_UNSIGNED), value);
}
void api_SaveSigned(ValkeyModuleIO *io, int64_t value) {
    api_SaveUnsigned(io, (uint64_t)value); /* as Valkey: nobody writes RDB_ITEM_SIGNED */
}
void api_SaveStringBuffer(ValkeyModuleIO *io, const char *str, size_t len) {
    rdb_write_string(item_begin(io, RDB_ITEM_STRING), (struct slice){str, len});
}
void api_SaveString(ValkeyModuleIO *io, ValkeyModuleString *s) {
    rdb_write_string(item_begin(io, RDB_ITEM_STRING), module_string_slice(s));
}
void api_SaveDouble(ValkeyModuleIO *io, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = htole64(bits);
    output_write(item_begin(io, RDB_ITEM_DOUBLE), slice_make(&bits, sizeof bits));
}
void api_SaveFloat(ValkeyModuleIO *io, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = htole32(bits);
    output_write(item_begin(io, RDB_ITEM_FLOAT), slice_make(&bits, sizeof bits));
}
void api_SaveLongDouble(ValkeyModuleIO *io, long double value) {
    char text[LONG_DOUBLE_TEXT];
    int len = snprintf(text, sizeof text, "%La", value);
    api_SaveStringBuffer(io, text, (size_t)len);
}

void module_type_write(const struct extension_type *extension, const struct extension_place *place, void *value,
                       struct output *out) {
    struct ValkeyModuleIO io = io_of(extension, place);
    io.out = out;
    if (io.type->methods.rdb_save) io.type->methods.rdb_save(&io, value);
    io_end(&io);
}
void module_type_write_aux(const struct extension_type *extension, bool after_keys, struct output *out) {
    const ValkeyModuleTypeMethods *methods = &module_type_of(extension)->methods;
    int when = after_keys ? VALKEYMODULE_AUX_AFTER_RDB : VALKEYMODULE_AUX_BEFORE_RDB;
    if (!(methods->aux_save_triggers & when) || (!methods->aux_save && !methods->aux_save2)) return;
    struct ValkeyModuleIO io = io_of(extension, NULL);
    io.out = out;
    io.after_keys = after_keys;
    io.head_due = methods->aux_save2 != NULL;
    if (!io.head_due) rdb_write_extension_aux(out, extension->id, after_keys);
    (methods->aux_save2 ? methods->aux_save2 : methods->aux_save)(&io, when);
    if (!io.head_due) rdb_write_length(out, RDB_ITEM_END);
    io_end(&io);
}

/* --- Loading --- */

static void read_after_failure(ValkeyModuleIO *io) {
    if (io->type->module->options & VALKEYMODULE_OPTIONS_HANDLE_IO_ERRORS) return;
    struct slice key = io->key.data ? io->key : SLICE("(no key)");
    unsigned long long bytes = source_offset(io->in->source) - io->began;
    if (io->reads_after_failure++ == 0)
        log_warning("Error loading data from RDB (short read or EOF). Read performed by module '%s' about type '%s' "
                    "after reading '%llu' bytes of a value for key named: '%.*s'.",
                    io->type->module->name, io->type->extension.name, bytes, key.len > 128 ? 128 : (int)key.len,
                    key.data);
    if (io->reads_after_failure < READS_AFTER_FAILURE) return;
    log_warning("The module '%s' goes on reading a value that has ended. Exiting.", io->type->module->name);
    exit(1);
}

/* False: there is no item of this kind, now or any more. */
static bool item_read(ValkeyModuleIO *io, enum rdb_item kind) {
    must(io->in);
    if (!io->in->source->failed && rdb_read_length(io->in) != kind && !io->in->source->failed)
        source_fail(io->in->source, -EINVAL, "A module's value has an item of another kind than the module expects");
    if (io->in->source->failed) read_after_failure(io);
    return !io->in->source->failed;
}
static bool bits_read(ValkeyModuleIO *io, enum rdb_item kind, void *bits, size_t len) {
    if (!item_read(io, kind)) return false;
    if (source_read(io->in->source, bits, len)) return true;
    read_after_failure(io);
    return false;
}

uint64_t api_LoadUnsigned(ValkeyModuleIO *io) {
    if (!item_read(io, RDB_ITEM_UNSIGNED)) return 0;
    uint64_t value = rdb_read_length(io->in);
    if (!io->in->source->failed) return value;
    read_after_failure(io);
    return 0;
}
int64_t api_LoadSigned(ValkeyModuleIO *io) {
    return (int64_t)api_LoadUnsigned(io);
}
double api_LoadDouble(ValkeyModuleIO *io) {
    uint64_t bits;
    double value;
    if (!bits_read(io, RDB_ITEM_DOUBLE, &bits, sizeof bits)) return 0;
    bits = le64toh(bits);
    memcpy(&value, &bits, sizeof value);
    return value;
}
float api_LoadFloat(ValkeyModuleIO *io) {
    uint32_t bits;
    float value;
    if (!bits_read(io, RDB_ITEM_FLOAT, &bits, sizeof bits)) return 0;
    bits = le32toh(bits);
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A module that handles errors gets NULL, another one an empty string. */
static bool handles_errors(const ValkeyModuleIO *io) {
    return io->type->module->options & VALKEYMODULE_OPTIONS_HANDLE_IO_ERRORS;
}
ValkeyModuleString *api_LoadString(ValkeyModuleIO *io) {
    struct slice text = SLICE("");
    if (item_read(io, RDB_ITEM_STRING) && !rdb_read_string(io->in, &io->in->first, &text)) read_after_failure(io);
    if (!io->in->source->failed) return module_string_new(text);
    return handles_errors(io) ? NULL : module_string_new(SLICE(""));
}
char *api_LoadStringBuffer(ValkeyModuleIO *io, size_t *lenptr) {
    size_t len = 0;
    char *block = NULL;
    if (item_read(io, RDB_ITEM_STRING) && !(block = (char *)rdb_read_block(io->in, &len))) read_after_failure(io);
    if (!block) len = 0;
    if (lenptr) *lenptr = len;
    return block || handles_errors(io) ? block : mem_calloc(1, 1);
}
long double api_LoadLongDouble(ValkeyModuleIO *io) {
    char text[LONG_DOUBLE_TEXT + 1], *end;
    size_t len;
    char *block = api_LoadStringBuffer(io, &len);
    long double value = 0;
    if (block && len && len <= LONG_DOUBLE_TEXT) {
        memcpy(text, block, len);
        text[len] = '\0';
        value = strtold(text, &end);
        if (end != text + len) len = 0;
    } else {
        len = 0;
    }
    mem_free(block);
    if (len) return value;
    source_fail(io->in->source, -EINVAL, "A module's value has a text that is not a number");
    return 0;
}

void *module_type_read(const struct extension_type *extension, const struct extension_place *place,
                       struct rdb_reader *in, int version) {
    struct ValkeyModuleIO io = io_of(extension, place);
    io.in = in;
    io.began = source_offset(in->source);
    void *value = io.type->methods.rdb_load ? io.type->methods.rdb_load(&io, version) : NULL;
    io_end(&io);
    return value;
}
bool module_type_read_aux(const struct extension_type *extension, struct rdb_reader *in, int version, uint64_t when) {
    struct ValkeyModuleIO io = io_of(extension, NULL);
    io.in = in;
    io.began = source_offset(in->source);
    bool loaded = io.type->methods.aux_load(&io, version, (int)when) == VALKEYMODULE_OK && !in->source->failed;
    io_end(&io);
    return loaded;
}

/* --- Values as strings, outside of keys --- */

void *api_LoadDataTypeFromStringEncver(const ValkeyModuleString *str, const ValkeyModuleType *mt, int encver) {
    struct source source;
    struct rdb_reader in;
    source_init_memory(&source, module_string_slice(str));
    rdb_reader_init(&in, &source);
    struct ValkeyModuleIO io = io_of(&mt->extension, NULL);
    io.in = &in;
    void *value = mt->methods.rdb_load ? mt->methods.rdb_load(&io, encver) : NULL;
    io_end(&io);
    rdb_reader_free(&in);
    source_free(&source);
    return value;
}
void *api_LoadDataTypeFromString(const ValkeyModuleString *str, const ValkeyModuleType *mt) {
    return api_LoadDataTypeFromStringEncver(str, mt, 0);
}
ValkeyModuleString *api_SaveDataTypeToString(ValkeyModuleCtx *ctx, void *data, const ValkeyModuleType *mt) {
    struct memory_output memory;
    memory_output_init(&memory);
    struct ValkeyModuleIO io = io_of(&mt->extension, NULL);
    io.out = &memory.out;
    if (mt->methods.rdb_save) mt->methods.rdb_save(&io, data);
    io_end(&io);
    struct ValkeyModuleString *string = module_string_new(memory_output_slice(&memory));
    memory_output_free(&memory);
    context_keep(ctx, OBJECT_STRING, string);
    return string;
}

/* --- Commands, for append-only files and the migration of slots --- */

static void emit(void *context, int argc, const struct slice *argv) {
    ValkeyModuleIO *io = context;
    struct command *parent;
    if (command_lookup(argc, argv, &parent)) {
        request_write(io->out, argc, argv);
        return;
    }
    log_warning("Fatal: AOF method for module data type '%s' tried to emit unknown command '%.*s'",
                io->type->extension.name, argv[0].len > 128 ? 128 : (int)argv[0].len, argv[0].data);
    io->failed = true;
    errno = EINVAL;
}
void api_EmitAOF(ValkeyModuleIO *io, const char *cmdname, const char *fmt, ...) {
    if (io->failed) return;
    must(io->out && io->emits);
    va_list arguments;
    va_start(arguments, fmt);
    bool valid = call_arguments(cmdname, fmt, arguments, emit, io);
    va_end(arguments);
    if (valid) return;
    log_warning("Fatal: AOF method for module data type '%s' tried to call ValkeyModule_EmitAOF() with wrong format "
                "specifiers '%s'",
                io->type->extension.name, fmt);
    io->failed = true;
    errno = EINVAL;
}
bool module_type_write_commands(const struct extension_type *extension, const struct extension_place *place,
                                void *value, struct output *out) {
    struct ValkeyModuleIO io = io_of(extension, place);
    io.out = out;
    io.emits = true;
    io.name = module_string_new(place->key);
    io.type->methods.aof_rewrite(&io, io.name, value);
    io_end(&io);
    return !io.failed;
}
