/* call_reply.c: see call_reply.h. The tree refers to the bytes of the reply, which the root owns. */
#include "module/call_reply.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/number.h"
#include "module/call.h"
#include "module/context.h"
#include <math.h>
#include <stdlib.h>

enum { DEPTH_MAX = 512 };

static bool line_end(struct slice input, size_t from, size_t *end) {
    const char *cr = from < input.len ? memchr(input.data + from, '\r', input.len - from) : NULL;
    if (!cr || (size_t)(cr - input.data) + 1 >= input.len) return false;
    *end = (size_t)(cr - input.data);
    return true;
}

/* Parses the reply at `from`. Returns the bytes used; 0: malformed, which no command of this server writes. */
static size_t reply_parse(struct ValkeyModuleCallReply *reply, struct slice input, bool exact, int depth);

static size_t children_parse(struct ValkeyModuleCallReply *reply, struct slice input, size_t at, size_t nodes,
                             bool exact, int depth) {
    if (depth > DEPTH_MAX || nodes > input.len) return 0;
    reply->children = mem_calloc(nodes ? nodes : 1, sizeof *reply->children);
    reply->nodes = nodes;
    for (size_t i = 0; i < nodes; i++) {
        struct slice rest = {input.data + at, input.len - at};
        size_t used = reply_parse(&reply->children[i], rest, exact, depth + 1);
        if (!used) return 0;
        at += used;
    }
    return at;
}

static size_t reply_parse(struct ValkeyModuleCallReply *reply, struct slice input, bool exact, int depth) {
    size_t end;
    if (!input.len || !line_end(input, 1, &end)) return 0;
    struct slice line = {input.data + 1, end - 1};
    size_t used = end + 2;
    int64_t number = 0;
    reply->type = VALKEYMODULE_REPLY_UNKNOWN;
    reply->text = line;
    switch (input.data[0]) {
    case '+': reply->type = exact ? VALKEYMODULE_REPLY_SIMPLE_STRING : VALKEYMODULE_REPLY_STRING; break;
    case '-': reply->type = VALKEYMODULE_REPLY_ERROR; break;
    case ':':
        reply->type = VALKEYMODULE_REPLY_INTEGER;
        if (!parse_int64(line, &number)) return 0;
        reply->integer = number;
        break;
    case '_': reply->type = VALKEYMODULE_REPLY_NULL; break;
    case '#':
        reply->type = VALKEYMODULE_REPLY_BOOL;
        reply->integer = slice_equal(line, SLICE("t"));
        break;
    case ',':
        reply->type = VALKEYMODULE_REPLY_DOUBLE;
        reply->number = slice_equal(line, SLICE("nan")) ? NAN : strtod(line.data, NULL);
        break;
    case '(': reply->type = VALKEYMODULE_REPLY_BIG_NUMBER; break;
    case '$':
    case '=':
    case '!':
        if (!parse_int64(line, &number)) return 0;
        if (number < 0) {
            reply->type = VALKEYMODULE_REPLY_NULL;
            break;
        }
        if ((size_t)number > input.len - used || input.len - used - (size_t)number < 2) return 0;
        reply->text = (struct slice){input.data + used, (size_t)number};
        used += (size_t)number + 2;
        reply->type = input.data[0] == '$'   ? VALKEYMODULE_REPLY_STRING
                      : input.data[0] == '=' ? VALKEYMODULE_REPLY_VERBATIM_STRING
                                             : VALKEYMODULE_REPLY_ERROR;
        if (input.data[0] == '=') {
            if (number < 4) return 0;
            reply->format = reply->text.data;
            reply->text = (struct slice){reply->text.data + 4, reply->text.len - 4};
        }
        break;
    case '*':
    case '~':
    case '>':
    case '%':
    case '|':
        if (!parse_int64(line, &number)) return 0;
        if (number < 0) {
            reply->type = exact ? VALKEYMODULE_REPLY_ARRAY_NULL : VALKEYMODULE_REPLY_NULL;
            break;
        }
        bool pairs = input.data[0] == '%' || input.data[0] == '|';
        reply->type = input.data[0] == '%'   ? VALKEYMODULE_REPLY_MAP
                      : input.data[0] == '|' ? VALKEYMODULE_REPLY_ATTRIBUTE
                      : input.data[0] == '~' ? VALKEYMODULE_REPLY_SET
                                             : VALKEYMODULE_REPLY_ARRAY;
        used = children_parse(reply, input, used, (size_t)number * (pairs ? 2 : 1), exact, depth);
        if (!used) return 0;
        break;
    default: return 0;
    }
    reply->proto = (struct slice){input.data, used};
    if (input.data[0] != '|') {
        reply->resp3 = strchr("_#,(=!~>%", input.data[0]) != NULL;
        for (size_t i = 0; i < reply->nodes; i++) reply->resp3 |= reply->children[i].resp3;
        return used;
    }
    /* An attribute describes the value that follows it. */
    struct ValkeyModuleCallReply *attribute = mem_alloc(sizeof *attribute);
    *attribute = *reply;
    attribute->root = false;
    attribute->owned = NULL;
    *reply = (struct ValkeyModuleCallReply){.root = reply->root, .owned = reply->owned};
    struct slice rest = {input.data + used, input.len - used};
    size_t more = reply_parse(reply, rest, exact, depth + 1);
    reply->attribute = attribute;
    reply->resp3 = true;
    reply->proto = (struct slice){input.data, used + more};
    return more ? used + more : 0;
}

