/* mapping.c: which connections become RDMA connections, and what is said about it.
 *
 * valkey-rdma-run passes these variables, which child processes inherit:
 *   VALKEY_RDMA_RUN_MAP      HOST:PORT=HOST:PORT, separated by blanks. The first HOST is an IP address, without
 * brackets and with the port behind the last colon, or * VALKEY_RDMA_RUN_REQUIRE  1: no fallback to TCP
 *   VALKEY_RDMA_RUN_STATUS   the status file
 *   VALKEY_RDMA_RUN_QUIET    1: nothing on standard error
 *   VALKEY_RDMA_RUN_SPIN, VALKEY_RDMA_RUN_TIMEOUT   microseconds, milliseconds */
#include "client/run/run.h"
#include "lib/system/memory.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct mapping *mappings;
static unsigned mapping_count;
static bool required, quiet;
static uint32_t timeout_ms = 2000, spin_us = 50;
static const char *status;

bool mappings_exist(void) {
    return mapping_count > 0;
}
bool mapping_required(void) {
    return required;
}
uint32_t mapping_timeout_ms(void) {
    return timeout_ms;
}
uint32_t mapping_spin_us(void) {
    return spin_us;
}

/* "HOST:PORT" in place. */
static bool split(char *text, char **host, int *port) {
    char *colon = strrchr(text, ':'), *end;
    if (!colon) return false;
    long number = strtol(colon + 1, &end, 10);
    if (*end || end == colon + 1 || number < 1 || number > 65535) return false;
    *colon = '\0';
    *host = text;
    *port = (int)number;
    return true;
}

static bool run_mapping_add(char *text) {
    struct mapping m = {0};
    char *from, *to, *target = strchr(text, '=');
    int port;
    if (!target) return false;
    *target++ = '\0';
    if (!split(text, &from, &port) || !split(target, &to, &m.port) || strlen(to) >= sizeof m.host) return false;
    snprintf(m.text, sizeof m.text, strchr(from, ':') ? "[%s]:%d" : "%s:%d", from, port);
    strcpy(m.host, to);
    struct sockaddr_in *v4 = (struct sockaddr_in *)&m.from;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)&m.from;
    m.any_host = strcmp(from, "*") == 0;
    v4->sin_port = htons((uint16_t)port); /* at the same place in both */
    if (m.any_host || inet_pton(AF_INET, from, &v4->sin_addr) == 1)
        v4->sin_family = AF_INET;
    else if (inet_pton(AF_INET6, from, &v6->sin6_addr) == 1)
        v6->sin6_family = AF_INET6;
    else
        return false;
    mappings = mem_realloc(mappings, (mapping_count + 1) * sizeof *mappings);
    mappings[mapping_count++] = m;
    return true;
}

static uint32_t run_mapping_number_of(const char *name, uint32_t otherwise, uint32_t most) {
    const char *text = getenv(name);
    char *end;
    if (!text || !*text) return otherwise;
    unsigned long value = strtoul(text, &end, 10);
    return *end || value > most ? otherwise : (uint32_t)value;
}

void mappings_read(void) {
    const char *list = getenv("VALKEY_RDMA_RUN_MAP");
    if (!list || !*list) return;
    required = run_mapping_number_of("VALKEY_RDMA_RUN_REQUIRE", 0, 1);
    quiet = run_mapping_number_of("VALKEY_RDMA_RUN_QUIET", 0, 1);
    timeout_ms = run_mapping_number_of("VALKEY_RDMA_RUN_TIMEOUT", timeout_ms, 3600 * 1000);
    spin_us = run_mapping_number_of("VALKEY_RDMA_RUN_SPIN", spin_us, 1000 * 1000);
    status = getenv("VALKEY_RDMA_RUN_STATUS");
    if (status && !*status) status = NULL;
    if (status) status = mem_strdup(status);
    char *copy = mem_strdup(list), *rest = copy, *one;
    while ((one = strsep(&rest, " ")))
        if (*one && !run_mapping_add(one)) say("VALKEY_RDMA_RUN_MAP has an invalid part, which is ignored");
    mem_free(copy);
}

static bool matches(const struct mapping *m, const struct sockaddr *address, socklen_t len) {
    const struct sockaddr_in *v4 = (const struct sockaddr_in *)address, *f4 = (const struct sockaddr_in *)&m->from;
    const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)address, *f6 = (const struct sockaddr_in6 *)&m->from;
    if (address->sa_family == AF_INET && len >= sizeof *v4)
        return v4->sin_port == f4->sin_port &&
               (m->any_host || (f4->sin_family == AF_INET && v4->sin_addr.s_addr == f4->sin_addr.s_addr));
    if (address->sa_family != AF_INET6 || len < sizeof *v6 || v6->sin6_port != f4->sin_port) return false;
    if (m->any_host) return true;
    if (f4->sin_family == AF_INET6) return memcmp(&v6->sin6_addr, &f6->sin6_addr, sizeof v6->sin6_addr) == 0;
    return IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && memcmp(v6->sin6_addr.s6_addr + 12, &f4->sin_addr, 4) == 0;
}

struct mapping *mapping_find(const struct sockaddr *address, socklen_t len) {
    if (!mapping_count || !address || len < sizeof(struct sockaddr_in)) return NULL;
    for (unsigned i = 0; i < mapping_count; i++)
        if (matches(&mappings[i], address, len)) return &mappings[i];
    return NULL;
}

/* --- Messages --- */

static void write_line(int fd, const char *line, size_t len) {
    while (len) {
        ssize_t written = real_write(fd, line, len);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return;
        line += written;
        len -= (size_t)written;
    }
}

static void write_status(const char *text) {
    char line[512];
    if (!status) return;
    int fd = open(status, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) return;
    int len = snprintf(line, sizeof line, "%lld %ld %s\n", (long long)time(NULL), (long)getpid(), text);
    write_line(fd, line, len < (int)sizeof line ? (size_t)len : sizeof line - 1);
    real_close(fd);
}

static void write_error(const char *text) {
    char line[512];
    if (quiet) return;
    int len = snprintf(line, sizeof line, "valkey-rdma-run: %s\n", text);
    write_line(STDERR_FILENO, line, len < (int)sizeof line ? (size_t)len : sizeof line - 1);
}

void say(const char *text) {
    int saved = errno;
    write_error(text);
    write_status(text);
    errno = saved;
}

void mapping_say(struct mapping *mapping, const char *reason) {
    char text[400];
    int now = reason ? 2 : 1, before = mapping->said, saved = errno;
    if (before == now) return;
    mapping->said = now;
    if (!reason)
        snprintf(text, sizeof text, "%s: RDMA", mapping->text);
    else
        snprintf(text, sizeof text, "%s: %s: %s", mapping->text,
                 required ? "no RDMA connection, and --require refuses TCP" : "TCP, not RDMA", reason);
    if (reason || before) write_error(text);
    write_status(text);
    errno = saved;
}
