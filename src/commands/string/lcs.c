/* lcs.c: LCS, the longest common subsequence of two strings.
 *
 * The classic table, L(i,j) = the length for the first i bytes of a and the first j of b, is filled row by row; only
 * two rows are kept. Backtracking needs one bit of each cell, "up is longer than left", so a bit matrix takes an eighth
 * of a byte per cell instead of four bytes. LEN does not backtrack and keeps no matrix. The product of the lengths is
 * limited to a table of 32-bit cells within proto-max-bulk-len, as in Valkey; this also limits the time. */
#include "commands/lookup.h"
#include "lib/system/memory.h"
#include "server/command/spec.h"

struct lcs {
    struct slice a, b;
    uint32_t *rows;     /* two of b.len + 1 */
    uint8_t *longer_up; /* a bit for each i in 1..a.len, j in 1..b.len; NULL: not needed */
    size_t bits_per_row;
    uint32_t len;
};
struct lcs_options {
    bool len, idx, with_match_len;
    int64_t min_match_len;
};

static bool lcs_fill(struct lcs *lcs, bool with_way) {
    size_t columns = lcs->b.len + 1;
    lcs->bits_per_row = (lcs->b.len + 8) / 8 * 8;
    lcs->rows = mem_try_alloc(2 * columns * sizeof *lcs->rows);
    if (with_way) lcs->longer_up = mem_try_alloc(lcs->a.len * (lcs->bits_per_row / 8) + 1);
    if (!lcs->rows || (with_way && !lcs->longer_up)) return false;
    memset(lcs->rows, 0, 2 * columns * sizeof *lcs->rows);
    uint32_t *above = lcs->rows, *row = lcs->rows + columns;
    for (size_t i = 1; i <= lcs->a.len; i++) {
        char byte = lcs->a.data[i - 1];
        uint8_t *way = with_way ? lcs->longer_up + (i - 1) * (lcs->bits_per_row / 8) : NULL, bits = 0;
        for (size_t j = 1; j <= lcs->b.len; j++) {
            bool up = above[j] > row[j - 1];
            row[j] = byte == lcs->b.data[j - 1] ? above[j - 1] + 1 : up ? above[j] : row[j - 1];
            bits |= (uint8_t)(up << (j & 7));
            if (way && ((j & 7) == 7 || j == lcs->b.len)) {
                way[j / 8] = bits;
                bits = 0;
            }
        }
        uint32_t *swap = above;
        above = row, row = swap;
    }
    lcs->len = above[lcs->b.len];
    return true;
}

static bool lcs_goes_up(const struct lcs *lcs, size_t i, size_t j) {
    return lcs->longer_up[(i - 1) * (lcs->bits_per_row / 8) + j / 8] >> (j & 7) & 1;
}

/* A run of matching bytes: its last positions and its length. */
struct lcs_match {
    size_t a_end, b_end, len;
};

static void reply_range(struct reply *reply, size_t end, size_t len) {
    reply_array(reply, 2);
    reply_integer(reply, (int64_t)(end - len + 1));
    reply_integer(reply, (int64_t)end);
}

/* Replies with a match, unless it is too short; returns the number of reply elements. */
static size_t lcs_match_reply(struct reply *reply, const struct lcs_match *match, const struct lcs_options *options) {
    if (match->len == 0 || (options->min_match_len > 0 && match->len < (uint64_t)options->min_match_len)) return 0;
    reply_array(reply, options->with_match_len ? 3 : 2);
    reply_range(reply, match->a_end, match->len);
    reply_range(reply, match->b_end, match->len);
    if (options->with_match_len) reply_integer(reply, (int64_t)match->len);
    return 1;
}

/* Backtracks from the end of both strings. Fills `text` (the subsequence, lcs->len bytes) if it is not NULL, otherwise
 * replies with the matches. */
