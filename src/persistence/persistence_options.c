/* persistence_options.c: the options of snapshots and loading. */
#include "formats/rdb.h"
#include "persistence/persistence.h"
#include "persistence/save_points.h"
#include "persistence/snapshot.h"
#include <string.h>

struct persistence_settings persistence_settings;

static const char *check_file_name(const struct config_option *option, struct slice text) {
    if (!text.len) return config_reason("%s can't be empty", option->name);
    return memchr(text.data, '/', text.len) || memchr(text.data, '\\', text.len)
               ? config_reason("%s can't be a path, just a filename", option->name)
               : NULL;
}

static const struct config_name version_checks[] = {
    {"strict", RDB_VERSION_STRICT}, {"relaxed", RDB_VERSION_RELAXED}, {NULL, 0}};
static const struct config_name sanitize_levels[] = {
    {"no", SANITIZE_NO}, {"yes", SANITIZE_YES}, {"clients", SANITIZE_CLIENTS}, {NULL, 0}};

/* Two options of Valkey 9.2 with one value each: no save forks. */
static int save_method;
static bool forkless_enabled;
static const struct config_name save_methods[] = {{"forkless", 0}, {NULL, 0}};

static const char *check_save_method(const struct config_option *option, struct slice text) {
    return slice_is(text, "fork") ? "This server saves without fork, which needs no memory for a second copy of the "
                                    "data: use forkless, or leave the option out"
                                  : NULL;
}
static const char *check_forkless_enabled(const struct config_option *option, struct slice text) {
    return slice_is(text, "no") ? "This server has no other way to save than without fork: use yes, or leave the "
                                  "option out"
                                : NULL;
}

const struct config_option persistence_options[] = {
    {.name = "save",
     .type = CONFIG_CUSTOM,
     .flags = CONFIG_MULTI_ARG | CONFIG_WRITTEN,
     .initial = "3600 1 300 100 60 10000",
     .set = save_points_set,
     .get = save_points_get,
     .rewrite = save_points_rewrite},
    {OPTION("dbfilename", CONFIG_STRING, &persistence_settings.file_name, "dump.rdb"), .flags = CONFIG_PROTECTED,
     .check = check_file_name},
    {OPTION("rdbchecksum", CONFIG_BOOL, &persistence_settings.checksum, "yes"), .flags = CONFIG_IMMUTABLE},
    {OPTION("rdb-save-incremental-fsync", CONFIG_BOOL, &persistence_settings.incremental_fsync, "yes")},
    {OPTION("rdb-version-check", CONFIG_ENUM, &rdb_settings.version_check, "strict"), .names = version_checks},
    {OPTION("stop-writes-on-bgsave-error", CONFIG_BOOL, &persistence_settings.stop_writes_on_error, "yes")},
    {.name = "sanitize-dump-payload",
     .type = CONFIG_ENUM,
     .flags = CONFIG_HIDDEN, /* Valkey 9.1 does not list it */
     .value = &persistence_settings.sanitize,
     .initial = "no",
     .names = sanitize_levels},
    {OPTION("rdb-key-save-delay", CONFIG_INT, &persistence_settings.key_save_delay, "0"), .flags = CONFIG_HIDDEN,
     .min = INT32_MIN, .max = INT32_MAX},
    {OPTION("key-load-delay", CONFIG_INT, &persistence_settings.key_load_delay, "0"), .flags = CONFIG_HIDDEN,
     .min = INT32_MIN, .max = INT32_MAX},
    {OPTION("loading-process-events-interval-bytes", CONFIG_INT, &persistence_settings.loading_interval, "2097152"),
     .flags = CONFIG_HIDDEN, .min = 1024, .max = INT32_MAX},
    /* Valkey 9.1 does not have the next two, nor any version the last. */
    {OPTION("bgsave-default-method", CONFIG_ENUM, &save_method, "forkless"), .flags = CONFIG_HIDDEN,
     .names = save_methods, .check = check_save_method},
    {OPTION("forkless-infrastructure-enabled", CONFIG_BOOL, &forkless_enabled, "yes"), .flags = CONFIG_HIDDEN,
     .check = check_forkless_enabled},
    {OPTION("forkless-buffer-limit", CONFIG_MEMORY, &persistence_settings.forkless_buffer_limit, "64mb"),
     .flags = CONFIG_HIDDEN, .min = 0, .max = INT64_MAX},
    {.name = NULL},
};
