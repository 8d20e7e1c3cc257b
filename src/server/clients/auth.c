/* auth.c: see auth.h. The password of the default user (user.h) is the option requirepass. */
#include "server/clients/auth.h"
#include "lib/memory.h"
#include "server/clients/client.h"
#include "server/clients/user.h"

static bool protected_mode;
static uint64_t denied, denied_certificates;

bool auth_required(void) {
    return user_needs_password(&user_default);
}
bool auth_user_exists(struct slice user) {
    return user_find(user) != NULL;
}
uint64_t auth_denied(void) {
    return denied;
}
uint64_t auth_denied_certificates(void) {
    return denied_certificates;
}
void auth_reset_stats(void) {
    denied = denied_certificates = 0;
}

bool auth_login(struct client *client, struct slice name, struct slice password) {
    struct user *user = user_find(name);
    if (!user || !user_accepts(user, password)) {
        denied++;
        return false;
    }
    client->user = user;
    client->authenticated = true;
    if (client->conn) conn_set_trusted(client->conn, true);
    return true;
}

void auth_login_certificate(struct client *client, const char *names) {
    if (!names || !*names) return;
    for (; *names; names += strlen(names) + 1) {
        struct user *user = user_find(slice_of(names));
        if (!user || !(user->flags & USER_ENABLED)) continue;
        client->user = user;
        client->authenticated = true;
        if (client->conn) conn_set_trusted(client->conn, true);
        return;
    }
    denied_certificates++;
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
     .value = &user_default.password,
     .initial = "",
     .help = "Password of the default user; empty: none."},
    {.name = "protected-mode",
     .type = CONFIG_BOOL,
     .value = &protected_mode,
     .initial = "yes",
     .help = "Refuse connections from other machines while the default user has no password."},
    {.name = NULL},
};
