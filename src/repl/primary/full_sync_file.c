/* full_sync_file.c: see full_sync_file.h. */
#include "repl/primary/full_sync_file.h"
#include "lib/system/log.h"
#include "persistence/save_points.h"
#include "persistence/snapshot.h"
#include "repl/primary/full_sync.h"
#include "repl/primary/full_sync_slow.h"
#include "repl/primary/primary.h"
#include "server/process/child.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE = 256 * 1024 };

void full_sync_file_send(struct replica *replica) {
    struct connection *conn = replica->client->conn;
    while (replica->copy.file_left && conn_is_open(conn) && !replica_is_full(replica)) {
        size_t len = replica->copy.file_left < PIECE ? (size_t)replica->copy.file_left : PIECE;
        struct blob *piece = blob_new(len, len);
        ssize_t got;
        do got = read(replica->copy.file, piece->data, len);
        while (got < 0 && errno == EINTR);
        if (got <= 0) {
            log_warning("Read error sending DB to replica: %s", got ? strerror(errno) : "premature EOF");
            blob_release(piece);
            replica_close(replica);
            return;
        }
        piece->len = (size_t)got;
        replica->copy.file_left -= (size_t)got;
        replica_pass(replica, piece);
        blob_release(piece);
    }
    if (replica->copy.file_left) return;
    close(replica->copy.file);
    replica->copy.file = -1;
    replica_put_online(replica, false);
}

static bool file_open(struct replica *replica) {
    struct stat status;
    replica->copy.file = open(snapshot_path(), O_RDONLY | O_CLOEXEC);
    if (replica->copy.file >= 0 && fstat(replica->copy.file, &status) == 0) {
        replica->copy.file_left = (uint64_t)status.st_size;
        return true;
    }
    log_warning("SYNC failed. Can't open/stat DB after BGSAVE: %s", strerror(errno));
    return false;
}

static void file_saved(bool success) {
    list_each_entry(&replicas, struct replica, link, replica) {
        char head[32];
        if (replica->state != REPLICA_FILE) continue;
        if (!success) log_warning("SYNC failed. BGSAVE child returned an error");
        if (!success) full_sync_slow_forget(replica);
        if (!success || !file_open(replica)) {
            replica_close(replica);
            continue;
        }
        replica->state = REPLICA_FILE_TRANSFER;
        int len = snprintf(head, sizeof head, "$%llu\r\n", (unsigned long long)replica->copy.file_left);
        replica_write(replica, (struct slice){head, (size_t)len});
        full_sync_file_send(replica);
    }
    full_sync_next();
}

static int file_version; /* of the file that is being written */

void full_sync_file_kill_unneeded(void) {
    if (!snapshot_running() || save_points_count()) return;
    list_each(&replicas, link) if (replica_of(link)->state == REPLICA_FILE) return;
    log_notice("Background saving for replicas, last replica dropped, ending the save without fork.");
    child_kill();
}

static struct replica *waiting_for_file(const struct replica *like) {
    if (full_sync_version(like) < file_version) return NULL;
    list_each_entry(&replicas, struct replica, link, replica) {
        if (replica != like && replica->state == REPLICA_FILE && full_sync_is_shared(replica, like) &&
            replica->reader.block)
            return replica;
    }
    return NULL;
}

bool full_sync_file_join(struct replica *replica) {
    const struct replica *other = replica->announced.filter ? NULL : waiting_for_file(replica);
    if (!other) return false;
    replica->state = REPLICA_FILE;
    full_sync_announce_like(replica, &other->reader);
    log_notice("Waiting for end of BGSAVE for SYNC");
    return true;
}

int full_sync_file_start(const struct save_content *content) {
    file_version = content->version;
    return snapshot_start(content);
}

void full_sync_file_forget(struct replica *replica) {
    if (replica->copy.file >= 0) close(replica->copy.file);
    replica->copy.file = -1;
}

void full_sync_file_listen(void) {
    static struct snapshot_listener listener = {.done = file_saved};
    snapshot_listen(&listener);
}
