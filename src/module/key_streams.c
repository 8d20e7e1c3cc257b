/* key_streams.c: streams of open keys. See keys.h.
 *
 * An iterator has the id of its current entry and a copy of its texts, and searches the next entry from there. So what
 * changes the stream between two steps, the deletion of the current entry included, does no harm. */
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "module/keys.h"
#include "store/stream.h"
#include <errno.h>

struct key_stream {
    struct stream_id first, last; /* what is left of the range */
    bool down, done;
    bool on_entry; /* there is a current entry, and it has not been deleted */
    struct stream_id id;
    size_t texts, next; /* of the current entry; the index of the next field */
    struct ValkeyModuleString **text;
};

static int failed(int error) {
    errno = error;
    return VALKEYMODULE_ERR;
}
static struct stream_id id_of(const ValkeyModuleStreamID *id) {
    return (struct stream_id){id->ms, id->seq};
}
/* The key's stream; NULL: it is missing or has another type, for errno. */
static struct stream *stream_for(const ValkeyModuleKey *key) {
    const struct entry *entry = key_entry(key);
    if (entry && entry_type(entry) == TYPE_STREAM) return stream_of(entry);
    errno = ENOTSUP;
    return NULL;
}
static struct stream *stream_for_change(const ValkeyModuleKey *key) {
    struct stream *stream = stream_for(key);
    if (!stream || key_is_writable(key)) return stream;
    errno = EBADF;
    return NULL;
}

/* --- Changes --- */

static int stream_add(ValkeyModuleKey *key, struct stream *stream, bool chosen, ValkeyModuleStreamID *id,
                      const struct slice *texts, size_t pairs) {
    struct stream_id at = {0};
    if (stream && stream_id_equal(stream->last_id, STREAM_ID_MAX)) return failed(EFBIG);
    if (!stream_fits(texts, pairs)) return failed(ERANGE);
    if (!chosen) at = id_of(id);
    if (!stream) {
        stream = stream_of(stream_create(key->db, key_name(key)));
        key_created(key);
    }
    enum stream_id_form form = chosen ? STREAM_ID_CHOSEN : STREAM_ID_GIVEN;
    if (!stream_next_id(stream, form, clock_data_ms(), &at)) return failed(EDOM);
    bool added = stream_append(stream, at, texts, pairs);
    must(added);
    if (id) *id = (ValkeyModuleStreamID){at.ms, at.seq};
    db_changed(key->db, key_name(key));
    return VALKEYMODULE_OK;
}
int api_StreamAdd(ValkeyModuleKey *key, int flags, ValkeyModuleStreamID *id, ValkeyModuleString **argv,
                  int64_t numfields) {
    bool chosen = flags & VALKEYMODULE_STREAM_ADD_AUTOID;
    if (!key || numfields < 0 || (uint64_t)numfields > SIZE_MAX / (2 * sizeof(struct slice)) || (numfields && !argv) ||
        flags & ~VALKEYMODULE_STREAM_ADD_AUTOID || (!chosen && !id))
        return failed(EINVAL);
    const struct entry *entry = key_entry(key);
    if (!key_has_type(entry, TYPE_STREAM, true)) return failed(ENOTSUP);
    if (!key_is_writable(key)) return failed(EBADF);
    if (!chosen && stream_id_is_zero(id_of(id))) return failed(EDOM);
    size_t count = 2 * (size_t)numfields;
    struct slice *texts = mem_alloc((count + 1) * sizeof *texts);
    for (size_t i = 0; i < count; i++) texts[i] = module_string_slice(argv[i]);
    int result = stream_add(key, entry ? stream_of(entry) : NULL, chosen, id, texts, (size_t)numfields);
    mem_free(texts);
    return result;
}
int api_StreamDelete(ValkeyModuleKey *key, ValkeyModuleStreamID *id) {
    if (!key || !id) return failed(EINVAL);
    struct stream *stream = stream_for_change(key);
    if (!stream) return VALKEYMODULE_ERR;
    if (key->stream) return failed(EBADF);
    if (!stream_delete(stream, id_of(id))) return failed(ENOENT);
    db_changed(key->db, key_name(key));
    return VALKEYMODULE_OK;
}
/* An approximate call removes the entries of at most a hundred nodes, like XTRIM. */
static long long trim(ValkeyModuleKey *key, int flags, struct stream_trim *how) {
    struct stream *stream = stream_for_change(key);
    if (!stream) return -1;
    how->approximate = flags & VALKEYMODULE_STREAM_TRIM_APPROX;
    if (how->approximate) how->limit = stream_trim_limit();
    uint64_t removed = stream_trim(stream, how);
    if (removed) db_changed(key->db, key_name(key));
    return (long long)removed;
}
long long api_StreamTrimByLength(ValkeyModuleKey *key, int flags, long long length) {
    if (!key || flags & ~VALKEYMODULE_STREAM_TRIM_APPROX || length < 0) {
        errno = EINVAL;
        return -1;
    }
    return trim(key, flags, &(struct stream_trim){.by = STREAM_TRIM_LENGTH, .length = (uint64_t)length});
}
long long api_StreamTrimByID(ValkeyModuleKey *key, int flags, ValkeyModuleStreamID *id) {
    if (!key || flags & ~VALKEYMODULE_STREAM_TRIM_APPROX || !id) {
        errno = EINVAL;
        return -1;
    }
    return trim(key, flags, &(struct stream_trim){.by = STREAM_TRIM_ID, .min = id_of(id)});
}

