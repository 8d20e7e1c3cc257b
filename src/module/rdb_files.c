/* rdb_files.c: modules save the data set to a file, load one, and empty the data set. */
#include "lib/system/memory.h"
#include "module/context.h"
#include "persistence/aof.h"
#include "persistence/background_save.h"
#include "persistence/loading.h"
#include "persistence/snapshot.h"
#include "server/command/dispatch.h"
#include "server/process/child.h"
#include "server/role.h"
#include "server/server.h"
#include <errno.h>

/* So far only files. */
struct ValkeyModuleRdbStream {
    char *path;
};
ValkeyModuleRdbStream *api_RdbStreamCreateFromFile(const char *filename) {
    ValkeyModuleRdbStream *stream = mem_alloc(sizeof *stream);
    stream->path = mem_strdup(filename);
    return stream;
}
void api_RdbStreamFree(ValkeyModuleRdbStream *stream) {
    mem_free(stream->path);
    mem_free(stream);
}

/* Modules look at errno alone: it is 0 after a success. */
static int ended(int error) {
    errno = error;
    return error ? VALKEYMODULE_ERR : VALKEYMODULE_OK;
}

int api_RdbSave(ValkeyModuleCtx *ctx, ValkeyModuleRdbStream *stream, int flags) {
    if (!stream || flags) return ended(EINVAL);
    int error = snapshot_save_as(stream->path);
    return ended(error < 0 ? -error : 0);
}

/* Replicas, and the append-only file, get the data anew. */
int api_RdbLoad(ValkeyModuleCtx *ctx, ValkeyModuleRdbStream *stream, int flags) {
    if (!stream || flags) return ended(EINVAL);
    if (role_is_replica()) return ended(ENOTSUP);
    if (server_is_loading() || context_must_only_read() || context_is_within_another()) return ended(EBUSY);
    bool serves = ctx->flags & CONTEXT_COMMAND && dispatch_running();
    if (serves) context_hold_caller(ctx);
    int error = loading_read_rdb(stream->path, serves ? LOADING_SERVES : LOADING_BLOCKS, true, RDB_DUPLICATE_REFUSED);
    if (error == -ENOENT) return ended(ENOENT);
    loading_data_replaced();
    return ended(error < 0 ? EIO : 0);
}

void api_ResetDataset(int restart_aof, int async) {
    if (context_must_only_read() || server_is_loading() || context_is_within_another()) return;
    background_save_data_leaves();
    server_flush_all(async != 0);
    if (restart_aof) aof_restart();
}
