/* ticks.c: see ticks.h. The rate is calibrated against the kernel's monotonic clock, first over a short spin, later
 * over the whole time since the start for better precision. A counter that the CPU does not guarantee to be invariant
 * is not used. */
#include "lib/system/ticks.h"
#include <pthread.h>
#include <stdio.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

enum { FIRST_MEASURE_US = 300 };

bool ticks_from_cpu;
_Atomic double ticks_rate = 1000;
static uint64_t start_ticks, start_ns;

static bool counter_is_constant(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1u << 8)); /* invariant TSC */
#elif defined(__aarch64__)
    return true; /* the generic timer is always constant */
#else
    return false;
#endif
}

void ticks_measure(void) {
    if (!ticks_from_cpu) return;
    uint64_t ns = clock_monotonic_ns() - start_ns, ticks = ticks_now() - start_ticks;
    if (ns >= FIRST_MEASURE_US * 1000u) ticks_rate = (double)ticks * 1000 / (double)ns;
}

static void start(void) {
    ticks_from_cpu = counter_is_constant();
    start_ns = clock_monotonic_ns();
    start_ticks = ticks_now();
    if (!ticks_from_cpu) return;
    while (clock_monotonic_ns() - start_ns < FIRST_MEASURE_US * 1000u) {
    }
    ticks_measure();
    if (ticks_per_us() < 1) { /* the counter does not advance: unusable */
        ticks_from_cpu = false;
        ticks_rate = 1000;
    }
}

void ticks_start(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, start);
}

const char *ticks_describe(void) {
    static char text[64];
    if (!ticks_from_cpu) return "POSIX clock_gettime";
#if defined(__x86_64__)
    snprintf(text, sizeof text, "X86 TSC @ %.0f ticks/us", ticks_per_us());
#else
    snprintf(text, sizeof text, "ARM CNTVCT @ %.0f ticks/us", ticks_per_us());
#endif
    return text;
}
