/* descriptors.c: EventLoop*: file descriptors of modules in the loop of the server, and functions that it calls once.
 * One function watches a descriptor for input, and one for output; they may be different. Within a command or a load
 * (nested_turn.h) they only read, as listeners of server events do.
 *
 * The functions of the interface have no context, and any thread may add a function that is called once. So it is the
 * address of a function that tells whose it is: those of a library that is about to be closed are removed. */
#include "lib/system/memory.h"
#include "module/module.h"
#include "net/event_loop.h"
#include "server/command/dispatch.h"
#include "server/config/config.h"
#include "server/server.h"
#include "store/keyspace.h"
#include <errno.h>
#include <pthread.h>

struct module_descriptor {
    struct event_io io; /* io.fd and the masks of the functions that are set */
    struct list_link link;
    ValkeyModuleEventLoopFunc readable, writable;
    void *read_data, *write_data;
    bool runs, gone;
};
static struct list descriptors = LIST_INIT(descriptors);
/* The functions of a module that run now, the innermost first: turns of the loop nest. */
struct module_running {
    const struct module_running *outer;
    const void *base;
};
static const struct module_running *running;
enum { MASKS = VALKEYMODULE_EVENTLOOP_READABLE | VALKEYMODULE_EVENTLOOP_WRITABLE };
_Static_assert(VALKEYMODULE_EVENTLOOP_READABLE == EVENT_READ && VALKEYMODULE_EVENTLOOP_WRITABLE == EVENT_WRITE,
               "the masks of modules are those of the loop");

static unsigned function_begin(struct module_running *self, const void *function) {
    unsigned within = dispatch_running() || server.loading;
    store_settings.readers += within;
    *self = (struct module_running){running, module_base_of(function)};
    running = self;
    return within;
}
static void function_end(const struct module_running *self, unsigned within) {
    running = self->outer;
    store_settings.readers -= within;
}
bool module_descriptors_run(const struct module *module) {
    for (const struct module_running *at = running; at; at = at->outer)
        if (at->base == module->base) return true;
    return false;
}

static int descriptor_mask(const struct module_descriptor *at) {
    return (at->readable ? EVENT_READ : 0) | (at->writable ? EVENT_WRITE : 0);
}
static struct module_descriptor *descriptor_find(int fd) {
    list_each(&descriptors, link) {
        struct module_descriptor *at = container_of(link, struct module_descriptor, link);
        if (at->io.fd == fd) return at;
    }
    return NULL;
}
static void descriptor_drop(struct module_descriptor *at) {
    event_io_remove(server.loop, &at->io);
    if (list_is_linked(&at->link)) list_remove(&descriptors, &at->link);
    at->gone = true;
    if (!at->runs) mem_free(at);
}
static void descriptor_call(int fd, ValkeyModuleEventLoopFunc function, void *data, int mask) {
    struct module_running self;
    unsigned within = function_begin(&self, (const void *)function);
    function(fd, data, mask);
    function_end(&self, within);
}
/* A function may remove the descriptor, and add it again: that is then another one. */
static void descriptor_ready(struct event_io *io, int mask) {
    struct module_descriptor *at = container_of(io, struct module_descriptor, io);
    bool outer = at->runs;
    at->runs = true;
    if (mask & EVENT_READ && at->readable)
        descriptor_call(io->fd, at->readable, at->read_data, VALKEYMODULE_EVENTLOOP_READABLE);
    if (mask & EVENT_WRITE && !at->gone && at->writable)
        descriptor_call(io->fd, at->writable, at->write_data, VALKEYMODULE_EVENTLOOP_WRITABLE);
    at->runs = outer;
    if (at->gone && !outer) mem_free(at);
}

static void descriptor_remove(struct module_descriptor *at, int mask) {
    if (mask & VALKEYMODULE_EVENTLOOP_READABLE) at->readable = NULL;
    if (mask & VALKEYMODULE_EVENTLOOP_WRITABLE) at->writable = NULL;
    int left = descriptor_mask(at);
    if (!left)
        descriptor_drop(at);
    else
        event_io_set(server.loop, &at->io, at->io.fd, left, descriptor_ready);
}

