/* pin.c: see pin.h. */
#include "net/pin.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

static bool bad(char *error, size_t error_size, const char *what, const char *at) {
    if (error_size) snprintf(error, error_size, "%s at '%.32s'", what, at);
    return false;
}

/* A number of a CPU; moves *at past it. */
static bool cpu_number(const char **at, long *value) {
    if (**at < '0' || **at > '9') return false;
    char *end;
    errno = 0;
    *value = strtol(*at, &end, 10);
    *at = end;
    return errno == 0 && *value < CPU_SETSIZE;
}

bool pin_parse_cpulist(const char *list, cpu_set_t *cpus, char *error, size_t error_size) {
    CPU_ZERO(cpus);
    const char *at = list;
    while (at && *at) {
        long first, last, step = 1;
        if (!cpu_number(&at, &first)) return bad(error, error_size, "no CPU number", at);
        last = first;
        if (*at == '-') {
            at++;
            if (!cpu_number(&at, &last) || last < first) return bad(error, error_size, "no end of a range", at);
            if (*at == ':') {
                at++;
                if (!cpu_number(&at, &step) || step < 1) return bad(error, error_size, "no step of a range", at);
            }
        }
        for (long cpu = first; cpu <= last; cpu += step) CPU_SET((size_t)cpu, cpus);
        if (*at == ',' && at[1]) at++;
        else if (*at) return bad(error, error_size, "no comma", at);
    }
    return true;
}

int pin_thread(const char *list) {
    if (!list || !*list) return 0;
    cpu_set_t cpus;
    char error[64];
    if (!pin_parse_cpulist(list, &cpus, error, sizeof error)) return -EINVAL;
    return sched_setaffinity(0, sizeof cpus, &cpus) < 0 ? -errno : 0;
}
