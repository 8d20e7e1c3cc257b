/* connection.c: names and violations. See connection.h. */
#include "net/rdma/connection.h"
#include "lib/system/clock.h"
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
    static _Thread_local uint64_t second, logged;
    char what[160], name[RDMA_NAME_MAX];
    va_list arguments;
    if (c->end_pending || c->finished) return;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    uint64_t now = clock_mono() / 1000000;
    if (now != second) second = now, logged = 0;
    if (logged++ < 20) { /* do not let hostile peers fill the disk */
        log_warning("RDMA: closing the connection of %s: protocol violation: %s", rdma_connection_name(c, name), what);
    }
    c->callbacks->failed(c, EPROTO, what);
}