static int descriptor_error(int error) {
    errno = error;
    return VALKEYMODULE_ERR;
}
static bool descriptor_in_range(int fd) {
    enum { RESERVED = 128 }; /* of the server itself */
    return fd >= 0 && fd < (int)config_number("maxclients") + RESERVED;
}
int api_EventLoopAdd(int fd, int mask, ValkeyModuleEventLoopFunc func, void *user_data) {
    if (!descriptor_in_range(fd)) return descriptor_error(ERANGE);
    if (!func || mask & ~MASKS) return descriptor_error(EINVAL);
    struct module_descriptor *at = descriptor_find(fd);
    bool is_new = !at;
    if (is_new) {
        at = mem_calloc(1, sizeof *at);
        at->io.fd = -1;
    }
    struct module_descriptor before = *at;
    if (mask & VALKEYMODULE_EVENTLOOP_READABLE) at->readable = func, at->read_data = user_data;
    if (mask & VALKEYMODULE_EVENTLOOP_WRITABLE) at->writable = func, at->write_data = user_data;
    int wanted = descriptor_mask(at),
        error = wanted ? event_io_set(server.loop, &at->io, fd, wanted, descriptor_ready) : 0;
    if (error < 0) {
        at->readable = before.readable, at->read_data = before.read_data;
        at->writable = before.writable, at->write_data = before.write_data;
    }
    if (is_new && (error < 0 || !wanted))
        mem_free(at);
    else if (is_new)
        list_append(&descriptors, &at->link);
    return error < 0 ? descriptor_error(-error) : VALKEYMODULE_OK;
}
int api_EventLoopDel(int fd, int mask) {
    if (!descriptor_in_range(fd)) return descriptor_error(ERANGE);
    if (mask & ~MASKS) return descriptor_error(EINVAL);
    struct module_descriptor *at = descriptor_find(fd);
    if (!at) return VALKEYMODULE_OK;
    descriptor_remove(at, mask);
    return VALKEYMODULE_OK;
}

struct module_one_shot {
    struct event_post post;
    struct list_link link;
    const void *base;
    ValkeyModuleEventLoopOneShotFunc function; /* NULL: its module is gone */
    void *data;
};
static struct list one_shots = LIST_INIT(one_shots); /* that have not run */
static pthread_mutex_t one_shots_lock = PTHREAD_MUTEX_INITIALIZER;

static void one_shot_free(struct event_post *post) {
    struct module_one_shot *shot = container_of(post, struct module_one_shot, post);
    pthread_mutex_lock(&one_shots_lock);
    list_remove(&one_shots, &shot->link);
    pthread_mutex_unlock(&one_shots_lock);
    mem_free(shot);
}
static void one_shot_run(struct event_post *post) {
    struct module_one_shot shot = *container_of(post, struct module_one_shot, post);
    one_shot_free(post);
    if (!shot.function) return;
    struct module_running self;
    unsigned within = function_begin(&self, (const void *)shot.function);
    shot.function(shot.data);
    function_end(&self, within);
}
/* May be called by any thread, without the lock. */
int api_EventLoopAddOneShot(ValkeyModuleEventLoopOneShotFunc func, void *user_data) {
    if (!func) return descriptor_error(EINVAL);
    struct module_one_shot *shot = mem_calloc(1, sizeof *shot);
    *shot = (struct module_one_shot){.post = {.run = one_shot_run, .drop = one_shot_free},
                                     .base = module_base_of((const void *)func),
                                     .function = func,
                                     .data = user_data};
    pthread_mutex_lock(&one_shots_lock);
    list_append(&one_shots, &shot->link);
    pthread_mutex_unlock(&one_shots_lock);
    event_loop_post(server.loop, &shot->post);
    return VALKEYMODULE_OK;
}

void module_descriptors_drop(const struct module *module) {
    list_each(&descriptors, link) {
        struct module_descriptor *at = container_of(link, struct module_descriptor, link);
        int mask = 0;
        if (at->readable && module_base_of((const void *)at->readable) == module->base) mask |= EVENT_READ;
        if (at->writable && module_base_of((const void *)at->writable) == module->base) mask |= EVENT_WRITE;
        if (mask) descriptor_remove(at, mask);
    }
    pthread_mutex_lock(&one_shots_lock);
    list_each(&one_shots, link) {
        struct module_one_shot *shot = container_of(link, struct module_one_shot, link);
        if (shot->base == module->base) shot->function = NULL;
    }
    pthread_mutex_unlock(&one_shots_lock);
}
