/* process_check.c: checks for system settings that make a server slow or lose data. They run at start and for
 * --check-system. Those of RDMA are in process_check_rdma.c.
 *
 * The output has the form of Valkey's: "[name]...OK", "[name]...skipped" or "[name]...WARNING:" with an explanation on
 * the next line; the exit status is 1 if a check failed. The checks of RDMA add what they found to OK and skipped.
 *
 * Except for the speed of the clock, which is measured, all checks read files below a root that the caller gives: tests
 * use recorded files. */
#include "server/process/process_check.h"
#include "lib/system/log.h"
#include "server/process/process.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static const char clock_file[] = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

void check_say(struct process_check *check, const char *format, ...) {
    size_t len = strlen(check->text);
    va_list args;
    va_start(args, format);
    vsnprintf(check->text + len, sizeof check->text - len, format, args);
    va_end(args);
}

bool check_line(const struct process_check *check, char *line, size_t size, const char *format, ...) {
    char path[4096];
    size_t len = (size_t)snprintf(path, sizeof path, "%s", check->root);
    if (len >= sizeof path) return false;
    va_list args;
    va_start(args, format);
    int more = vsnprintf(path + len, sizeof path - len, format, args);
    va_end(args);
    if (more < 0 || (size_t)more >= sizeof path - len) return false;
    FILE *file = fopen(path, "re");
    bool read = file && fgets(line, (int)size, file);
    if (file) fclose(file);
    if (read) line[strcspn(line, "\n")] = 0;
    return read;
}

/* If reading the clock needs a system call, every loop turn pays for one. */
static enum check_result check_clock(struct process_check *check) {
    enum { CALLS = 50000, SLOW_PERCENT = 10 };
    struct rusage before, after;
    struct timespec now;
    if (*check->root) return CHECK_SKIPPED; /* the clock of this machine is not that of the recorded one */
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < CALLS; i++) clock_gettime(CLOCK_MONOTONIC, &now);
    getrusage(RUSAGE_SELF, &after);
    long system_us = (after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000L +
                     (after.ru_stime.tv_usec - before.ru_stime.tv_usec);
    long user_us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000L +
                   (after.ru_utime.tv_usec - before.ru_utime.tv_usec);
    check_say(check,
              "The kernel's clock source is slow: reading the time needs a system call. %s should say 'tsc' (or "
              "'kvm-clock'). Run 'echo tsc > %s' as root, and add 'clocksource=tsc' to the kernel's command line.",
              clock_file, clock_file);
    return user_us + system_us > 0 && system_us * 100 / (user_us + system_us) > SLOW_PERCENT && system_us > 2000
               ? CHECK_FAILED
               : CHECK_OK;
}

static enum check_result check_xen_clock(struct process_check *check) {
    char line[64];
    if (!check_line(check, line, sizeof line, "%s", clock_file)) return CHECK_SKIPPED;
    check_say(check, "The clock source is 'xen', which is slow. Run 'echo tsc > %s' as root.", clock_file);
    return strcmp(line, "xen") == 0 ? CHECK_FAILED : CHECK_OK;
}

static enum check_result check_overcommit(struct process_check *check) {
    char line[64];
    if (!check_line(check, line, sizeof line, "/proc/sys/vm/overcommit_memory")) return CHECK_SKIPPED;
    check_say(check, "Memory overcommit must be enabled! Without it, a background save or replication may fail under "
                     "low memory condition. Being disabled, it can also cause failures without low memory condition, "
                     "see https://github.com/jemalloc/jemalloc/issues/1328. To fix this issue add "
                     "'vm.overcommit_memory = 1' to /etc/sysctl.conf and then reboot or run the command 'sysctl "
                     "vm.overcommit_memory=1' for this to take effect.");
    return atoi(line) == 1 ? CHECK_OK : CHECK_FAILED;
}

static enum check_result check_huge_pages(struct process_check *check) {
    char line[128];
    if (!check_line(check, line, sizeof line, "/sys/kernel/mm/transparent_hugepage/enabled")) return CHECK_SKIPPED;
    check_say(check, "Transparent huge pages are always on: a child that saves makes the server copy 2 MiB for each "
                     "page that changes. Run 'echo madvise > /sys/kernel/mm/transparent_hugepage/enabled', or leave "
                     "disable-thp at yes.");
    return strstr(line, "[always]") ? CHECK_FAILED : CHECK_OK;
}

static const struct check_entry checks[] = {{"slow-clocksource", check_clock},
                                            {"xen-clocksource", check_xen_clock},
                                            {"overcommit", check_overcommit},
                                            {"THP", check_huge_pages},
                                            {NULL, NULL}};

/* Returns the number of failed checks. */
static int run_checks(const struct check_entry *entry, const char *root, bool details) {
    int failed = 0;
    for (; entry->name; entry++) {
        struct process_check check = {.root = root};
        printf("[%s]...", entry->name);
        fflush(stdout);
        enum check_result result = entry->run(&check);
        if (result == CHECK_FAILED) {
            printf("WARNING:\n%s\n", check.text);
            failed++;
        } else {
            bool more = details && check.text[0];
            printf("%s%s%s\n", result == CHECK_OK ? "OK" : "skipped", more ? ": " : "", more ? check.text : "");
        }
    }
    return failed;
}

int process_check_system(const char *root) {
    int failed = run_checks(checks, root, false);
    failed += run_checks(process_checks_rdma, root, true);
    return failed > 0;
}

void process_check_system_warnings(void) {
    struct process_check check = {.root = ""};
    if (check_xen_clock(&check) == CHECK_FAILED) log_warning("WARNING %s", check.text);
    check.text[0] = 0;
    if (check_overcommit(&check) == CHECK_FAILED) log_warning("WARNING %s", check.text);
}
