/* descriptors.c: EventLoop*: file descriptors of modules in the loop of the server, and functions that it calls once.
 * One function watches a descriptor for input, and one for output; they may be different. Within a command or a load
 * (nested_turn.h) they only read, as listeners of server events do. */
#include "lib/system/memory.h"
#include "module/module.h"
#include "module/threads.h"
#include "net/event_loop.h"
#include "server/command/dispatch.h"
#include "server/config/config.h"
#include "server/server.h"
#include "store/keyspace.h"
#include <errno.h>

struct module_descriptor {
    struct event_io io; /* io.fd and the masks of the functions that are set */
    struct list_link link;
    ValkeyModuleEventLoopFunc readable, writable;
    void *read_data, *write_data;
    bool runs, gone;
};
static struct list descriptors = LIST_INIT(descriptors);
enum { MASKS = VALKEYMODULE_EVENTLOOP_READABLE | VALKEYMODULE_EVENTLOOP_WRITABLE };
_Static_assert(VALKEYMODULE_EVENTLOOP_READABLE == EVENT_READ && VALKEYMODULE_EVENTLOOP_WRITABLE == EVENT_WRITE,
               "the masks of modules are those of the loop");

static unsigned readers_begin(void) {
    unsigned within = dispatch_running() || server.loading;
    store_settings.readers += within;
    return within;
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
/* A function may remove the descriptor, and add it again: that is then another one. */
static void descriptor_ready(struct event_io *io, int mask) {
    struct module_descriptor *at = container_of(io, struct module_descriptor, io);
    bool outer = at->runs;
    int fd = io->fd;
    unsigned within = readers_begin();
    at->runs = true;
    if (mask & EVENT_READ && at->readable) at->readable(fd, at->read_data, VALKEYMODULE_EVENTLOOP_READABLE);
    if (mask & EVENT_WRITE && !at->gone && at->writable)
        at->writable(fd, at->write_data, VALKEYMODULE_EVENTLOOP_WRITABLE);
    store_settings.readers -= within;
    at->runs = outer;
    if (at->gone && !outer) mem_free(at);
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
    if (mask & VALKEYMODULE_EVENTLOOP_READABLE) at->readable = NULL;
    if (mask & VALKEYMODULE_EVENTLOOP_WRITABLE) at->writable = NULL;
    int left = descriptor_mask(at);
    if (!left)
        descriptor_drop(at);
    else
        event_io_set(server.loop, &at->io, fd, left, descriptor_ready);
    return VALKEYMODULE_OK;
}

struct module_one_shot {
    struct event_post post;
    ValkeyModuleEventLoopOneShotFunc function;
    void *data;
};
static void one_shot_run(struct event_post *post) {
    struct module_one_shot *shot = container_of(post, struct module_one_shot, post);
    unsigned within = readers_begin();
    shot->function(shot->data);
    store_settings.readers -= within;
    mem_free(shot);
}
/* May be called by any thread, without the lock. */
int api_EventLoopAddOneShot(ValkeyModuleEventLoopOneShotFunc func, void *user_data) {
    if (!func) return descriptor_error(EINVAL);
    struct module_one_shot *shot = mem_calloc(1, sizeof *shot);
    *shot = (struct module_one_shot){.post = {.run = one_shot_run}, .function = func, .data = user_data};
    event_loop_post(server.loop, &shot->post);
    return VALKEYMODULE_OK;
}
