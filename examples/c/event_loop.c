/* event_loop.c: libvalkeyrdma in the event loop of libuv. 20 connections share a context, whose descriptor the loop
 * watches; a timer shows that the loop serves others as well.
 *
 *     cc event_loop.c $(pkg-config --cflags --libs libvalkeyrdma libuv) -o event_loop && ./event_loop HOST PORT
 *
 * The rules (valkeyrdma.h, "Waiting elsewhere"): call valkeyrdma_context_process() when the descriptor is readable, and
 * once more before the loop waits again after other calls. Here a prepare handle does the latter. */
#include <err.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>
#include <valkeyrdma.h>

enum { CLIENTS = 20, REQUESTS = 500 };

struct client {
    struct valkeyrdma *c;
    int left;
    int open;
};
static struct client clients[CLIENTS];
static struct valkeyrdma_context *context;
static int busy = CLIENTS;
static unsigned long ticks;
static uv_poll_t poll_handle;
static uv_prepare_t prepare_handle;
static uv_timer_t timer_handle;

static void request(struct client *client) {
    if (valkeyrdma_send(client->c, "PING\r\n", 6, 0) != 6) errx(1, "sending: %s", valkeyrdma_error_text(client->c));
}

static void serve(struct client *client) {
    char reply[64];
    ssize_t n;
    if (!client->open) {
        if (valkeyrdma_connect_finish(client->c, 0) < 0) errx(1, "%s", valkeyrdma_error_text(client->c));
        client->open = 1;
        request(client);
    }
    while ((n = valkeyrdma_recv(client->c, reply, sizeof reply, 0)) > 0) {
        if (n != 7 || memcmp(reply, "+PONG\r\n", 7) != 0) errx(1, "a reply of %zd bytes is no PONG", n);
        if (--client->left > 0)
            request(client);
        else if (--busy == 0)
            uv_stop(uv_default_loop());
    }
    if (n != -EAGAIN) errx(1, "the connection has ended: %s", valkeyrdma_error_text(client->c));
}

static void serve_all(void) {
    struct valkeyrdma *c;
    while (valkeyrdma_context_process(context) == 1)
        while ((c = valkeyrdma_context_next(context))) serve(valkeyrdma_data(c));
}
static void on_readable(uv_poll_t *handle, int status, int events) {
    (void)handle, (void)status, (void)events;
    serve_all();
}
static void before_wait(uv_prepare_t *handle) {
    (void)handle;
    serve_all();
}
static void on_timer(uv_timer_t *handle) {
    (void)handle;
    ticks++;
}

int main(int argc, char **argv) {
    char error[VALKEYRDMA_ERROR_MAX];
    if (argc != 3) errx(2, "usage: event_loop HOST PORT");
    context = valkeyrdma_context_new(error, sizeof error);
    if (!context) errx(1, "%s", error);
    uv_loop_t *loop = uv_default_loop();
    uv_poll_init(loop, &poll_handle, valkeyrdma_context_fd(context));
    uv_poll_start(&poll_handle, UV_READABLE, on_readable);
    uv_prepare_init(loop, &prepare_handle);
    uv_prepare_start(&prepare_handle, before_wait);
    uv_timer_init(loop, &timer_handle);
    uv_timer_start(&timer_handle, on_timer, 1, 1);
    for (int i = 0; i < CLIENTS; i++) {
        struct valkeyrdma_options options = {.size = sizeof options, .data = &clients[i]};
        clients[i].left = REQUESTS;
        clients[i].c = valkeyrdma_connect_start(context, argv[1], atoi(argv[2]), &options, 5000, error, sizeof error);
        if (!clients[i].c) errx(1, "%s", error);
    }
    uv_run(loop, UV_RUN_DEFAULT);
    printf("%d clients, %d replies each; the timer ran %s\n", CLIENTS, REQUESTS, ticks ? "meanwhile" : "never");
    for (int i = 0; i < CLIENTS; i++) valkeyrdma_close(clients[i].c);
    valkeyrdma_context_free(context);
    return 0;
}
