/* tls_options.c: see tls_options.h.
 *
 * Every change builds new contexts from all options, so a context never changes. If that fails, the old ones stay, and
 * the option gets its old value back. Outgoing connections have a context of their own: they use the client
 * certificate, or the server's if there is none, and always verify their peer.
 *
 * Once in tls-auto-reload-interval the server compares what stat() returns for the files. If a file has changed, a
 * background thread reads the files and parses the certificates. */
#include "server/config/tls_options.h"
#include "lib/system/background.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/socket.h"
#include "server/feature.h"
#include "server/stats/info.h"
#include "server/server.h"
#include "server/config/config.h"
#ifdef USE_TLS
#include "net/tls.h"
#endif
#include <string.h>
#include <sys/stat.h>

static char *cert_file, *key_file, *key_password, *client_cert_file, *client_key_file, *client_key_password, *dh_file,
    *ca_file, *ca_dir, *protocols, *ciphers, *ciphersuites;
static bool replication, cluster, prefer_server_ciphers, session_caching;
static int auth_clients, auth_user, cache_size, cache_timeout, reload_interval, handshake_timeout_ms;

/* The numbers are those of enum tls_auth and enum tls_names. */
static const struct config_name auths[] = {{"no", 0}, {"yes", 1}, {"optional", 2}, {NULL, 0}};
static const struct config_name users[] = {{"CN", 1}, {"URI", 2}, {"off", 0}, {NULL, 0}};

bool (*tls_listens)(void);
bool tls_for_replication(void) {
    return replication;
}
bool tls_for_cluster(void) {
    return cluster;
}
#ifdef USE_TLS

_Static_assert((int)TLS_AUTH_YES == 1 && (int)TLS_AUTH_OPTIONAL == 2, "");
_Static_assert((int)TLS_NAMES_CN == 1 && (int)TLS_NAMES_URI == 2, "");

const char *tls_option_check(const struct config_option *option, struct slice text) {
    return NULL;
}

static bool is_set(const char *text) {
    return text && text[0];
}

/* Building contexts. A background thread builds from copies of the texts. */

struct tls_plan {
    struct event_post post; /* must be first; to the main loop, when built in the background */
    struct tls_settings server, client;
    struct tls_context *server_context, *client_context;
    unsigned changes; /* of the options, when they were copied */
    char error[512];
    char *texts[16]; /* owned copies, that the settings point to */
    int count;
};

static const char *keep(struct tls_plan *plan, const char *text) {
    return is_set(text) ? plan->texts[plan->count++] = mem_strdup(text) : NULL;
}

static struct tls_plan *plan_new(void) {
    struct tls_plan *plan = mem_calloc(1, sizeof *plan);
    plan->server = (struct tls_settings){.cert_file = keep(plan, cert_file),
                                         .key_file = keep(plan, key_file),
                                         .key_password = keep(plan, key_password),
                                         .ca_file = keep(plan, ca_file),
                                         .ca_dir = keep(plan, ca_dir),
                                         .protocols = keep(plan, protocols),
                                         .ciphers = keep(plan, ciphers),
                                         .ciphersuites = keep(plan, ciphersuites),
                                         .dh_file = keep(plan, dh_file),
                                         .prefer_server_ciphers = prefer_server_ciphers,
                                         .session_caching = session_caching,
                                         .session_cache_size = cache_size,
                                         .session_cache_timeout = cache_timeout,
                                         .auth = (enum tls_auth)auth_clients};
    plan->client = plan->server;
    plan->client.dh_file = NULL;
    /* A certificate without its key, or the reverse, is not used yet: CONFIG SET may set one after the other. */
    if (is_set(client_cert_file) && is_set(client_key_file)) {
        plan->client.cert_file = keep(plan, client_cert_file);
        plan->client.key_file = keep(plan, client_key_file);
        plan->client.key_password = keep(plan, client_key_password);
    }
    /* With neither clients to verify nor servers to connect to, authorities are not needed. */
    if ((replication || cluster) && plan->server.auth == TLS_AUTH_NO && !plan->server.ca_file && !plan->server.ca_dir)
        plan->server.auth = TLS_AUTH_OPTIONAL; /* fails with the reason */
    plan->client.auth = plan->server.ca_file || plan->server.ca_dir ? TLS_AUTH_YES : TLS_AUTH_NO;
    return plan;
}

static bool plan_build(struct tls_plan *plan) {
    plan->server_context = tls_context_new(TLS_SERVER, &plan->server, plan->error, sizeof plan->error);
    if (plan->server_context)
        plan->client_context = tls_context_new(TLS_CLIENT, &plan->client, plan->error, sizeof plan->error);
    return plan->client_context != NULL;
}

