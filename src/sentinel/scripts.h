/* scripts.h: runs the notification and reconfiguration scripts of Sentinel.
 *
 * At most SCRIPTS_RUNNING of them run at once; a script that ends with status 1 or by a signal is run again after
 * script-retry-delay, which doubles each time, at most SCRIPTS_TRIES times. Another status is an error. A script
 * that runs for longer than script-max-runtime is killed, and run again. The queue is limited: if it is full, the
 * oldest script that does not run is dropped. */
#pragma once
#include <stddef.h>

enum { SCRIPTS_QUEUE = 256, SCRIPTS_RUNNING = 16, SCRIPTS_TRIES = 10, SCRIPT_ARGUMENTS = 16 };
/* argv[0] is the path; NULL ends it. Copies it. */
void scripts_add(const char *const *argv);
void scripts_tick(void);
void scripts_stop(void); /* kills those that run */
size_t scripts_queued(void);
size_t scripts_running(void);
struct reply;
void scripts_reply(struct reply *reply); /* SENTINEL PENDING-SCRIPTS */
