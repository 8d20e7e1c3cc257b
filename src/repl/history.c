/* history.c: the ids of this server's history. See repl.h.
 *
 * A server starts with a random id. RDB files name the id and the offset of the data in them (AUX fields repl-id and
 * repl-offset), so a server that restarts can continue: a replica asks its primary for the bytes from that offset on,
 * and a primary keeps the old id as its second id, so that its replicas need no full synchronization. */
#include "durability/loading.h"
#include "durability/snapshot.h"
#include "lib/log.h"
#include "lib/number.h"
#include "lib/random.h"
#include "repl/repl.h"
#include "repl/repl_feed.h"
#include "repl/repl_stream.h"
#include "server/role.h"
#include <string.h>

static struct repl_history history;
const struct repl_history *const repl_history = &history;

static void set_id(char id[static REPL_ID_LEN + 1], struct slice value) {
    memcpy(id, value.data, REPL_ID_LEN);
    id[REPL_ID_LEN] = 0;
}

static struct slice id_slice(const char *id) {
    return (struct slice){id, REPL_ID_LEN};
}

static void second_clear(void) {
    memset(history.second_id, '0', REPL_ID_LEN);
    history.second_id[REPL_ID_LEN] = 0;
    history.second_offset = -1;
}

static void second_from_id(int64_t offset) {
    set_id(history.second_id, id_slice(history.id));
    history.second_offset = offset;
}

void repl_history_new(void) {
    random_hex(history.id, REPL_ID_LEN);
    history.id[REPL_ID_LEN] = 0;
    second_clear();
}

void repl_history_branch(void) {
    second_from_id(role->offset);
    random_hex(history.id, REPL_ID_LEN);
    log_notice("Setting secondary replication ID to %s, valid up to offset: %lld. New replication ID is %s",
               history.second_id, (long long)history.second_offset + 1, history.id);
}

void repl_history_adopt(struct slice id, int64_t offset) {
    repl_disconnect_replicas("the data set was replaced");
    repl_stream_free_backlog();
    set_id(history.id, id);
    second_clear();
    role_set_offset(offset);
}

void repl_history_rename(struct slice id) {
    if (slice_equal(id, id_slice(history.id))) return;
    second_from_id(role->offset);
    set_id(history.id, id);
}

void repl_history_restore(struct slice id, int64_t offset) {
    set_id(history.id, id);
    second_clear();
    role_set_offset(offset);
    if (role_is_replica()) return;
    second_from_id(offset);
    random_hex(history.id, REPL_ID_LEN);
    repl_stream_create_backlog(); /* what changes from here on must reach the replicas that come back */
}

bool repl_history_has(struct slice id, int64_t offset) {
    if (id.len != REPL_ID_LEN) return false;
    if (slice_is(id, history.id)) return true;
    return slice_is(id, history.second_id) && offset <= history.second_offset;
}

/* AUX fields */

static struct {
    char id[REPL_ID_LEN];
    int64_t offset; /* -1: not given */
    bool has_id;
} loaded = {.offset = -1};

/* Without a backlog changes are in no stream, and the offset does not tell which data a file holds. */
static size_t write_aux(struct rdb_aux fields[static SNAPSHOT_AUX_MAX]) {
    static char db_text[NUMBER_TEXT_MAX], offset_text[NUMBER_TEXT_MAX];
    int db = role_is_replica() ? repl_stream_db() : repl_feed_db();
    if (!repl_stream_has_backlog()) return 0;
    fields[0] = (struct rdb_aux){SLICE("repl-stream-db"), {db_text, format_int64(db_text, db < 0 ? 0 : db)}};
    fields[1] = (struct rdb_aux){SLICE("repl-id"), id_slice(history.id)};
    fields[2] = (struct rdb_aux){SLICE("repl-offset"), {offset_text, format_int64(offset_text, role->offset)}};
    return 3;
}

static bool read_aux(struct slice name, struct slice value) {
    if (slice_is(name, "repl-id")) {
        loaded.has_id = value.len == REPL_ID_LEN;
        if (loaded.has_id) memcpy(loaded.id, value.data, REPL_ID_LEN);
    } else if (slice_is(name, "repl-offset")) {
        if (!parse_int64(value, &loaded.offset) || loaded.offset < 0) loaded.offset = -1;
    }
    return loaded.has_id;
}

void repl_history_start(void) {
    snapshot_aux = write_aux;
    loading_aux = read_aux;
    repl_history_new();
}

void repl_history_loaded(void) {
    loading_aux = NULL;
    /* The base of an append-only file tells where it stands; no offset is known behind the commands that follow it. */
    if (loaded.has_id && loaded.offset >= 0 && !loading_state.commands)
        repl_history_restore((struct slice){loaded.id, REPL_ID_LEN}, loaded.offset);
}
