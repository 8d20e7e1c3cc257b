/* socket-options.c: a library that records the values of TCP_NODELAY that a program sets. Another process cannot ask
 * the kernel for them.
 *
 *   LD_PRELOAD=…/socket-options.so SOCKET_OPTIONS=FILE program…
 *
 * Each successful call appends a line "DESCRIPTOR VALUE" to FILE. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void record(int fd, int value) {
    const char *path = getenv("SOCKET_OPTIONS");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    if (file < 0) return;
    dprintf(file, "%d %d\n", fd, value);
    close(file);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t len) {
    static int (*_Atomic real)(int, int, int, const void *, socklen_t);
    int (*set)(int, int, int, const void *, socklen_t) = real;
    if (!set) {
        *(void **)&set = dlsym(RTLD_NEXT, "setsockopt");
        real = set;
    }
    int result = set(fd, level, name, value, len), number;
    if (result < 0 || level != IPPROTO_TCP || name != TCP_NODELAY || len != sizeof number) return result;
    memcpy(&number, value, sizeof number);
    record(fd, number);
    return result;
}
