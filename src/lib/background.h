/* background.h: threads for work that must not hold up the main thread: freeing of big things, closing and syncing of
 * files.
 *
 * One thread for each kind (writes and syncs of the append-only file are two, since a file is written while a sync of
 * it goes on), started by background_start(); jobs of a kind run in order. A job's function runs on the
 * background thread and owns its argument. Before background_start (tools, unit tests) jobs run at once in the caller.
 */
#ifndef LIB_BACKGROUND_H
#define LIB_BACKGROUND_H
#include <stdbool.h>
#include <stdint.h>
#include <stddef.h>
enum background_kind {
    BACKGROUND_CLOSE_FILE,
    BACKGROUND_FSYNC,
    BACKGROUND_WRITE,
    BACKGROUND_LAZY_FREE,
    BACKGROUND_KINDS
};
/* `setup` is called on each thread first (CPU pinning); may be NULL. 0 or -errno. */
int background_start(void (*setup)(void));
void background_submit(enum background_kind kind, void (*run)(void *), void *arg);
size_t background_pending(enum background_kind kind); /* jobs waiting or running */
void background_drain(enum background_kind kind);     /* wait until none is left */
void background_stop(void);                           /* finish what is queued, then join */
#endif
