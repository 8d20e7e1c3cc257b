/* threads.h: the lock under which modules act on the server.
 *
 * The main thread holds it always, but for the time in which its loop waits: then a thread of a module may take it, and
 * act as a handler of the loop would; the loop is its own as long as it holds the lock. Within a command, a script or a
 * load the main thread keeps it. Without a loaded module there is no lock. */
#pragma once
#include "module/context.h"

/* A thread that has taken the lock by the functions of the interface holds it: asked by this thread. */
bool module_lock_is_of_thread(void);
uint64_t module_lock_since(void); /* ticks.h */
/* The thread lets the main thread have the lock for a turn of the loop, if that has something to do. */
void module_lock_pass(void);
void module_lock_start(void); /* a module is loaded; may be called again */
