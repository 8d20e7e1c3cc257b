/* loading.h: loads a data set into memory while clients stay connected.
 *
 * The main thread loads. Every loading-process-events-interval-bytes it turns the event loop: clients can connect,
 * commands get -LOADING except those that are allowed then (INFO, CONFIG, SHUTDOWN …), and signals are handled.
 *
 * A reader of any format calls loading_begin(), attaches its source, reads, and calls loading_end(). */
#pragma once
#include "formats/rdb_file.h"
#include <stdbool.h>
#include <stdint.h>

struct loading_state {
    int64_t started_ms, began_ms;     /* wall clock; clock_mono_ms() */
    uint64_t total, loaded;           /* bytes */
    bool of_commands;                 /* an append-only file; its reader sets it after loading_begin() */
    uint64_t used_memory;             /* of the server that wrote the file; 0: unknown */
    uint64_t keys;                    /* loaded in the current or last load */
    uint64_t commands;                /* of append-only files, executed in the current or last load */
    uint64_t last_keys, last_expired; /* of the last load of an RDB file */
};
extern struct loading_state loading_state;

enum loading_service {
    LOADING_SERVES,     /* clients get LOADING errors for commands on data */
    LOADING_SERVES_OLD, /* the data set is loaded into another keyspace, and clients use the old one */
    LOADING_BLOCKS      /* the event loop is not turned: DEBUG RELOAD */
};
void loading_begin(uint64_t total, enum loading_service service);
void loading_attach(struct source *source); /* its position counts as the progress of the load */
void loading_detach(void);                  /* the source was read; another one may follow */
void loading_end(void);
/* Turns the event loop, if the last turn was some time ago, whatever the load's service is: for a value that takes long
 * and wants it. Does nothing unless a source is attached. */
void loading_turn(void);
/* Loads the RDB part at the start of an append-only file from the attached source, and leaves the commands after it in
 * the source. Keeps expired keys, because these commands may use them. Logs its results and failures. 0 or a negative
 * errno. */
int loading_read_base(struct source *source, const char *name);

/* Loads an RDB file. `flush`: flushes the databases first, if the file has a valid RDB header. Logs its results and
 * failures. 0 or a negative errno: -ENOENT if there is no file, else those of rdb_load(). */
int loading_read_rdb(const char *name, enum loading_service service, bool flush, enum rdb_duplicate_key duplicates);

/* After a file was loaded into the databases: their data are not those that the replicas and the append-only file have,
 * or that blocked clients have seen. */
void loading_data_replaced(void);
/* Deletes the keys and the fields that were loaded although they had expired, and propagates that. */
void loading_delete_expired(void);

enum copy_check {
    COPY_WITH_SUM,
    COPY_WITHOUT_SUM, /* the primary was told that it may leave the checksum out; one that comes is checked */
    COPY_VERIFIED     /* the source verifies its bytes, so the checksum is not computed */
};
/* Loads the full copy of a primary from the attached source into a keyspace whose databases are empty. Calls `aux` for
 * each AUX field. Logs its results. 0 or the negative errno of rdb_load(), which was logged; the keyspace then has the
 * keys loaded so far. */
int loading_read_copy(struct source *source, struct keyspace *into, enum copy_check check,
                      bool (*aux)(void *context, struct source *source, struct slice name, struct slice value));

/* At start: loads the append-only file or the RDB file. Exits the process if it cannot be read. */
void loading_at_start(void);
