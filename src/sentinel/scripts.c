/* scripts.c: see scripts.h. */
#include "sentinel/scripts.h"
#include "lib/structures/linked_list.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include <stdarg.h>
#include "resp/reply.h"
#include "sentinel/this_sentinel.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

struct sentinel_script {
    struct list_link link;
    char *argv[SCRIPT_ARGUMENTS];
    pid_t pid;        /* 0: it does not run */
    int64_t start_ms; /* when it began, or will begin. 0: at once */
    unsigned tries;
};
static struct list scripts = LIST_INIT(scripts); /* oldest first */
static size_t queued, running;

static void script_free(struct sentinel_script *script) {
    list_remove(&scripts, &script->link);
    queued--;
    for (int i = 0; i < SCRIPT_ARGUMENTS; i++) mem_free(script->argv[i]);
    mem_free(script);
}

void scripts_add(const char *const *argv) {
    struct sentinel_script *script = mem_calloc(1, sizeof *script);
    for (int i = 0; i < SCRIPT_ARGUMENTS - 1 && argv[i]; i++) script->argv[i] = mem_strdup(argv[i]);
    list_append(&scripts, &script->link);
    if (++queued <= SCRIPTS_QUEUE) return;
    list_each_entry(&scripts, struct sentinel_script, link, oldest) {
        if (oldest->pid) continue;
        script_free(oldest);
        return;
    }
}
size_t scripts_queued(void) {
    return queued;
}
size_t scripts_running(void) {
    return running;
}

static void event(enum log_level level, const char *type, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
static void event(enum log_level level, const char *type, const char *format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    sentinel_effects.event(NULL, level, type, text, NULL);
}

static int64_t retry_delay(unsigned tries) {
    int64_t delay = this_sentinel->settings.timers.script_retry_delay;
    while (--tries > 0 && delay < INT64_MAX / 4) delay *= 2;
    return delay;
}

/* In the child: nothing of the server but the log's descriptor stays open. */
static _Noreturn void scripts_run(struct sentinel_script *script) {
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    signal(SIGPIPE, SIG_DFL);
    signal(SIGXFSZ, SIG_DFL);
    long most = sysconf(_SC_OPEN_MAX);
    for (int fd = 3; fd < (most > 4096 ? 4096 : most); fd++) fcntl(fd, F_SETFD, FD_CLOEXEC);
    execve(script->argv[0], script->argv, environ);
    _exit(2); /* not to be run again */
}
static void scripts_start(struct sentinel_script *script) {
    script->start_ms = sentinel_now();
    script->tries++;
    pid_t pid = fork();
    if (pid == 0) scripts_run(script);
    if (pid < 0) {
        event(LOG_LEVEL_WARNING, "-script-error", "%s %d %d", script->argv[0], 99, 0);
        script->start_ms = sentinel_now() + retry_delay(script->tries);
        return;
    }
    script->pid = pid;
    running++;
    event(LOG_LEVEL_DEBUG, "+script-child", "%ld", (long)pid);
}

static void finished(struct sentinel_script *script, int state) {
    int code = WIFEXITED(state) ? WEXITSTATUS(state) : 0, by_signal = WIFSIGNALED(state) ? WTERMSIG(state) : 0;
    event(LOG_LEVEL_DEBUG, "-script-child", "%ld %d %d", (long)script->pid, code, by_signal);
    running--;
    script->pid = 0;
    if ((by_signal || code == 1) && script->tries < SCRIPTS_TRIES) {
        script->start_ms = sentinel_now() + retry_delay(script->tries);
        return;
    }
    if (by_signal || code) event(LOG_LEVEL_WARNING, "-script-error", "%s %d %d", script->argv[0], by_signal, code);
    script_free(script);
}

void scripts_tick(void) {
    int64_t now = sentinel_now();
    if (!queued) return;
    for (struct list_link *at = scripts.head.next, *next; at != &scripts.head; at = next) {
        struct sentinel_script *script = container_of(at, struct sentinel_script, link);
        next = at->next;
        if (!script->pid) continue;
        int state = 0;
        pid_t pid = waitpid(script->pid, &state, WNOHANG);
        if (pid == script->pid || (pid < 0 && errno == ECHILD))
            finished(script, pid < 0 ? 0 : state);
        else if (now - script->start_ms > this_sentinel->settings.timers.script_max_runtime) {
            event(LOG_LEVEL_WARNING, "-script-timeout", "%s %ld", script->argv[0], (long)script->pid);
            kill(script->pid, SIGKILL);
            script->start_ms = now; /* the signal is not sent again at once */
        }
    }
    list_each_entry(&scripts, struct sentinel_script, link, script) {
        if (running >= SCRIPTS_RUNNING) break;
        if (!script->pid && script->start_ms <= now) scripts_start(script);
    }
}

void scripts_stop(void) {
    while (queued) {
        struct sentinel_script *script = container_of(scripts.head.next, struct sentinel_script, link);
        if (script->pid) {
            kill(script->pid, SIGKILL);
            waitpid(script->pid, NULL, 0);
        }
        script_free(script);
    }
    running = 0;
}

void scripts_reply(struct reply *reply) {
    int64_t now = sentinel_now();
    reply_array(reply, queued);
    list_each_entry(&scripts, const struct sentinel_script, link, script) {
        size_t count = 0;
        int64_t time = script->pid ? now - script->start_ms : script->start_ms > now ? script->start_ms - now : 0;
        reply_map(reply, 5);
        reply_bulk_text(reply, "argv");
        while (count < SCRIPT_ARGUMENTS && script->argv[count]) count++;
        reply_array(reply, count);
        for (size_t i = 0; i < count; i++) reply_bulk_text(reply, script->argv[i]);
        reply_field_text(reply, "flags", script->pid ? "running" : "scheduled");
        reply_bulk_text(reply, "pid");
        reply_bulk_integer(reply, script->pid);
        reply_bulk_text(reply, script->pid ? "run-time" : "run-delay");
        reply_bulk_integer(reply, time);
        reply_bulk_text(reply, "retry-num");
        reply_bulk_integer(reply, script->tries);
    }
}
