/* durability_options.c: the options of snapshots and loading. */
#include "durability/durability.h"
#include "durability/save_points.h"
#include <string.h>

struct durability_settings durability_settings;

static const char *check_file_name(const struct config_option *option, struct slice text) {
    if (!text.len) return config_reason("%s can't be empty", option->name);
    return memchr(text.data, '/', text.len) ? config_reason("%s can't be a path, just a filename", option->name) : NULL;
}

static const struct config_name version_checks[] = {
    {"strict", VERSION_CHECK_STRICT}, {"relaxed", VERSION_CHECK_RELAXED}, {NULL, 0}};
static const struct config_name sanitize_levels[] = {
    {"no", SANITIZE_NO}, {"yes", SANITIZE_YES}, {"clients", SANITIZE_CLIENTS}, {NULL, 0}};

const struct config_option durability_options[] = {
    {.name = "save",
     .type = CONFIG_CUSTOM,
     .flags = CONFIG_MULTI_ARG,
     .initial = "3600 1 300 100 60 10000",
     .set = save_points_set,
     .get = save_points_get,
     .help = "Pairs of seconds and changes after which the data is saved; empty: never."},
    {.name = "dbfilename",
     .type = CONFIG_STRING,
     .flags = CONFIG_PROTECTED,
     .value = &durability_settings.file_name,
     .initial = "dump.rdb",
     .check = check_file_name,
     .help = "Name of the RDB file in the working directory."},
    {.name = "rdbchecksum",
     .type = CONFIG_BOOL,
     .flags = CONFIG_IMMUTABLE,
     .value = &durability_settings.checksum,
     .initial = "yes",
     .help = "Whether RDB files have a checksum, and whether it is verified."},
    {.name = "rdb-save-incremental-fsync",
     .type = CONFIG_BOOL,
     .value = &durability_settings.incremental_fsync,
     .initial = "yes",
     .help = "Bring an RDB file to the disk 4 MB at a time while it is written."},
    {.name = "rdb-version-check",
     .type = CONFIG_ENUM,
     .value = &durability_settings.version_check,
     .initial = "strict",
     .names = version_checks,
     .help = "Whether RDB files of unknown versions are refused or tried."},
    {.name = "stop-writes-on-bgsave-error",
     .type = CONFIG_BOOL,
     .value = &durability_settings.stop_writes_on_error,
     .initial = "yes",
     .help = "Refuse commands that write after a background save failed."},
    {.name = "sanitize-dump-payload",
     .type = CONFIG_ENUM,
     .flags = CONFIG_HIDDEN, /* Valkey 9.1 does not list it */
     .value = &durability_settings.sanitize,
     .initial = "no",
     .names = sanitize_levels,
     .help = "Has no effect: files and payloads are always checked completely."},
    {.name = "rdb-key-save-delay",
     .type = CONFIG_INT,
     .flags = CONFIG_HIDDEN,
     .value = &durability_settings.key_save_delay,
     .initial = "0",
     .min = INT32_MIN,
     .max = INT32_MAX,
     .help = "For tests: microseconds to sleep after each key that is saved."},
    {.name = "key-load-delay",
     .type = CONFIG_INT,
     .flags = CONFIG_HIDDEN,
     .value = &durability_settings.key_load_delay,
     .initial = "0",
     .min = INT32_MIN,
     .max = INT32_MAX,
     .help = "For tests: microseconds to sleep after each key that is loaded."},
    {.name = "loading-process-events-interval-bytes",
     .type = CONFIG_INT,
     .flags = CONFIG_HIDDEN,
     .value = &durability_settings.loading_interval,
     .initial = "2097152",
     .min = 1024,
     .max = INT32_MAX,
     .help = "Bytes to load before clients are served again."},
    {.name = NULL},
};
