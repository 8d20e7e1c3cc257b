/* process.c: see process.h. The title is in process_title.c, the system checks in process_check.c. */
#include "server/process/process.h"
#include "lib/system/background.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/version.h"
#include "net/pin.h"
#include "server/feature.h"
#include "server/config/config.h"
#include "server/process/crash.h"
#include "server/process/process_title.h"
#include "server/process/shutdown.h"
#include "server/role.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#ifdef USE_SYSTEMD
#include <systemd/sd-daemon.h>
#endif

enum { OOM_VALUES = 3, OOM_MIN = -1000, OOM_MAX = 1000 };
enum supervision { SUPERVISED_NO, SUPERVISED_AUTO, SUPERVISED_SYSTEMD, SUPERVISED_UPSTART };
enum oom_mode { OOM_NO, OOM_RELATIVE, OOM_ABSOLUTE };

static bool daemonize, purge_in_background;
static char *pid_file, *server_cpulist, *bio_cpulist, *aof_rewrite_cpulist, *bgsave_cpulist;
static int supervised; /* as configured */
static int supervisor; /* the one that was found: never SUPERVISED_AUTO */
static int oom_mode, oom_values[OOM_VALUES];
static int oom_score_before; /* of the process, before the option changed it */
static bool oom_score_changed, pid_file_written;
static char pid_path[4096];

const char *process_aof_rewrite_cpulist(void) {
    return aof_rewrite_cpulist;
}
const char *process_bgsave_cpulist(void) {
    return bgsave_cpulist;
}

const char *process_build_id(void) {
    static char text[17];
    if (!text[0]) {
        /* The same sources built the same way have the same id. */
        uint64_t hash = 0xCBF29CE484222325ULL;
        static const char parts[] = PROJECT_VERSION "|" __VERSION__ "|"
#ifdef USE_JEMALLOC
                                                    "jemalloc|"
#endif
#ifdef USE_RDMA
                                                    "rdma|"
#endif
#ifdef USE_SYSTEMD
                                                    "systemd|"
#endif
            ;
        for (const char *p = parts; *p; p++) hash = (hash ^ (unsigned char)*p) * 0x100000001B3ULL;
        snprintf(text, sizeof text, "%016llx", (unsigned long long)hash);
    }
    return text;
}

/* --- Supervisors --- */

static bool process_is_supervised(void) {
    static bool asked, is;
    if (asked) return is;
    asked = true;
    const char *upstart = getenv("UPSTART_JOB"), *systemd = getenv("NOTIFY_SOCKET");
    supervisor = supervised;
    if (supervisor == SUPERVISED_AUTO)
        supervisor = upstart ? SUPERVISED_UPSTART : systemd ? SUPERVISED_SYSTEMD : SUPERVISED_NO;
    if (supervisor == SUPERVISED_UPSTART) {
        if (!upstart)
            log_warning("Upstart supervision requested, but UPSTART_JOB not found!");
        else {
            log_notice("Supervised by upstart, will stop to signal readiness.");
            is = true;
            raise(SIGSTOP);
            unsetenv("UPSTART_JOB");
        }
    } else if (supervisor == SUPERVISED_SYSTEMD) {
#ifdef USE_SYSTEMD
        if (!systemd) log_warning("Systemd supervision requested or auto-detected, but NOTIFY_SOCKET not found!");
        is = systemd != NULL;
#else
        log_warning("Systemd supervision requested, but this server was built without libsystemd!");
#endif
    }
    if (!is) supervisor = SUPERVISED_NO;
    return is;
}

const char *process_supervisor(void) {
    return supervisor == SUPERVISED_SYSTEMD ? "systemd" : supervisor == SUPERVISED_UPSTART ? "upstart" : "no";
}

static void tell_systemd(const char *state) {
#ifdef USE_SYSTEMD
    if (process_is_supervised() && supervisor == SUPERVISED_SYSTEMD) sd_notify(0, state);
#else
#endif
}
void process_notify_ready(void) {
    tell_systemd("STATUS=Ready to accept connections\nREADY=1\n");
}
/* --- Daemon and pid file --- */

static bool process_daemonizes(void) {
    return daemonize && !process_is_supervised();
}

