/* process_check.c: checks for system settings that make a server slow or lose data. They run at start and for
 * --check-system. */
#include "lib/log.h"
#include "server/process/process.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

enum check_result { CHECK_FAILED = -1, CHECK_SKIPPED, CHECK_OK };

static bool first_line(const char *path, char *text, size_t size) {
    FILE *file = fopen(path, "re");
    bool read = file && fgets(text, (int)size, file);
    if (file) fclose(file);
    if (read) text[strcspn(text, "\n")] = 0;
    return read;
}

/* If reading the clock needs a system call, every loop turn pays for one. */
static enum check_result check_clock(const char **why) {
    enum { CALLS = 50000, SLOW_PERCENT = 10 };
    struct rusage before, after;
    struct timespec now;
    getrusage(RUSAGE_SELF, &before);
    for (int i = 0; i < CALLS; i++) clock_gettime(CLOCK_MONOTONIC, &now);
    getrusage(RUSAGE_SELF, &after);
    long system_us = (after.ru_stime.tv_sec - before.ru_stime.tv_sec) * 1000000L +
                     (after.ru_stime.tv_usec - before.ru_stime.tv_usec);
    long user_us = (after.ru_utime.tv_sec - before.ru_utime.tv_sec) * 1000000L +
                   (after.ru_utime.tv_usec - before.ru_utime.tv_usec);
    *why = "The kernel's clock source is slow: reading the time needs a system call. "
           "/sys/devices/system/clocksource/clocksource0/current_clocksource should say 'tsc' (or 'kvm-clock').";
    return user_us + system_us > 0 && system_us * 100 / (user_us + system_us) > SLOW_PERCENT && system_us > 2000
               ? CHECK_FAILED
               : CHECK_OK;
}

static enum check_result check_xen_clock(const char **why) {
    char text[64];
    *why = "The clock source is 'xen', which is slow; write 'tsc' into "
           "/sys/devices/system/clocksource/clocksource0/current_clocksource.";
    if (!first_line("/sys/devices/system/clocksource/clocksource0/current_clocksource", text, sizeof text))
        return CHECK_SKIPPED;
    return strcmp(text, "xen") == 0 ? CHECK_FAILED : CHECK_OK;
}

static enum check_result check_overcommit(const char **why) {
    char text[64];
    *why = "Memory overcommit must be enabled! Without it, a background save or replication may fail under low memory "
           "condition. To fix this issue "
           "add 'vm.overcommit_memory = 1' to /etc/sysctl.conf, or run 'sysctl vm.overcommit_memory=1'.";
    if (!first_line("/proc/sys/vm/overcommit_memory", text, sizeof text)) return CHECK_SKIPPED;
    return atoi(text) == 1 ? CHECK_OK : CHECK_FAILED;
}

static enum check_result check_huge_pages(const char **why) {
    char text[128];
    *why = "Transparent huge pages are always on: a child that saves makes the server copy 2 MiB for each page that "
           "changes. Run "
           "'echo madvise > /sys/kernel/mm/transparent_hugepage/enabled', or leave disable-thp at yes.";
    if (!first_line("/sys/kernel/mm/transparent_hugepage/enabled", text, sizeof text)) return CHECK_SKIPPED;
    return strstr(text, "[always]") ? CHECK_FAILED : CHECK_OK;
}

static const struct {
    const char *name;
    enum check_result (*check)(const char **why);
} checks[] = {{"slow-clocksource", check_clock},
              {"xen-clocksource", check_xen_clock},
              {"overcommit", check_overcommit},
              {"THP", check_huge_pages}};

int process_check_system(void) {
    int code = 0;
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        const char *why = "";
        printf("[%s]...", checks[i].name);
        enum check_result result = checks[i].check(&why);
        if (result == CHECK_OK)
            printf("OK\n");
        else if (result == CHECK_SKIPPED)
            printf("skipped\n");
        else {
            printf("WARNING:\n%s\n", why);
            code = 1;
        }
    }
    return code;
}

void process_check_system_warnings(void) {
    const char *why;
    if (check_xen_clock(&why) == CHECK_FAILED) log_warning("WARNING %s", why);
    if (check_overcommit(&why) == CHECK_FAILED) log_warning("WARNING %s", why);
}
