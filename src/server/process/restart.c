/* restart.c: see restart.h.
 *
 * The process calls execve(), which ends all threads and closes all descriptors in one step. Nothing is closed before:
 * a thread that still runs would find its descriptors closed or, worse, reused for other files. The delay is passed in
 * an environment variable, and the new program waits in restart_init().
 *
 * A configuration file is named by its absolute path, because the option dir has changed the working directory. */
#include "server/process/restart.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "server/config/config_engine.h"
#include "server/process/shutdown.h"
#include "server/server.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define DELAY_VARIABLE "VALKEY_RESTART_DELAY_MS"

static char **arguments;
static int64_t delay_ms;

void restart_init(char **argv) {
    arguments = argv;
    const char *text = getenv(DELAY_VARIABLE);
    if (!text) return;
    int64_t ms;
    if (parse_int64((struct slice){text, strlen(text)}, &ms) && ms > 0) {
        struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
        while (nanosleep(&left, &left) < 0 && errno == EINTR) continue;
    }
    unsetenv(DELAY_VARIABLE);
}

/* Libraries may have opened descriptors that survive execve(). */
static void close_on_exec(void) {
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        int fd = atoi(entry->d_name);
        if (fd > STDERR_FILENO) fcntl(fd, F_SETFD, FD_CLOEXEC);
    }
    if (dir) closedir(dir);
}

/* Does not return, unless the program cannot be executed. */
static void execute_again(void) {
    close_on_exec();
    if (delay_ms > 0) {
        char text[24];
        snprintf(text, sizeof text, "%lld", (long long)delay_ms);
        setenv(DELAY_VARIABLE, text, 1);
    }
    if (*config_file()) arguments[1] = mem_strdup(config_file());
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    execv(server.executable, arguments);
    log_warning("Can't execute %s: %s", server.executable, strerror(errno));
}

static void exit_by_execution(void) {
    execute_again();
    _exit(1);
}

static bool may_restart(void) {
    if (access(server.executable, X_OK) < 0) {
        log_warning("Can't restart: this process has no permissions to execute %s: %s", server.executable,
                    strerror(errno));
        return false;
    }
    if (arguments[1] && strcmp(arguments[1], "-") == 0) {
        log_warning("Can't restart: the configuration was read from standard input");
        return false;
    }
    return true;
}

static bool delay_parse(struct call *call) {
    delay_ms = 0;
    if (call->argc < 3 || parse_int64(call->argv[2], &delay_ms)) return true;
    return reply_not_integer(call->reply);
}

static const char refused[] = "ERR failed to restart the server. Check server logs.";

void restart_run(struct call *call) {
    if (!delay_parse(call)) return;
    bool ready = may_restart();
    int result = ready && *config_file() ? config_rewrite(false) : 0;
    if (result < 0) log_warning("Can't restart: configuration rewrite process failed: %s", strerror(-result));
    if (ready && result >= 0) shutdown_and_then(exit_by_execution);
    reply_error(call->reply, refused);
}

void restart_crash_run(struct call *call) {
    if (!delay_parse(call)) return;
    if (may_restart()) execute_again();
    reply_error(call->reply, refused);
}
