/* auth.h: authentication: the password of the default user (requirepass), and protected mode. */
#pragma once
#include "lib/text/slice.h"
#include "net/connection.h"
#include "server/clients/user.h"
#include "server/config/config.h"

struct client;
extern const struct config_option auth_options[];
bool auth_required(void);     /* a new client must authenticate first */
bool auth_has_password(void); /* the default user does not accept every password */
/* Authenticates the client as `user` without replying. Returns false for a wrong name or password, and counts it. */
bool auth_login(struct client *client, struct slice user, struct slice password);
/* The client acts as the user from now on. `module`: that has decided it; NULL: the server. */
void auth_act_as(struct client *client, struct user *user, const char *module);
void auth_denied_by_module(struct client *client, struct slice name,
                           const char *module); /* the same, but for the log */
/* A client that is about to act as another user. NULL: nobody wants to know. */
extern void (*auth_user_changes)(struct client *client);
/* Asked by AUTH and HELLO before the server looks at the password. NULL: nobody is asked. AUTH_REFUSED, AUTH_WAITS:
 * the reply was written, or comes later: the command is then called again. */
enum auth_answer { AUTH_NOT_HANDLED, AUTH_GRANTED, AUTH_REFUSED, AUTH_WAITS };
struct call;
extern enum auth_answer (*auth_ask)(struct call *call, const struct slice *user, const struct slice *password);
bool auth_user_exists(struct slice user);
/* Finds the first of the certificate's names (conn_peer_names()) that is the name of an enabled user; the client acts
 * as this user. Without one, the client is treated as a client without a certificate, and the certificate is counted.
 */
void auth_login_certificate(struct client *client, const char *names);
uint64_t auth_denied(void);              /* failed logins */
uint64_t auth_denied_certificates(void); /* certificates without a user */
/* Commands that users were denied, by enum user_denial. */
void auth_count_denial(enum user_denial denial);
uint64_t auth_denials(enum user_denial denial);
/* The error text with which protected mode refuses a connection, NULL if the connection is accepted. */
const char *auth_protected_refusal(const struct connection *conn);
