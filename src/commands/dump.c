/* dump.c: DUMP and RESTORE: serialization of a value (formats/rdb.h). */
#include "commands/lookup.h"
#include "commands/scratch_db.h"
#include "formats/rdb.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "server/command/spec.h"
#include <errno.h>

static void dump_run(struct call *call) {
    struct entry *entry = find_read(call, call->argv[1]);
    if (!entry) {
        reply_null(call->reply);
        return;
    }
    struct memory_output payload = MEMORY_OUTPUT_INIT;
    dump_write(&payload.out, entry, db_id(call->db));
    reply_bulk(call->reply, memory_output_slice(&payload));
    memory_output_free(&payload);
}

/* --- RESTORE --- */

struct restore_options {
    bool replace, absolute;
    int64_t ttl, idle_seconds, frequency; /* -1: not given */
};

static bool options_read(struct call *call, struct restore_options *options) {
    *options = (struct restore_options){.idle_seconds = -1, .frequency = -1};
    for (int i = 4; i < call->argc; i++) {
        struct slice word = call->argv[i];
        bool more = i + 1 < call->argc;
        if (slice_is(word, "replace")) {
            options->replace = true;
        } else if (slice_is(word, "absttl")) {
            options->absolute = true;
        } else if (slice_is(word, "idletime") && more && options->frequency < 0) {
            if (!argument_int64(call, ++i, &options->idle_seconds)) return false;
            if (options->idle_seconds < 0) return reply_error(call->reply, "ERR Invalid IDLETIME value, must be >= 0");
        } else if (slice_is(word, "freq") && more && options->idle_seconds < 0) {
            if (!argument_int64(call, ++i, &options->frequency)) return false;
            if (options->frequency < 0 || options->frequency > 255)
                return reply_error(call->reply, "ERR Invalid FREQ value, must be >= 0 and <= 255");
        } else {
            return reply_syntax_error(call->reply);
        }
    }
    return true;
}

static void refuse_data(struct call *call, const struct source *source) {
    if (source->failed)
        log_verbose("Internal error in RDB reading offset %llu -> %s", (unsigned long long)source_offset(source),
                    rdb_reason(source));
    if (source->error == -ENOMEM && client_must_be_obeyed(call->client))
        reply_no_memory(call->reply);
    else
        reply_error(call->reply, "ERR Bad data format");
}

/* Reads the payload into the scratch database. False: replied with an error. */
static bool payload_read(struct call *call, struct db *scratch, struct slice key, struct slice payload) {
    struct source source;
    struct rdb_reader in;
    if (!dump_open(payload, client_must_be_obeyed(call->client), &source))
        return reply_error(call->reply, "ERR DUMP payload version or checksum are wrong");
    rdb_reader_init(&in, &source);
    struct entry *entry = rdb_read_value(&in, scratch, key);
    rdb_reader_free(&in);
    if (!entry) refuse_data(call, &source);
    return entry != NULL;
}
/* Propagates the call with an absolute time, if it has one. */
static void propagate_restore(struct call *call, const struct restore_options *options, int64_t expire_at) {
    if (expire_at < 0 || options->absolute) return; /* as it is */
    struct slice *argv = mem_alloc(((size_t)call->argc + 1) * sizeof *argv);
    char text[NUMBER_TEXT_MAX];
    int argc = call->argc;
    memcpy(argv, call->argv, (size_t)argc * sizeof *argv);
    argv[2] = (struct slice){text, format_int64(text, expire_at)};
    argv[argc++] = SLICE("ABSTTL");
    call_propagate(call, argc, argv);
    mem_free(argv);
}

