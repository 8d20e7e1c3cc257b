/* element_reply.h: replies with an element of a set, a list or a sorted set. */
#pragma once
#include "lib/structures/listpack.h"
#include "resp/reply.h"

static inline void reply_element(struct reply *reply, const struct listpack_value *element) {
    if (element->data)
        reply_bulk(reply, (struct slice){element->data, element->len});
    else
        reply_bulk_integer(reply, element->number);
}
