/* config.c: the table of options: names, typed values, defaults.
 *
 * A registered option has a struct config_state: its default as text, and its value if the option has no variable of
 * its own. A case-insensitive hash table maps each name and alias to it. The file, the command line and CONFIG SET all
 * set values with config_state_set(); all output uses config_state_text(). Every value shown can be set again, and
 * CONFIG SET restores values this way when a later one fails. Comparing and keeping old values as text costs an
 * allocation per change. Copy functions for each type were rejected: options change rarely. */
#include "server/config/config.h"
#include "lib/structures/hashtable.h"
#include "lib/system/log.h"
#include "lib/system/memory.h"
#include "lib/system/must.h"
#include "lib/text/number.h"
#include "resp/request.h"
#include "server/config/config_engine.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static struct hashtable *names_table;
static struct config_name_entry **names_sorted;
static size_t names_count, names_capacity;
static bool names_are_sorted;
static struct config_directive *directives;
static size_t directives_count;

static struct slice entry_name(const void *entry) {
    return slice_of(((const struct config_name_entry *)entry)->name);
}
static const struct hashtable_type names_type = {.key = entry_name, .ignore_case = true};

const char *config_reason(const char *format, ...) {
    static char text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return text;
}

/* What is wrong with an option table is a defect of this program. */
#define must_describe(name, condition, what) must_hold(condition, "option '%s' %s", name, what)

/* --- values --- */

static const char *parse_bool(const struct config_option *option, struct slice word, int64_t *number) {
    if (slice_is(word, "yes")) return *number = 1, NULL;
    if (slice_is(word, "no")) return *number = 0, NULL;
    return "argument must be 'yes' or 'no'";
}
/* No digits mean 0, as in Valkey. A minus sign is accepted if the option has negative values, which have no unit. Also
 * as in Valkey, numbers from 2^63 on are the negative values with the same bits: 2^64-1 is -1.
 * Valkey lets the product of number and unit wrap; here that is malformed, since it could turn the largest limit into
 * none. */
