/* likely.h: branch hints for the compiler, for code that every request runs. */
#ifndef LIB_SYSTEM_LIKELY_H
#define LIB_SYSTEM_LIKELY_H
#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#endif
