/* aof_load.c: loads the append-only file, at start and for DEBUG LOADAOF.
 *
 * At start it depends on the files that exist:
 *
 *     a manifest           its files are loaded, the base first
 *     a single file        in the working directory, as written by Redis before 7.0: it is loaded and becomes the base
 *     only an RDB file     from a run with appendonly no: it is loaded, and its data become the base. (Other servers
 *                          start with an empty data set in this case, and lose the data)
 *     none                 the base is empty
 *
 * Commands are executed without checks of permissions or limits. A transaction is executed when its EXEC has been read.
 * After a crash the last file may end in the middle of a command or a transaction. With aof-load-truncated it is then
 * truncated after the last complete one. A command that fails is logged, but the number of a database that this server
 * does not have, and a value for which it has no memory, end the server: the next commands would change other data. */
#include "formats/aof_reader.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "persistence/aof_private.h"
#include "persistence/persistence.h"
#include "persistence/loading.h"
#include "server/clients/client.h"
#include "server/command/dispatch.h"
#include "server/server_events.h"
#include "server/stats/errorstats.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MANIFEST_MAX = 1024 * 1024 };

/* --- Executing --- */

/* A command of a transaction whose EXEC has not been read yet. */
struct aof_queued {
    struct aof_queued *next;
    int argc;
    struct slice argv[]; /* followed by the bytes */
};

struct loader {
    struct client *client;
    const char *name; /* of the file */
    struct source *source;
    struct aof_queued *first, **end;
    uint64_t errors; /* number of commands that failed */
};

static void queue_free(struct loader *loader) {
    for (struct aof_queued *queued = loader->first, *next; queued; queued = next) {
        next = queued->next;
        mem_free(queued);
    }
    loader->first = NULL;
    loader->end = &loader->first;
}

static bool queue_add(struct loader *loader, int argc, const struct slice *argv) {
    size_t bytes = 0;
    for (int i = 0; i < argc; i++) bytes += argv[i].len;
    struct aof_queued *queued = mem_try_alloc(sizeof *queued + (size_t)argc * sizeof *argv + bytes);
    if (!queued) return source_fail(loader->source, -ENOMEM, "no memory for a transaction");
    char *at = (char *)&queued->argv[argc];
    *queued = (struct aof_queued){.argc = argc};
    for (int i = 0; i < argc; i++) {
        if (argv[i].len) memcpy(at, argv[i].data, argv[i].len);
        queued->argv[i] = (struct slice){at, argv[i].len};
        at += argv[i].len;
    }
    *loader->end = queued;
    loader->end = &queued->next;
    return true;
}

static bool lacks_db, lacks_memory; /* this server does not have the database, or the memory, of the last command */

static void error_reply(struct reply *reply, struct slice text) {
    errorstats_count(reply, text);
    lacks_db |= is_no_such_db(text);
    lacks_memory |= is_no_memory(text);
}

static bool execute(struct loader *loader, int argc, const struct slice *argv) {
    struct command *parent = NULL, *command = command_lookup(argc, argv, &parent);
    if (!command) command = command_lookup_original(argc, argv, &parent);
    if (!command) {
        char text[DISPATCH_UNKNOWN_TEXT];
        dispatch_unknown_text(text, argc, argv, parent);
        return source_fail(loader->source, -EINVAL, "%s", text);
    }
    if (!command_arity_ok(command, argc))
        return source_fail(loader->source, -EINVAL, "wrong number of arguments for '%s' command", command->full_name);
    loading_state.commands++;
    dispatch_call(loader->client, command, argc, argv, -1);
    if (!loader->client->reply.failed) return true;
    loader->client->reply.failed = 0;
    if (lacks_db) {
        lacks_db = false;
        return source_fail(loader->source, -EINVAL,
                           "a database in the file is beyond the %d databases that this server is configured for",
                           keyspace_databases(server.keyspace));
    }
    if (lacks_memory) {
        lacks_memory = false;
        return source_fail(loader->source, -ENOMEM, "no memory for a value");
    }
    if (!loader->errors++)
        log_warning("The command '%.*s' of the append-only file %s was answered with an error",
                    argv[0].len < 64 ? (int)argv[0].len : 64, argv[0].data, loader->name);
    return true;
}

static bool run_command(struct loader *loader, const struct aof_reader *reader) {
    if (reader->argc == 0) return true;
    struct slice name = reader->argv[0];
    if (reader->in_transaction) return slice_is(name, "multi") || queue_add(loader, reader->argc, reader->argv);
    if (!slice_is(name, "exec")) return execute(loader, reader->argc, reader->argv);
    bool ok = true;
    for (const struct aof_queued *queued = loader->first; queued && ok; queued = queued->next)
        ok = execute(loader, queued->argc, queued->argv);
    queue_free(loader);
    return ok;
}

/* --- One file --- */

static int damaged(const char *name, uint64_t offset, const char *reason) {
    log_warning("Bad file format reading the append only file %s: make a backup of your AOF file, then use "
                "./valkey-check-aof --fix <filename.manifest>",
                name);
    log_warning("The append-only file %s, at offset %llu: %s", name, (unsigned long long)offset, reason);
    return -EINVAL;
}

