/* aof_manifest.c: see aof_manifest.h. */
#include "formats/aof_manifest.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include "resp/request.h"
#include <stdio.h>

enum { LINE_MAX_BYTES = 1024, NAME_MAX_BYTES = 1024 };

/* --- Files --- */

static struct aof_file *file_new(struct slice name, int64_t sequence, enum aof_file_type type) {
    struct aof_file *file = mem_calloc(1, sizeof *file);
    file->name = mem_strndup(name.data, name.len);
    file->sequence = sequence;
    file->type = type;
    return file;
}

static void file_free(struct aof_file *file) {
    if (!file) return;
    mem_free(file->name);
    mem_free(file);
}

static void files_free(struct list *files) {
    list_each(files, link) {
        list_remove(files, link);
        file_free(aof_file_of(link));
    }
}

struct aof_manifest *aof_manifest_new(void) {
    struct aof_manifest *manifest = mem_calloc(1, sizeof *manifest);
    list_init(&manifest->incremental);
    list_init(&manifest->history);
    manifest->changed = true;
    return manifest;
}

void aof_manifest_free(struct aof_manifest *manifest) {
    if (!manifest) return;
    file_free(manifest->base);
    files_free(&manifest->incremental);
    files_free(&manifest->history);
    mem_free(manifest);
}

static struct aof_file *file_copy(const struct aof_file *file) {
    return file_new(slice_of(file->name), file->sequence, file->type);
}

static void files_copy(struct list *to, const struct list *from) {
    for (struct list_link *link = from->head.next; link != &from->head; link = link->next)
        list_append(to, &file_copy(aof_file_of(link))->link);
}

struct aof_manifest *aof_manifest_copy(const struct aof_manifest *manifest) {
    struct aof_manifest *copy = aof_manifest_new();
    copy->base = manifest->base ? file_copy(manifest->base) : NULL;
    files_copy(&copy->incremental, &manifest->incremental);
    files_copy(&copy->history, &manifest->history);
    copy->base_sequence = manifest->base_sequence;
    copy->incremental_sequence = manifest->incremental_sequence;
    copy->changed = manifest->changed;
    return copy;
}

struct aof_file *aof_manifest_last(const struct aof_manifest *manifest) {
    const struct list *files = &manifest->incremental;
    return files->len ? aof_file_of(files->head.prev) : NULL;
}

/* --- Reading --- */

static const char *aof_manifest_add(struct aof_manifest *manifest, struct slice name, int64_t sequence, char type) {
    if (type == AOF_BASE) {
        if (manifest->base) return "Found duplicate base file information";
        manifest->base = file_new(name, sequence, AOF_BASE);
        if (sequence > manifest->base_sequence) manifest->base_sequence = sequence;
    } else if (type == AOF_INCREMENTAL) {
        if (manifest->incremental.len && sequence <= manifest->incremental_sequence)
            return "Found a non-monotonic sequence number";
        list_append(&manifest->incremental, &file_new(name, sequence, AOF_INCREMENTAL)->link);
        manifest->incremental_sequence = sequence;
    } else if (type == AOF_HISTORY) {
        list_append(&manifest->history, &file_new(name, sequence, AOF_HISTORY)->link);
    } else {
        return "Unknown AOF file type";
    }
    return NULL;
}

/* A file must be in the directory of the manifest, so its name must not contain a path. */
static bool name_ok(struct slice name) {
    return name.len && name.len <= NAME_MAX_BYTES && !memchr(name.data, '/', name.len) &&
           !memchr(name.data, '\\', name.len) && !memchr(name.data, 0, name.len) && !slice_is(name, ".") &&
           !slice_is(name, "..");
}

static const char *parse_words(struct aof_manifest *manifest, int count, const struct slice *words) {
    struct slice name = {0};
    int64_t sequence = 0;
    char type = 0;
    if (count < 6 || count % 2) return "Invalid AOF manifest file format";
    for (int i = 0; i < count; i += 2) {
        if (slice_is(words[i], "file")) {
            name = words[i + 1];
            if (!name_ok(name)) return "File can't be a path, just a filename";
        } else if (slice_is(words[i], "seq")) {
            if (!parse_int64(words[i + 1], &sequence) || sequence <= 0) return "Invalid AOF manifest file format";
        } else if (slice_is(words[i], "type")) {
            type = words[i + 1].len == 1 ? words[i + 1].data[0] : 0;
        }
    }
    if (!name.len || !sequence || !type) return "Invalid AOF manifest file format";
    return aof_manifest_add(manifest, name, sequence, type);
}

