/* hyperloglog.c: PFADD, PFCOUNT, PFMERGE, and for developers PFDEBUG and PFSELFTEST. The value is a string in the
 * format of lib/structures/hyperloglog.h. */
#include "lib/structures/hyperloglog.h"
#include "commands/lookup.h"
#include "lib/system/memory.h"
#include "lib/system/random.h"
#include "server/command/spec.h"
#include <stdio.h>

static int64_t sparse_max;
static const char CORRUPT[] = "INVALIDOBJ Corrupted HLL object detected";

/* Returns the bytes of a HyperLogLog string. False: replied with an error. */
static bool hll_of(struct call *call, struct entry *entry, struct slice *bytes) {
    static char text[STRING_NUMBER_TEXT]; /* a number is not a HyperLogLog */
    if (!type_ok(call, entry, TYPE_STRING)) return false;
    *bytes = entry_string(entry, text);
    if (hll_is_valid(*bytes)) return true;
    return reply_error(call->reply, "WRONGTYPE Key is not a valid HyperLogLog string value.");
}

static struct entry *create(struct call *call, struct slice key) {
    char empty[HLL_SPARSE_EMPTY_SIZE], *bytes;
    hll_make_empty(empty);
    struct entry *entry = db_set_string(call->db, key, (struct slice){empty, sizeof empty}, NULL, false);
    entry = db_edit_string_silently(call->db, entry, sizeof empty, &bytes); /* encoding raw */
    notify(call->db, NOTIFY_NEW, "new", key);
    return entry;
}

/* The value's bytes for writing, with space to grow; `len` bytes are used. */
struct editing {
    struct call *call;
    struct entry *entry;
    char *bytes;
    size_t len;
};
static void edit_begin(struct editing *edit, struct call *call, struct entry *entry) {
    size_t len = entry_string_len(entry);
    *edit = (struct editing){.call = call, .len = len};
    edit->entry = db_edit_string_silently(call->db, entry, len + HLL_GROWTH_MAX, &edit->bytes);
}
/* Prepares for another change. */
static void edit_continue(struct editing *edit) {
    edit->entry = db_edit_string_silently(edit->call->db, edit->entry, edit->len + HLL_GROWTH_MAX, &edit->bytes);
}
static void edit_end(struct editing *edit) {
    edit->entry = db_edit_string_silently(edit->call->db, edit->entry, edit->len, &edit->bytes);
}

/* False: corrupt. */
static bool edit_to_dense(struct editing *edit) {
    char *dense = mem_alloc(HLL_DENSE_SIZE);
    bool good = hll_to_dense((struct slice){edit->bytes, edit->len}, dense);
    if (good) {
        edit->len = HLL_DENSE_SIZE;
        edit_continue(edit);
        memcpy(edit->bytes, dense, HLL_DENSE_SIZE);
    }
    mem_free(dense);
    return good;
}

/* Runs a change of a register; if the sparse form cannot hold the result, converts to dense and runs it again. */
#define EDIT_SET(edit, changed, ...)                                                                                   \
    do {                                                                                                               \
        (changed) = __VA_ARGS__;                                                                                       \
        if ((changed) == HLL_MUST_BE_DENSE) (changed) = edit_to_dense(edit) ? __VA_ARGS__ : -1;                        \
    } while (0)

/* The value was found corrupt after it had been changed. The value is propagated, since the command fails. */
static void refuse_changed(struct call *call, struct slice key) {
    static char text[STRING_NUMBER_TEXT];
    reply_error(call->reply, CORRUPT);
    db_changed(call->db, key);
    call_propagate(call, 4,
                   (struct slice[]){SLICE("SET"), key, entry_string(find_replace(call, key), text), SLICE("KEEPTTL")});
    call->dirty++;
}

