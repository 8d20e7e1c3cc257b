/* history.c: the ids of this server's history. See history.h.
 *
 * A server starts with a random id. An RDB file holds the position of its data (struct stream_position, AUX fields
 * repl-id, repl-offset, repl-stream-db and repl-local-changes), so that a restarted server can continue. A replica asks
 * its primary for the stream from that position on. A primary keeps the old id as its second id, so that its replicas
 * need no full synchronization. */
#include "repl/history.h"
#include "lib/system/log.h"
#include "lib/system/must.h"
#include "lib/system/random.h"
#include "lib/text/number.h"
#include "persistence/loading.h"
#include "repl/feed.h"
#include "repl/stream.h"
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

static void second_from_id(void) {
    set_id(history.second_id, id_slice(role->position.id));
    history.second_offset = role->position.offset;
}

/* Begins a new history at the current offset. */
static void begin_history(void) {
    struct stream_position position = role->position;
    random_hex(position.id, REPL_ID_LEN);
    position.local_changes = false;
    role_set_position(&position);
    repl_feed_select_again();
}

void repl_history_new(void) {
    begin_history();
    second_clear();
}

void repl_history_branch(void) {
    if (role->position.local_changes) {
        log_notice("This server has data that its primary's replicas lack: they need a full synchronization");
        repl_history_new();
        return;
    }
    second_from_id();
    begin_history();
    log_notice("Setting secondary replication ID to %s, valid up to offset: %lld. New replication ID is %s",
               history.second_id, (long long)history.second_offset + 1, role->position.id);
}

void repl_history_adopt(const struct stream_position *position) {
    repl_stream_free_backlog();
    /* Otherwise the stream would continue at the offset of its own last byte, not at the primary's. */
    must(!repl_stream_active());
    repl_own_commands_at = -1;
    second_clear();
    role_set_position(position);
}

void repl_history_rename(struct slice id) {
    struct stream_position position = role->position;
    if (slice_equal(id, id_slice(position.id))) return;
    second_from_id();
    set_id(position.id, id);
    role_set_position(&position);
}

/* The data loaded at start belong to this position. */
static void history_restore(const struct stream_position *position) {
    if (position->local_changes && !role_is_replica()) return; /* no replica can continue with these data */
    role_set_position(position);
    second_clear();
    if (role_is_replica()) return;
    second_from_id();
    begin_history();
    repl_stream_create_backlog(); /* later changes must reach reconnecting replicas */
    loading_delete_expired();     /* keys that expired while this server was down: these replicas have them */
}

bool repl_history_has(struct slice id, int64_t offset) {
    if (id.len != REPL_ID_LEN) return false;
    if (slice_is(id, role->position.id)) return true;
    return slice_is(id, history.second_id) && offset <= history.second_offset;
}

/* --- AUX fields --- */

static struct stream_position loaded;
static bool has_id, has_offset;
static bool reads_aux; /* the data set is being loaded at start */

/* Whether an RDB file of the current data may name role->position. On a replica: while the position is known, connected
 * or not. On a primary: while there is a backlog, since otherwise its changes are in no stream; and not within a group
 * of commands (FLUSHALL in a transaction), where a MULTI may still be inserted before the position. */
static bool position_holds(void) {
    if (role_is_replica()) return role->position.known;
    return repl_stream_has_backlog() && !repl_stream_is_marked();
}

size_t repl_history_write_aux(struct rdb_aux *fields) {
    static char db_text[NUMBER_TEXT_MAX], offset_text[NUMBER_TEXT_MAX];
    const struct stream_position *at = &role->position;
    if (!position_holds()) return 0;
    fields[0] = (struct rdb_aux){SLICE("repl-stream-db"), {db_text, format_int64(db_text, at->db < 0 ? 0 : at->db)}};
    fields[1] = (struct rdb_aux){SLICE("repl-id"), id_slice(at->id)};
    fields[2] = (struct rdb_aux){SLICE("repl-offset"), {offset_text, format_int64(offset_text, at->offset)}};
    if (!at->local_changes) return 3;
    fields[3] = (struct rdb_aux){SLICE("repl-local-changes"), SLICE("1")};
    return 4;
}

bool repl_history_read_db(struct slice value, int *db) {
    int64_t number;
    if (!parse_int64(value, &number) || number < 0 || number >= keyspace_databases(server.keyspace)) return false;
    *db = (int)number;
    return true;
}

void repl_history_read_local_changes(struct slice name, struct slice value, struct stream_position *position) {
    if (slice_is(name, "repl-local-changes")) position->local_changes = slice_is(value, "1");
}

bool repl_history_read_aux(struct slice name, struct slice value) {
    if (!reads_aux) return false;
    repl_history_read_local_changes(name, value, &loaded);
    if (slice_is(name, "repl-stream-db")) {
        repl_history_read_db(value, &loaded.db);
    } else if (slice_is(name, "repl-id")) {
        has_id = value.len == REPL_ID_LEN;
        if (has_id) set_id(loaded.id, value);
    } else if (slice_is(name, "repl-offset")) {
        has_offset = parse_int64(value, &loaded.offset) && loaded.offset >= 0 && loaded.offset <= INT64_MAX / 2;
    }
    return has_id;
}

void repl_history_start(void) {
    reads_aux = true;
    repl_history_new();
}

void repl_history_loaded(void) {
    reads_aux = false;
    /* The base of an append-only file has a position, but commands loaded after it have none. */
    if (has_id && has_offset && !loading_state.commands) history_restore(&loaded);
}
