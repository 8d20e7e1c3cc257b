/* nodes_file.c: see nodes_file.h. */
#include "cluster/protocol/nodes_file.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { COLUMNS = 8, OLD_BUS_PORT_DISTANCE = 10000 };

static const struct {
    const char *name;
    unsigned flag;
} flag_names[] = {
    {"myself", NODE_MYSELF},   {"master", NODE_PRIMARY},      {"slave", NODE_REPLICA}, {"fail?", NODE_PFAIL},
    {"fail", NODE_FAIL},       {"handshake", NODE_HANDSHAKE}, {"noaddr", NODE_NOADDR}, {"nofailover", NODE_NOFAILOVER},
    {"primary", NODE_PRIMARY}, {"replica", NODE_REPLICA}, /* these are read only */
};
enum { FLAG_NAMES = sizeof flag_names / sizeof *flag_names, FLAG_NAMES_WRITTEN = FLAG_NAMES - 2 };

bool node_text_valid(struct slice text) {
    for (size_t i = 0; i < text.len; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c <= ',' || c == 0x7f || (c < 0x80 && strchr(";<=>?@[]^{|}~\\", c))) return false;
    }
    return true;
}

/* --- Parsing --- */

struct nodes_parser {
    struct nodes_file *file;
    struct nodes_file_error *error;
    nodes_file_note *note;
    void *context;
    bool tls;
    bool has_myself;
    size_t capacity;
};

