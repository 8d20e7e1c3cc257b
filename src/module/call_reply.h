/* call_reply.h: ValkeyModuleCallReply: the reply of a command that a module has called, as a tree. */
#pragma once
#include "module/api.h"

struct call_promise;
struct ValkeyModuleCallReply {
    int type;           /* VALKEYMODULE_REPLY_* */
    bool root, resp3;   /* resp3: it, or an element of it, has a type that RESP2 lacks */
    struct slice proto; /* the bytes that the command wrote */
    struct slice text;  /* of strings, errors, big numbers */
    const char *format; /* of a verbatim string: three characters */
    long long integer;
    double number;
    size_t nodes; /* of children; a map has two for each pair */
    struct ValkeyModuleCallReply *children, *attribute;
    /* Of the root. */
    char *owned;
    struct ValkeyModuleCtx *ctx;
    struct call_promise *promise; /* the command has blocked */
};
/* Parses a whole reply; takes over `proto`, memory of mem_alloc(). `exact`: the types SIMPLE_STRING and ARRAY_NULL. */
struct ValkeyModuleCallReply *call_reply_parse(char *proto, size_t len, bool exact);
/* An error that no command has written; without '-' and CRLF. */
struct ValkeyModuleCallReply *call_reply_error(struct slice text);
/* Strings made of the reply and its elements belong to the context, which has AutoMemory. */
void call_reply_set_context(struct ValkeyModuleCallReply *reply, struct ValkeyModuleCtx *ctx);
struct slice call_reply_proto(const struct ValkeyModuleCallReply *reply);
bool call_reply_is_resp3(const struct ValkeyModuleCallReply *reply);
