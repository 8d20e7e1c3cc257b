/* pin.h: pins threads to CPUs and finds the completion vector whose interrupt those CPUs serve. A cpulist has the
 * format of taskset and the kernel: "0-3,8", "0,2,4", "0-7:2" (every second CPU). */
#pragma once
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
bool pin_parse_cpulist(const char *list, cpu_set_t *cpus, char *error, size_t error_size); /* "" is an empty set */
/* Pins the calling thread. Does nothing for an empty or NULL list. Returns 0 or -errno. */
int pin_thread(const char *list);

/* Roots of the kernel's files. Tests use recorded trees. */
struct pin_trees {
    const char *proc, *sys; /* "/proc", "/sys" */
};
extern const struct pin_trees pin_trees_here;

/* Finds the completion vector of an RDMA device whose interrupt these CPUs serve. The order of preference is: a vector
 * served by these CPUs alone; one that these CPUs may serve; one served by a hardware thread that shares a core with
 * one of them. Among equal vectors it chooses one at random, so that servers on the same CPUs share them. Returns -1
 * if no vector is preferable; `reason` then says why, otherwise it describes the choice, as text for the log. Reads
 * files: call it during set-up, not on the hot path. */
int pin_completion_vector(const struct pin_trees *trees, const char *device, int vectors, const cpu_set_t *cpus,
                          char *reason, size_t reason_size);