static void plan_use(struct tls_plan *plan) {
    tls_use(TLS_SERVER, plan->server_context);
    tls_use(TLS_CLIENT, plan->client_context);
    plan->server_context = plan->client_context = NULL;
}

static void plan_free(struct tls_plan *plan) {
    tls_context_free(plan->server_context);
    tls_context_free(plan->client_context);
    for (int i = 0; i < plan->count; i++) {
        explicit_bzero(plan->texts[i], strlen(plan->texts[i])); /* passwords */
        mem_free(plan->texts[i]);
    }
    mem_free(plan);
}

/* --- Noticing changes --- */

struct trace {
    struct timespec modified, changed; /* changed: of the owner or the mode, also with a restored time */
    ino_t inode;
    off_t size;
};
enum { FILES = 7 };
static struct trace traces[FILES]; /* as of the contexts in use */
static int64_t looked_ms;
static bool configured, reloading;
static unsigned changes; /* of the options */

static void traces_take(struct trace taken[static FILES]) {
    const char *const files[FILES] = {cert_file, key_file, client_cert_file, client_key_file, ca_file, ca_dir, dh_file};
    memset(taken, 0, FILES * sizeof *taken);
    for (int i = 0; i < FILES; i++) {
        struct stat found;
        if (!is_set(files[i]) || stat(files[i], &found) < 0) continue;
        taken[i].modified = found.st_mtim;
        taken[i].changed = found.st_ctim;
        taken[i].inode = found.st_ino;
        taken[i].size = found.st_size;
    }
}

static void reload_finished(struct event_post *post) {
    struct tls_plan *plan = (struct tls_plan *)post;
    reloading = false;
    if (!plan->client_context) {
        log_warning("%s", plan->error);
        log_warning("Background TLS reload failed");
    } else if (plan->changes != changes) { /* newer contexts are in use, or none are needed any more */
        log_notice("TLS options have changed during the reload: the reloaded materials are not used");
    } else {
        plan_use(plan);
        log_notice("TLS materials reloaded successfully");
    }
    plan_free(plan);
}

static void reload_run(void *argument) {
    struct tls_plan *plan = argument;
    plan_build(plan);
    plan->post.run = reload_finished;
    event_loop_post(server.loop, &plan->post);
}

static void reload_cron(void) {
    if (!configured || !reload_interval || reloading) return;
    if (clock_mono_ms() - looked_ms < (int64_t)reload_interval * 1000) return;
    struct trace now[FILES];
    looked_ms = clock_mono_ms();
    traces_take(now);
    if (memcmp(now, traces, sizeof now) == 0) return;
    memcpy(traces, now, sizeof now);
    log_notice("TLS materials changed, reloading in background");
    reloading = true;
    struct tls_plan *plan = plan_new();
    plan->changes = changes;
    background_submit(BACKGROUND_LAZY_FREE, reload_run, plan);
}

static void reload_start(void) {
    event_loop_take_posts(server.loop);
}

/* --- Applying --- */

bool tls_options_apply(void) {
    socket_settings.handshake_timeout_ms = (uint32_t)handshake_timeout_ms;
    tls_set_peer_names((enum tls_names)auth_user);
    if (!(tls_listens && tls_listens()) && !replication && !cluster) {
        changes++;
        return true;
    }
    struct trace before[FILES]; /* a file that changes while it is read is read again */
    traces_take(before);
    struct tls_plan *plan = plan_new();
    bool built = plan_build(plan);
    if (built) {
        plan_use(plan);
        memcpy(traces, before, sizeof traces);
        changes++;
        looked_ms = clock_mono_ms();
        configured = true;
    } else {
        log_warning("%s", plan->error);
    }
    plan_free(plan);
    return built;
}

static void write_certificate(struct output *out, const char *name, const struct tls_certificate *certificate) {
    info_line(out, "tls_%s_cert_serial:%s", name, certificate->serial);
    info_line(out, "tls_%s_cert_expires_in_seconds:%lld", name, (long long)certificate->expires_in);
}

static void write_tls(struct output *out) {
    struct tls_certificates accepting, connecting, none = {{"none", 0}, {"none", 0}};
    tls_certificates(TLS_SERVER, &accepting);
    tls_certificates(TLS_CLIENT, &connecting);
    write_certificate(out, "server", &accepting.own);
    write_certificate(out, "client", is_set(client_cert_file) ? &connecting.own : &none.own);
    write_certificate(out, "ca", &accepting.ca);
    info_line(out, "tls_handshakes:%llu", (unsigned long long)tls_stats.handshakes);
    info_line(out, "tls_handshakes_resumed:%llu", (unsigned long long)tls_stats.resumed);
    info_line(out, "tls_handshakes_pending:%llu", (unsigned long long)socket_stats.handshakes);
    info_line(out, "tls_handshakes_failed:%llu", (unsigned long long)socket_stats.handshakes_failed);
    info_line(out, "tls_memory:%zu", mem_used_by_library(MEM_TLS));
}