static void pfadd_run(struct call *call) {
    struct slice key = call->argv[1], bytes;
    struct entry *entry = find_replace(call, key);
    uint64_t changes = 0;
    if (entry && !hll_of(call, entry, &bytes)) return;
    if (!entry) {
        entry = create(call, key);
        changes++;
    }
    struct editing edit;
    edit_begin(&edit, call, entry);
    int changed = 0;
    for (int i = 2; i < call->argc && changed >= 0; i++) {
        EDIT_SET(&edit, changed, hll_add(edit.bytes, &edit.len, (size_t)sparse_max, call->argv[i]));
        if (changed > 0) {
            changes++;
            edit_continue(&edit);
        }
    }
    edit_end(&edit);
    if (changed < 0 && changes) {
        refuse_changed(call, key);
        return;
    }
    if (changed < 0) {
        reply_error(call->reply, CORRUPT);
        return;
    }
    if (changes) db_changed(call->db, key);
    if (changes) notify(call->db, NOTIFY_STRING, "pfadd", key);
    call->dirty += changes;
    reply_integer(call->reply, changes != 0);
}

static void count_one(struct call *call) {
    struct entry *entry = find_read(call, call->argv[1]);
    struct slice bytes;
    uint64_t count = 0;
    if (entry && !hll_of(call, entry, &bytes)) return;
    if (entry && entry_encoding(entry) != ENCODING_RAW) { /* like every command that edits a string */
        char *edited;
        entry = db_edit_string_silently(call->db, entry, bytes.len, &edited);
        bytes.data = edited;
    }
    if (entry && !hll_cached(bytes, &count)) {
        uint8_t registers[HLL_REGISTERS] = {0};
        if (!hll_merge(bytes, registers)) {
            reply_error(call->reply, CORRUPT);
            return;
        }
        count = hll_estimate(registers);
        /* The cardinality is cached in the value, which therefore changes and must be propagated. A replica caches it
         * in its own copy, too, as in Valkey: no register differs, and the primary's next PFADD drops both. */
        char *edited;
        db_edit_string(call->db, entry, bytes.len, &edited);
        hll_cache(edited, count);
        call->dirty++;
    }
    reply_integer(call->reply, (int64_t)count);
}

/* Merges argv[first…] into the registers. False: replied with an error. */
static bool merge_arguments(struct call *call, int first, uint8_t *registers, bool *dense) {
    for (int i = first; i < call->argc; i++) {
        struct entry *entry = find_read(call, call->argv[i]);
        struct slice bytes;
        if (!entry) continue;
        if (!hll_of(call, entry, &bytes)) return false;
        *dense |= hll_is_dense(bytes);
        if (hll_merge(bytes, registers)) continue;
        return reply_error(call->reply, CORRUPT);
    }
    return true;
}

static void pfcount_run(struct call *call) {
    if (call->argc == 2) {
        count_one(call);
        return;
    }
    uint8_t registers[HLL_REGISTERS] = {0};
    bool dense = false;
    if (merge_arguments(call, 1, registers, &dense)) reply_integer(call->reply, (int64_t)hll_estimate(registers));
}

static void pfmerge_run(struct call *call) {
    uint8_t registers[HLL_REGISTERS] = {0};
    bool dense = false;
    if (!merge_arguments(call, 1, registers, &dense)) return;
    struct slice key = call->argv[1];
    struct entry *entry = find_replace(call, key);
    if (!entry) entry = create(call, key);
    struct editing edit;
    edit_begin(&edit, call, entry);
    int changed = dense && !hll_is_dense((struct slice){edit.bytes, edit.len}) && !edit_to_dense(&edit) ? -1 : 0;
    if (changed == 0 && hll_is_dense((struct slice){edit.bytes, edit.len})) {
        hll_pack(registers, edit.bytes); /* they include the target's own registers */
    } else {
        struct hll_cursor cursor = {0, 0};
        for (unsigned i = 0; i < HLL_REGISTERS && changed >= 0; i++) {
            if (!registers[i]) continue;
            EDIT_SET(&edit, changed, hll_set(edit.bytes, &edit.len, (size_t)sparse_max, i, registers[i], &cursor));
            if (changed > 0) edit_continue(&edit);
        }
    }
    hll_invalidate(edit.bytes);
    edit_end(&edit);
    if (changed < 0) {
        refuse_changed(call, key);
        return;
    }
    db_changed(call->db, key);
    notify(call->db, NOTIFY_STRING, "pfadd", key);
    call->dirty++;
    reply_ok(call->reply);
}

/* --- PFDEBUG --- */

