/* aof_private.h: what the aof_*.c files share. See aof.h. */
#ifndef PERSISTENCE_AOF_PRIVATE_H
#define PERSISTENCE_AOF_PRIVATE_H
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
    AOF_STARTING, /* CONFIG SET appendonly yes: changes are gathered in a file that counts once the first rewrite is
                     done */
    AOF_ON
};

struct aof {
    enum aof_state state;
    int fd;             /* the incremental file; -1: none */
    uint64_t fd_size;   /* bytes of it that are written whole */
    uint64_t size;      /* of all files that the manifest names, and what is written since */
    uint64_t base_size; /* `size` after the last rewrite, or at start */
    struct aof_manifest *manifest;
    /* Rewriting. */
    bool rewrite_scheduled, rewrite_failed;
    int64_t rewrite_started_ms; /* 0: none runs */
    int64_t rewrite_seconds;    /* of the last; -1: there was none */
    uint64_t rewrites, failures_in_a_row, last_cow;
    int64_t retry_at_ms; /* after repeated failures the cron waits until then; 0: the wait has not begun */
    int retry_minutes;   /* the length of the last wait */
};
extern struct aof aof;
/* Moves an RDB file into the directory, as the base of a manifest with one new incremental file. Returns a descriptor
 * of that file, or a negative errno; then all is as before. */
int aof_base_adopt(const char *rdb);
void aof_opened(int fd); /* loading is over: changes go there */
void aof_closed(void);   /* the incremental file ends here; what of it is not on the disk need not get there */
enum { BACKOFF_AFTER = 3, BACKOFF_MAX_MINUTES = 60 };

/* --- aof_append.c --- */

/* Bytes to be written, in order. Large values stand in it by reference: `references` are ascending by `at`, a place in
 * `bytes` before which the blob's bytes go. */
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
/* Writes bytes [*done, len), and moves *done with every byte written. 0, or a negative errno; -EIO where a write took
 * nothing. Any thread. */
int aof_buffer_write(const struct aof_buffer *buffer, int fd, size_t *done);

void aof_write_timestamp(struct output *out, int64_t second); /* the annotation of aof-timestamp-enabled */
extern struct reply_barrier aof_barrier; /* one sequence number for each command that is appended */
void aof_append_start(void);             /* listens to what is propagated */
void aof_append_stop(void);
void aof_append_select(void);               /* the next command is preceded by SELECT: another file begins */
struct aof_buffer *aof_append_buffer(void); /* what is not written yet */
uint64_t aof_append_sequence(void);         /* of the reply barrier, of the last command in it */
/* Commands that belong together are being appended: they are not written before their group has ended, so that MULTI
 * can precede them and no file ends between them. What precedes the group is complete. */
bool aof_append_in_group(void);
bool aof_append_has_complete(void);                      /* something precedes the group that is open */
uint64_t aof_append_complete_sequence(void);             /* of the last command that is complete */
void aof_append_take(struct aof_buffer *to);             /* moves what is complete to the empty `to` */
void aof_append_give_back(struct aof_buffer *unwritten); /* puts it in front again; frees `unwritten` */
/* Ends such a group early: what follows is a group of its own. For a command of a transaction that needs the file
 * complete or replaced (DEBUG LOADAOF). */
void aof_append_seal(void);

/* --- aof_sync.c --- */

void aof_sync_start(void);
void aof_sync_stop(void);
/* Before the loop waits, and from the cron: writes, or lets write, what there is. */
void aof_sync_step(void);
/* Writes everything and waits until it is on the disk; seals the group that is being appended. 0 or a negative errno,
 * which was logged; where appendfsync is always a failure ends the process. */
int aof_sync_all(void);
/* The file is finished: closes it once it is on the disk, in the background. */
void aof_sync_close(int fd);
/* A change of the directory may not be on the disk. The consequences are those of a failed fdatasync(). */
void aof_sync_directory_failed(int error);
bool aof_sync_directory_pending(void); /* until a sync has succeeded */
bool aof_sync_failed(void);            /* the last write or fsync() did: writes are refused */
size_t aof_sync_pending(void);         /* jobs of fsync() and close() */
uint64_t aof_sync_delayed(void);
size_t aof_sync_waiting_bytes(void); /* in buffers */
const char *aof_sync_error_text(void);
void aof_sync_reset_stats(void);
/* DEBUG AOF-FLUSH-SLEEP: each write to the file begins with a sleep, in the thread that writes. 0: none. */
void aof_sync_set_sleep(uint64_t us);
/* DEBUG AOF-SYNC-THREAD: the thread that writes and syncs the groups of appendfsync always. AUTO: the main thread while
 * groups take less than `fast_us`, else a background thread. */
enum { AOF_FAST_US = 400 };
enum aof_group_thread { AOF_GROUP_AUTO, AOF_GROUP_MAIN, AOF_GROUP_BACKGROUND };
void aof_sync_set_thread(enum aof_group_thread thread, uint64_t fast_us);
bool aof_sync_on_main_thread(void); /* the next group, if it is small */

/* --- aof_files.c --- */

/* The path of a file of the directory. Static; two calls before the first is overwritten. */
const char *aof_path(const char *name);
int aof_directory_create(void); /* unless it is there. 0 or a negative errno, which was logged */
int aof_directory_sync(void);   /* 0 or a negative errno. Any thread */
int aof_files_sync(int fd); /* the last file, the directory and its parent. 0 or a negative errno, which was logged */
int aof_manifest_save(struct aof_manifest *manifest); /* 0 or a negative errno, which was logged */
void aof_history_delete(void);                        /* files that the manifest calls history */
void aof_delete_temporary_files(void);                /* of a process that was killed, or of a rewrite that was */
uint64_t aof_files_size(void);                        /* of what the manifest names */
/* A new incremental file in the manifest, which is saved. Returns its descriptor, or a negative errno, which was
 * logged; nothing has changed then. */
int aof_incremental_create(const char *reason);
int aof_incremental_open(void); /* the last one of the manifest, for appending */

/* --- aof_rewrite.c --- */

/* 0, or a negative errno: -EBUSY where a child runs; others were logged. */
int aof_rewrite_start(void);
bool aof_rewrite_running(void);
void aof_rewrite_cancel(void);
/* Writes the data set as a base file. For the child of a rewrite, and at start. 0 or a negative errno. */
int aof_base_write(const char *path, bool as_rdb, bool incremental_fsync, bool in_child);

/* --- aof_load.c --- */

int aof_reload(void); /* DEBUG LOADAOF: reads the files again, into empty databases. 0 or a negative errno */

/* --- aof_commands.c --- */
int aof_commands_write(struct sink *sink, struct keyspace *keyspace, bool in_child);
#endif