/* The file ends within a command; it is valid up to `offset`. */
static int truncated(const char *name, uint64_t offset, bool is_last) {
    if (aof_settings.load_truncated && !is_last) {
        log_warning("The append-only file %s ends early, at offset %llu", name, (unsigned long long)offset);
        log_warning("Fatal error: the truncated file is not the last file");
        return -EINVAL;
    }
    if (!aof_settings.load_truncated) {
        log_warning("Unexpected end of file reading the append only file %s. You can: 1) Make a backup of your AOF "
                    "file, then use ./valkey-check-aof --fix <filename.manifest>. 2) Alternatively you can set the "
                    "'aof-load-truncated' configuration option to yes and restart the server.",
                    name);
        return -EINVAL;
    }
    log_warning("!!! Warning: short read while loading the AOF file %s!!!", name);
    log_warning("!!! Truncating the AOF %s at offset %llu !!!", name, (unsigned long long)offset);
    if (truncate(aof_path(name), (off_t)offset) < 0) {
        int error = errno;
        log_warning("Error truncating the AOF file %s: %s", name, strerror(error));
        return -error;
    }
    log_warning("AOF %s loaded anyway because aof-load-truncated is enabled", name);
    return 0;
}

static int read_commands(struct loader *loader, bool is_last) {
    struct aof_reader reader;
    enum aof_record record;
    aof_reader_init(&reader, loader->source);
    bool ok = true;
    while (ok && ((record = aof_reader_next(&reader)) == AOF_COMMAND || record == AOF_ANNOTATION))
        if (record == AOF_COMMAND) ok = run_command(loader, &reader);
    int error = 0;
    if (!ok && loader->source->error != -ENOMEM) {
        error = damaged(loader->name, reader.record_offset, loader->source->reason);
    } else if (record == AOF_DAMAGED) {
        error = damaged(loader->name, reader.part_offset, reader.reason);
    } else if (!ok || record == AOF_FAILED) {
        log_warning("Unrecoverable error reading the append only file %s: %s", loader->name, loader->source->reason);
        error = loader->source->error;
    } else if (record == AOF_TRUNCATED) {
        if (loader->first) log_warning("Revert incomplete MULTI/EXEC transaction in AOF file %s", loader->name);
        error = truncated(loader->name, reader.good_offset, is_last);
    }
    aof_reader_free(&reader);
    return error;
}

/* 0 or a negative errno, which was logged. */
static int read_file(const char *name, bool is_base, bool is_last) {
    uint64_t began = clock_monotonic_us();
    int fd = open(aof_path(name), O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        int error = errno;
        log_warning("Fatal error: can't open the append log file %s for reading: %s", name, strerror(error));
        return -error;
    }
    struct source source;
    source_init_fd(&source, fd);
    struct loader loader = {.name = name, .source = &source, .client = client_new(NULL)};
    loader.end = &loader.first;
    loader.client->flags |= CLIENT_LOADER;
    loader.client->reply.error_hook = error_reply;
    loader.client->authenticated = true;
    int error = 0;
    char magic[RDB_MAGIC_BYTES];
    ssize_t got = pread(fd, magic, sizeof magic, 0);
    loading_attach(&source);
    if (got > 0 && rdb_is_magic(magic, (size_t)got)) {
        log_notice(is_base ? "Reading RDB base file on AOF loading..." : "Reading RDB preamble from AOF file...");
        error = loading_read_base(&source, name);
    }
    if (!error) error = read_commands(&loader, is_last);
    if (!error)
        log_notice("DB loaded from %s file %s: %.3f seconds", is_base ? "base" : "incr", name,
                   (double)(clock_monotonic_us() - began) / 1000000);
    queue_free(&loader);
    client_free(loader.client);
    loading_detach();
    source_free(&source);
    close(fd);
    return error;
}

/* --- All files --- */

static int read_files(struct aof_manifest *manifest) {
    struct aof_file *last = aof_manifest_last(manifest);
    bool shown = store_settings.show_expired;
    store_settings.show_expired = true; /* an expired key exists until a command of the file deletes it */
    int error = manifest->base ? read_file(manifest->base->name, true, !last) : 0;
    for (struct list_link *link = list_first(&manifest->incremental); link && !error;
         link = list_next(&manifest->incremental, link))
        error = read_file(aof_file_of(link)->name, false, aof_file_of(link) == last);
    store_settings.show_expired = shown;
    return error;
}

/* --- The manifest --- */

static _Noreturn void manifest_fatal(const char *reason, int line, struct slice text) {
    log_warning("\n*** FATAL AOF MANIFEST FILE ERROR ***\n");
    if (line) {
        log_warning("Reading the manifest file, at line %d\n", line);
        log_warning(">>> '%.*s'\n", text.len < 1024 ? (int)text.len : 1024, text.data);
    }
    log_warning("%s\n", reason);
    exit(1);
}

