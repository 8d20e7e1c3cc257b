/* A program may load librdmacm and libibverbs while it runs and look symbols up in the handle, where a
 * preloaded library is not asked. So the names of the two lead here. This library is linked to both: what it
 * does not define is found in them.
 *
 * Every other dlopen must look as if its caller had called the C library, which searches by the caller's own
 * RUNPATH: hence the tail call, and the optimisation level that guarantees it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base.h"

typedef void *dlopen_function(const char *file, int mode);

static bool is_ours(const char *file) {
    const char *slash = strrchr(file, '/'), *name = slash ? slash + 1 : file;
    return !strncmp(name, "libibverbs.so", 13) || !strncmp(name, "librdmacm.so", 12);
}

static dlopen_function *real_dlopen(void) {
    static dlopen_function *_Atomic real;
    dlopen_function *f = load_relaxed(&real);
    if (f) return f;
    *(void **)&f = dlsym(RTLD_NEXT, "dlopen");
    if (!f) abort();
    store_relaxed(&real, f);
    return f;
}

static const char *own_path(void) {
    Dl_info info;
    return dladdr((void *)(uintptr_t)own_path, &info) ? info.dli_fname : NULL;
}

/* The call of the real dlopen() must be a jump also in a build without optimization. */
#ifdef __clang__
#define JUMPS
#define JUMP __attribute__((musttail))
#else
#define JUMPS __attribute__((optimize("O2")))
#define JUMP
#endif
JUMPS SR_EXPORT void *dlopen(const char *file, int mode) {
    dlopen_function *real = real_dlopen();
    if (unlikely(file && is_ours(file))) file = own_path();
    JUMP return real(file, mode);
}
