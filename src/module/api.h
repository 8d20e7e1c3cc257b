/* api.h: the functions that modules call. For the files of module/ only.
 *
 * The list in valkeymodule.h is the only one: here it becomes a prototype `api_NAME` for each function. A file of this
 * directory that implements a group of functions defines them under these names, so the compiler compares each
 * definition with what modules are compiled against, and the linker finds each name that has no definition. */
#pragma once
#define VALKEYMODULE_CORE
#include "lib/text/slice.h"
#include "module/valkeymodule.h"
#include <stdarg.h>

/* The linker knows each function by the name VM_name, as in Valkey: modules may also refer to it by that symbol. */
#define API_PROTOTYPE_(result, name, arguments) result api_##name arguments __asm__("VM_" #name);
VALKEYMODULE_FUNCTIONS(API_PROTOTYPE_)
/* These have a symbol and no name for GetApi, which is how Valkey 9.1 has them. */
API_PROTOTYPE_(int, CallArgv,
               (ValkeyModuleCtx * ctx, ValkeyModuleString **argv, int argc, int flags,
                const ValkeyModuleReplyHandlers *resp_handlers, void *reply_ctx))
API_PROTOTYPE_(int, CallArgvAbort, (ValkeyModuleCallArgvBlockedHandle * handle))
API_PROTOTYPE_(int, ReplyRaw, (ValkeyModuleCtx * ctx, const char *proto, size_t proto_len))
#undef API_PROTOTYPE_

struct module;
/* What a module gets for a name, with the prefix ValkeyModule_ or RedisModule_. NULL: unknown. */
void *api_find(const char *name);
