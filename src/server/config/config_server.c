/* config_server.c: options that belong to no single feature: the log, the settings of the store, protection of
 * dangerous commands, the directory. */
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "server/config/config_engine.h"
#include "server/config/settings.h"
#include "server/server.h"
#include "store/keyspace.h"
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <syslog.h>
#include <unistd.h>

struct server_settings server_settings;
static char *log_file, *syslog_ident, *locale_collate;
static bool syslog_enabled, import_mode;
static int syslog_facility, log_format, log_timestamp, least_level;

static const char *apply_log_format(void) {
    log_set_format((enum log_format)log_format, (enum log_timestamp)log_timestamp);
    return NULL;
}
static const char *apply_log_level(void) {
    log_level = (enum log_level)least_level;
    return NULL;
}
static const char *apply_import_mode(void) {
    server_pause_deletion(DELETION_PAUSE_IMPORT, import_mode);
    return NULL;
}
static const char *apply_policy(void) {
    store_settings.lfu = server_settings.maxmemory_policy & POLICY_LFU;
    return NULL;
}
static const char *check_locale(const struct config_option *option, struct slice text) {
    locale_t locale = newlocale(LC_COLLATE_MASK, text.data, (locale_t)0);
    if (!locale) return "Invalid locale name";
    freelocale(locale);
    return NULL;
}
static const char *apply_locale(void) {
    return setlocale(LC_COLLATE, locale_collate) ? NULL : "Invalid locale name";
}

static const char *set_directory(const struct config_option *option, int count, const struct slice *words) {
    if (count != 1) return "wrong number of arguments";
    if (!words[0].len) return "dir can't be empty";
    char *path = mem_strndup(words[0].data, words[0].len);
    int result = chdir(path);
    mem_free(path);
    return result < 0 ? strerror(errno) : NULL;
}
static void get_directory(const struct config_option *option, struct output *out) {
    char path[4096];
    if (getcwd(path, sizeof path)) output_write(out, slice_of(path));
}

static const struct config_name log_levels[] = {{"debug", LOG_LEVEL_DEBUG},     {"verbose", LOG_LEVEL_VERBOSE},
                                                {"notice", LOG_LEVEL_NOTICE},   {"warning", LOG_LEVEL_WARNING},
                                                {"nothing", LOG_LEVEL_NOTHING}, {NULL, 0}};
static const struct config_name log_formats[] = {
    {"legacy", LOG_FORMAT_LEGACY}, {"logfmt", LOG_FORMAT_LOGFMT}, {"json", LOG_FORMAT_JSON}, {NULL, 0}};
static const struct config_name log_timestamps[] = {{"legacy", LOG_TIMESTAMP_LEGACY},
                                                    {"iso8601", LOG_TIMESTAMP_ISO8601},
                                                    {"milliseconds", LOG_TIMESTAMP_MILLISECONDS},
                                                    {NULL, 0}};
static const struct config_name facilities[] = {{"user", LOG_USER},     {"local0", LOG_LOCAL0},
                                                {"local1", LOG_LOCAL1}, {"local2", LOG_LOCAL2},
                                                {"local3", LOG_LOCAL3}, {"local4", LOG_LOCAL4},
                                                {"local5", LOG_LOCAL5}, {"local6", LOG_LOCAL6},
                                                {"local7", LOG_LOCAL7}, {NULL, 0}};
static const struct config_name policies[] = {{"volatile-lru", POLICY_VOLATILE_LRU},
                                              {"volatile-lfu", POLICY_VOLATILE_LFU},
                                              {"volatile-random", POLICY_VOLATILE_RANDOM},
                                              {"volatile-ttl", POLICY_VOLATILE_TTL},
                                              {"allkeys-lru", POLICY_ALLKEYS_LRU},
                                              {"allkeys-lfu", POLICY_ALLKEYS_LFU},
                                              {"allkeys-random", POLICY_ALLKEYS_RANDOM},
                                              {"noeviction", POLICY_NOEVICTION},
                                              {NULL, 0}};
static const struct config_name permissions[] = {
    {"no", PERMIT_NO}, {"yes", PERMIT_YES}, {"local", PERMIT_LOCAL}, {NULL, 0}};

