/* persistence_options.c: the options of snapshots and loading. */
#include "formats/rdb.h"
#include "persistence/persistence.h"
#include "persistence/save_points.h"
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

const struct config_option persistence_options[] = {
    {.name = "save",
     .type = CONFIG_CUSTOM,
     .flags = CONFIG_MULTI_ARG | CONFIG_WRITTEN,
     .initial = "3600 1 300 100 60 10000",
     .set = save_points_set,
     .get = save_points_get,
     .rewrite = save_points_rewrite},
    {.name = "dbfilename",
     .type = CONFIG_STRING,
     .flags = CONFIG_PROTECTED,
     .value = &persistence_settings.file_name,
     .initial = "dump.rdb",
     .check = check_file_name},
    {.name = "rdbchecksum",
     .type = CONFIG_BOOL,
     .flags = CONFIG_IMMUTABLE,
     .value = &persistence_settings.checksum,
     .initial = "yes"},
    {.name = "rdb-save-incremental-fsync",
     .type = CONFIG_BOOL,
     .value = &persistence_settings.incremental_fsync,
     .initial = "yes"},
    {.name = "rdb-version-check",
     .type = CONFIG_ENUM,
     .value = &rdb_settings.version_check,
     .initial = "strict",
     .names = version_checks},
    {.name = "stop-writes-on-bgsave-error",
     .type = CONFIG_BOOL,
     .value = &persistence_settings.stop_writes_on_error,
     .initial = "yes"},
    {.name = "sanitize-dump-payload",
     .type = CONFIG_ENUM,
     .flags = CONFIG_HIDDEN, /* Valkey 9.1 does not list it */
     .value = &persistence_settings.sanitize,
     .initial = "no",
     .names = sanitize_levels},
    {.name = "rdb-key-save-delay",
     .type = CONFIG_INT,
     .flags = CONFIG_HIDDEN,
     .value = &persistence_settings.key_save_delay,
     .initial = "0",
     .min = INT32_MIN,
     .max = INT32_MAX},
    {.name = "key-load-delay",
     .type = CONFIG_INT,
     .flags = CONFIG_HIDDEN,
     .value = &persistence_settings.key_load_delay,
     .initial = "0",
     .min = INT32_MIN,
     .max = INT32_MAX},
    {.name = "loading-process-events-interval-bytes",
     .type = CONFIG_INT,
     .flags = CONFIG_HIDDEN,
     .value = &persistence_settings.loading_interval,
     .initial = "2097152",
     .min = 1024,
     .max = INT32_MAX},
    {.name = NULL},
};
