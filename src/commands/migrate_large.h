/* migrate_large.h: MIGRATE of large values, while other clients are served.
 *
 * MIGRATE of a few bytes blocks the server for one round trip (migrate.c). That would hold all clients while many bytes
 * are dumped, travel, and are loaded by the target. So a request of more than MIGRATE_LARGE_MIN bytes becomes a job:
 * its client waits. The keys are dumped one after the other, for at most about a millisecond in each turn of the loop,
 * and each goes out piece by piece before the next one is dumped. The target is of any kind: it receives the same
 * commands. In transactions and scripts, which cannot wait, MIGRATE blocks the server as before.
 *
 * The keys must not change on the way. Commands that may write and name such a key, in any database, wait until the
 * job has ended, and so do transactions with such a command, and writes that name no key (FLUSHALL, SWAPDB). Then
 * they are dispatched again, and find no key, or are redirected. Reads are served. What cannot wait may still change a
 * key: expiry, eviction, a script that does not declare its keys, the stream of a primary. Such a change ends the job
 * with the error of a target that does not answer, and the changed key stays; the target may have the value from
 * before, as after any timeout. With COPY this holds until the last key is dumped: the target gets the
 * values of the time of the call, and the keys may change while they travel.
 *
 * A key is deleted here, and DEL propagated, only after the target has accepted it, and not while clients are paused or
 * another call runs: the end waits for that. A key that another job or the loss of its slot took is left alone, and so
 * are all keys if this server has become a replica. If the client leaves, the job goes on. CLIENT UNBLOCK, too, ends
 * the wait only.
 *
 * With synchronous replication the target must not see a value that may be lost, or is that of a replaced primary. So
 * while anything waits for the reply barrier, requests of any size go this way: the keys are held, and dumped when the
 * barrier has released everything before. Each piece leaves only while this server may show its data; otherwise it
 * waits again. A transaction or a script, which cannot wait, gets an error.
 *
 * The timeout is that of each step: connecting, sending a piece, each reply.
 *
 * Main thread only. */
#ifndef COMMANDS_MIGRATE_LARGE_H
#define COMMANDS_MIGRATE_LARGE_H
#include "server/command/command.h"

enum { MIGRATE_LARGE_MIN = 64 * 1024 };
#define MIGRATE_CANNOT_CONNECT "IOERR error or timeout connecting to the client"
#define MIGRATE_CANNOT_WRITE   "IOERR error or timeout writing to target instance"
#define MIGRATE_CANNOT_READ    "IOERR error or timeout reading to target instance"
#define MIGRATE_REFUSED        "ERR Target instance replied with error: %.*s"

struct large_migration {
    const char *host;
    int port;
    int64_t timeout_ms;
    bool copy, replace;
    bool waits; /* until the reply barrier releases what was executed before, before it dumps the first key */
    int count;  /* requests, one for each key */
    const struct slice *keys;
    /* The bytes of the requests before those of the keys (AUTH, SELECT) and their number, at least one. The job takes
     * them over. */
    int introductions;
    struct memory_output *introduction;
};
int64_t migrate_time_left(const struct entry *entry); /* for RESTORE: ms; 0: it does not expire */
/* The call's client can wait for a job. */
bool migrate_large_possible(const struct call *call);
void migrate_large_begin(struct call *call, const struct large_migration *large);
/* True: the call is one that waits for its job, and was dealt with. */
bool migrate_large_again(struct call *call);
#endif
