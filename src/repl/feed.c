/* feed.c: see feed.h. Commands are formatted in the stream's last block, so a command costs one copy of its
 * arguments, whatever the number of replicas. */
#include "repl/feed.h"
#include "repl/stream.h"
#include "resp/request.h"
#include "server/command/propagation_writer.h"
#include "server/role.h"

int64_t repl_own_commands_at = -1;

static void feed_mark(struct propagation_writer *writer) {
    repl_stream_mark();
}
static void feed_insert(struct propagation_writer *writer, struct slice bytes) {
    repl_stream_insert_at_mark(bytes);
}
static struct propagation_writer writer = {.mark = feed_mark, .insert = feed_insert, .db = STREAM_DB_NONE};

static void feed_command(struct propagation_listener *self, const struct propagation *propagation) {
    propagation_writer_command(&writer, propagation);
    role_set_stream_db(writer.db);
    repl_stream_written();
}
static void feed_begin(struct propagation_listener *self, int db) {
    propagation_writer_begin(&writer);
}
static void feed_end(struct propagation_listener *self) {
    propagation_writer_end(&writer);
    repl_stream_unmark();
    repl_stream_written();
}
static struct propagation_listener listener = {
    .command = feed_command, .begin = feed_begin, .end = feed_end, .target = PROPAGATE_REPLICAS};

static bool feed_listens(void) {
    return list_is_linked(&listener.link);
}

void repl_feed_update(void) {
    bool wanted = repl_stream_active() && !role_is_replica();
    if (wanted == feed_listens()) return;
    if (wanted) {
        writer.out = repl_stream_output();
        writer.in_group = false;
        propagate_listen(&listener);
        repl_feed_select_again();
    } else {
        /* REPLICAOF in a transaction: what follows is not in the stream of this server. */
        if (repl_stream_active()) propagation_writer_seal(&writer);
        propagate_unlisten(&listener);
        repl_stream_unmark();
        repl_stream_written();
    }
}

void repl_feed_select_again(void) {
    if (!feed_listens()) return; /* the primary's stream selects databases itself */
    writer.db = STREAM_DB_NONE;
    role_set_stream_db(STREAM_DB_NONE);
}

void repl_feed_request(int argc, const struct slice *argv) {
    if (!feed_listens()) return;
    request_write(repl_stream_output(), argc, argv);
    repl_stream_written();
}

void repl_feed_ping(void) {
    repl_feed_request(1, &SLICE("ping"));
}

void repl_feed_getack(void) {
    repl_feed_request(3, (struct slice[]){SLICE("REPLCONF"), SLICE("GETACK"), SLICE("*")});
}