void process_daemonize(void) {
    if (!process_daemonizes()) return;
    pid_t child = fork();
    if (child < 0) {
        log_warning("Can't become a daemon: %s", strerror(errno));
        exit(1);
    }
    if (child) _exit(0);
    setsid();
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0) return;
    dup2(null, STDIN_FILENO);
    dup2(null, STDOUT_FILENO);
    dup2(null, STDERR_FILENO);
    if (null > STDERR_FILENO) close(null);
}

void process_write_pid_file(void) {
    const char *path = pid_file;
    if (!path[0]) {
        if (!process_daemonizes()) return;
        path = "/var/run/valkey.pid";
    }
    FILE *file = fopen(path, "we");
    if (!file) {
        log_warning("Failed to write PID file: %s", strerror(errno));
        return;
    }
    fprintf(file, "%d\n", (int)getpid());
    fclose(file);
    if (!realpath(path, pid_path)) snprintf(pid_path, sizeof pid_path, "%s", path);
    pid_file_written = true;
}

/* Read by the handler of a signal. */
enum { UNFINISHED_FILES = 4 };
static struct {
    volatile int directory;
    const char *volatile name; /* NULL: none */
} unfinished[UNFINISHED_FILES];

bool process_has_pid_file(void) {
    return pid_file_written;
}

void process_remove_files(void) {
    tell_systemd("STOPPING=1\n");
    if (pid_file_written) unlink(pid_path);
    pid_file_written = false;
    for (int i = 0; i < UNFINISHED_FILES; i++)
        if (unfinished[i].name) unlinkat(unfinished[i].directory, unfinished[i].name, 0);
}

void process_unfinished_file(int directory, const char *name) {
    for (int i = 0; i < UNFINISHED_FILES; i++) {
        if (unfinished[i].name) continue;
        unfinished[i].directory = directory;
        unfinished[i].name = name;
        return;
    }
}
void process_finished_file(const char *name) {
    for (int i = 0; i < UNFINISHED_FILES; i++)
        if (unfinished[i].name == name) unfinished[i].name = NULL;
}

/* --- CPUs --- */

static const char *check_cpulist(const struct config_option *option, struct slice text) {
    static char error[128];
    cpu_set_t cpus;
    char list[1024];
    if (text.len >= sizeof list) return "the CPU list is too long";
    memcpy(list, text.data, text.len);
    list[text.len] = 0;
    return pin_parse_cpulist(list, &cpus, error, sizeof error) ? NULL : error;
}

static void pin(const char *list, const char *what) {
    int result = pin_thread(list);
    if (result < 0) log_warning("Could not pin %s to the CPUs %s: %s", what, list, strerror(-result));
}
static void background_setup(void) {
    pin(bio_cpulist, "a background thread");
}

/* The allocator's thread inherits the CPUs of the thread that turns it on. It must run on those of background threads,
 * not on those of the main thread. */
static void purge_job(void *arg) {
    mem_purge_in_background(arg);
}
static const char *apply_purge(void) {
    background_submit(BACKGROUND_CLOSE_FILE, purge_job, purge_in_background ? &purge_in_background : NULL);
    return NULL;
}
void process_background_start(void) {
    background_start(background_setup);
    apply_purge();
}

/* --- OOM score --- */

bool process_set_oom_score(enum process_kind kind) {
    if (oom_mode == OOM_NO && !oom_score_changed) return true;
    if (!oom_score_changed) {
        FILE *file = fopen("/proc/self/oom_score_adj", "re");
        bool known = file && fscanf(file, "%d", &oom_score_before) == 1;
        if (!known) log_warning("Unable to read oom_score_adj: %s", strerror(errno));
        if (file) fclose(file);
        if (!known) return false;
    }
    int score =
        oom_mode == OOM_NO ? oom_score_before : oom_values[kind] + (oom_mode == OOM_RELATIVE ? oom_score_before : 0);
    if (score > OOM_MAX) score = OOM_MAX;
    if (score < OOM_MIN) score = OOM_MIN;
    char text[16];
    int len = snprintf(text, sizeof text, "%d\n", score), fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    bool written = fd >= 0 && write(fd, text, (size_t)len) == len;
    if (!written) log_warning("Unable to write oom_score_adj: %s", strerror(errno));
    if (fd >= 0) close(fd);
    if (written) oom_score_changed = oom_mode != OOM_NO;
    return written;
}

