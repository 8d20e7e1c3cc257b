/* pin.h: puts threads on CPUs, and finds the completion vector whose interrupt is served there. A cpulist is what
 * taskset and the kernel use: "0-3,8", "0,2,4", "0-7:2" (every second). */
#ifndef NET_PIN_H
#define NET_PIN_H
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
bool pin_parse_cpulist(const char *list, cpu_set_t *cpus, char *error, size_t error_size); /* "" is an empty set */
/* Pins the calling thread. An empty or NULL list: nothing to do. 0 or -errno. */
int pin_thread(const char *list);

/* Where the kernel's files are. Tests look into recorded ones. */
struct pin_trees {
    const char *proc, *sys; /* "/proc", "/sys" */
};
extern const struct pin_trees pin_trees_here;

/* Which completion vector of an RDMA device has its interrupt on these CPUs. Best is one that is served on them alone,
 * then one that may be served on them, then one that is served on the other hardware thread of a core of theirs; of
 * several equally good ones a random one, so that servers on the same CPUs share them. -1: there is none to prefer.
 * `reason` then says why, else what was found; it is meant for the log. Reads files: for set-up, not for the hot path.
 */
int pin_completion_vector(const struct pin_trees *trees, const char *device, int vectors, const cpu_set_t *cpus,
                          char *reason, size_t reason_size);
#endif
