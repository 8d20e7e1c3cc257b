/* See net.h. With several devices the addresses are dealt out to them in turn, so that a program meets
 * requests on different devices according to the address it was reached by. */
#define _GNU_SOURCE
#include "net.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "config.h"

socklen_t net_len(const struct sockaddr *addr) {
    return addr->sa_family == AF_INET6 ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
}

uint16_t net_port(const struct sockaddr *addr) {
    if (addr->sa_family == AF_INET) return ntohs(((const struct sockaddr_in *)addr)->sin_port);
    if (addr->sa_family == AF_INET6) return ntohs(((const struct sockaddr_in6 *)addr)->sin6_port);
    return 0;
}

void net_set_port(struct sockaddr *addr, uint16_t port) {
    if (addr->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)addr)->sin6_port = htons(port);
    else
        ((struct sockaddr_in *)addr)->sin_port = htons(port);
}

void net_gid_of(const struct sockaddr *addr, union ibv_gid *gid) {
    memset(gid, 0, sizeof(*gid));
    if (addr->sa_family == AF_INET6) {
        memcpy(gid->raw, &((const struct sockaddr_in6 *)addr)->sin6_addr, 16);
    } else {
        gid->raw[10] = gid->raw[11] = 0xff;
        memcpy(gid->raw + 12, &((const struct sockaddr_in *)addr)->sin_addr, 4);
    }
}

bool net_is_wildcard(const struct sockaddr *addr) {
    if (addr->sa_family == AF_INET) return ((const struct sockaddr_in *)addr)->sin_addr.s_addr == INADDR_ANY;
    return IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)addr)->sin6_addr);
}

bool net_is_local(const struct sockaddr *addr) {
    struct sockaddr_storage any_port = {0};
    memcpy(&any_port, addr, net_len(addr));
    net_set_port((struct sockaddr *)&any_port, 0);
    int fd = socket(addr->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return false;
    bool local = !bind(fd, (struct sockaddr *)&any_port, net_len(addr));
    close(fd);
    return local;
}

void net_key(char out[40], const struct sockaddr *addr) {
    if (net_is_wildcard(addr)) {
        strcpy(out, "any");
        return;
    }
    union ibv_gid gid;
    net_gid_of(addr, &gid);
    for (int i = 0; i < 16; i++) sprintf(out + 2 * i, "%02x", gid.raw[i]);
}

/* IPv4 before IPv6, loopback last of each: index 0 is the address others would use. */
static int rank(const struct ifaddrs *ifa) {
    bool loopback = ifa->ifa_flags & IFF_LOOPBACK;
    if (ifa->ifa_addr->sa_family == AF_INET) return loopback ? 1 : 0;
    const struct in6_addr *in6 = &((const struct sockaddr_in6 *)ifa->ifa_addr)->sin6_addr;
    return loopback ? 4 : IN6_IS_ADDR_LINKLOCAL(in6) ? 3 : 2;
}

static uint32_t all_gids(union ibv_gid *out) {
    struct ifaddrs *list;
    uint32_t n = 0;
    if (getifaddrs(&list)) return 0;
    for (int wanted = 0; wanted < 5; wanted++)
        for (struct ifaddrs *ifa = list; ifa && n < NET_MAX_GIDS; ifa = ifa->ifa_next) {
            if (!ifa->ifa_addr || (ifa->ifa_addr->sa_family != AF_INET && ifa->ifa_addr->sa_family != AF_INET6))
                continue;
            if (!(ifa->ifa_flags & IFF_UP) || rank(ifa) != wanted) continue;
            net_gid_of(ifa->ifa_addr, &out[n++]);
        }
    freeifaddrs(list);
    return n;
}

uint32_t net_gids(uint32_t device, union ibv_gid *out) {
    union ibv_gid all[NET_MAX_GIDS];
    uint32_t n = all_gids(all), mine = 0, devices = config()->devices ? config()->devices : 1;
    for (uint32_t i = device; i < n; i += devices) out[mine++] = all[i];
    return mine;
}

uint32_t net_interface_of(const union ibv_gid *gid) {
    struct ifaddrs *list;
    uint32_t index = 0;
    if (getifaddrs(&list)) return 0;
    for (struct ifaddrs *ifa = list; ifa && !index; ifa = ifa->ifa_next) {
        union ibv_gid its;
        if (!ifa->ifa_addr || (ifa->ifa_addr->sa_family != AF_INET && ifa->ifa_addr->sa_family != AF_INET6)) continue;
        net_gid_of(ifa->ifa_addr, &its);
        if (!memcmp(&its, gid, sizeof(its))) index = if_nametoindex(ifa->ifa_name);
    }
    freeifaddrs(list);
    return index;
}

uint32_t net_device_of(const struct sockaddr *addr) {
    union ibv_gid all[NET_MAX_GIDS], gid;
    if (config()->devices < 2) return 0;
    uint32_t n = all_gids(all);
    net_gid_of(addr, &gid);
    for (uint32_t i = 0; i < n; i++)
        if (!memcmp(&all[i], &gid, sizeof(gid))) return i % config()->devices;
    return 0;
}
