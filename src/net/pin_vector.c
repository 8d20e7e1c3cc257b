/* pin_vector.c: the completion vector for a set of CPUs. See pin.h.
 *
 * Each completion vector of a device is one of its interrupts; the kernel does not say which. It lists interrupts in
 * /proc/interrupts, where drivers name them. This file reads the vector's number from the name:
 *
 *   mlx5_comp3@pci:0000:3b:00.0      vector 3     NVIDIA ConnectX-4 and later
 *   mlx4-4@0000:03:00.0              vector 3     NVIDIA ConnectX-3 (they count from 1)
 *   irdma-0000:4b:00.0-CEQ-3         vector 3     Intel E810 and X722; i40iw-CEQ-3 before
 *   bnxt_re-nq-3@pci:0000:65:00.0    vector 3     Broadcom; bnxt_qplib_nq-3 before
 *   hns-0000:7d:00.0-ceq-3           vector 3     HiSilicon
 *   efa-comp3@pci:0000:00:06.0       vector 3     Amazon
 *
 * The rule is a number after "comp", "ceq-" or "nq-", case ignored, so unlisted drivers with similar names work too.
 * Others ("mlx5_async0", "irdma-…-AEQ", "bnxt_en-eth0-TxRx-3") serve events or the network interface. An interrupt
 * belongs to the device if its name contains the device's PCI address, or if the device's directory lists it among its
 * message-signalled interrupts (msi_irqs).
 *
 * The CPUs of an interrupt are in effective_affinity_list (the setting of the hardware) if the kernel has that file,
 * else in smp_affinity_list (the CPUs it may choose from). Recent kernels create mlx5 interrupts when a vector is first
 * used; such a vector is not found before.
 *
 * Rejected: hwloc (knows where the device is, not where its interrupts go); numbering the interrupts in their order
 * (the event queues come before or between them, and differ by driver and version). */
#include "lib/system/random.h"
#include "net/pin.h"
#include <ctype.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

const struct pin_trees pin_trees_here = {"/proc", "/sys"};

enum { LINE = 64 * 1024, LIST = 4096 }; /* /proc/interrupts has a column a CPU */

/* The first line of a file, without its end. False: none. */
static bool read_line(const char *path, char *line, size_t size) {
    FILE *file = fopen(path, "re");
    if (!file) return false;
    bool read = fgets(line, (int)size, file) != NULL;
    fclose(file);
    if (read) line[strcspn(line, "\n")] = 0;
    return read;
}

static bool read_cpus(const char *path, cpu_set_t *cpus) {
    char list[LIST], error[1];
    return read_line(path, list, sizeof list) && pin_parse_cpulist(list, cpus, error, sizeof error) &&
           CPU_COUNT(cpus) > 0;
}

/* The CPUs that serve an interrupt. */
static bool interrupt_cpus(const struct pin_trees *trees, unsigned irq, cpu_set_t *cpus) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/irq/%u/effective_affinity_list", trees->proc, irq);
    if (read_cpus(path, cpus)) return true;
    snprintf(path, sizeof path, "%s/irq/%u/smp_affinity_list", trees->proc, irq);
    return read_cpus(path, cpus);
}

/* "0000:3b:00.0" of the device. False: it is not on a PCI bus. */
static bool pci_address(const struct pin_trees *trees, const char *device, char *address, size_t size) {
    char path[PATH_MAX], target[PATH_MAX];
    snprintf(path, sizeof path, "%s/class/infiniband/%s/device", trees->sys, device);
    if (!realpath(path, target)) return false;
    const char *last = strrchr(target, '/') + 1;
    unsigned domain, bus, slot, function;
    int end = 0;
    if (sscanf(last, "%x:%x:%x.%x%n", &domain, &bus, &slot, &function, &end) != 4 || last[end]) return false;
    return (size_t)snprintf(address, size, "%s", last) < size;
}

static bool number_after(const char *name, const char *key, int *number) {
    for (const char *at = name; (at = strcasestr(at, key)); at++) {
        const char *digits = at + strlen(key);
        if (!isdigit((unsigned char)*digits)) continue;
        long value = strtol(digits, NULL, 10);
        if (value > INT_MAX / 2) return false;
        *number = (int)value;
        return true;
    }
    return false;
}

