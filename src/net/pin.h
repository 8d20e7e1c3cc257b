/* pin.h: puts threads on CPUs. A cpulist is what taskset and the kernel use: "0-3,8", "0,2,4", "0-7:2" (every second). */
#ifndef NET_PIN_H
#define NET_PIN_H
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
bool pin_parse_cpulist(const char *list, cpu_set_t *cpus, char *error, size_t error_size); /* "" is an empty set */
/* Pins the calling thread. An empty or NULL list: nothing to do. 0 or -errno. */
int pin_thread(const char *list);
#endif
