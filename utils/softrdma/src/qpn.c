/* A process takes numbers in blocks of 1,024 by binding the front door named after the block; the door is
 * also where others ask for the queue pairs in it. Within its blocks a process goes round, so a number that
 * has just been freed does not come back at once. */
#define _GNU_SOURCE
#include "qpn.h"

#include <stdlib.h>
#include <string.h>

#include "peer.h"

#define BLOCK_BITS 10
#define BLOCK_SIZE (1u << BLOCK_BITS)
#define BLOCKS     (1u << (24 - BLOCK_BITS))
#define MAX_OWN    1024

struct block {
    uint32_t number;
    uint32_t used;
    struct door door;
    struct qp *qps[BLOCK_SIZE];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct block *own[MAX_OWN];
static uint32_t own_count, cursor; /* over all own numbers */

void qpn_door(char out[64], uint32_t qpn) {
    door_name(out, "qpn.%u", qpn >> BLOCK_BITS);
}

static bool block_take(void) {
    struct block *block = own_count < MAX_OWN ? calloc(1, sizeof(*block)) : NULL;
    if (!block) return false;
    uint32_t start = (uint32_t)(arena_head()->uuid % BLOCKS) + own_count;
    for (uint32_t i = 0; i < BLOCKS; i++) {
        char name[64];
        block->number = (start + i * 7919) % BLOCKS;
        if (!block->number) continue; /* 0 and 1 mean something on a fabric */
        qpn_door(name, block->number << BLOCK_BITS);
        if (door_bind(&block->door, name)) continue;
        if (door_listen(&block->door)) break;
        own[own_count++] = block;
        cursor = (own_count - 1) * BLOCK_SIZE;
        return true;
    }
    free(block);
    return false;
}

uint32_t qpn_take(struct qp *qp) {
    uint32_t qpn = 0, used = 0;
    pthread_mutex_lock(&lock);
    for (uint32_t i = 0; i < own_count; i++) used += own[i]->used;
    /* A quarter stays free, so that going round takes a while. */
    bool available = used < own_count * (BLOCK_SIZE / 4 * 3) || block_take() || used < own_count * BLOCK_SIZE;
    while (available && !qpn) {
        uint32_t at = cursor++ % (own_count * BLOCK_SIZE);
        struct block *block = own[at / BLOCK_SIZE];
        if (block->qps[at % BLOCK_SIZE]) continue;
        block->qps[at % BLOCK_SIZE] = qp;
        block->used++;
        qpn = block->number << BLOCK_BITS | at % BLOCK_SIZE;
    }
    pthread_mutex_unlock(&lock);
    return qpn;
}

static struct block *block_of(uint32_t qpn) {
    for (uint32_t i = 0; i < own_count; i++)
        if (own[i]->number == qpn >> BLOCK_BITS) return own[i];
    return NULL;
}

void qpn_give_back(uint32_t qpn) {
    pthread_mutex_lock(&lock);
    struct block *block = block_of(qpn);
    if (block && block->qps[qpn % BLOCK_SIZE]) {
        block->qps[qpn % BLOCK_SIZE] = NULL;
        block->used--;
    }
    pthread_mutex_unlock(&lock);
}

struct qp *qpn_find(uint32_t qpn) {
    pthread_mutex_lock(&lock);
    struct block *block = block_of(qpn);
    struct qp *qp = block ? block->qps[qpn % BLOCK_SIZE] : NULL;
    pthread_mutex_unlock(&lock);
    return qp;
}

void qpn_forget(void) {
    own_count = cursor = 0;
    pthread_mutex_init(&lock, NULL);
}
