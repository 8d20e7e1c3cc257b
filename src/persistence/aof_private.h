/* aof_private.h: shared by the aof_*.c files. See aof.h. */
#pragma once
#include "formats/aof_manifest.h"
#include "formats/sink.h"
#include "lib/text/blob.h"
#include "persistence/aof.h"
#include "server/clients/reply_barrier.h"

enum aof_fsync { AOF_FSYNC_NO, AOF_FSYNC_ALWAYS, AOF_FSYNC_EVERYSEC };

struct aof_settings {
    bool enabled; /* appendonly */
    char *file_name, *directory;
    int fsync; /* enum aof_fsync */
    bool no_fsync_on_rewrite, load_truncated, rdb_preamble, timestamps, rewrite_incremental_fsync, keep_history;
    int rewrite_percentage;
    int64_t rewrite_min_size;
};
extern struct aof_settings aof_settings;

enum aof_state {
    AOF_OFF,
    AOF_STARTING, /* after CONFIG SET appendonly yes, until the first rewrite is done: changes go to a temporary file */
    AOF_ON
};

struct aof {
    enum aof_state state;
    int fd;             /* the incremental file; -1: none */
    uint64_t fd_size;   /* its bytes, without a partial write */
    uint64_t size;      /* of all files in the manifest, including later writes */
    uint64_t base_size; /* `size` after the last rewrite; before the first one, of the base file */
    struct aof_manifest *manifest;
    /* Rewriting. */
    bool rewrite_scheduled, rewrite_failed;
    int64_t rewrite_started_ms; /* 0: none is running */
    int64_t rewrite_seconds;    /* duration of the last rewrite; -1: none so far */
    uint64_t rewrites, failures_in_a_row;
    int64_t retry_at_ms; /* after repeated failures the cron waits until then; 0: not waiting */
    int retry_minutes;   /* the length of the last wait */
};
extern struct aof aof;
/* Moves an RDB file into the directory, as the base of a manifest with one new incremental file. Returns a descriptor
 * of the incremental file, or a negative errno; nothing has changed then. */
int aof_base_adopt(const char *rdb);
void aof_opened(int fd); /* starts appending to this file */
void aof_closed(void);   /* stops appending, and closes the file without syncing it */
enum { BACKOFF_AFTER = 3, BACKOFF_MAX_MINUTES = 60 };

/* --- aof_append.c --- */

/* Bytes to write. Large values are held by reference: a blob's bytes go before position `at` of `bytes`; `references`
 * are in ascending order of `at`. */
struct aof_buffer {
    struct memory_output bytes;
    struct aof_reference {
        size_t at;
        struct blob *blob;
    } * references;
    size_t count, capacity;
    size_t blob_bytes;
};
void aof_buffer_init(struct aof_buffer *buffer);
void aof_buffer_free(struct aof_buffer *buffer);
void aof_buffer_clear(struct aof_buffer *buffer); /* keeps some of the memory */
size_t aof_buffer_len(const struct aof_buffer *buffer);
/* Writes bytes [*done, len), and advances *done by the bytes written. 0 or a negative errno; -EIO if write() returned
 * 0. Any thread. */
int aof_buffer_write(const struct aof_buffer *buffer, int fd, size_t *done);

void aof_write_timestamp(struct output *out, int64_t second); /* the annotation of aof-timestamp-enabled */
extern struct reply_barrier aof_barrier; /* one sequence number for each command that is appended */
void aof_append_start(void);             /* listens to propagation */
void aof_append_stop(void);
void aof_append_select(void);               /* a new file begins: writes SELECT before the next command */
struct aof_buffer *aof_append_buffer(void); /* the bytes that are not written yet */
uint64_t aof_append_sequence(void);         /* the reply barrier's number of the last command in the buffer */
/* Whether a group of commands is open (a transaction or a script). Its commands are not written before the group has
 * ended, so that MULTI can be inserted before them and no file ends within the group. Commands before it are complete.
 * */
bool aof_append_in_group(void);
bool aof_append_has_complete(void);                      /* the buffer has complete commands */
uint64_t aof_append_complete_sequence(void);             /* of the last complete command */
void aof_append_take(struct aof_buffer *to);             /* moves the complete commands to the empty `to` */
void aof_append_give_back(struct aof_buffer *unwritten); /* moves it back to the front of the buffer; frees it */
/* Ends the open group early; later commands form a group of their own. For a command within a transaction that needs
 * the file complete or replaced (DEBUG LOADAOF). */
