/* auth.c: see auth.h. The option requirepass sets the password of the default user (user.h), as ACL SETUSER does; the
 * option keeps the text, the user only its digest. */
#include "server/clients/auth.h"
#include "lib/system/memory.h"
#include "server/clients/client.h"
#include "server/clients/user.h"
#include "server/server_events.h"

static bool protected_mode;
static struct slice requirepass; /* allocated */
static uint64_t denied, denied_certificates, denials[USER_DENIED_CHANNEL + 1];

bool auth_required(void) {
    return (user_default.flags & (USER_NO_PASSWORD | USER_ENABLED)) != (USER_NO_PASSWORD | USER_ENABLED);
}
bool auth_has_password(void) {
    return !(user_default.flags & USER_NO_PASSWORD);
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
void auth_count_denial(enum user_denial denial) {
    denials[denial]++;
}
uint64_t auth_denials(enum user_denial denial) {
    return denials[denial];
}
void (*auth_user_changes)(struct client *client);
enum auth_answer (*auth_ask)(struct call *call, const struct slice *user, const struct slice *password);

static void login(struct client *client, struct user *user) {
    if (auth_user_changes) auth_user_changes(client);
    client->user = user;
    client->authenticated = true;
    client->flags |= CLIENT_KNOWN;
    if (client->conn) conn_set_trusted(client->conn, true);
}
static void auth_login_failed(struct client *client, struct slice name) {
    denied++;
    if (user_hooks) user_hooks->login_failed(client, name);
    struct authentication_event event = {client, name, NULL, false};
    server_event(EVENT_AUTHENTICATION, 0, &event);
}
void auth_denied_by_module(struct client *client, struct slice name, const char *module) {
    denied++;
    struct authentication_event event = {client, name, module, false};
    server_event(EVENT_AUTHENTICATION, 0, &event);
}
void auth_act_as(struct client *client, struct user *user, const char *module) {
    login(client, user);
    struct authentication_event event = {client, slice_of(user->name), module, true};
    server_event(EVENT_AUTHENTICATION, 0, &event);
}

bool auth_login(struct client *client, struct slice name, struct slice password) {
    struct user *user = user_find(name);
    if (!user || !user_accepts(user, password)) {
        auth_login_failed(client, name);
        return false;
    }
    auth_act_as(client, user, NULL);
    return true;
}

void auth_login_certificate(struct client *client, const char *names) {
    struct slice last = SLICE("");
    if (!names || !*names) return;
    for (; *names; names += strlen(names) + 1) {
        last = slice_of(names);
        struct user *user = user_find(last);
        if (!user || !(user->flags & USER_ENABLED)) continue;
        login(client, user);
        return;
    }
    denied_certificates++;
    if (user_hooks) user_hooks->certificate_denied(client, last);
}

const char *auth_protected_refusal(const struct connection *conn) {
    if (!protected_mode || auth_has_password() || conn_is_local(conn)) return NULL;
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

/* Setting the option to its current value keeps the passwords that ACL SETUSER has set. */
static const char *password_set(const struct config_option *option, int count, const struct slice *words) {
    struct slice password = count ? words[0] : SLICE("");
    if (requirepass.data && slice_equal(password, requirepass)) return NULL;
    char *copy = mem_strndup(password.len ? password.data : "", password.len);
    mem_free((char *)(uintptr_t)requirepass.data);
    requirepass = (struct slice){copy, password.len};
    user_clear_passwords(&user_default);
    if (!password.len) {
        user_default.flags |= USER_NO_PASSWORD;
        return NULL;
    }
    unsigned char digest[SHA256_SIZE];
    sha256_digest(password, digest);
    user_add_password(&user_default, digest);
    return NULL;
}

static void password_get(const struct config_option *option, struct output *out) {
    output_write(out, requirepass);
}

const struct config_option auth_options[] = {
    {OPTION("requirepass", CONFIG_CUSTOM, NULL, ""), .flags = CONFIG_SENSITIVE, .set = password_set,
     .get = password_get},
    {OPTION("protected-mode", CONFIG_BOOL, &protected_mode, "yes")},
    {.name = NULL},
};