static void decode_run(void *context, char kind, unsigned length, unsigned value) {
    struct memory_output *text = context;
    char word[32];
    int len = kind == 'v' ? snprintf(word, sizeof word, "v:%u,%u ", value, length)
                          : snprintf(word, sizeof word, "%c:%u ", kind, length);
    output_write(&text->out, (struct slice){word, (size_t)len});
}

static void decode(struct call *call, struct slice bytes) {
    if (hll_is_dense(bytes)) {
        reply_error(call->reply, "ERR HLL encoding is not sparse");
        return;
    }
    struct memory_output text = MEMORY_OUTPUT_INIT;
    hll_runs(bytes, decode_run, &text);
    struct slice shown = memory_output_slice(&text);
    if (shown.len) shown.len--;
    reply_bulk(call->reply, shown);
    memory_output_free(&text);
}

/* Converts to dense. False: replied with an error. */
static bool make_dense(struct call *call, struct entry *entry) {
    struct editing edit;
    edit_begin(&edit, call, entry);
    bool good = edit_to_dense(&edit);
    edit_end(&edit);
    /* The value is the same, so clients that watch the key or have cached it are not notified of the new encoding. */
    if (good)
        call->dirty++;
    else
        reply_error(call->reply, CORRUPT);
    return good;
}

static void set_simd(struct call *call) {
    bool on = slice_is(call->argv[2], "on");
    if (!on && !slice_is(call->argv[2], "off")) {
        reply_error(call->reply, "ERR Argument must be ON or OFF");
        return;
    }
    hll_set_simd(on);
    reply_status(call->reply, on ? "enabled" : "disabled");
}

static void pfdebug_run(struct call *call) {
    struct slice what = call->argv[1], bytes;
    if (slice_is(what, "simd")) {
        set_simd(call);
        return;
    }
    struct entry *entry = find_replace(call, call->argv[2]);
    if (!entry) {
        reply_error(call->reply, "ERR The specified key does not exist");
        return;
    }
    if (!hll_of(call, entry, &bytes)) return;
    struct editing edit; /* the encoding becomes raw */
    edit_begin(&edit, call, entry);
    edit_end(&edit);
    entry = edit.entry;
    bytes = (struct slice){edit.bytes, edit.len};
    bool dense = hll_is_dense(bytes);
    bool getreg = slice_is(what, "getreg"), todense = slice_is(what, "todense");
    if (!getreg && !todense && !slice_is(what, "decode") && !slice_is(what, "encoding")) {
        reply_error_format(call->reply, "ERR Unknown PFDEBUG subcommand '%.*s'", shown_len(what), what.data);
    } else if (call->argc != 3) {
        reply_error_format(call->reply, "ERR Wrong number of arguments for the '%.*s' subcommand", shown_len(what),
                           what.data);
    } else if (getreg) {
        uint8_t registers[HLL_REGISTERS] = {0};
        if (!dense && !make_dense(call, entry)) return;
        entry = find_replace(call, call->argv[2]);
        if (!hll_of(call, entry, &bytes)) return;
        hll_merge(bytes, registers);
        reply_array(call->reply, HLL_REGISTERS);
        for (int i = 0; i < HLL_REGISTERS; i++) reply_integer(call->reply, registers[i]);
    } else if (todense) {
        if (dense || make_dense(call, entry)) reply_integer(call->reply, !dense);
    } else if (slice_is(what, "decode")) {
        decode(call, bytes);
    } else {
        reply_status(call->reply, dense ? "dense" : "sparse");
    }
}

/* --- PFSELFTEST: tests the registers of both forms and the error of the estimate --- */

static bool selftest_registers(char *dense, uint8_t *registers) {
    uint8_t again[HLL_REGISTERS] = {0};
    for (int i = 0; i < HLL_REGISTERS; i++) registers[i] = (uint8_t)(random_u64() % 52);
    memset(dense, 0, HLL_DENSE_SIZE);
    hll_pack(registers, dense);
    return hll_merge((struct slice){dense, HLL_DENSE_SIZE}, again) && memcmp(registers, again, sizeof again) == 0;
}

