/* loading.h: reads a data set back into memory while clients are served.
 *
 * The main thread loads. Every loading-process-events-interval-bytes it turns the event loop, so that clients connect,
 * are answered -LOADING (but for commands that may run then: INFO, CONFIG, SHUTDOWN …), and signals are obeyed.
 *
 * A reader of any format begins with loading_begin(), attaches its source, and ends with loading_end(). */
#ifndef PERSISTENCE_LOADING_H
#define PERSISTENCE_LOADING_H
#include "formats/rdb_file.h"
#include <stdbool.h>
#include <stdint.h>

struct loading_state {
    int64_t started_ms;               /* wall clock */
    uint64_t total, loaded;           /* bytes */
    uint64_t used_memory;             /* of the server that wrote the file, 0: unknown */
    uint64_t keys;                    /* loaded in this or the last load */
    uint64_t commands;                /* of an append-only file, executed in this or the last load */
    uint64_t last_keys, last_expired; /* of the last load of an RDB file */
};
extern struct loading_state loading_state;

enum loading_service {
    LOADING_SERVES,     /* clients get LOADING errors for commands on data */
    LOADING_SERVES_OLD, /* the data set is loaded into another keyspace: clients use the old one */
    LOADING_BLOCKS      /* nobody is served meanwhile: DEBUG RELOAD */
};
void loading_begin(uint64_t total, enum loading_service service);
void loading_attach(struct source *source); /* its progress is the loading's */
void loading_detach(void);                  /* it was read; another may be attached */
void loading_end(void);
/* Loads an RDB file that an append-only file begins with, from a source that is attached; what follows stays in the
 * source. Keys that have expired are kept: the commands behind it count on them. Logs what it finds and what fails. 0
 * or a negative errno. */
int loading_read_base(struct source *source, const char *name);

/* Loads an RDB file. `flush` empties the databases first, when the file looks like one. Logs what it finds and what
 * fails. 0, or a negative errno: -ENOENT where there is no file, else those of rdb_load(). */
int loading_read_rdb(const char *name, enum loading_service service, bool flush, enum rdb_duplicate_key duplicates);

/* Reads the full copy of a primary, from a source that is attached, into a keyspace whose databases are empty. `aux` is
 * called for each AUX field. `verified`: the source has checked its bytes, and no checksum is computed. Logs what it
 * finds. 0, or the negative errno of rdb_load(), which was logged; what was read so far is in the keyspace then. */
int loading_read_copy(struct source *source, struct keyspace *into, bool verified,
                      bool (*aux)(void *context, struct source *source, struct slice name, struct slice value));

/* At start: loads what is there, or ends the process where it cannot be read. Clients are served meanwhile. */
void loading_at_start(void);
#endif