void aof_append_seal(void);

/* --- aof_sync.c --- */

void aof_sync_start(void);
void aof_sync_stop(void);
/* Called before the loop waits and from the cron: writes and syncs the buffer as appendfsync says, here or in a
 * background thread. */
void aof_sync_step(void);
/* Seals the open group, writes everything and waits until it is on disk. 0 or a negative errno, which was logged. With
 * appendfsync always a failure exits the process. */
int aof_sync_all(void);
void aof_sync_close(int fd); /* syncs and closes a finished file in the background */
/* fsync() of the directory failed, so the new manifest may not be on disk. Treated like a failed fdatasync(). */
void aof_sync_directory_failed(int error);
bool aof_sync_directory_pending(void); /* the directory must still be synced after such a failure */
bool aof_sync_failed(void);            /* the last write or sync failed: writes are refused */
size_t aof_sync_pending(void);         /* jobs of fsync() and close() */
uint64_t aof_sync_delayed(void);       /* INFO aof_delayed_fsync */
size_t aof_sync_waiting_bytes(void);   /* not written yet */
const char *aof_sync_error_text(void);
void aof_sync_reset_stats(void);
/* DEBUG AOF-FLUSH-SLEEP: the thread that writes sleeps before each write to the file. 0: it does not. */
void aof_sync_set_sleep(uint64_t us);
/* DEBUG AOF-SYNC-THREAD: the thread that writes and syncs the groups of appendfsync always. AUTO: the main thread while
 * groups take less than `fast_us`, else a background thread. */
enum { AOF_FAST_US = 400 };
enum aof_group_thread { AOF_GROUP_AUTO, AOF_GROUP_MAIN, AOF_GROUP_BACKGROUND };
void aof_sync_set_thread(enum aof_group_thread thread, uint64_t fast_us);
bool aof_sync_on_main_thread(void); /* whether the main thread writes the next group, if it is small */

/* --- aof_files.c --- */

/* The path of a file in the directory. Static; the next call but one overwrites it. */
const char *aof_path(const char *name);
int aof_directory_create(void); /* if it does not exist. 0 or a negative errno, which was logged */
int aof_directory_sync(void);   /* 0 or a negative errno. Any thread */
int aof_files_sync(int fd); /* syncs the file, the directory and its parent. 0 or a negative errno, which was logged */
int aof_manifest_save(struct aof_manifest *manifest); /* 0 or a negative errno, which was logged */
void aof_history_delete(void);                        /* deletes the manifest's history files in the background */
void aof_delete_temporary_files(void);                /* of a killed process, or of a cancelled first rewrite */
uint64_t aof_base_file_size(void);
uint64_t aof_files_size(void); /* bytes of the manifest's base and incremental files */
/* Creates an incremental file and saves a manifest with it. Returns its descriptor, or a negative errno, which was
 * logged; nothing has changed then. */
int aof_incremental_create(const char *reason);
int aof_incremental_open(void); /* opens the manifest's last incremental file for appending */

/* --- aof_rewrite.c --- */

/* 0 or a negative errno: -EBUSY if a child is running; others were logged. */
int aof_rewrite_start(void);
bool aof_rewrite_running(void); /* and is not cancelled */
/* Its result is dropped, and none is scheduled. Waits for a child, but not for a thread: that may be in a write() until
 * the disk answers, and child_active() is true until then. */
void aof_rewrite_cancel(void);
/* Writes the data set as a base file, in this thread. 0 or a negative errno. */
int aof_base_write(const char *path, bool as_rdb);

/* --- aof_load.c --- */

int aof_reload(void); /* DEBUG LOADAOF: loads the files into empty databases. 0 or a negative errno */

/* --- aof_commands.c --- */

/* Writes commands that create the keys. Without a key the output has what precedes them: function libraries, and what
 * the node of a cluster knows of migrations. `db`: the number of the entry's database. 0, or -EINVAL: a module could
 * not write its value. */
struct aof_entries { /* private */
    struct output *out;
    int db;
};
void aof_entries_begin(struct aof_entries *entries, struct output *out);
/* Only what precedes an entry of this database: the caller writes it elsewhere. */
void aof_entries_place(struct aof_entries *entries, int db);
int aof_entries_add(struct aof_entries *entries, int db, const struct entry *entry);
int aof_commands_write(struct sink *sink, struct keyspace *keyspace);
