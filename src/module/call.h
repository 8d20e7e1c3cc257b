/* call.h: Call: a module calls a command of the server or of another module. */
#pragma once
#include "module/call_reply.h"
#include "module/context.h"

/* Arguments by a format (see api_Call()), as Call takes them. Passes them to `use`. False: malformed. */
bool call_arguments(const char *name, const char *fmt, va_list arguments,
                    void (*use)(void *context, int argc, const struct slice *argv), void *context);
/* Runs a command with flags VALKEYMODULE_CALL_ARGV_*. NULL: errno says why there is no reply; 0: it was only checked.
 */
struct ValkeyModuleCallReply *call_argv(struct ValkeyModuleCtx *ctx, int argc, struct ValkeyModuleString **argv,
                                        int flags);
/* The reply of a command that has blocked is freed. */
void call_promise_freed(struct ValkeyModuleCallReply *reply);