/* The vector that an interrupt of that name serves. -1: none. */
static int vector_of_name(const char *name) {
    int number;
    if (strncmp(name, "mlx4-", 5) == 0) return number_after(name, "mlx4-", &number) && number > 0 ? number - 1 : -1;
    static const char *const keys[] = {"comp", "ceq-", "nq-"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (number_after(name, keys[i], &number)) return number;
    return -1;
}

/* The interrupt's number, and the last word of its line, where drivers put the name. */
static bool split_line(char *line, unsigned *irq, const char **name) {
    char *end;
    unsigned long number = strtoul(line, &end, 10);
    if (end == line || *end != ':' || number > UINT_MAX) return false; /* the heading; NMI, LOC and the like */
    size_t len = strlen(line);
    while (len && isspace((unsigned char)line[len - 1])) line[--len] = 0;
    char *last = strrchr(line, ' ');
    if (!last) return false;
    *irq = (unsigned)number;
    *name = last + 1;
    return true;
}

static bool belongs(const struct pin_trees *trees, const char *device, const char *address, unsigned irq,
                    const char *name) {
    if (strstr(name, address)) return true;
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/class/infiniband/%s/device/msi_irqs/%u", trees->sys, device, irq);
    return access(path, F_OK) == 0;
}

/* All hardware threads of the cores of these CPUs. */
static void with_siblings(const struct pin_trees *trees, const cpu_set_t *cpus, cpu_set_t *all) {
    *all = *cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++) {
        if (!CPU_ISSET(cpu, cpus)) continue;
        char path[PATH_MAX];
        cpu_set_t threads;
        snprintf(path, sizeof path, "%s/devices/system/cpu/cpu%d/topology/thread_siblings_list", trees->sys, cpu);
        if (read_cpus(path, &threads)) CPU_OR(all, all, &threads);
    }
}

enum rank { RANK_NONE, RANK_SIBLING, RANK_SHARED, RANK_OWN };
struct choice {
    enum rank rank;
    int vector, equal, seen; /* equal: number of equally good vectors; seen: vectors of the device that were found */
    unsigned irq;
    char name[64];
};

static void consider(struct choice *best, enum rank rank, int vector, unsigned irq, const char *name) {
    if (rank == RANK_NONE || rank < best->rank) return;
    best->equal = rank == best->rank ? best->equal + 1 : 1;
    best->rank = rank;
    if (random_below((uint64_t)best->equal) != 0) return;
    best->vector = vector;
    best->irq = irq;
    snprintf(best->name, sizeof best->name, "%s", name);
}

static enum rank rank_of(const cpu_set_t *served, const cpu_set_t *cpus, const cpu_set_t *siblings) {
    cpu_set_t common;
    CPU_AND(&common, served, cpus);
    if (CPU_EQUAL(&common, served)) return RANK_OWN;
    if (CPU_COUNT(&common) > 0) return RANK_SHARED;
    CPU_AND(&common, served, siblings);
    return CPU_COUNT(&common) > 0 ? RANK_SIBLING : RANK_NONE;
}

static bool search(const struct pin_trees *trees, const char *device, const char *address, int vectors,
                   const cpu_set_t *cpus, struct choice *best) {
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/interrupts", trees->proc);
    FILE *file = fopen(path, "re");
    if (!file) return false;
    cpu_set_t siblings;
    with_siblings(trees, cpus, &siblings);
    char line[LINE];
    while (fgets(line, sizeof line, file)) {
        unsigned irq;
        const char *name;
        if (!split_line(line, &irq, &name)) continue;
        int vector = vector_of_name(name);
        cpu_set_t served;
        if (vector < 0 || vector >= vectors || !belongs(trees, device, address, irq, name)) continue;
        best->seen++;
        if (interrupt_cpus(trees, irq, &served)) consider(best, rank_of(&served, cpus, &siblings), vector, irq, name);
    }
    fclose(file);
    return true;
}

/* Whether the thread may run on all CPUs. Then no CPU is preferable. */
static bool is_pinned(const struct pin_trees *trees, const cpu_set_t *cpus) {
    char path[PATH_MAX];
    cpu_set_t online, common;
    snprintf(path, sizeof path, "%s/devices/system/cpu/online", trees->sys);
    if (!read_cpus(path, &online)) return true;
    CPU_AND(&common, &online, cpus);
    return !CPU_EQUAL(&common, &online) || CPU_COUNT(&online) == 1;
}

int pin_completion_vector(const struct pin_trees *trees, const char *device, int vectors, const cpu_set_t *cpus,
                          char *reason, size_t reason_size) {
    char address[32];
    struct choice best = {.vector = -1};
    if (!is_pinned(trees, cpus)) {
        snprintf(reason, reason_size, "the server is pinned to no CPU (server-cpulist)");
    } else if (!pci_address(trees, device, address, sizeof address)) {
        snprintf(reason, reason_size, "%s is no PCI device and has no interrupts", device);
    } else if (!search(trees, device, address, vectors, cpus, &best)) {
        snprintf(reason, reason_size, "%s/interrupts cannot be read", trees->proc);
    } else if (best.seen == 0) {
        snprintf(reason, reason_size, "no interrupt in %s/interrupts has the name of a completion vector of %s (%s)",
                 trees->proc, device, address);
    } else if (best.rank == RANK_NONE) {
        snprintf(reason, reason_size, "none of the %d interrupts of %s is served on the server's CPUs or beside them",
                 best.seen, device);
    } else {
        static const char *const how[] = {[RANK_OWN] = "on the server's CPUs",
                                          [RANK_SHARED] = "on the server's CPUs and others",
                                          [RANK_SIBLING] = "on the other thread of a core of the server's"};
        snprintf(reason, reason_size, "interrupt %u (%s) is served %s", best.irq, best.name, how[best.rank]);
        return best.vector;
    }
    return -1;
}
