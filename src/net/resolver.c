/* resolver.c: see resolver.h.
 *
 * Peers may send any number of names, so only the NAMES_MAX that were used last are kept. A caller with more names than
 * that, which asks for one after the other, gets no answer: each name is forgotten before it is asked for again. So
 * there is space for all servers and Sentinels of some large groups.
 *
 * Rejected: getaddrinfo_a() (it is glibc's alone); a queue of results to the event loop (the callers ask again
 * anyway). */
#include "net/resolver.h"
#include "lib/structures/hashtable.h"
#include "lib/structures/linked_list.h"
#include "lib/system/clock.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/thread.h"
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <string.h>

enum { NAMES_MAX = 8192, FRESH_US = 1000 * 1000 };

struct name {
    struct list_link link, wanted_link;
    char *host;
    int result; /* of resolver_find() */
    struct address address;
    uint64_t known_us; /* time of the last answer; 0: there is none */
    bool running;      /* the thread looks it up */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of all below */
static struct list names = LIST_INIT(names);             /* the one that was used last is at the end */
static struct hashtable *by_host;                        /* the same; NULL: none was asked for yet */
static struct list wanted = LIST_INIT(wanted);           /* to be looked up */
static bool running;                                     /* there is a thread */

static struct slice name_key(const void *entry) {
    return slice_of(((const struct name *)entry)->host);
}
static const struct hashtable_type by_host_type = {.key = name_key};

static int look_up(const char *host, struct address *address) {
    static struct log_limit limit = {.interval_us = 1000000}; /* one thread at a time */
    struct addrinfo *found;
    if (address_resolve(host, 0, 0, &found)) {
        log_limited(&limit, LOG_LEVEL_WARNING, "Failed to resolve hostname '%s'", host);
        return -ENOENT;
    }
    bool known = address_from(found->ai_addr, address);
    freeaddrinfo(found);
    return known ? 0 : -ENOENT;
}

static void *resolver_run(void *arg) {
    mem_free(mem_alloc(1)); /* jemalloc prepares a thread at its first call, and crashes if no memory is left then */
    pthread_mutex_lock(&lock);
    while (wanted.len) {
        struct name *name = container_of(list_first(&wanted), struct name, wanted_link);
        struct address address = {0};
        list_remove(&wanted, &name->wanted_link);
        name->running = true;
        pthread_mutex_unlock(&lock);
        int result = look_up(name->host, &address); /* a name that is looked up is not forgotten */
        pthread_mutex_lock(&lock);
        name->running = false;
        name->result = result;
        name->address = address;
        name->known_us = clock_monotonic_us();
    }
    running = false;
    pthread_mutex_unlock(&lock);
    return NULL;
}

static void forget_oldest(void) {
    struct name *oldest = container_of(list_first(&names), struct name, link);
    if (oldest->running) oldest = container_of(oldest->link.next, struct name, link);
    list_remove(&names, &oldest->link);
    hashtable_pop(by_host, name_key(oldest));
    if (list_is_linked(&oldest->wanted_link)) list_remove(&wanted, &oldest->wanted_link);
    mem_free(oldest->host);
    mem_free(oldest);
}

static struct name *name_of(const char *host) {
    if (!by_host) by_host = hashtable_new(&by_host_type);
    struct name *name = hashtable_find(by_host, slice_of(host));
    if (name) {
        list_remove(&names, &name->link);
        list_append(&names, &name->link);
        return name;
    }
    if (names.len == NAMES_MAX) forget_oldest();
    name = mem_calloc(1, sizeof *name);
    name->host = mem_strdup(host);
    name->result = -EAGAIN;
    list_append(&names, &name->link);
    hashtable_add(by_host, name);
    return name;
}

int resolver_find(const char *host, struct address *found) {
    pthread_mutex_lock(&lock);
    struct name *name = name_of(host);
    bool fresh = name->known_us && clock_monotonic_us() - name->known_us < FRESH_US;
    if (!fresh && !name->running && !list_is_linked(&name->wanted_link)) list_append(&wanted, &name->wanted_link);
    if (wanted.len && !running)
        running = thread_create(NULL, resolver_run, NULL) == 0; /* else the next call tries again */
    if (name->result == 0) *found = name->address;
    int result = name->result;
    pthread_mutex_unlock(&lock);
    return result;
}