static bool selftest_error(char *dense, uint8_t *registers, uint64_t count, uint64_t seed, double *error) {
    size_t len = HLL_DENSE_SIZE;
    memset(dense, 0, HLL_DENSE_SIZE);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t element = i ^ seed;
        hll_add(dense, &len, 0, slice_make(&element, sizeof element));
    }
    memset(registers, 0, HLL_REGISTERS);
    hll_merge((struct slice){dense, len}, registers);
    double found = (double)hll_estimate(registers), off = (double)count - found;
    *error = (off < 0 ? -off : off) / (double)count;
    return *error <= 6 * 0.0081; /* six standard errors */
}

static void pfselftest_run(struct call *call) {
    char *dense = mem_alloc(HLL_DENSE_SIZE);
    uint8_t registers[HLL_REGISTERS];
    uint64_t seed = random_u64(), failed = 0;
    double error = 0;
    bool good = true;
    for (int i = 0; i < 100 && good; i++) good = selftest_registers(dense, registers);
    for (uint64_t count = 1000; count <= 1000000 && good && !failed; count *= 10)
        if (!selftest_error(dense, registers, count, seed, &error)) failed = count;
    if (!good)
        reply_error(call->reply, "TESTFAILED Registers do not keep what is put into them");
    else if (failed)
        reply_error_format(call->reply, "TESTFAILED Too big error. card:%llu abserr:%.4f", (unsigned long long)failed,
                           error);
    else
        reply_ok(call->reply);
    mem_free(dense);
}

const struct config_option hyperloglog_options[] = {
    {OPTION("hll-sparse-max-bytes", CONFIG_MEMORY, &sparse_max, "3000"), .min = 0, .max = INT64_MAX},
    {.name = NULL},
};

const struct command_spec hyperloglog_commands[] = {
    {COMMAND("pfadd", pfadd_run, -2, CMD_WRITE | CMD_DENYOOM | CMD_FAST, ON_HYPERLOGLOGS, "2.8.9"),
     .complexity = "O(1) for each element",
     .summary = "Adds elements to a HyperLogLog, which is created if it does not exist.",
     .syntax = "key:key [element:string]...", .keys = FIRST_KEY(KEY_RW | KEY_INSERT)},
    {COMMAND("pfcount", pfcount_run, -2, CMD_READONLY | CMD_MAY_REPLICATE, ON_HYPERLOGLOGS, "2.8.9"),
     .complexity =
         "O(1) for one key whose count is known, else O(N), where N is the number of keys, with a large constant",
     .summary = "Estimates the number of distinct elements added to HyperLogLogs.", .syntax = "key:key...",
     .keys = {KEY_RANGE(1, -1, 1, KEY_RW | KEY_ACCESS)},
     .keys[0].notes = "RW because it may change the internal representation of the key, and propagate to replicas"},
    {COMMAND("pfmerge", pfmerge_run, -2, CMD_WRITE | CMD_DENYOOM, ON_HYPERLOGLOGS, "2.8.9"),
     .complexity = "O(N), where N is the number of keys, with a large constant",
     .summary = "Merges HyperLogLogs into one.", .syntax = "destkey:key [sourcekey:key(#1)]...",
     .keys = {KEY_RANGE(1, 0, 1, KEY_RW | KEY_ACCESS | KEY_INSERT), KEY_RANGE(2, -1, 1, KEY_RO | KEY_ACCESS)}},
    {COMMAND("pfdebug", pfdebug_run, 3, CMD_WRITE | CMD_DENYOOM | CMD_ADMIN | CMD_SYSCMD, ON_HYPERLOGLOGS, "2.8.9"),
     .complexity = "N/A", .summary = "Shows the internals of a HyperLogLog, for developers.",
     .syntax = "subcommand:string key:key", .keys = {KEY_RANGE(2, 0, 1, KEY_RW | KEY_ACCESS)}},
    {COMMAND("pfselftest", pfselftest_run, 1, CMD_NO_DATA | CMD_ADMIN | CMD_SYSCMD, ON_HYPERLOGLOGS, "2.8.9"),
     .complexity = "N/A", .summary = "Tests the server's HyperLogLogs, for developers."},
    {.name = NULL},
};