static bool set_oom_score_of_role(void) {
    return process_set_oom_score(role_is_replica() ? PROCESS_REPLICA : PROCESS_PRIMARY);
}
static void role_changed(void) {
    set_oom_score_of_role();
}
static const char *apply_oom(void) {
    return set_oom_score_of_role() ? NULL : "Failed to set current oom_score_adj. Check server logs.";
}

static const char *set_oom_values(const struct config_option *option, int count, const struct slice *words) {
    int64_t values[OOM_VALUES];
    if (count != OOM_VALUES) return "wrong number of arguments";
    for (int i = 0; i < OOM_VALUES; i++)
        if (!config_parse_number(words[i], &values[i]) || values[i] < -2000 || values[i] > 2000)
            return "Invalid oom-score-adj-values, elements must be between -2000 and 2000.";
    if (values[1] < values[0] || values[2] < values[1])
        log_warning("The oom-score-adj-values configuration may not work for non-privileged processes! Please consult "
                    "the documentation.");
    for (int i = 0; i < OOM_VALUES; i++) oom_values[i] = (int)values[i];
    return NULL;
}

static void get_oom_values(const struct config_option *option, struct output *out) {
    char text[64];
    int len = snprintf(text, sizeof text, "%d %d %d", oom_values[0], oom_values[1], oom_values[2]);
    output_write(out, (struct slice){text, (size_t)len});
}

void process_setup(void) {
    pin(server_cpulist, "the server");
    static struct role_listener listener = {.changed = role_changed};
    role_listen(&listener);
    set_oom_score_of_role();
}

static const struct config_name supervisions[] = {{"upstart", SUPERVISED_UPSTART},
                                                  {"systemd", SUPERVISED_SYSTEMD},
                                                  {"auto", SUPERVISED_AUTO},
                                                  {"no", SUPERVISED_NO},
                                                  {NULL, 0}};
static const struct config_name oom_modes[] = {
    {"no", OOM_NO}, {"yes", OOM_RELATIVE}, {"relative", OOM_RELATIVE}, {"absolute", OOM_ABSOLUTE}, {NULL, 0}};

#define CPULIST(main, other, place)                                                                                    \
    {                                                                                                                  \
        .name = main, .alias = other, .type = CONFIG_STRING, .flags = CONFIG_IMMUTABLE, .value = &place,               \
        .initial = "", .check = check_cpulist                                                                          \
    }

static const struct config_option process_options[] = {
    {OPTION("daemonize", CONFIG_BOOL, &daemonize, "no"), .flags = CONFIG_IMMUTABLE},
    {OPTION("pidfile", CONFIG_STRING, &pid_file, ""), .flags = CONFIG_IMMUTABLE},
    {OPTION("supervised", CONFIG_ENUM, &supervised, "no"), .flags = CONFIG_IMMUTABLE, .names = supervisions},
    {OPTION("oom-score-adj", CONFIG_ENUM, &oom_mode, "no"), .names = oom_modes, .apply = apply_oom},
    {OPTION("oom-score-adj-values", CONFIG_CUSTOM, NULL, "0 200 800"), .flags = CONFIG_MULTI_ARG, .set = set_oom_values,
     .get = get_oom_values, .apply = apply_oom},
    {OPTION("jemalloc-bg-thread", CONFIG_BOOL, &purge_in_background, "yes"), .apply = apply_purge},
    CPULIST("server-cpulist", "server_cpulist", server_cpulist),
    CPULIST("bio-cpulist", "bio_cpulist", bio_cpulist),
    CPULIST("aof-rewrite-cpulist", "aof_rewrite_cpulist", aof_rewrite_cpulist),
    CPULIST("bgsave-cpulist", "bgsave_cpulist", bgsave_cpulist),
    {.name = NULL},
};

const struct feature process_feature = {
    .name = "process",
    .options = OPTIONS(process_options, watchdog_options, process_title_options, shutdown_options),
    .commands = COMMANDS(shutdown_commands),
};