/* NULL: there is none. Exits the process if it cannot be read. */
static struct aof_manifest *manifest_load(void) {
    char name[PATH_MAX];
    snprintf(name, sizeof name, "%s.manifest", aof_settings.file_name);
    int fd = open(aof_path(name), O_RDONLY | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT) return NULL;
    if (fd < 0) manifest_fatal(strerror(errno), 0, SLICE(""));
    struct stat status;
    char *text = NULL;
    ssize_t len = -1;
    if (fstat(fd, &status) == 0 && status.st_size <= MANIFEST_MAX) {
        text = mem_alloc((size_t)status.st_size + 1);
        len = read(fd, text, (size_t)status.st_size);
    }
    close(fd);
    if (len < 0) manifest_fatal("The AOF manifest file cannot be read, or is too large", 0, SLICE(""));
    const char *error;
    int line;
    struct slice at;
    struct aof_manifest *manifest = aof_manifest_parse((struct slice){text, (size_t)len}, &error, &line, &at);
    if (!manifest) manifest_fatal(error, line, at);
    mem_free(text);
    return manifest;
}

static void manifest_find(void) {
    struct aof_manifest *found = manifest_load();
    if (!found) return;
    aof_manifest_free(aof.manifest);
    aof.manifest = found;
}

int aof_reload(void) {
    manifest_find();
    if (!aof.manifest->base && !aof_manifest_last(aof.manifest)) return -ENOENT;
    loading_begin(aof_files_size(), LOADING_BLOCKS);
    loading_state.of_commands = true;
    server_event(EVENT_LOADING, LOADING_AOF_START, NULL);
    int error = read_files(aof.manifest);
    loading_end();
    server_event(EVENT_LOADING, error ? LOADING_FAILED : LOADING_ENDED, NULL);
    return error;
}

/* --- At start --- */

void aof_find_at_start(void) {
    aof_delete_temporary_files();
    manifest_find();
}

static _Noreturn void give_up(const char *what) {
    log_warning("%s", what);
    exit(1);
}

static void create_base(void) {
    struct aof_file *base = aof_manifest_add_base(aof.manifest, aof_settings.file_name, aof_settings.rdb_preamble);
    log_notice("Creating AOF base file %s on server start", base->name);
    aof_directory_create();
    int error = aof_base_write(aof_path(base->name), aof_settings.rdb_preamble);
    if (error) {
        log_warning("Error writing the AOF base file %s: %s", base->name, strerror(-error));
        give_up("The append-only file cannot be created. Exiting.");
    }
}

/* Moves a single file, as written by Redis before 7.0, from the working directory to the AOF directory. Also completes
 * a move that was interrupted after the manifest was saved. */
static bool adopt_old_file(bool has_manifest) {
    struct stat status;
    if (stat(aof_settings.file_name, &status) < 0 || !S_ISREG(status.st_mode)) return false;
    if (has_manifest) {
        const struct aof_file *base = aof.manifest->base;
        bool missing =
            base && strcmp(base->name, aof_settings.file_name) == 0 && access(aof_path(base->name), F_OK) < 0;
        if (!missing) return false;
    } else {
        aof_manifest_adopt(aof.manifest, aof_settings.file_name);
        if (aof_manifest_save(aof.manifest) < 0) give_up("The append-only file cannot be upgraded. Exiting.");
    }
    if (rename(aof_settings.file_name, aof_path(aof_settings.file_name)) < 0) {
        log_warning("Error trying to move the old AOF file %s into dir %s: %s", aof_settings.file_name,
                    aof_settings.directory, strerror(errno));
        exit(1);
    }
    log_notice("Successfully migrated an old-style AOF file (%s) into the AOF directory (%s).", aof_settings.file_name,
               aof_settings.directory);
    return true;
}

void aof_load_at_start(void) {
    uint64_t began = clock_monotonic_us();
    aof_find_at_start();
    bool has_files = aof.manifest->base || aof.manifest->incremental.len;
    if (adopt_old_file(has_files)) has_files = true;
    if (has_files) {
        loading_begin(aof_files_size(), LOADING_SERVES);
        loading_state.of_commands = true;
        server_event(EVENT_LOADING, LOADING_AOF_START, NULL);
        int error = read_files(aof.manifest);
        loading_end();
        server_event(EVENT_LOADING, error ? LOADING_FAILED : LOADING_ENDED, NULL);
        if (error) give_up("The append-only file cannot be read. Exiting.");
        log_notice("DB loaded from append only file: %.3f seconds", (double)(clock_monotonic_us() - began) / 1000000);
    } else {
        int error = loading_read_rdb(persistence_settings.file_name, LOADING_SERVES, false, RDB_DUPLICATE_REFUSED);
        if (error < 0 && error != -ENOENT) give_up("Fatal error loading the DB, check server logs. Exiting.");
        if (error != -ENOENT)
            log_notice("There was no append-only file yet: the data of %s is its base", persistence_settings.file_name);
        create_base();
    }
    server.dirty = 0;
    int fd = aof_incremental_open();
    if (fd < 0 || aof_files_sync(fd) < 0) give_up("The append-only file cannot be written. Exiting.");
    aof_opened(fd);
    aof_history_delete();
}
