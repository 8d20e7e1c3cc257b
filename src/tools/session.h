/* session.h: one connection used in the blocking way: send a command, wait for its reply. */
#ifndef TOOLS_SESSION_H
#define TOOLS_SESSION_H
#include "resp/reply_reader.h"
#include "tools/endpoint.h"

struct session {
    struct event_loop *loop;
    struct connection *conn; /* NULL: not connected */
    struct reply_reader reader;
    char error[256];                /* why the last call failed */
    const volatile bool *interrupt; /* where not NULL: session_read gives up when it becomes true */
};

void session_init(struct session *s);
void session_free(struct session *s);
/* 0 or -errno, with s->error set. A connection that was there is closed. timeout_ms 0: none of ours. */
int session_connect(struct session *s, const struct endpoint *e, uint32_t timeout_ms);
void session_close(struct session *s);
bool session_is_open(const struct session *s); /* false as soon as the peer's end was seen and all it sent was read */
void session_send(struct session *s, int argc, const struct slice *argv);
/* The next reply (or push message), yours until the next call; NULL: s->error says why (the connection ended, time
 * over, not RESP). timeout_ms -1: as long as it takes. */
struct resp_value *session_read(struct session *s, int64_t timeout_ms);
struct resp_value *session_call(struct session *s, int argc, const struct slice *argv);
/* The same with words: SESSION_CALL(s, "CONFIG", "GET", "save"). */
struct resp_value *session_call_words(struct session *s, int count, const char *const *words);
#define SESSION_CALL(s, ...)                                                                                           \
    session_call_words((s), (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *)),                       \
                       (const char *[]){__VA_ARGS__})
/* AUTH, where the endpoint has a password. False: s->error is the server's answer or the failure. */
bool session_authenticate(struct session *s, const struct endpoint *e);
#endif
