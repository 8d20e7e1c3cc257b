/* connection.c: names and violations. See connection.h. */
#include "net/rdma/connection.h"
#include "lib/system/log.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

const char *rdma_connection_name(const struct rdma_connection *c, char name[static RDMA_NAME_MAX]) {
    char device[RDMA_NAME_MAX];
    snprintf(name, RDMA_NAME_MAX, "%s (%.160s)", c->target, rdma_device_text(c->qp.id, device));
    return name;
}

void rdma_violation(struct rdma_connection *c, const char *format, ...) {
    static _Thread_local struct log_limit limit = {.interval_us = 1000000, .lines = 20};
    char what[160], name[RDMA_NAME_MAX];
    va_list arguments;
    if (c->end_pending || c->finished) return;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    /* Hostile peers must not fill the disk. */
    log_limited(&limit, LOG_LEVEL_WARNING, "RDMA: closing the connection of %s: protocol violation: %s",
                rdma_connection_name(c, name), what);
    c->callbacks->failed(c, EPROTO, what);
}