static bool nodes_file_fail(struct nodes_parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static bool nodes_file_fail(struct nodes_parser *p, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(p->error->reason, sizeof p->error->reason, format, arguments);
    va_end(arguments);
    return false;
}
static void note(struct nodes_parser *p, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void note(struct nodes_parser *p, const char *format, ...) {
    char text[200];
    va_list arguments;
    if (!p->note) return;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    p->note(p->context, text);
}
/* For %.*s: the beginning of a text that may be long. */
#define SHOWN(text) ((text).len < 60 ? (int)(text).len : 60), (text).data

static bool is_space(char c) {
    return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f';
}
/* Takes the next word of the line; empty at its end. */
static struct slice take_word(struct slice *line) {
    while (line->len && is_space(*line->data)) line->data++, line->len--;
    struct slice word = {line->data, 0};
    while (word.len < line->len && !is_space(word.data[word.len])) word.len++;
    line->data += word.len, line->len -= word.len;
    return word;
}
/* Takes the text before the next `c`, and the character itself. Without one that is all there is. */
static struct slice take_until(struct slice *text, char c) {
    const char *end = text->len ? memchr(text->data, c, text->len) : NULL;
    struct slice part = {text->data, end ? (size_t)(end - text->data) : text->len};
    size_t taken = part.len + (end != NULL);
    text->data += taken, text->len -= taken;
    return part;
}

static bool parse_number(struct nodes_parser *p, struct slice text, const char *what, uint64_t max, uint64_t *value) {
    if (parse_uint64(text, value) && *value <= max) return true;
    return nodes_file_fail(p, "%s is no number up to %llu: '%.*s'", what, (unsigned long long)max, SHOWN(text));
}
static bool parse_port(struct nodes_parser *p, struct slice text, const char *what, uint16_t *port) {
    uint64_t value;
    if (!parse_number(p, text, what, UINT16_MAX, &value)) return false;
    *port = (uint16_t)value;
    return true;
}
static bool parse_id(struct nodes_parser *p, struct slice text, const char *what, struct node_id *id) {
    if (text.len == NODE_ID_LEN) {
        memcpy(id->text, text.data, NODE_ID_LEN);
        if (node_id_valid(id)) return true;
    }
    return nodes_file_fail(p, "%s is not valid: '%.*s'", what, SHOWN(text));
}

static bool parse_client_address(struct nodes_parser *p, struct slice text, int family, struct slice *address) {
    char copy[NODE_ADDRESS_MAX];
    uint8_t bytes[16];
    *address = text;
    if (!text.len) return true;
    if (text.len < sizeof copy) {
        memcpy(copy, text.data, text.len);
        copy[text.len] = '\0';
        if (inet_pton(family, copy, bytes) == 1) return true;
    }
    return nodes_file_fail(p, "no IPv%d address: '%.*s'", family == AF_INET ? 4 : 6, SHOWN(text));
}

static void keep_unknown(struct node_line *line, struct slice pair) {
    struct slice before = line->unknown;
    char *all = mem_alloc(before.len + 1 + pair.len);
    if (before.len) memcpy(all, before.data, before.len);
    all[before.len] = ',';
    memcpy(all + before.len + 1, pair.data, pair.len);
    mem_free((char *)before.data);
    line->unknown = slice_make(all, before.len + 1 + pair.len);
}

/* name=value behind the hostname. */
static bool parse_named_value(struct nodes_parser *p, struct slice pair, struct node_line *line, bool *names_tcp_port,
                              bool *names_tls_port) {
    struct slice value = pair, name = take_until(&value, '=');
    bool has_value = name.len < pair.len;
    if (!has_value || !name.len || !node_text_valid(name) || !node_text_valid(value))
        return nodes_file_fail(p, "no name=value: '%.*s'", SHOWN(pair));
    if (slice_equal(name, SLICE("shard-id"))) return parse_id(p, value, "the shard id", &line->shard);
    if (slice_equal(name, SLICE("nodename"))) return line->nodename = value, true;
    if (slice_equal(name, SLICE("availability-zone"))) return line->availability_zone = value, true;
    if (slice_equal(name, SLICE("client-ipv4"))) return parse_client_address(p, value, AF_INET, &line->client_ipv4);
    if (slice_equal(name, SLICE("client-ipv6"))) return parse_client_address(p, value, AF_INET6, &line->client_ipv6);
    if (slice_equal(name, SLICE("client-tcp-port"))) return parse_port(p, value, "a port", &line->client_tcp_port);
    if (slice_equal(name, SLICE("client-tls-port"))) return parse_port(p, value, "a port", &line->client_tls_port);
    if (slice_equal(name, SLICE("tcp-port"))) {
        *names_tcp_port = true;
        return parse_port(p, value, "a port", &line->tcp_port);
    }
    if (slice_equal(name, SLICE("tls-port"))) {
        *names_tls_port = true;
        return parse_port(p, value, "a port", &line->tls_port);
    }
    note(p, "Cluster config file, line %zu: unknown field '%.*s' is ignored", p->error->number, SHOWN(name));
    keep_unknown(line, pair);
    return true;
}

/* ip:port@bus,hostname,name=value,... An IPv6 address stands there without brackets. */
static bool parse_address(struct nodes_parser *p, struct slice text, struct node_line *line) {
    struct slice rest = text, ends = take_until(&rest, ',');
    bool has_hostname = ends.len < text.len;
    const char *colon = ends.len ? memrchr(ends.data, ':', ends.len) : NULL;
    if (!colon) return nodes_file_fail(p, "no port in the address: '%.*s'", SHOWN(ends));
    line->address = slice_make(ends.data, (size_t)(colon - ends.data));
    if (line->address.len >= NODE_ADDRESS_MAX)
        return nodes_file_fail(p, "the address is too long: '%.*s'", SHOWN(line->address));
    struct slice bus = slice_make(colon + 1, (size_t)(ends.data + ends.len - colon - 1));
    size_t both = bus.len;
    struct slice own = take_until(&bus, '@');
    uint16_t port;
    if (!parse_port(p, own, "the port", &port)) return false;
    if (own.len < both) {
        if (!parse_port(p, bus, "the bus port", &line->bus_port)) return false;
    } else {
        if (port > UINT16_MAX - OLD_BUS_PORT_DISTANCE) return nodes_file_fail(p, "the port is too large: %u", port);
        line->bus_port = (uint16_t)(port + OLD_BUS_PORT_DISTANCE);
    }
    bool names_tcp_port = false, names_tls_port = false;
    if (has_hostname) {
        size_t before = rest.len;
        line->hostname = take_until(&rest, ',');
        for (bool more = line->hostname.len < before; more;) {
            before = rest.len;
            struct slice pair = take_until(&rest, ',');
            more = pair.len < before;
            if (!parse_named_value(p, pair, line, &names_tcp_port, &names_tls_port)) return false;
        }
    }
    /* The port in front is the one that has no name. */
    if (!names_tcp_port && (names_tls_port || !p->tls)) line->tcp_port = port;
    if (!names_tls_port && (names_tcp_port || p->tls)) line->tls_port = port;
    return true;
}

static bool parse_flags(struct nodes_parser *p, struct slice text, struct node_line *line) {
    if (slice_equal(text, SLICE("noflags"))) return true;
    for (bool more = true; more;) {
        size_t before = text.len, i = 0;
        struct slice name = take_until(&text, ',');
        more = name.len < before;
        while (i < FLAG_NAMES && !slice_is(name, flag_names[i].name)) i++;
        if (i == FLAG_NAMES) return nodes_file_fail(p, "unknown flag: '%.*s'", SHOWN(name));
        line->flags |= (uint16_t)flag_names[i].flag;
    }
    if (line->flags & NODE_NOADDR) line->flags |= NODE_FAIL;
    return true;
}

/* [slot->-id] and [slot-<-id] */
static bool parse_open_slot(struct nodes_parser *p, struct slice text, struct node_line *line) {
    struct open_slot open = {.importing = false};
    struct slice rest = slice_make(text.data + 1, text.len - 1), number = take_until(&rest, '-');
    uint64_t slot;
    if (!parse_number(p, number, "an open slot", HASH_SLOTS - 1, &slot)) return false;
    if (rest.len < 3 || (*rest.data != '>' && *rest.data != '<') || rest.data[1] != '-' ||
        rest.data[rest.len - 1] != ']')
        return nodes_file_fail(p, "no open slot: '%.*s'", SHOWN(text));
    open.slot = (uint16_t)slot;
    open.importing = *rest.data == '<';
    if (!parse_id(p, slice_make(rest.data + 2, rest.len - 3), "the node of an open slot", &open.node)) return false;
    struct open_slot *all = mem_realloc((void *)line->open, (line->open_count + 1) * sizeof *all);
    all[line->open_count++] = open;
    line->open = all;
    return true;
}

static bool parse_slots(struct nodes_parser *p, struct slice text, struct node_line *line) {
    if (*text.data == '[') return parse_open_slot(p, text, line);
    struct slice rest = text, start = take_until(&rest, '-');
    uint64_t first, last;
    if (!parse_number(p, start, "a slot", HASH_SLOTS - 1, &first)) return false;
    last = first;
    if (start.len < text.len && !parse_number(p, rest, "a slot", HASH_SLOTS - 1, &last)) return false;
    if (first > last) return nodes_file_fail(p, "the range of slots is empty: '%.*s'", SHOWN(text));
    struct slot_bitmap *slots = (struct slot_bitmap *)line->slots;
    if (!slots) line->slots = slots = mem_calloc(1, sizeof *slots);
    for (uint64_t slot = first; slot <= last; slot++) slot_bitmap_set(slots, (unsigned)slot);
    return true;
}

static bool parse_epochs(struct nodes_parser *p, struct slice rest) {
    for (;;) {
        struct slice name = take_word(&rest), value = take_word(&rest);
        uint64_t number;
        if (!name.len) return true;
        if (!value.len) return nodes_file_fail(p, "no value of '%.*s'", SHOWN(name));
        bool current = slice_is(name, "currentEpoch"), vote = slice_is(name, "lastVoteEpoch");
        if (!current && !vote) {
            note(p, "Skipping unknown cluster config variable '%.*s'", SHOWN(name));
            continue;
        }
        if (!parse_number(p, value, "an epoch", UINT64_MAX, &number)) return false;
        *(current ? &p->file->current_epoch : &p->file->last_vote_epoch) = number;
    }
}

static bool parse_line(struct nodes_parser *p, struct slice rest) {
    struct slice columns[COLUMNS];
    /* A file system may leave blocks of zeros after a power failure; texts end at such a byte. */
    const char *zero = rest.len ? memchr(rest.data, 0, rest.len) : NULL;
    if (zero) {
        p->error->line.len = (size_t)(zero - rest.data);
        return nodes_file_fail(p, "there is a byte 0");
    }
    columns[0] = take_word(&rest);
    if (!columns[0].len) return true;
    if (slice_is(columns[0], "vars")) return parse_epochs(p, rest);
    for (int i = 1; i < COLUMNS; i++) {
        columns[i] = take_word(&rest);
        if (!columns[i].len) return nodes_file_fail(p, "%d of %d columns are missing", COLUMNS - i, COLUMNS);
    }
    struct nodes_file *file = p->file;
    mem_grow(file->lines, file->count, p->capacity, 16);
    struct node_line *line = &file->lines[file->count++]; /* whatever follows, the caller frees it */
    *line = (struct node_line){.connected = slice_equal(columns[7], SLICE("connected"))};
    if (!parse_id(p, columns[0], "the node id", &line->id) || !parse_address(p, columns[1], line) ||
        !parse_flags(p, columns[2], line))
        return false;
    if (!slice_equal(columns[3], SLICE("-")) && !parse_id(p, columns[3], "the primary", &line->primary)) return false;
    if (!parse_number(p, columns[4], "the time of a ping", UINT64_MAX, &line->ping_sent_ms) ||
        !parse_number(p, columns[5], "the time of a pong", UINT64_MAX, &line->pong_received_ms) ||
        !parse_number(p, columns[6], "the epoch", UINT64_MAX, &line->epoch))
        return false;
    if (!line->connected && !slice_equal(columns[7], SLICE("disconnected")))
        return nodes_file_fail(p, "unknown state of the link: '%.*s'", SHOWN(columns[7]));
    if (line->flags & NODE_MYSELF) {
        if (p->has_myself) return nodes_file_fail(p, "a second line has the flag myself");
        p->has_myself = true;
        file->myself = file->count - 1;
    }
    for (struct slice word; (word = take_word(&rest)).len;)
        if (!parse_slots(p, word, line)) return false;
    return true;
}

static int compare_ids(const void *a, const void *b) {
    const struct node_line *const *x = a, *const *y = b;
    int order = memcmp(&(*x)->id, &(*y)->id, NODE_ID_LEN);
    return order ? order : (*x > *y) - (*x < *y);
}
static bool check_duplicates(struct nodes_parser *p) {
    struct nodes_file *file = p->file;
    const struct node_line **sorted = mem_alloc(file->count * sizeof *sorted + 1), *duplicate = NULL;
    for (size_t i = 0; i < file->count; i++) sorted[i] = &file->lines[i];
    if (file->count) qsort(sorted, file->count, sizeof *sorted, compare_ids);
    for (size_t i = 1; i < file->count; i++)
        if (node_id_equal(&sorted[i - 1]->id, &sorted[i]->id) && (!duplicate || sorted[i] < duplicate))
            duplicate = sorted[i];
    mem_free(sorted);
    if (!duplicate) return true;
    return nodes_file_fail(p, "Duplicate nodeid detected: %.40s", duplicate->id.text);
}

bool nodes_file_parse(struct slice text, bool tls, nodes_file_note *note_function, void *context,
                      struct nodes_file *file, struct nodes_file_error *error) {
    struct nodes_parser p = {.file = file, .error = error, .note = note_function, .context = context, .tls = tls};
    bool ok = true, empty = text.len == 0;
    *file = (struct nodes_file){0};
    *error = (struct nodes_file_error){0};
    while (ok && text.len) {
        error->number++;
        error->line = take_until(&text, '\n');
        ok = parse_line(&p, error->line);
    }
    if (ok && !empty) {
        *error = (struct nodes_file_error){0};
        ok = check_duplicates(&p);
        if (ok && !p.has_myself) ok = nodes_file_fail(&p, "no line has the flag myself");
    }
    if (!ok) nodes_file_free(file);
    return ok;
}

void nodes_file_free(struct nodes_file *file) {
    for (size_t i = 0; i < file->count; i++) {
        mem_free((void *)file->lines[i].unknown.data);
        mem_free((void *)file->lines[i].slots);
        mem_free((void *)file->lines[i].open);
    }
    mem_free(file->lines);
    *file = (struct nodes_file){0};
}

/* --- Printing --- */

static void print_text(struct output *out, const char *text) {
    output_write(out, slice_of(text));
}
static void print_number(struct output *out, uint64_t number) {
    char *space = output_reserve(out, NUMBER_TEXT_MAX);
    output_commit(out, format_uint64(space, number));
}
static void print_id(struct output *out, const struct node_id *id) {
    output_write(out, slice_make(id->text, NODE_ID_LEN));
}
static void print_named_text(struct output *out, const char *name, struct slice value) {
    if (!value.len) return;
    print_text(out, name);
    output_write(out, value);
}
static void print_named_port(struct output *out, const char *name, uint16_t port) {
    if (!port) return;
    print_text(out, name);
    print_number(out, port);
}

void nodes_file_print_error(struct output *out, const struct nodes_file_error *error) {
    print_text(out, "Unrecoverable error: corrupted cluster config file \"");
    output_write(out, error->line);
    print_text(out, "\". ");
    if (error->number) {
        print_text(out, "Line ");
        print_number(out, error->number);
        print_text(out, ": ");
    }
    print_text(out, error->reason);
}

void node_flags_print(struct output *out, unsigned flags) {
    bool any = false;
    for (size_t i = 0; i < FLAG_NAMES_WRITTEN; i++) {
        if (!(flags & flag_names[i].flag)) continue;
        if (any) print_text(out, ",");
        print_text(out, flag_names[i].name);
        any = true;
    }
    if (!any) print_text(out, "noflags");
}

static void print_slots(struct output *out, const struct node_line *line) {
    const struct slot_bitmap *slots = line->slots;
    unsigned end = line->slot_end ? line->slot_end : HASH_SLOTS;
    for (unsigned first, next = line->slot_low; next < end && (first = slot_bitmap_next(slots, next, true)) < end;) {
        next = slot_bitmap_next(slots, first, false);
        print_text(out, " ");
        print_number(out, first);
        if (next == first + 1) continue;
        print_text(out, "-");
        print_number(out, next - 1);
    }
}

void node_line_print_head(struct output *out, const struct node_line *line, enum node_line_form form) {
    print_id(out, &line->id);
    print_text(out, " ");
    output_write(out, line->address);
    print_text(out, ":");
    print_number(out, line->tcp_port);
    print_text(out, "@");
    print_number(out, line->bus_port);
    if (form == NODE_LINE_FILE || line->hostname.len) print_text(out, ",");
    output_write(out, line->hostname);
    if (form == NODE_LINE_FILE) {
        print_named_text(out, ",availability-zone=", line->availability_zone);
        print_named_port(out, ",client-tls-port=", line->client_tls_port);
        print_named_port(out, ",client-tcp-port=", line->client_tcp_port);
        print_named_text(out, ",client-ipv6=", line->client_ipv6);
        print_named_text(out, ",client-ipv4=", line->client_ipv4);
        print_text(out, ",tls-port="); /* also 0: it tells that the port in front is that of TCP */
        print_number(out, line->tls_port);
        print_named_text(out, ",nodename=", line->nodename);
        if (!node_id_is_zero(&line->shard)) {
            print_text(out, ",shard-id=");
            print_id(out, &line->shard);
        }
        output_write(out, line->unknown);
    }
    print_text(out, " ");
    node_flags_print(out, line->flags);
    print_text(out, " ");
    if (node_id_is_zero(&line->primary))
        print_text(out, "-");
    else
        print_id(out, &line->primary);
    print_text(out, " ");
}

void node_line_print_tail(struct output *out, const struct node_line *line) {
    print_text(out, " ");
    print_number(out, line->epoch);
    print_text(out, line->connected ? " connected" : " disconnected");
    if (line->slots) print_slots(out, line);
    for (size_t i = 0; i < line->open_count; i++) {
        print_text(out, " [");
        print_number(out, line->open[i].slot);
        print_text(out, line->open[i].importing ? "-<-" : "->-");
        print_id(out, &line->open[i].node);
        print_text(out, "]");
    }
}

void node_line_print(struct output *out, const struct node_line *line, enum node_line_form form) {
    node_line_print_head(out, line, form);
    print_number(out, line->ping_sent_ms);
    print_text(out, " ");
    print_number(out, line->pong_received_ms);
    node_line_print_tail(out, line);
}

void nodes_file_print_epochs(struct output *out, uint64_t current_epoch, uint64_t last_vote_epoch) {
    print_text(out, "vars currentEpoch ");
    print_number(out, current_epoch);
    print_text(out, " lastVoteEpoch ");
    print_number(out, last_vote_epoch);
    print_text(out, "\n");
}

void nodes_file_print(struct output *out, const struct nodes_file *file) {
    for (size_t i = 0; i < file->count; i++) {
        node_line_print(out, &file->lines[i], NODE_LINE_FILE);
        print_text(out, "\n");
    }
    nodes_file_print_epochs(out, file->current_epoch, file->last_vote_epoch);
}

/* --- The log --- */

void nodes_file_in_use_text(const char *path, char text[static NODES_FILE_TEXT_MAX]) {
    snprintf(
        text, NODES_FILE_TEXT_MAX,
        "Sorry, the cluster configuration file %.200s is already used by a different Cluster node. Please make sure "
        "that different nodes use different cluster configuration files.",
        path);
}

void nodes_file_failure_text(const struct file_written *written, char text[static NODES_FILE_TEXT_MAX]) {
    static const char *const what[FILE_STEPS] = {
        [FILE_STEP_OPEN] = "open temp cluster config file",     [FILE_STEP_FSYNC] = "sync tmp cluster config file",
        [FILE_STEP_CLOSE] = "close tmp cluster config file",    [FILE_STEP_RENAME] = "rename tmp cluster config file",
        [FILE_STEP_DIR_FSYNC] = "sync cluster config file dir", [FILE_STEP_UNLINK] = "unlink tmp cluster config file",
    };
    if (written->failed == FILE_STEP_WRITE)
        snprintf(text, NODES_FILE_TEXT_MAX, "Failed after writing (%zu) bytes to tmp cluster config file: %s",
                 written->done, strerror(-written->error));
    else
        snprintf(text, NODES_FILE_TEXT_MAX, "Could not %s: %s", what[written->failed], strerror(-written->error));
}
