/* unix.c: Unix domain sockets. socket.c has everything except paths.
 *
 * A socket file left behind by a dead process would make bind() fail, so listening replaces any socket at the path.
 * Closing removes the file, but only if it is still the one that this listener created. */
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "net/socket.h"
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int path_to(const char *path, struct sockaddr_un *address) {
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    if (!path[0]) return -ENOENT;
    if (strlen(path) >= sizeof address->sun_path) return -ENAMETOOLONG;
    strcpy(address->sun_path, path);
    return 0;
}

/* Both ends report the path that was listened on, because a client's own end has no name. */
static bool unix_address(const struct connection *conn, bool peer, struct address *address) {
    struct sockaddr_un found;
    int fd = socket_fd(conn);
    for (int end = 0; end < 2 && fd >= 0; end++) {
        socklen_t len = sizeof found;
        memset(&found, 0, sizeof found);
        if ((end ? getpeername : getsockname)(fd, (struct sockaddr *)&found, &len) < 0) continue;
        if (len <= offsetof(struct sockaddr_un, sun_path) || !found.sun_path[0]) continue;
        snprintf(address->host, sizeof address->host, "%.*s", (int)sizeof found.sun_path - 1, found.sun_path);
        address->port = 0;
        return true;
    }
    return false;
}

static bool unix_is_local(const struct connection *conn) {
    return true;
}

/* --- Connecting --- */

struct unix_dial {
    struct socket_dial dial; /* must be first */
    struct sockaddr_un address;
};

static int unix_attempt(struct socket_dial *base, bool *in_progress) {
    struct unix_dial *dial = (struct unix_dial *)base;
    if (base->last_error) return -base->last_error;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    if (connect(fd, (struct sockaddr *)&dial->address, sizeof dial->address) == 0) return fd;
    int error = errno; /* EAGAIN: the backlog is full; unlike TCP the kernel does not wait for us */
    if (error == EINPROGRESS) {
        *in_progress = true;
        return fd;
    }
    close(fd);
    return -error;
}

static void unix_dial_free(struct socket_dial *base) {
    mem_free(base);
}

static struct connection *unix_connect(struct event_loop *loop, const struct connect_options *options) {
    struct unix_dial *dial = mem_calloc(1, sizeof *dial);
    dial->dial.attempt = unix_attempt;
    dial->dial.free = unix_dial_free;
    int result = path_to(options->host, &dial->address);
    return &socket_connect(loop, &transport_unix, options, &dial->dial, -result, NULL)->conn;
}

/* --- Listening --- */

struct unix_listener {
    struct socket_listener socket; /* must be first */
    dev_t device;
    ino_t inode;
};

static void remove_file(struct socket_listener *base) {
    struct unix_listener *l = (struct unix_listener *)base;
    struct stat now;
    const char *path = base->listener.address.host;
    if (l->inode && stat(path, &now) == 0 && now.st_dev == l->device && now.st_ino == l->inode && unlink(path) == 0)
        log_notice("Removing the unix socket file.");
}

static int set_group(const char *path, const char *name) {
    struct group entry, *found;
    char buffer[16 * 1024];
    int result = getgrnam_r(name, &entry, buffer, sizeof buffer, &found);
    if (result) return -result;
    if (!found) return -ENOENT;
    return chown(path, (uid_t)-1, entry.gr_gid) < 0 ? -errno : 0;
}

static int listening_socket(const struct sockaddr_un *address, const struct listen_options *options) {
    const char *path = address->sun_path;
    struct stat old;
    if (lstat(path, &old) == 0 && S_ISSOCK(old.st_mode)) unlink(path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0) return -errno;
    int result = 0;
    if (bind(fd, (const struct sockaddr *)address, sizeof *address) < 0)
        result = -errno;
    else {
        /* Set the permissions before listen(): until then no client can connect. */
        if (options->unix_mode && chmod(path, (mode_t)options->unix_mode) < 0) result = -errno;
        if (result == 0 && options->unix_group && options->unix_group[0]) result = set_group(path, options->unix_group);
        if (result == 0 && listen(fd, options->backlog > 0 ? options->backlog : 511) < 0) result = -errno;
        if (result < 0) unlink(path);
    }
    if (result == 0) return fd;
    close(fd);
    return result;
}

static struct listener *unix_listen(struct event_loop *loop, const struct listen_options *options, char *error,
                                    size_t error_size) {
    struct sockaddr_un address;
    int fd = path_to(options->host, &address);
    if (fd == 0) fd = listening_socket(&address, options);
    if (fd < 0) {
        snprintf(error, error_size, "Unix: cannot listen on %s: %s", options->host, strerror(-fd));
        errno = -fd;
        return NULL;
    }
    struct unix_listener *l = mem_calloc(1, sizeof *l);
    struct stat made;
    if (stat(address.sun_path, &made) == 0) {
        l->device = made.st_dev;
        l->inode = made.st_ino;
    }
    snprintf(l->socket.listener.address.host, sizeof l->socket.listener.address.host, "%.*s",
             (int)sizeof address.sun_path - 1, address.sun_path);
    l->socket.release = remove_file;
    int result = socket_listener_start(&l->socket, &transport_unix, loop, options, fd);
    if (result < 0) {
        listener_close(&l->socket.listener);
        snprintf(error, error_size, "Unix: cannot listen on %s: %s", options->host, strerror(-result));
        errno = -result;
        return NULL;
    }
    return &l->socket.listener;
}

const struct transport transport_unix = {
    .name = "unix",
    .io = &socket_io_plain,
    .connect = unix_connect,
    .listen = unix_listen,
    SOCKET_OPERATIONS,
    .address = unix_address,
    .is_local = unix_is_local,
};