static bool parse_memory_size(const struct config_option *option, struct slice argument, int64_t *bytes) {
    uint64_t number;
    bool negative = option->min < 0 && argument.len && argument.data[0] == '-';
    if (negative) {
        argument.data++, argument.len--;
        if (argument.len && !isdigit((unsigned char)argument.data[argument.len - 1])) return false;
    }
    if (!parse_memory(argument, &number) || (negative && !number)) return false;
    *bytes = (int64_t)(negative ? -number : number);
    return true;
}
static const char *parse_memory_or_percent(const struct config_option *option, struct slice word, int64_t *number) {
    bool percent_ok = option->flags & CONFIG_PERCENT_OK;
    if (percent_ok && word.len && word.data[word.len - 1] == '%') {
        int64_t percent;
        if (!parse_int64((struct slice){word.data, word.len - 1}, &percent) || percent < 0)
            return "argument must be a memory or percent value";
        *number = -percent;
    } else if (!parse_memory_size(option, word, number)) {
        return percent_ok ? "argument must be a memory or percent value" : "argument must be a memory value";
    }
    return percent_ok && *number < -100 ? "percentage argument must be less or equal to 100" : NULL;
}
bool config_parse_number(struct slice text, int64_t *number) {
    char digits[64], *end;
    if (text.len >= sizeof digits) return false;
    if (text.len) memcpy(digits, text.data, text.len);
    digits[text.len] = '\0';
    errno = 0;
    *number = strtoll(digits, &end, 10);
    return end == digits + text.len && !errno;
}
static const char *parse_octal(struct slice word, int64_t *number) {
    int64_t value = 0;
    if (!word.len || word.len > 10) return "argument couldn't be parsed as an octal number";
    for (size_t i = 0; i < word.len; i++) {
        if (word.data[i] < '0' || word.data[i] > '7') return "argument couldn't be parsed as an octal number";
        value = value * 8 + (word.data[i] - '0');
    }
    return *number = value, NULL;
}
static const char *not_one_of(const struct config_option *option) {
    char list[400];
    size_t len = 0;
    for (const struct config_name *n = option->names; n->name && len < sizeof list; n++)
        len += (size_t)snprintf(list + len, sizeof list - len, "%s%s", n == option->names ? "" : ", ", n->name);
    return config_reason("argument(s) must be one of the following: %s", list);
}
static const char *parse_names(const struct config_option *option, int count, const struct slice *words,
                               int64_t *number) {
    if (!count) return not_one_of(option);
    int64_t value = 0;
    for (int i = 0; i < count; i++) {
        const struct config_name *n = option->names;
        while (n->name && !slice_is(words[i], n->name)) n++;
        if (!n->name) return not_one_of(option);
        value |= n->value;
    }
    return *number = value, NULL;
}
static void type_limits(const struct config_option *option, int64_t *min, int64_t *max) {
    *min = option->min, *max = option->max;
    if (*min || *max) return;
    if (option->type == CONFIG_INT64)
        *min = INT64_MIN, *max = INT64_MAX;
    else if (option->type == CONFIG_INT)
        *min = INT_MIN, *max = INT_MAX;
    else if (option->type == CONFIG_OCTAL)
        *max = INT_MAX;
    else
        *max = INT64_MAX;
}
static const char *out_of_limits(const struct config_option *option) {
    int64_t min, max;
    type_limits(option, &min, &max);
    if (option->type == CONFIG_OCTAL)
        return config_reason("argument must be between %o and %o inclusive", (unsigned)min, (unsigned)max);
    if (option->flags & CONFIG_UNSIGNED_LIMITS)
        return config_reason("argument must be between %llu and %llu inclusive", (unsigned long long)min,
                             (unsigned long long)max);
    return config_reason("argument must be between %lld and %lld inclusive", (long long)min, (long long)max);
}
static const char *check_limits(const struct config_option *option, int64_t number) {
    int64_t min, max;
    type_limits(option, &min, &max);
    bool percent = option->flags & CONFIG_PERCENT_OK && number < 0;
    if (percent || option->flags & CONFIG_UNSIGNED) return NULL;
    if (option->flags & CONFIG_UNSIGNED_LIMITS)
        return (uint64_t)number >= (uint64_t)min && (uint64_t)number <= (uint64_t)max ? NULL : out_of_limits(option);
    return number >= min && number <= max ? NULL : out_of_limits(option);
}
static const char *parse_number(const struct config_option *option, int count, const struct slice *words,
                                int64_t *number) {
    const char *reason;
    switch (option->type) {
    case CONFIG_BOOL: return parse_bool(option, words[0], number);
    case CONFIG_ENUM:
    case CONFIG_FLAGS: return parse_names(option, count, words, number);
    case CONFIG_MEMORY: reason = parse_memory_or_percent(option, words[0], number); break;
    case CONFIG_OCTAL: reason = parse_octal(words[0], number); break;
    default: reason = parse_int64(words[0], number) ? NULL : "argument couldn't be parsed into an integer"; break;
    }
    return reason ? reason : check_limits(option, *number);
}
static int64_t config_number_of(const struct config_state *state) {
    if (state->option->fetch) return state->option->fetch(state->option, NULL);
    switch (state->option->type) {
    case CONFIG_BOOL: return *(bool *)state->value;
    case CONFIG_INT64:
    case CONFIG_MEMORY: return *(int64_t *)state->value;
    case CONFIG_INT:
    case CONFIG_OCTAL:
    case CONFIG_ENUM:
    case CONFIG_FLAGS: return *(int *)state->value;
    default: must_fail(__FILE__, __LINE__, __func__, "the option is a number", "%s", state->option->name);
    }
}
static void store_number(struct config_state *state, int64_t number) {
    switch (state->option->type) {
    case CONFIG_BOOL: *(bool *)state->value = number; break;
    case CONFIG_INT64:
    case CONFIG_MEMORY: *(int64_t *)state->value = number; break;
    default: *(int *)state->value = (int)number; break;
    }
}
static void store_words(struct config_state *state, int count, const struct slice *words) {
    if (state->option->type == CONFIG_BYTES) {
        struct slice *bytes = state->value, old = *bytes;
        *bytes = (struct slice){mem_strndup(words->len ? words->data : "", words->len), words->len};
        mem_free((char *)(uintptr_t)old.data);
        return;
    }
    if (state->option->type == CONFIG_STRING) { /* joined by spaces, as CONFIG GET shows them */
        char **place = state->value, *old = *place;
        size_t len = 0, at = 0;
        for (int i = 0; i < count; i++) len += words[i].len + (i > 0);
        char *text = mem_alloc(len + 1);
        for (int i = 0; i < count; i++) {
            if (i) text[at++] = ' ';
            if (words[i].len) memcpy(text + at, words[i].data, words[i].len);
            at += words[i].len;
        }
        text[len] = 0;
        *place = text;
        mem_free(old);
        return;
    }
    struct config_strings *strings = state->value, old = *strings;
    strings->count = count;
    strings->items = count ? mem_alloc((size_t)count * sizeof *strings->items) : NULL;
    for (int i = 0; i < count; i++) strings->items[i] = mem_strndup(words[i].data, words[i].len);
    for (int i = 0; i < old.count; i++) mem_free(old.items[i]);
    mem_free(old.items);
}
static bool has_words(const struct config_option *option) {
    return option->type == CONFIG_STRINGS || option->type == CONFIG_FLAGS || option->flags & CONFIG_MULTI_ARG;
}
static const char *ask_check(const struct config_option *option, int count, const struct slice *words) {
    if (!option->check) return NULL;
    struct memory_output text = MEMORY_OUTPUT_INIT;
    for (int i = 0; i < count; i++) {
        if (i) output_write(&text.out, SLICE(" "));
        output_write(&text.out, words[i]);
    }
    output_write(&text.out, (struct slice){"", 1});
    struct slice whole = memory_output_slice(&text);
    const char *reason = option->check(option, (struct slice){whole.data, whole.len - 1});
    memory_output_free(&text);
    return reason;
}
static const char *config_store(struct config_state *state, int64_t number, struct slice text) {
    const struct config_option *option = state->option;
    bool same = option->type != CONFIG_STRING && option->fetch(option, NULL) == number;
    if (option->type == CONFIG_STRING) {
        struct slice now = config_state_text_copy(state);
        same = slice_equal(now, text);
        config_text_free(now);
    }
    return same ? NULL : option->store(option, number, text);
}
const char *config_state_set(struct config_state *state, int count, const struct slice *words, bool is_default) {
    const struct config_option *option = state->option;
    if (has_words(option)) {
        if (count == 1 && words[0].len == 0) count = 0;
    } else if (count != 1) {
        return "wrong number of arguments";
    }
    bool is_bytes = option->type == CONFIG_BYTES, is_custom = option->type == CONFIG_CUSTOM,
         is_text = is_bytes || option->type == CONFIG_STRING || option->type == CONFIG_STRINGS;
    for (int i = 0; is_text && !is_bytes && i < count; i++) { /* C functions would truncate the text there */
        if (!words[i].len || !memchr(words[i].data, 0, words[i].len)) continue;
        const char *reason = is_default ? NULL : ask_check(option, count, words); /* it may say more */
        return reason ? reason : "argument must not contain a null byte";
    }
    int64_t number = 0;
    const char *reason = is_text || is_custom ? NULL : parse_number(option, count, words, &number);
    if ((!reason || option->type == CONFIG_ENUM) && !is_default) { /* it may say more of a name, too */
        const char *refusal = ask_check(option, count, words);
        if (refusal) reason = refusal;
    }
    if (reason) return reason;
    if (is_custom) return option->set(option, count, words);
    if (option->store) return config_store(state, number, is_text ? words[0] : (struct slice){0});
    if (is_text)
        store_words(state, count, words);
    else
        store_number(state, number);
    return NULL;
}
const char *config_state_set_text(struct config_state *state, struct slice text, bool is_default) {
    if (!has_words(state->option)) return config_state_set(state, 1, &text, is_default);
    int count = 1;
    for (size_t i = 0; i < text.len; i++) count += text.data[i] == ' ';
    struct slice *words = mem_alloc((size_t)count * sizeof *words);
    size_t start = 0, at = 0;
    for (int i = 0; i < count; i++, start = ++at) {
        while (at < text.len && text.data[at] != ' ') at++;
        words[i] = (struct slice){text.data + start, at - start};
    }
    const char *reason = config_state_set(state, count, words, is_default);
    mem_free(words);
    return reason;
}
static void config_write_text(struct output *out, const char *text) {
    output_write(out, slice_of(text));
}
void config_names_write(const struct config_name *names, bool flags, int value, struct output *out) {
    for (const struct config_name *n = names; n->name; n++)
        if (n->value == value) {
            config_write_text(out, n->name);
            return;
        }
    const char *separator = "";
    for (const struct config_name *n = names; flags && n->name; n++) {
        if (!n->value || (n->value & value) != n->value) continue;
        config_write_text(out, separator);
        config_write_text(out, n->name);
        separator = " ";
    }
    /* Only a module's option can have a value that is none of its names. */
    if (!*separator) config_write_text(out, "unknown");
}
/* `units`: writes memory in the largest unit that divides it, as an operator would write it in the file. */
static void write_number(const struct config_state *state, bool units, struct output *out) {
    const struct config_option *option = state->option;
    int64_t number = config_number_of(state);
    char text[32];
    const char *unit = "";
    if (option->type == CONFIG_BOOL) {
        config_write_text(out, number ? "yes" : "no");
        return;
    }
    if (option->type == CONFIG_ENUM || option->type == CONFIG_FLAGS) {
        config_names_write(option->names, option->type == CONFIG_FLAGS, (int)number, out);
        return;
    }
    if (option->type == CONFIG_OCTAL) {
        snprintf(text, sizeof text, "%o", (unsigned)number);
    } else {
        if (option->flags & CONFIG_PERCENT_OK && number < 0) number = -number, unit = "%";
        if (units && option->type == CONFIG_MEMORY && !*unit && (number > 0 || option->flags & CONFIG_UNSIGNED))
            text[format_memory(text, (uint64_t)number)] = 0;
        else if (option->flags & CONFIG_UNSIGNED)
            snprintf(text, sizeof text, "%llu%s", (unsigned long long)number, unit);
        else
            snprintf(text, sizeof text, "%lld%s", (long long)number, unit);
    }
    config_write_text(out, text);
}
void config_state_text(const struct config_state *state, struct output *out) {
    const struct config_option *option = state->option;
    if (option->type == CONFIG_CUSTOM) {
        option->get(option, out);
    } else if (option->type == CONFIG_STRING && option->fetch) {
        option->fetch(option, out);
    } else if (option->type == CONFIG_STRING) {
        config_write_text(out, *(char **)state->value);
    } else if (option->type == CONFIG_BYTES) {
        output_write(out, *(const struct slice *)state->value);
    } else if (option->type == CONFIG_STRINGS) {
        const struct config_strings *strings = state->value;
        for (int i = 0; i < strings->count; i++) {
            if (i) config_write_text(out, " ");
            config_write_text(out, strings->items[i]);
        }
    } else {
        write_number(state, false, out);
    }
}
struct slice config_state_text_copy(const struct config_state *state) {
    struct memory_output text = MEMORY_OUTPUT_INIT;
    config_state_text(state, &text.out);
    struct slice slice = memory_output_slice(&text);
    char *copy = mem_strndup(slice.len ? slice.data : "", slice.len);
    slice.data = copy;
    memory_output_free(&text);
    return slice;
}
void config_text_free(struct slice text) {
    mem_free((char *)(uintptr_t)text.data);
}
bool config_state_is_default(const struct config_state *state) {
    struct slice text = config_state_text_copy(state);
    bool same = slice_equal(text, state->initial);
    config_text_free(text);
    return same;
}
void config_state_log_not_built(struct config_state *state) {
    const struct config_option *option = state->option;
    if (!(option->flags & CONFIG_NOT_BUILT)) return;
    struct slice text = config_state_text_copy(state);
    /* Turning off a feature that is not built needs no message. */
    bool silent = slice_equal(text, state->initial) || !text.len || slice_equal(text, SLICE("no")) ||
                  slice_equal(text, SLICE("0"));
    config_text_free(text);
    if (silent) {
        state->logged_not_built = false;
    } else if (!state->logged_not_built) {
        log_warning("Option '%s' is accepted but has no effect in this build", option->name);
        state->logged_not_built = true;
    }
}

