/* session.h: a connection with blocking calls: send a command, wait for its reply. */
#pragma once
#include "resp/reply_reader.h"
#include "tools/endpoint.h"

struct session {
    struct event_loop *loop;
    struct connection *conn; /* NULL: not connected */
    struct reply_reader reader;
    char error[256];                /* reason of the last failure */
    const volatile bool *interrupt; /* if not NULL: session_read stops waiting when it becomes true */
};

void session_init(struct session *s);
void session_free(struct session *s);
/* Returns 0 or a negative errno and sets s->error. Closes an existing connection first. timeout_ms 0: the default. */
int session_connect(struct session *s, const struct endpoint *e, uint32_t timeout_ms);
void session_close(struct session *s);
bool session_is_open(const struct session *s); /* false when the server has closed it and all data was read */
void session_send(struct session *s, int argc, const struct slice *argv);
/* Returns the next reply (or push message), valid until the next call. NULL: s->error has the reason (end of
 * connection, timeout, not RESP). timeout_ms -1: no limit. */
struct resp_value *session_read(struct session *s, int64_t timeout_ms);
struct resp_value *session_call(struct session *s, int argc, const struct slice *argv);
/* The same with C strings: SESSION_CALL(s, "CONFIG", "GET", "save"). */
struct resp_value *session_call_words(struct session *s, int count, const char *const *words);
#define SESSION_CALL(s, ...)                                                                                           \
    session_call_words((s), (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(const char *)),                       \
                       (const char *[]){__VA_ARGS__})
/* Sends AUTH if the endpoint has a password. False: s->error has the server's error or the reason. */
bool session_authenticate(struct session *s, const struct endpoint *e);
