/* blocking.c: requests over RDMA with libvalkeyrdma, and a reply that is parsed in place.
 *
 *     cc blocking.c $(pkg-config --cflags --libs libvalkeyrdma) -o blocking && ./blocking HOST PORT */
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valkeyrdma.h>

/* Waits for a line and returns it without its end, in place. The caller consumes `len` + 2 bytes. */
static const char *line(struct valkeyrdma *c, size_t *len) {
    for (size_t wanted = 1;;) {
        const void *bytes;
        ssize_t n = valkeyrdma_peek(c, &bytes, wanted, 5000);
        if (n <= 0) errx(1, "no reply: %s", n ? strerror((int)-n) : valkeyrdma_error_text(c));
        const char *end = memchr(bytes, '\n', (size_t)n);
        if (end) {
            *len = (size_t)(end - (const char *)bytes) - 1;
            return bytes;
        }
        if ((size_t)n < wanted) errx(1, "the server has closed the connection");
        wanted = (size_t)n + 1;
    }
}

static void call(struct valkeyrdma *c, const char *request) {
    size_t len;
    if (valkeyrdma_send(c, request, strlen(request), 5000) < 0) errx(1, "%s", valkeyrdma_error_text(c));
    const char *reply = line(c, &len);
    printf("%.*s\n", (int)len, reply);
    valkeyrdma_consume(c, len + 2);
}

int main(int argc, char **argv) {
    char error[VALKEYRDMA_ERROR_MAX], address[VALKEYRDMA_ADDRESS_MAX];
    if (argc != 3) errx(2, "usage: blocking HOST PORT");
    struct valkeyrdma *c = valkeyrdma_connect(NULL, argv[1], atoi(argv[2]), NULL, 5000, error, sizeof error);
    if (!c) errx(1, "%s", error);
    if (valkeyrdma_address(c, 1, address) == 0) printf("connected with %s\n", address);
    call(c, "PING\r\n");
    call(c, "SET example:c hello\r\n");
    call(c, "STRLEN example:c\r\n");
    call(c, "DEL example:c\r\n");
    valkeyrdma_close(c);
    return 0;
}