static void reply_free_content(struct ValkeyModuleCallReply *reply) {
    for (size_t i = 0; i < reply->nodes; i++) reply_free_content(&reply->children[i]);
    mem_free(reply->children);
    if (reply->attribute) {
        reply_free_content(reply->attribute);
        mem_free(reply->attribute);
    }
}

struct ValkeyModuleCallReply *call_reply_parse(char *proto, size_t len, bool exact) {
    struct ValkeyModuleCallReply *reply = mem_calloc(1, sizeof *reply);
    reply->root = true;
    reply->owned = proto;
    size_t used = reply_parse(reply, (struct slice){proto, len}, exact, 0);
    if (!used) reply->type = VALKEYMODULE_REPLY_UNKNOWN;
    return reply;
}

struct ValkeyModuleCallReply *call_reply_error(struct slice text) {
    char *proto = mem_alloc(text.len + 4);
    proto[0] = '-';
    memcpy(proto + 1, text.data, text.len);
    memcpy(proto + 1 + text.len, "\r\n", 3);
    return call_reply_parse(proto, text.len + 3, false);
}

void call_reply_set_context(struct ValkeyModuleCallReply *reply, struct ValkeyModuleCtx *ctx) {
    reply->ctx = ctx;
    if (reply->attribute) call_reply_set_context(reply->attribute, ctx);
    for (size_t i = 0; i < reply->nodes; i++) call_reply_set_context(&reply->children[i], ctx);
}
struct slice call_reply_proto(const struct ValkeyModuleCallReply *reply) {
    return reply->proto;
}
bool call_reply_is_resp3(const struct ValkeyModuleCallReply *reply) {
    return reply->resp3;
}

/* --- What modules read. A NULL reply, and a question that does not fit the type, have an answer, too. --- */