static const char *parse_line(struct aof_manifest *manifest, struct slice line) {
    if (line.len > LINE_MAX_BYTES) return "The AOF manifest file contains too long line";
    struct slice *words;
    int count = words_split(line, &words);
    if (count < 0) return "Invalid AOF manifest file format";
    const char *error = parse_words(manifest, count, words);
    words_free(words, count);
    return error;
}

struct aof_manifest *aof_manifest_parse(struct slice text, const char **error, int *line, struct slice *at) {
    struct aof_manifest *manifest = aof_manifest_new();
    *error = text.len ? NULL : "Found an empty AOF manifest";
    *line = 0;
    *at = SLICE("");
    for (size_t offset = 0; offset < text.len && !*error;) {
        const char *begin = text.data + offset, *newline = memchr(begin, '\n', text.len - offset);
        struct slice whole = {begin, newline ? (size_t)(newline - begin) : text.len - offset};
        offset += whole.len + 1;
        ++*line;
        *at = whole;
        if (whole.len && whole.data[whole.len - 1] == '\r') whole.len--;
        if (whole.len && whole.data[0] == '#') continue;
        *error = newline ? parse_line(manifest, whole) : "The AOF manifest file contains an incomplete last line";
    }
    manifest->changed = false;
    if (!*error) return manifest;
    aof_manifest_free(manifest);
    return NULL;
}

/* --- Writing --- */

static void format_file(const struct aof_file *file, struct output *out) {
    char text[64];
    output_write(out, SLICE("file "));
    word_write(out, slice_of(file->name), false);
    int len = snprintf(text, sizeof text, " seq %lld type %c\n", (long long)file->sequence, (char)file->type);
    output_write(out, (struct slice){text, (size_t)len});
}

void aof_manifest_format(const struct aof_manifest *manifest, struct output *out) {
    if (manifest->base) format_file(manifest->base, out);
    const struct list *lists[] = {&manifest->history, &manifest->incremental};
    for (int i = 0; i < 2; i++)
        for (struct list_link *link = lists[i]->head.next; link != &lists[i]->head; link = link->next)
            format_file(aof_file_of(link), out);
}

/* --- Changes --- */

static struct aof_file *named_file(const char *prefix, int64_t sequence, const char *suffix, enum aof_file_type type) {
    char name[NAME_MAX_BYTES + 64];
    int len = snprintf(name, sizeof name, "%.*s.%lld.%s", NAME_MAX_BYTES, prefix, (long long)sequence, suffix);
    return file_new((struct slice){name, (size_t)len}, sequence, type);
}

/* Makes the file history; the most recent history is first in the list. */
static void retire(struct aof_manifest *manifest, struct aof_file *file) {
    file->type = AOF_HISTORY;
    list_prepend(&manifest->history, &file->link);
}

struct aof_file *aof_manifest_add_incremental(struct aof_manifest *manifest, const char *prefix) {
    struct aof_file *file = named_file(prefix, ++manifest->incremental_sequence, "incr.aof", AOF_INCREMENTAL);
    list_append(&manifest->incremental, &file->link);
    manifest->changed = true;
    return file;
}

struct aof_file *aof_manifest_add_base(struct aof_manifest *manifest, const char *prefix, bool as_rdb) {
    if (manifest->base) retire(manifest, manifest->base);
    manifest->base = named_file(prefix, ++manifest->base_sequence, as_rdb ? "base.rdb" : "base.aof", AOF_BASE);
    manifest->changed = true;
    return manifest->base;
}

struct aof_file *aof_manifest_adopt(struct aof_manifest *manifest, const char *name) {
    if (manifest->base) retire(manifest, manifest->base);
    manifest->base = file_new(slice_of(name), manifest->base_sequence = 1, AOF_BASE);
    manifest->changed = true;
    return manifest->base;
}

void aof_manifest_retire(struct aof_manifest *manifest, size_t keep) {
    struct list *files = &manifest->incremental;
    struct list_link *link = files->head.prev, *older;
    for (; link != &files->head && keep; keep--) link = link->prev;
    for (; link != &files->head; link = older) {
        older = link->prev;
        list_remove(files, link);
        retire(manifest, aof_file_of(link));
        manifest->changed = true;
    }
}

void aof_manifest_drop_history(struct aof_manifest *manifest) {
    if (manifest->history.len) manifest->changed = true;
    files_free(&manifest->history);
}
