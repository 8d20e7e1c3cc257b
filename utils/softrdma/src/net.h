/* The addresses of this machine, and sockaddr helpers. */
#pragma once

#include <infiniband/verbs.h>
#include <netinet/in.h>
#include <stdbool.h>

#define NET_MAX_GIDS 256

/* The GID table of device `device`: the machine's addresses, IPv4 ones in ::ffff: form. */
uint32_t net_gids(uint32_t device, union ibv_gid *out);
uint32_t net_interface_of(const union ibv_gid *gid); /* its index, or 0 */
uint32_t net_device_of(const struct sockaddr *addr);
bool net_is_local(const struct sockaddr *addr); /* may it be bound here? The wildcard may. */
bool net_is_wildcard(const struct sockaddr *addr);
socklen_t net_len(const struct sockaddr *addr);
uint16_t net_port(const struct sockaddr *addr); /* host order */
void net_set_port(struct sockaddr *addr, uint16_t port);
void net_gid_of(const struct sockaddr *addr, union ibv_gid *gid);
/* "any", or the address in hexadecimal */
void net_key(char out[40], const struct sockaddr *addr);