/* --- lines of the file --- */

void config_state_lines(const struct config_state *state, const char *name, struct output *out) {
    const struct config_option *option = state->option;
    if (option->type == CONFIG_CUSTOM && option->rewrite) {
        option->rewrite(option, out);
        return;
    }
    config_write_text(out, name);
    config_write_text(out, " ");
    if (option->type == CONFIG_STRINGS && ((struct config_strings *)state->value)->count) {
        const struct config_strings *strings = state->value;
        for (int i = 0; i < strings->count; i++) {
            if (i) config_write_text(out, " ");
            word_write(out, slice_of(strings->items[i]), false);
        }
    } else if (option->type == CONFIG_STRING || option->type == CONFIG_BYTES || option->type == CONFIG_CUSTOM ||
               option->type == CONFIG_STRINGS) {
        struct slice text = config_state_text_copy(state);
        if (option->flags & CONFIG_MULTI_ARG && text.len)
            output_write(out, text);
        else
            word_write(out, text, true);
        config_text_free(text);
    } else {
        write_number(state, true, out);
    }
    config_write_text(out, "\n");
}

/* --- the table --- */

static void add_name(const char *name, struct config_state *state) {
    struct config_name_entry *entry = mem_calloc(1, sizeof *entry);
    entry->name = name, entry->state = state;
    bool added = hashtable_add(names_table, entry);
    must_describe(name, added, "is in two tables");
    mem_grow(names_sorted, names_count, names_capacity, 128);
    names_sorted[names_count++] = entry;
    names_are_sorted = false;
}
void config_register(const struct config_option *options) {
    if (!names_table) names_table = hashtable_new(&names_type);
    for (const struct config_option *option = options; option->name; option++) {
        bool custom = option->type == CONFIG_CUSTOM,
             named = option->type == CONFIG_ENUM || option->type == CONFIG_FLAGS;
        must_describe(option->name, custom ? option->set && option->get : option->initial != NULL,
                      "has no default or functions");
        must_describe(option->name, !named || option->names, "has no names");
        struct config_state *state = mem_calloc(1, sizeof *state);
        state->option = option;
        if (option->store) {
            must_describe(option->name, option->fetch, "is stored and not fetched");
            state->initial = slice_of(mem_strdup(option->initial));
            add_name(option->name, state);
            continue;
        }
        state->value = option->value || custom ? option->value : mem_calloc(1, sizeof(struct config_strings));
        if (option->type == CONFIG_STRING)
            *(char **)state->value = NULL;
        else if (option->type == CONFIG_BYTES)
            *(struct slice *)state->value = (struct slice){NULL, 0};
        else if (option->type == CONFIG_STRINGS)
            *(struct config_strings *)state->value = (struct config_strings){0};
        const char *reason = option->initial ? config_state_set_text(state, slice_of(option->initial), true) : NULL;
        must_describe(option->name, !reason, reason);
        state->initial = config_state_text_copy(state);
        add_name(option->name, state);
        if (option->alias) add_name(option->alias, state);
    }
}
static void remove_name(struct slice name) {
    struct config_name_entry *entry = hashtable_pop(names_table, name);
    size_t at = 0;
    while (at < names_count && names_sorted[at] != entry) at++;
    must_less(at, names_count);
    memmove(names_sorted + at, names_sorted + at + 1, (--names_count - at) * sizeof *names_sorted);
    mem_free(entry);
}

