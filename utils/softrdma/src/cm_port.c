/* Port numbers of the connection manager, machine-wide without any shared state: a number is taken by binding
 * a name.
 *
 * A bound port has a front door per address: softrdma.<uid>.cm.<space>.<port>.<address>. Wildcards are `any4`
 * and `any6`; an IPv6 wildcard takes both unless it is restricted to its family. A wildcard conflicts with
 * any address and the other way round: both sides bind their own name first and look for the other's second,
 * so two can fail but never both succeed.
 *
 * Ephemeral ports of outgoing connections need no door, only to be unlike everybody's else; binding a name
 * for each would cost a descriptor for each. A process takes them in blocks: first 16, then 512 at a time. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cm.h"
#include "net.h"

#define SMALL_FIRST  32768u
#define SMALL_SIZE   16u
#define SMALL_BLOCKS 1024u
#define LARGE_FIRST  49152u
#define LARGE_SIZE   512u
#define LARGE_BLOCKS 32u

struct port_block {
    struct door door;
    uint32_t first, size, used, next;
    uint8_t taken[LARGE_SIZE];
};

static struct port_block **blocks;
static uint32_t block_count, block_turn;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static bool block_bind(struct port_block *b, uint32_t first, uint32_t size, uint32_t count) {
    uint32_t start = (uint32_t)(arena_head()->uuid >> 20);
    for (uint32_t i = 0; i < count; i++) {
        char name[64];
        b->first = first + (start + i) % count * size;
        b->size = size;
        door_name(name, "ports.%u", b->first);
        if (!door_bind(&b->door, name)) return true;
    }
    return false;
}

static bool block_add(void) {
    struct port_block **bigger = realloc(blocks, (block_count + 1) * sizeof(*blocks));
    if (!bigger) return false;
    blocks = bigger;
    struct port_block *b = calloc(1, sizeof(*b));
    if (!b) return false;
    bool got = (block_count && block_bind(b, LARGE_FIRST, LARGE_SIZE, LARGE_BLOCKS)) ||
               block_bind(b, SMALL_FIRST, SMALL_SIZE, SMALL_BLOCKS) ||
               block_bind(b, LARGE_FIRST, LARGE_SIZE, LARGE_BLOCKS);
    if (!got) {
        free(b);
        return false;
    }
    blocks[block_count++] = b;
    return true;
}

static uint16_t block_take(struct port_block *b) {
    if (b->used == b->size) return 0;
    while (b->taken[b->next % b->size]) b->next++;
    uint32_t at = b->next++ % b->size;
    b->taken[at] = 1;
    b->used++;
    return (uint16_t)(b->first + at);
}

uint16_t port_take_ephemeral(void) {
    uint16_t port = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < block_count && !port; i++) {
        port = block_take(blocks[(block_turn + i) % block_count]);
        if (port) block_turn = (block_turn + i) % block_count;
    }
    if (!port && block_add()) port = block_take(blocks[block_turn = block_count - 1]);
    pthread_mutex_unlock(&lock);
    return port;
}

void port_give_back(uint16_t port) {
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < block_count; i++) {
        struct port_block *b = blocks[i];
        if (port < b->first || port >= b->first + b->size || !b->taken[port - b->first]) continue;
        b->taken[port - b->first] = 0;
        b->used--;
    }
    pthread_mutex_unlock(&lock);
}

static void address_name(char out[64], enum rdma_port_space ps, uint16_t port, const char *key) {
    door_name(out, "cm.%x.%u.%s", (unsigned)ps, port, key);
}

/* Is the port bound to any single address, by anybody of our user? Only the kernel's list of sockets can
 * say. */
static bool any_address_taken(enum rdma_port_space ps, uint16_t port, bool v4, bool v6) {
    char prefix[64], line[512];
    address_name(prefix, ps, port, "");
    FILE *f = fopen("/proc/net/unix", "re");
    if (!f) return false;
    bool taken = false;
    while (!taken && fgets(line, sizeof(line), f)) {
        const char *at = strstr(line, prefix), *key = at ? at + strlen(prefix) : NULL;
        if (!key || !strncmp(key, "any", 3)) continue;
        bool is_v4 = !strncmp(key, "00000000000000000000ffff", 24);
        taken = is_v4 ? v4 : v6;
    }
    fclose(f);
    return taken;
}

static int bind_one(struct cm_port *port, enum rdma_port_space ps, uint16_t number, const char *key) {
    char name[64];
    address_name(name, ps, number, key);
    int r = door_bind(&port->doors[port->door_count], name);
    if (!r) port->door_count++;
    return r;
}

static void close_doors(struct cm_port *port) {
    while (port->door_count) door_close(&port->doors[--port->door_count]);
}

int port_bind(struct cm_port *port, enum rdma_port_space ps, const struct sockaddr *addr, bool af_only) {
    uint16_t number = net_port(addr);
    bool v6 = addr->sa_family == AF_INET6, conflict;
    int r;
    if (net_is_wildcard(addr)) {
        bool v4 = !v6 || !af_only;
        r = v4 ? bind_one(port, ps, number, "any4") : 0;
        if (!r && v6) r = bind_one(port, ps, number, "any6");
        conflict = !r && any_address_taken(ps, number, v4, v6);
    } else {
        char key[40], name[64];
        net_key(key, addr);
        r = bind_one(port, ps, number, key);
        address_name(name, ps, number, v6 ? "any6" : "any4");
        conflict = !r && door_is_taken(name);
    }
    if (!r && conflict) r = -EADDRINUSE;
    if (r)
        close_doors(port);
    else
        port->number = number;
    return r;
}

void port_release(struct cm_port *port) {
    close_doors(port);
    if (port->ephemeral) port_give_back(port->number);
    port->number = 0;
    port->ephemeral = false;
}

uint32_t port_names(char names[3][64], enum rdma_port_space ps, const struct sockaddr *addr) {
    char key[40];
    net_key(key, addr);
    address_name(names[0], ps, net_port(addr), key);
    address_name(names[1], ps, net_port(addr), addr->sa_family == AF_INET6 ? "any6" : "any4");
    names[2][0] = 0;
    return 2;
}

void port_forget(void) {
    blocks = NULL;
    block_count = block_turn = 0;
    pthread_mutex_init(&lock, NULL);
}