const struct config_option config_options_server[] = {
    {OPTION("logfile", CONFIG_STRING, &log_file, ""), .flags = CONFIG_IMMUTABLE},
    {OPTION("loglevel", CONFIG_ENUM, &least_level, "notice"), .names = log_levels, .apply = apply_log_level},
    {OPTION("log-format", CONFIG_ENUM, &log_format, "legacy"), .names = log_formats, .apply = apply_log_format},
    {OPTION("log-timestamp-format", CONFIG_ENUM, &log_timestamp, "legacy"), .names = log_timestamps,
     .apply = apply_log_format},
    {OPTION("syslog-enabled", CONFIG_BOOL, &syslog_enabled, "no"), .flags = CONFIG_IMMUTABLE},
    {OPTION("syslog-ident", CONFIG_STRING, &syslog_ident, "valkey"), .flags = CONFIG_IMMUTABLE},
    {OPTION("syslog-facility", CONFIG_ENUM, &syslog_facility, "local0"), .flags = CONFIG_IMMUTABLE,
     .names = facilities},
    {OPTION("hide-user-data-from-log", CONFIG_BOOL, &server_settings.hide_user_data, "yes")},
    {OPTION("always-show-logo", CONFIG_BOOL, &server_settings.always_show_logo, "no"), .flags = CONFIG_IMMUTABLE},
    {OPTION("extended-redis-compatibility", CONFIG_BOOL, &server_settings.redis_names, "no")},
    {OPTION("crash-log-enabled", CONFIG_BOOL, &server_settings.crash_log, "yes")},
    {OPTION("crash-memcheck-enabled", CONFIG_BOOL, NULL, "yes"), .flags = CONFIG_NOT_BUILT},
    {OPTION("use-exit-on-panic", CONFIG_BOOL, &server_settings.exit_on_panic, "no"), .flags = CONFIG_HIDDEN},
    {OPTION("availability-zone", CONFIG_STRING, &server_settings.availability_zone, "")},

    {.name = "dir",
     .type = CONFIG_CUSTOM,
     .flags = CONFIG_PROTECTED | CONFIG_DENY_LOADING | CONFIG_WRITTEN,
     .set = set_directory,
     .get = get_directory},
    {OPTION("locale-collate", CONFIG_STRING, &locale_collate, ""), .check = check_locale, .apply = apply_locale},
    {OPTION("disable-thp", CONFIG_BOOL, &server_settings.disable_thp, "yes"), .flags = CONFIG_IMMUTABLE},

    {OPTION("enable-debug-command", CONFIG_ENUM, &server_settings.debug_command, "no"), .flags = CONFIG_IMMUTABLE,
     .names = permissions},
    {OPTION("enable-module-command", CONFIG_ENUM, &server_settings.module_command, "no"), .flags = CONFIG_IMMUTABLE,
     .names = permissions},
    {OPTION("enable-protected-configs", CONFIG_ENUM, &server_settings.protected_configs, "no"),
     .flags = CONFIG_IMMUTABLE, .names = permissions},
    {OPTION("enable-debug-assert", CONFIG_BOOL, &server_settings.debug_assert, "no"),
     .flags = CONFIG_IMMUTABLE | CONFIG_HIDDEN},

    {OPTION("lazyfree-lazy-eviction", CONFIG_BOOL, &store_settings.lazy_eviction, "yes")},
    {OPTION("lazyfree-lazy-expire", CONFIG_BOOL, &store_settings.lazy_expire, "yes")},
    {OPTION("lazyfree-lazy-server-del", CONFIG_BOOL, &store_settings.lazy_server_del, "yes")},
    {OPTION("lazyfree-lazy-user-del", CONFIG_BOOL, &store_settings.lazy_user_del, "yes")},
    {OPTION("lazyfree-lazy-user-flush", CONFIG_BOOL, &store_settings.lazy_user_flush, "yes")},
    {OPTION("import-mode", CONFIG_BOOL, &import_mode, "no"), .apply = apply_import_mode},
    {OPTION("active-expire-effort", CONFIG_INT, &store_settings.active_expire_effort, "1"), .min = 1, .max = 10},
    {OPTION("activerehashing", CONFIG_BOOL, &store_settings.active_rehashing, "yes")},
    {OPTION("lfu-log-factor", CONFIG_INT, &store_settings.lfu_log_factor, "10"), .min = 0, .max = INT32_MAX},
    {OPTION("lfu-decay-time", CONFIG_INT, &store_settings.lfu_decay_time, "1"), .min = 0, .max = INT32_MAX},
    {OPTION("maxmemory-policy", CONFIG_ENUM, &server_settings.maxmemory_policy, "noeviction"), .names = policies,
     .apply = apply_policy},
    {.name = NULL},
};

const char *maxmemory_policy_name(void) {
    const struct config_name *name = policies;
    while (name->name && name->value != server_settings.maxmemory_policy) name++;
    return name->name;
}
/* Transparent huge pages make a child's copies of changed pages expensive. If the system makes them only on advice
 * (madvise), nothing has to be done: only registered RDMA memory asks for them, no child inherits it, and it benefits
 * from them. If the system always makes them, Linux 6.18 can turn off all except those advised; older kernels turn off
 * all. */
static void leave_out_huge_pages(void) {
    char mode[128] = "";
    FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/enabled", "r");
    bool read = file && fgets(mode, sizeof mode, file);
    if (file) fclose(file);
    if (read && !strstr(mode, "[always]")) return;
#ifdef PR_SET_THP_DISABLE
    enum { EXCEPT_ADVISED = 2 }; /* PR_THP_DISABLE_EXCEPT_ADVISED in newer headers */
    if (prctl(PR_SET_THP_DISABLE, 1, EXCEPT_ADVISED, 0, 0) < 0) prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
#endif
}

void config_server_start(void) {
    apply_log_level();
    apply_log_format();
    apply_policy();
    int result = log_set_file(log_file);
    if (result < 0) config_fatal(config_reason("Can't open the log file: %s (%s)", strerror(-result), log_file));
    if (syslog_enabled) log_set_syslog(true, syslog_ident, syslog_facility);
    if (apply_locale()) log_warning("The locale '%s' of the environment cannot be used for collation", locale_collate);
    if (server_settings.disable_thp) leave_out_huge_pages();
}