#else /* built without TLS */

const char *tls_option_check(const struct config_option *option, struct slice text) {
    if (slice_equal(text, slice_of(option->initial))) return NULL;
    return "This build has no TLS";
}

bool tls_options_apply(void) {
    return true;
}

static void reload_cron(void) {}
static void reload_start(void) {}

static void write_tls(struct output *out) {
    static const char *const certificates[] = {"server", "client", "ca"};
    for (size_t i = 0; i < sizeof certificates / sizeof *certificates; i++)
        info_line(out, "tls_%s_cert_serial:none\r\ntls_%s_cert_expires_in_seconds:0", certificates[i], certificates[i]);
}

#endif

static const struct server_part tls_part = {.name = "tls", .start = reload_start, .cron = reload_cron};

static const struct info_section tls_sections[] = {
    {.name = "tls", .title = "TLS", .order = 15, .when = INFO_ALL_ONLY, .write = write_tls}, {.name = NULL}};

static const char *tls_option_apply(void) {
    return tls_options_apply() ? NULL : "Unable to update TLS configuration. Check server logs.";
}

/* clang-format off */
#define TEXT(option, variable) \
    {.name = option, .type = CONFIG_STRING, .value = &(variable), .initial = "", .apply = tls_option_apply}
#define FILE_NAME(option, variable) /* CONFIG SET with the same name reads the file again */ \
    {.name = option, .type = CONFIG_STRING, .flags = CONFIG_VOLATILE, .value = &(variable), .initial = "", \
     .apply = tls_option_apply}
#define SECRET(option, variable) \
    {.name = option, .type = CONFIG_STRING, .flags = CONFIG_SENSITIVE, .value = &(variable), .initial = "", \
     .apply = tls_option_apply}
#define SWITCH(option, variable, first) \
    {.name = option, .type = CONFIG_BOOL, .value = &(variable), .initial = first, .apply = tls_option_apply}
#define NUMBER(option, variable, first) \
    {.name = option, .type = CONFIG_INT, .value = &(variable), .initial = first, .min = 0, .max = INT32_MAX, \
     .apply = tls_option_apply}
/* clang-format on */
static const struct config_option tls_options[] = {
    FILE_NAME("tls-cert-file", cert_file),
    FILE_NAME("tls-key-file", key_file),
    SECRET("tls-key-file-pass", key_password),
    FILE_NAME("tls-client-cert-file", client_cert_file),
    FILE_NAME("tls-client-key-file", client_key_file),
    SECRET("tls-client-key-file-pass", client_key_password),
    FILE_NAME("tls-dh-params-file", dh_file),
    FILE_NAME("tls-ca-cert-file", ca_file),
    FILE_NAME("tls-ca-cert-dir", ca_dir),
    {OPTION("tls-auth-clients", CONFIG_ENUM, &auth_clients, "yes"), .names = auths, .apply = tls_option_apply},
    {OPTION("tls-auth-clients-user", CONFIG_ENUM, &auth_user, "off"), .names = users, .apply = tls_option_apply},
    {OPTION("tls-replication", CONFIG_BOOL, &replication, "no"), .check = tls_option_check, .apply = tls_option_apply},
    {OPTION("tls-cluster", CONFIG_BOOL, &cluster, "no"), .check = tls_option_check, .apply = tls_option_apply},
    TEXT("tls-protocols", protocols),
    TEXT("tls-ciphers", ciphers),
    TEXT("tls-ciphersuites", ciphersuites),
    SWITCH("tls-prefer-server-ciphers", prefer_server_ciphers, "no"),
    SWITCH("tls-session-caching", session_caching, "yes"),
    NUMBER("tls-session-cache-size", cache_size, "20480"),
    NUMBER("tls-session-cache-timeout", cache_timeout, "300"),
    NUMBER("tls-auto-reload-interval", reload_interval, "0"),
    {OPTION("tls-handshake-timeout-ms", CONFIG_INT, &handshake_timeout_ms, "10000"), .min = 1, .max = 3600000,
     .apply = tls_option_apply},
    {.name = NULL},
};

const struct feature tls_feature = {
    .name = "tls",
    .options = OPTIONS(tls_options),
    .sections = SECTIONS(tls_sections),
    .parts = PARTS(&tls_part),
};
