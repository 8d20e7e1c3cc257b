/* likely.h: branch hints for the compiler, for code that every request runs. */
#pragma once
#define likely(x)   __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