static size_t lcs_walk(const struct lcs *lcs, char *text, struct reply *reply, const struct lcs_options *options) {
    size_t i = lcs->a.len, j = lcs->b.len, left = lcs->len, matches = 0;
    struct lcs_match match = {0, 0, 0};
    while (i > 0 && j > 0) {
        if (lcs->a.data[i - 1] == lcs->b.data[j - 1]) {
            if (text) {
                text[--left] = lcs->a.data[i - 1];
            } else if (match.len == 0 || match.a_end - match.len != i - 1 || match.b_end - match.len != j - 1) {
                matches += lcs_match_reply(reply, &match, options);
                match = (struct lcs_match){i - 1, j - 1, 1};
            } else {
                match.len++;
            }
            i--, j--;
        } else if (lcs_goes_up(lcs, i, j)) {
            i--;
        } else {
            j--;
        }
    }
    if (!text) matches += lcs_match_reply(reply, &match, options);
    return matches;
}

static void reply_no_lcs_memory(struct call *call) {
    reply_error(call->reply, "ERR Insufficient memory, failed allocating transient memory for LCS");
}

static void lcs_reply(struct call *call, const struct lcs *lcs, const struct lcs_options *options) {
    if (options->len) {
        reply_integer(call->reply, lcs->len);
    } else if (options->idx) {
        reply_map(call->reply, 2);
        reply_bulk(call->reply, SLICE("matches"));
        struct reply_deferred deferred;
        reply_deferred_begin(call->reply, &deferred);
        size_t matches = lcs_walk(lcs, NULL, call->reply, options);
        reply_deferred_end(call->reply, &deferred, REPLY_ARRAY, matches);
        reply_bulk(call->reply, SLICE("len"));
        reply_integer(call->reply, lcs->len);
    } else {
        struct blob *text = blob_try_new(lcs->len);
        if (!text) {
            reply_no_lcs_memory(call);
            return;
        }
        lcs_walk(lcs, text->data, NULL, options);
        reply_bulk_blob(call->reply, text);
        blob_release(text);
    }
}

static bool lcs_options_read(struct call *call, struct lcs_options *options) {
    for (int i = 3; i < call->argc; i++) {
        struct slice word = call->argv[i];
        if (slice_is(word, "idx")) {
            options->idx = true;
        } else if (slice_is(word, "len")) {
            options->len = true;
        } else if (slice_is(word, "withmatchlen")) {
            options->with_match_len = true;
        } else if (slice_is(word, "minmatchlen") && i + 1 < call->argc) {
            if (!argument_int64(call, ++i, &options->min_match_len)) return false;
        } else {
            return reply_syntax_error(call->reply);
        }
    }
    if (!options->idx || !options->len) return true;
    return reply_error(call->reply, "ERR If you want both the length and indexes, please just use IDX.");
}

static void lcs_run(struct call *call) {
    struct entry *first = find_read(call, call->argv[1]), *second = find_read(call, call->argv[2]);
    if ((first && entry_type(first) != TYPE_STRING) || (second && entry_type(second) != TYPE_STRING)) {
        reply_error(call->reply, "ERR The specified keys must contain string values");
        return;
    }
    struct lcs_options options = {0};
    if (!lcs_options_read(call, &options)) return;
    char first_text[STRING_NUMBER_TEXT], second_text[STRING_NUMBER_TEXT];
    struct lcs lcs = {.a = first ? entry_string(first, first_text) : SLICE(""),
                      .b = second ? entry_string(second, second_text) : SLICE("")};
    if (lcs.a.len >= UINT32_MAX - 1 || lcs.b.len >= UINT32_MAX - 1) {
        reply_error(call->reply, "ERR String too long for LCS");
        return;
    }
    if (!string_size_fits(((uint64_t)lcs.a.len + 1) * ((uint64_t)lcs.b.len + 1), sizeof(uint32_t))) {
        reply_error(call->reply, "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len");
        return;
    }
    if (lcs_fill(&lcs, !options.len)) {
        lcs_reply(call, &lcs, &options);
    } else {
        reply_no_lcs_memory(call);
    }
    mem_free(lcs.rows);
    mem_free(lcs.longer_up);
}

const struct command_spec lcs_commands[] = {
    {COMMAND("lcs", lcs_run, -3, CMD_READONLY, ON_STRINGS, "7.0.0"),
     .complexity = "O(N*M) where N and M are the lengths of the two strings.",
     .summary = "Finds the longest common subsequence of two strings.",
     .syntax = "key1:key key2:key [LEN] [IDX] [MINMATCHLEN min-match-len:integer] [WITHMATCHLEN]",
     .keys = {KEY_RANGE(1, 1, 1, KEY_RO | KEY_ACCESS)}},
    {.name = NULL},
};
