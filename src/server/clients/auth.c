/* auth.c: see auth.h. There is one user, "default", whose password is requirepass. */
#include "server/clients/auth.h"
#include "lib/memory.h"
#include "server/clients/client.h"

static char *password;
static bool protected_mode;
static uint64_t denied;

bool auth_required(void) {
    return password[0] != 0;
}
bool auth_user_exists(struct slice user) {
    return slice_equal(user, SLICE("default"));
}
uint64_t auth_denied(void) {
    return denied;
}
void auth_reset_stats(void) {
    denied = 0;
}

/* Takes as long for a wrong password as for one that is nearly right. */
static bool password_is(struct slice given) {
    size_t len = strlen(password);
    unsigned difference = len != given.len;
    for (size_t i = 0; i < given.len; i++)
        difference |= (unsigned char)given.data[i] ^ (unsigned char)password[len ? i % len : 0];
    return difference == 0;
}

bool auth_login(struct client *client, struct slice user, struct slice given) {
    if (!auth_user_exists(user) || (auth_required() && !password_is(given))) {
        denied++;
        return false;
    }
    client->authenticated = true;
    if (client->conn) conn_set_trusted(client->conn, true);
    return true;
}

const char *auth_protected_refusal(const struct connection *conn) {
    if (!protected_mode || auth_required() || conn->transport->is_local(conn)) return NULL;
    return "DENIED Running in protected mode because protected mode is enabled and no password is set for the default "
           "user. In "
           "this mode connections are only accepted from the loopback interface. If you want to connect from external "
           "computers, you may adopt one of the following solutions: 1) Just disable protected mode sending the "
           "command "
           "'CONFIG SET protected-mode no' from the loopback interface by connecting from the same host the server is "
           "running, however MAKE SURE it's not publicly accessible from internet if you do so. Use CONFIG REWRITE to "
           "make "
           "this change permanent. 2) Alternatively you can just disable the protected mode by editing the "
           "configuration "
           "file, and setting the protected mode option to 'no', and then restarting the server. 3) If you started the "
           "server manually just for testing, restart it with the '--protected-mode no' option. 4) Set up an "
           "authentication "
           "password for the default user. NOTE: You only need to do one of the above things in order for the server "
           "to start "
           "accepting connections from the outside.";
}

const struct config_option auth_options[] = {
    {.name = "requirepass",
     .type = CONFIG_STRING,
     .flags = CONFIG_SENSITIVE,
     .value = &password,
     .initial = "",
     .help = "Password of the default user; empty: none is asked for."},
    {.name = "protected-mode",
     .type = CONFIG_BOOL,
     .value = &protected_mode,
     .initial = "yes",
     .help = "Turn away connections from other machines while the default user has no password."},
    {.name = NULL},
};