/* --- Iteration --- */

static void texts_release(struct key_stream *it) {
    for (size_t i = 0; i < it->texts; i++) module_string_release(it->text[i]);
    mem_free(it->text);
    it->text = NULL;
    it->texts = it->next = 0;
    it->on_entry = false;
}
void key_stream_stop(struct ValkeyModuleKey *key) {
    if (!key->stream) return;
    texts_release(key->stream);
    mem_free(key->stream);
    key->stream = NULL;
}

int api_StreamIteratorStart(ValkeyModuleKey *key, int flags, ValkeyModuleStreamID *startid,
                            ValkeyModuleStreamID *endid) {
    if (!key || flags & ~(VALKEYMODULE_STREAM_ITERATOR_EXCLUSIVE | VALKEYMODULE_STREAM_ITERATOR_REVERSE))
        return failed(EINVAL);
    if (!stream_for(key)) return VALKEYMODULE_ERR;
    if (key->stream) return failed(EBADF);
    struct stream_id first = startid ? id_of(startid) : STREAM_ID_MIN, last = endid ? id_of(endid) : STREAM_ID_MAX;
    if (flags & VALKEYMODULE_STREAM_ITERATOR_EXCLUSIVE) {
        if (startid && !stream_id_increment(&first)) return failed(EDOM);
        if (endid && !stream_id_decrement(&last)) return failed(EDOM);
    }
    key->stream = mem_calloc(1, sizeof *key->stream);
    key->stream->first = first;
    key->stream->last = last;
    key->stream->down = flags & VALKEYMODULE_STREAM_ITERATOR_REVERSE;
    return VALKEYMODULE_OK;
}
/* The iterator of the key's stream, which `*stream` becomes; NULL: for errno. */
static struct key_stream *iterator_for(ValkeyModuleKey *key, struct stream **stream) {
    if (!key)
        errno = EINVAL;
    else if ((*stream = stream_for(key))) {
        if (key->stream) return key->stream;
        errno = EBADF;
    }
    return NULL;
}
int api_StreamIteratorStop(ValkeyModuleKey *key) {
    struct stream *stream;
    if (!iterator_for(key, &stream)) return VALKEYMODULE_ERR;
    key_stream_stop(key);
    return VALKEYMODULE_OK;
}

static void entry_take(struct key_stream *it, struct stream_iterator *at, size_t fields) {
    it->text = mem_alloc((2 * fields + 1) * sizeof *it->text);
    for (size_t i = 0; i < fields; i++) {
        struct slice field, value;
        stream_field(at, &field, &value);
        it->text[it->texts++] = module_string_new(field);
        it->text[it->texts++] = module_string_new(value);
    }
    it->on_entry = true;
}
int api_StreamIteratorNextID(ValkeyModuleKey *key, ValkeyModuleStreamID *id, long *numfields) {
    struct stream *stream;
    struct key_stream *it = iterator_for(key, &stream);
    if (!it) return VALKEYMODULE_ERR;
    texts_release(it);
    if (it->done) return failed(ENOENT);
    struct stream_iterator at;
    size_t fields;
    stream_iterate(&at, stream, it->first, it->last, it->down);
    it->done = !stream_next(&at, &it->id, &fields);
    if (!it->done) entry_take(it, &at, fields);
    stream_iterate_end(&at);
    if (it->done) return failed(ENOENT);
    if (id) *id = (ValkeyModuleStreamID){it->id.ms, it->id.seq};
    if (numfields) *numfields = (long)fields;
    struct stream_id *edge = it->down ? &it->last : &it->first;
    *edge = it->id;
    it->done = it->down ? !stream_id_decrement(edge) : !stream_id_increment(edge);
    return VALKEYMODULE_OK;
}
int api_StreamIteratorNextField(ValkeyModuleKey *key, ValkeyModuleString **field_ptr, ValkeyModuleString **value_ptr) {
    struct stream *stream;
    struct key_stream *it = iterator_for(key, &stream);
    if (!it) return VALKEYMODULE_ERR;
    if (it->next == it->texts) return failed(ENOENT);
    ValkeyModuleString **const to[2] = {field_ptr, value_ptr};
    for (int i = 0; i < 2; i++) {
        ValkeyModuleString *text = it->text[it->next++];
        if (!to[i]) continue;
        *to[i] = module_string_hold(text);
        context_keep(key->ctx, OBJECT_STRING, text);
    }
    return VALKEYMODULE_OK;
}
int api_StreamIteratorDelete(ValkeyModuleKey *key) {
    struct stream *stream;
    if (!key) return failed(EINVAL);
    if (!stream_for_change(key)) return VALKEYMODULE_ERR;
    struct key_stream *it = iterator_for(key, &stream);
    if (!it) return VALKEYMODULE_ERR;
    if (!it->on_entry) return failed(ENOENT);
    it->on_entry = false;
    it->next = it->texts;
    if (!stream_delete(stream, it->id)) return failed(ENOENT);
    db_changed(key->db, key_name(key));
    return VALKEYMODULE_OK;
}
