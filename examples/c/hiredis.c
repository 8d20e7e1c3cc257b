/* hiredis.c: hiredis over RDMA, by its function table: blocking, and asynchronous in the event loop of libuv.
 *
 *     cc hiredis.c $(pkg-config --cflags --libs libvalkeyrdma hiredis libuv) -o hiredis && ./hiredis HOST PORT */
#include <err.h>
#include <hiredis/hiredis.h>

#include <hiredis/adapters/libuv.h>
#include <valkeyrdma_hiredis.h>

enum { REQUESTS = 2000, WINDOW = 50, LARGE = 4 * 1024 * 1024 };

static int sent, received, connects, disconnects, failures;

static void on_reply(redisAsyncContext *ac, void *answer, void *data);
static void request(redisAsyncContext *ac) {
    sent++;
    if (redisAsyncCommand(ac, on_reply, NULL, "ECHO %d", sent) != REDIS_OK) errx(1, "%s", ac->errstr);
}
static void on_reply(redisAsyncContext *ac, void *answer, void *data) {
    const redisReply *reply = answer;
    (void)data;
    if (!reply) return;
    if (reply->type != REDIS_REPLY_STRING || atoi(reply->str) != ++received) errx(1, "a wrong reply: %s", reply->str);
    if (sent < REQUESTS)
        request(ac);
    else if (received == REQUESTS)
        redisAsyncDisconnect(ac);
}
static void on_large(redisAsyncContext *ac, void *answer, void *data) {
    const redisReply *reply = answer;
    (void)ac, (void)data;
    if (!reply) errx(1, "no reply: %s", ac->errstr);
    if (reply->type != REDIS_REPLY_STRING || reply->len != LARGE) errx(1, "the large value is damaged");
    received = 0;
    for (int i = 0; i < WINDOW; i++) request(ac);
}
static void on_connect(const redisAsyncContext *ac, int status) {
    (void)ac;
    if (status == REDIS_OK)
        connects++;
    else
        failures++;
}
static void on_disconnect(const redisAsyncContext *ac, int status) {
    if (status != REDIS_OK && !failures) errx(1, "disconnected: %s", ac->errstr);
    disconnects++;
}

static redisAsyncContext *start(const char *host, int port, uv_loop_t *loop) {
    char error[VALKEYRDMA_ERROR_MAX];
    redisAsyncContext *ac = valkeyrdma_hiredis_async(host, port, NULL, 5000, error, sizeof error);
    if (!ac) errx(1, "%s", error);
    redisLibuvAttach(ac, loop);
    valkeyrdma_hiredis_attached(ac);
    redisAsyncSetConnectCallback(ac, on_connect);
    redisAsyncSetDisconnectCallback(ac, on_disconnect);
    return ac;
}

int main(int argc, char **argv) {
    char error[VALKEYRDMA_ERROR_MAX];
    if (argc != 3) errx(2, "usage: hiredis HOST PORT");
    redisContext *c = valkeyrdma_hiredis_connect(argv[1], atoi(argv[2]), NULL, 5000, error, sizeof error);
    if (!c) errx(1, "%s", error);
    redisReply *reply = redisCommand(c, "SET language C");
    if (!reply) errx(1, "%s", c->errstr);
    freeReplyObject(reply);
    for (int i = 0; i < 100; i++) redisAppendCommand(c, "INCR counter");
    for (int i = 0; i < 100; i++) {
        if (redisGetReply(c, (void **)&reply) != REDIS_OK) errx(1, "%s", c->errstr);
        freeReplyObject(reply);
    }
    char *large = calloc(1, LARGE);
    freeReplyObject(redisCommand(c, "SET large %b", large, (size_t)LARGE));
    valkeyrdma_hiredis_set_timeout(c, 20);
    reply = redisCommand(c, "BLPOP nothing 5");
    if (reply || c->err != REDIS_ERR_TIMEOUT) errx(1, "no timeout: %s", c->errstr);
    redisFree(c);

    uv_loop_t *loop = uv_default_loop();
    redisAsyncContext *ac = start(argv[1], atoi(argv[2]), loop);
    redisAsyncCommand(ac, NULL, NULL, "SET large %b", large, (size_t)LARGE);
    redisAsyncCommand(ac, on_large, NULL, "GET large");
    uv_run(loop, UV_RUN_DEFAULT);
    printf("hiredis: %d replies, %d connect, %d disconnect\n", received, connects, disconnects);
    if (received != REQUESTS || connects != 1 || disconnects != 1) return 1;

    start(argv[1], 1, loop); /* nothing listens there */
    uv_run(loop, UV_RUN_DEFAULT);
    if (failures != 1 || disconnects != 2) errx(1, "a failed connection was not reported");
    free(large);

    c = valkeyrdma_hiredis_connect(argv[1], atoi(argv[2]), NULL, 5000, error, sizeof error);
    if (!c) errx(1, "%s", error);
    reply = redisCommand(c, "CLIENT INFO");
    if (!reply) errx(1, "%s", c->errstr);
    printf("transport %s\n", strstr(reply->str, "transport=rdma") ? "rdma" : "unknown");
    freeReplyObject(reply);
    redisFree(c);
    return 0;
}
