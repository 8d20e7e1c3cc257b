/* pin.c: CPU lists. */
#include "net/pin.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>

/* Reads a number below CPU_SETSIZE. -1: there is none. */
static int read_number(const char **at) {
    int value = 0;
    if (**at < '0' || **at > '9') return -1;
    while (**at >= '0' && **at <= '9') {
        value = value * 10 + (*(*at)++ - '0');
        if (value >= CPU_SETSIZE) return -1;
    }
    return value;
}

/* Reads one "first", "first-last" or "first-last:step". False: malformed. */
static bool read_range(const char **at, cpu_set_t *cpus) {
    int first = read_number(at), last = first, step = 1;
    if (first < 0) return false;
    if (**at == '-') {
        (*at)++;
        last = read_number(at);
        if (last < first) return false;
        if (**at == ':') {
            (*at)++;
            step = read_number(at);
            if (step < 1) return false;
        }
    }
    for (int cpu = first; cpu <= last; cpu += step) CPU_SET(cpu, cpus);
    return true;
}

bool pin_parse_cpulist(const char *list, cpu_set_t *cpus, char *error, size_t error_size) {
    const char *at = list;
    CPU_ZERO(cpus);
    while (*at) {
        while (*at == ' ') at++;
        if (!*at && at != list) break;
        if (!read_range(&at, cpus)) {
            snprintf(error, error_size, "'%s' is not a CPU list such as \"0-3,8\" or \"0-7:2\" (CPUs below %d)", list,
                     CPU_SETSIZE);
            return false;
        }
        while (*at == ' ') at++;
        if (*at == ',' && at[1])
            at++;
        else if (*at) {
            snprintf(error, error_size, "'%s' is not a CPU list: unexpected '%c'", list, *at);
            return false;
        }
    }
    return true;
}

int pin_thread(const char *list) {
    cpu_set_t cpus;
    char error[1];
    if (!list) return 0;
    if (!pin_parse_cpulist(list, &cpus, error, sizeof error)) return -EINVAL;
    if (CPU_COUNT(&cpus) == 0) return 0;
    return -pthread_setaffinity_np(pthread_self(), sizeof cpus, &cpus);
}