static void restore_run(struct call *call) {
    struct slice key = call->argv[1];
    struct restore_options options;
    if (!options_read(call, &options)) return;
    if (!options.replace && find_replace(call, key)) {
        reply_error(call->reply, "BUSYKEY Target key name already exists.");
        return;
    }
    if (!argument_int64(call, 2, &options.ttl)) return;
    if (options.ttl < 0) {
        reply_error(call->reply, "ERR Invalid TTL value, must be >= 0");
        return;
    }
    struct db *scratch = scratch_db();
    if (!payload_read(call, scratch, key, call->argv[3])) return;
    bool replaced = options.replace && db_delete(call->db, key, store_settings.lazy_server_del);
    int64_t now = clock_data_ms();
    int64_t expire_at = options.ttl == 0                ? -1
                        : options.absolute              ? options.ttl
                        : options.ttl > INT64_MAX - now ? INT64_MAX
                                                        : options.ttl + now;
    if (expire_at >= 0 && expire_at <= now && !client_must_be_obeyed(call->client)) { /* the time is already past */
        db_delete(scratch, key, true);
        if (replaced) {
            notify(call->db, NOTIFY_GENERIC, "del", key);
            call_propagate(call, 2,
                           (struct slice[]){store_settings.lazy_server_del ? SLICE("UNLINK") : SLICE("DEL"), key});
            call->dirty++;
        }
        reply_ok(call->reply);
        return;
    }
    struct entry *entry = db_rename(scratch, key, call->db, key);
    if (expire_at >= 0) entry = db_set_expire(call->db, entry, expire_at);
    propagate_restore(call, &options, expire_at);
    entry_set_access(entry, options.idle_seconds, options.frequency);
    notify(call->db, NOTIFY_NEW, "new", key); /* the replaced key was deleted before */
    notify(call->db, NOTIFY_GENERIC, "restore", key);
    call->dirty++;
    reply_ok(call->reply);
}

#define RESTORE_COMPLEXITY                                                                                             \
    "O(1) for the key and O(N*M) for the value, where N is the number of its parts and M their mean size; "            \
    "O(N*M*log(N)) for sorted sets"
#define RESTORE_SYNTAX                                                                                                 \
    "key:key ttl:integer serialized-value:string [REPLACE@3.0.0] [ABSTTL@5.0.0] [IDLETIME seconds:integer@5.0.0] "     \
    "[FREQ frequency:integer@5.0.0]"
const struct command_spec dump_commands[] = {
    {COMMAND("dump", dump_run, 2, CMD_READONLY, ON_KEYS, "2.6.0"),
     .complexity =
         "O(1) for the key and O(N*M) for the value, where N is the number of its parts and M their mean size",
     .summary = "Returns a serialized value for RESTORE.", .syntax = "key:key",
     .tips = WORDS("nondeterministic_output"), .keys = FIRST_KEY(KEY_RO | KEY_ACCESS)},
    {COMMAND("restore", restore_run, -4, CMD_WRITE | CMD_DENYOOM, .group = GROUP_GENERIC, "2.6.0"),
     .categories = CAT_KEYSPACE | CAT_DANGEROUS, .complexity = RESTORE_COMPLEXITY,
     .summary = "Creates a key from a value that DUMP serialized.", .syntax = RESTORE_SYNTAX,
     .history = WORDS("3.0.0", "`REPLACE`.", "5.0.0", "`ABSTTL`.", "5.0.0", "`IDLETIME` and `FREQ`."),
     .keys = FIRST_KEY(KEY_OW | KEY_UPDATE)},
    {COMMAND("restore-asking", restore_run, -4, CMD_WRITE | CMD_DENYOOM | CMD_ASKING | CMD_SYSCMD,
             .group = GROUP_SERVER, "3.0.0"),
     .categories = CAT_KEYSPACE | CAT_DANGEROUS, .complexity = RESTORE_COMPLEXITY,
     .summary = "RESTORE as the nodes of a cluster send it to each other.", .syntax = RESTORE_SYNTAX,
     .history = WORDS("3.0.0", "`REPLACE`.", "5.0.0", "`ABSTTL`.", "5.0.0", "`IDLETIME` and `FREQ`."),
     .keys = FIRST_KEY(KEY_OW | KEY_UPDATE)},
    {.name = NULL},
};
const struct config_option dump_options[] = {
    {OPTION("rdbcompression", CONFIG_BOOL, &rdb_settings.compression, "yes")},
    {.name = NULL},
};
