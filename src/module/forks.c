/* forks.c: a module works on a copy of the data set in a child process. The process that forks must be the main thread.
 */
#include "lib/system/log.h"
#include "module/module.h"
#include "server/process/child.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void fork_done(struct child_job *job, int status, int signal);
static struct {
    struct child_job job;
    struct module *module; /* of the function; NULL: none */
    ValkeyModuleForkDoneHandler done;
    void *data;
} forked = {.job = {.kind = CHILD_MODULE, .title = "valkey-module-fork", .log_name = "module fork", .done = fork_done}};

static void fork_done(struct child_job *job, int status, int signal) {
    (void)job;
    ValkeyModuleForkDoneHandler done = forked.done;
    forked.done = NULL;
    if (done) done(status, signal, forked.data);
}

int api_Fork(ValkeyModuleForkDoneHandler cb, void *user_data) {
    pid_t pid = child_start(&forked.job);
    if (pid < 0) {
        log_warning("Can't fork for module: %s", strerror(pid == -EBUSY ? EALREADY : -pid));
        return -1;
    }
    if (pid == 0) return 0;
    forked.module = cb ? module_of_address((const void *)cb) : NULL;
    forked.done = cb;
    forked.data = user_data;
    log_verbose("Module fork started pid: %d", (int)pid);
    return (int)pid;
}
void api_SendChildHeartbeat(double progress) {
    if (!(progress > 0)) progress = 0;
    if (progress > 1) progress = 1;
    child_report((uint64_t)(progress * (double)forked.job.keys_total));
}
int api_ExitFromChild(int retcode) {
    child_report_end();
    _exit(retcode);
}
/* The function of Fork is not called. */
int api_KillForkChild(int child_pid_) {
    if (child_kind() != CHILD_MODULE || child_pid_ <= 0 || child_active_pid() != child_pid_) return VALKEYMODULE_ERR;
    forked.done = NULL;
    child_kill_wait();
    return VALKEYMODULE_OK;
}
void module_forks_drop(struct module *module) {
    if (forked.module != module) return;
    forked.module = NULL;
    if (child_kind() == CHILD_MODULE) api_KillForkChild((int)child_active_pid());
}