void config_unregister(const struct config_option *options) {
    for (const struct config_option *option = options; option->name; option++) {
        struct config_name_entry *entry = config_name_find(slice_of(option->name));
        if (!entry || entry->state->option != option) continue;
        struct config_state *state = entry->state;
        if (option->store) {
            /* The owner keeps the value. */
        } else if (option->type == CONFIG_STRING) {
            mem_free(*(char **)state->value);
            *(char **)state->value = NULL;
        } else if (option->type == CONFIG_BYTES) {
            config_text_free(*(struct slice *)state->value);
            *(struct slice *)state->value = (struct slice){NULL, 0};
        } else if (option->type == CONFIG_STRINGS) {
            store_words(state, 0, NULL);
        }
        if (!option->value && option->type != CONFIG_CUSTOM && !option->store) mem_free(state->value);
        remove_name(slice_of(option->name));
        if (option->alias) remove_name(slice_of(option->alias));
        config_text_free(state->initial);
        mem_free(state);
    }
}
const char *(*config_keep_late)(int count, const struct slice *words);
void config_set_late_options(const char *(*keep)(int count, const struct slice *words)) {
    config_keep_late = keep;
}
void config_register_directives(const struct config_directive *added) {
    for (; added->name; added++) {
        struct config_directive *present = config_directive_find(slice_of(added->name));
        if (!present) {
            directives = mem_realloc(directives, (directives_count + 1) * sizeof *directives);
            present = &directives[directives_count++];
        }
        *present = *added;
    }
}
struct config_directive *config_directive_find(struct slice name) {
    for (size_t i = 0; i < directives_count; i++)
        if (slice_is(name, directives[i].name)) return &directives[i];
    return NULL;
}
size_t config_directives_count(void) {
    return directives_count;
}
struct config_directive *config_directive_at(size_t index) {
    return &directives[index];
}
struct config_name_entry *config_name_find(struct slice name) {
    return names_table ? hashtable_find(names_table, name) : NULL;
}
size_t config_names_count(void) {
    return names_count;
}
static int compare_names(const void *a, const void *b) {
    return strcmp((*(struct config_name_entry *const *)a)->name, (*(struct config_name_entry *const *)b)->name);
}
struct config_name_entry *config_name_at(size_t index) {
    if (!names_are_sorted && names_count) qsort(names_sorted, names_count, sizeof *names_sorted, compare_names);
    names_are_sorted = true;
    return names_sorted[index];
}
const struct config_option *config_find(struct slice name) {
    struct config_name_entry *entry = config_name_find(name);
    return entry ? entry->state->option : NULL;
}
static struct config_state *state_of(const char *name) {
    struct config_name_entry *entry = config_name_find(slice_of(name));
    must_describe(name, entry, "is asked for and in no table");
    return entry->state;
}
int64_t config_number(const char *name) {
    return config_number_of(state_of(name));
}
const char *config_assign(const char *name, int count, const struct slice *words) {
    return config_state_set(state_of(name), count, words, false);
}
const char *config_assign_text(const char *name, struct slice text) {
    return config_state_set_text(state_of(name), text, false);
}
