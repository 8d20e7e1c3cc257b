/* slow-names.c: a library that simulates a name server that does not answer.
 *
 *   LD_PRELOAD=…/slow-names.so SLOW_NAMES=FILE program…
 *
 * getaddrinfo() of a name that ends in ".slow" waits until the file exists. Then the name has the address in the file,
 * or, if the file is empty, none. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int getaddrinfo(const char *host, const char *service, const struct addrinfo *hints, struct addrinfo **found) {
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (!real) *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    size_t len = host ? strlen(host) : 0;
    const char *path = getenv("SLOW_NAMES");
    int numeric = hints && hints->ai_flags & AI_NUMERICHOST;
    if (!path || numeric || len < 5 || strcmp(host + len - 5, ".slow") != 0) return real(host, service, hints, found);
    FILE *file;
    char address[64] = "";
    while (!(file = fopen(path, "r"))) usleep(10000);
    int known = fscanf(file, "%63s", address);
    fclose(file);
    return known == 1 ? real(address, service, hints, found) : EAI_NONAME;
}