void api_FreeCallReply(ValkeyModuleCallReply *reply) {
    if (!reply->root) return; /* elements are freed with the whole */
    if (reply->ctx) context_forget(reply->ctx, OBJECT_REPLY, reply);
    if (reply->promise) call_promise_freed(reply);
    reply_free_content(reply);
    mem_free(reply->owned);
    mem_free(reply);
}
int api_CallReplyType(ValkeyModuleCallReply *reply) {
    return reply ? reply->type : VALKEYMODULE_REPLY_UNKNOWN;
}
const char *api_CallReplyProto(ValkeyModuleCallReply *reply, size_t *len) {
    if (len) *len = reply->proto.len;
    return reply->proto.data;
}
size_t api_CallReplyLength(ValkeyModuleCallReply *reply) {
    if (!reply) return 0;
    switch (reply->type) {
    case VALKEYMODULE_REPLY_STRING: /* but 0 for a simple string, as in Valkey */
    case VALKEYMODULE_REPLY_ERROR: return reply->text.len;
    case VALKEYMODULE_REPLY_ARRAY:
    case VALKEYMODULE_REPLY_SET: return reply->nodes;
    case VALKEYMODULE_REPLY_MAP:
    case VALKEYMODULE_REPLY_ATTRIBUTE: return reply->nodes / 2;
    default: return 0;
    }
}
long long api_CallReplyInteger(ValkeyModuleCallReply *reply) {
    return reply && reply->type == VALKEYMODULE_REPLY_INTEGER ? reply->integer : INT64_MIN;
}
double api_CallReplyDouble(ValkeyModuleCallReply *reply) {
    return reply && reply->type == VALKEYMODULE_REPLY_DOUBLE ? reply->number : INT64_MIN;
}
int api_CallReplyBool(ValkeyModuleCallReply *reply) {
    return reply && reply->type == VALKEYMODULE_REPLY_BOOL ? (int)reply->integer : INT32_MIN;
}
static const char *text_of(ValkeyModuleCallReply *reply, int type, size_t *len) {
    if (!reply || reply->type != type) return NULL;
    if (len) *len = reply->text.len;
    return reply->text.data;
}
const char *api_CallReplyBigNumber(ValkeyModuleCallReply *reply, size_t *len) {
    return text_of(reply, VALKEYMODULE_REPLY_BIG_NUMBER, len);
}
const char *api_CallReplyVerbatim(ValkeyModuleCallReply *reply, size_t *len, const char **format) {
    const char *text = text_of(reply, VALKEYMODULE_REPLY_VERBATIM_STRING, len);
    if (text && format) *format = reply->format;
    return text;
}
const char *api_CallReplyStringPtr(ValkeyModuleCallReply *reply, size_t *len) {
    if (!reply) return NULL;
    switch (reply->type) {
    case VALKEYMODULE_REPLY_STRING:
    case VALKEYMODULE_REPLY_SIMPLE_STRING:
    case VALKEYMODULE_REPLY_ERROR: return text_of(reply, reply->type, len);
    default: return NULL;
    }
}
ValkeyModuleString *api_CreateStringFromCallReply(ValkeyModuleCallReply *reply) {
    if (!reply) return NULL;
    switch (reply->type) {
    case VALKEYMODULE_REPLY_STRING:
    case VALKEYMODULE_REPLY_SIMPLE_STRING:
    case VALKEYMODULE_REPLY_ERROR: return context_string(reply->ctx, reply->text);
    case VALKEYMODULE_REPLY_INTEGER: return api_CreateStringFromLongLong(reply->ctx, reply->integer);
    default: return NULL;
    }
}
static ValkeyModuleCallReply *element_of(ValkeyModuleCallReply *reply, int type, size_t idx) {
    return reply && reply->type == type && idx < reply->nodes ? &reply->children[idx] : NULL;
}
ValkeyModuleCallReply *api_CallReplyArrayElement(ValkeyModuleCallReply *reply, size_t idx) {
    return element_of(reply, VALKEYMODULE_REPLY_ARRAY, idx);
}
ValkeyModuleCallReply *api_CallReplySetElement(ValkeyModuleCallReply *reply, size_t idx) {
    return element_of(reply, VALKEYMODULE_REPLY_SET, idx);
}
static int pair_of(ValkeyModuleCallReply *reply, int type, size_t idx, ValkeyModuleCallReply **key,
                   ValkeyModuleCallReply **val) {
    if (idx > SIZE_MAX / 2 - 1 || !element_of(reply, type, 2 * idx + 1)) return VALKEYMODULE_ERR;
    if (key) *key = &reply->children[2 * idx];
    if (val) *val = &reply->children[2 * idx + 1];
    return VALKEYMODULE_OK;
}
int api_CallReplyMapElement(ValkeyModuleCallReply *reply, size_t idx, ValkeyModuleCallReply **key,
                            ValkeyModuleCallReply **val) {
    return pair_of(reply, VALKEYMODULE_REPLY_MAP, idx, key, val);
}
int api_CallReplyAttributeElement(ValkeyModuleCallReply *reply, size_t idx, ValkeyModuleCallReply **key,
                                  ValkeyModuleCallReply **val) {
    return pair_of(reply, VALKEYMODULE_REPLY_ATTRIBUTE, idx, key, val);
}
ValkeyModuleCallReply *api_CallReplyAttribute(ValkeyModuleCallReply *reply) {
    return reply ? reply->attribute : NULL;
}
