/* command_docs.c: a command's entry in COMMAND INFO and COMMAND DOCS, made from its spec on each request.
 *
 * The fields "first key", "last key" and "step" of COMMAND INFO describe only keys at fixed positions. The server
 * computes them from the key specs with fixed positions: a spec that begins where the previous one ends extends the
 * range. Any other spec sets the flag movablekeys. */
#include "server/command/command_docs.h"
#include "server/command/command_names.h"
#include "server/command/command_syntax.h"

/* --- INFO --- */

struct key_range {
    int first, last, step;
    bool movable; /* there are keys outside the range */
};
static struct key_range range_of(const struct command_spec *spec) {
    struct key_range range = {0};
    for (int i = 0; i < COMMAND_KEY_SPECS_MAX && spec->keys[i].begin != BEGIN_NONE; i++) {
        const struct key_spec *keys = &spec->keys[i];
        if (keys->flags & KEY_INCOMPLETE) range.movable = true;
        bool fixed = keys->begin == BEGIN_INDEX && keys->find == FIND_RANGE;
        int last = keys->a >= 0 ? keys->index + keys->a : keys->a;
        if (fixed && !range.first)
            range = (struct key_range){keys->index, last, keys->b, range.movable};
        else if (fixed && range.last > 0 && range.last + 1 == keys->index)
            range.last = last;
        else
            range.movable = true;
    }
    return range;
}
static void reply_flags(struct reply *reply, uint32_t flags, const struct flag_name *names, const char *prefix) {
    size_t count = 0;
    for (const struct flag_name *name = names; name->name; name++) count += (flags & name->flag) != 0;
    reply_set(reply, count);
    for (const struct flag_name *name = names; name->name; name++) {
        if (!(flags & name->flag)) continue;
        char text[64] = "";
        strcat(strcat(text, prefix), name->name);
        reply_status(reply, text);
    }
}
static void reply_words(struct reply *reply, const char *const *words) {
    size_t count = 0;
    while (words && words[count]) count++;
    reply_set(reply, count);
    for (size_t i = 0; i < count; i++) reply_bulk_text(reply, words[i]);
}
static void reply_spec_head(struct reply *reply, const char *title, const char *type, size_t fields) {
    reply_bulk_text(reply, title);
    reply_map(reply, 2);
    reply_field_text(reply, "type", type);
    reply_bulk_text(reply, "spec");
    reply_map(reply, fields);
}
static void reply_key_spec(struct reply *reply, const struct key_spec *keys) {
    reply_map(reply, keys->notes ? 4 : 3);
    if (keys->notes) {
        reply_field_text(reply, "notes", keys->notes);
    }
    reply_bulk_text(reply, "flags");
    reply_flags(reply, keys->flags, key_flag_names, "");
    if (keys->begin == BEGIN_INDEX) {
        reply_spec_head(reply, "begin_search", "index", 1);
        reply_field_integer(reply, "index", keys->index);
    } else if (keys->begin == BEGIN_KEYWORD) {
        reply_spec_head(reply, "begin_search", "keyword", 2);
        reply_field_text(reply, "keyword", keys->keyword);
        reply_field_integer(reply, "startfrom", keys->index);
    } else {
        reply_spec_head(reply, "begin_search", "unknown", 0);
    }
    if (keys->find == FIND_RANGE) {
        reply_spec_head(reply, "find_keys", "range", 3);
        reply_field_integer(reply, "lastkey", keys->a);
        reply_field_integer(reply, "keystep", keys->b);
        reply_field_integer(reply, "limit", keys->c);
    } else if (keys->find == FIND_KEYNUM) {
        reply_spec_head(reply, "find_keys", "keynum", 3);
        reply_field_integer(reply, "keynumidx", keys->a);
        reply_field_integer(reply, "firstkey", keys->b);
        reply_field_integer(reply, "keystep", keys->c);
    } else {
        reply_spec_head(reply, "find_keys", "unknown", 0);
    }
}
static size_t subcommands_count(const struct command *command) {
    size_t count = 0;
    for (const struct command *sub = command->first_sub; sub; sub = sub->next_sub) count++;
    return count;
}
void command_reply_info(struct reply *reply, const struct command *command) {
    const struct command_spec *spec = command->spec;
    struct key_range range = range_of(spec);
    size_t specs = 0;
    while (specs < COMMAND_KEY_SPECS_MAX && spec->keys[specs].begin != BEGIN_NONE) specs++;
    reply_array(reply, 10);
    reply_bulk_text(reply, command->full_name);
    reply_integer(reply, spec->arity);
    reply_flags(reply, spec->flags | (range.movable ? CMD_MOVABLE_KEYS : 0), command_flag_names, "");
    reply_integer(reply, range.first);
    reply_integer(reply, range.last);
    reply_integer(reply, range.step);
    reply_flags(reply, command->categories, command_category_names, "@");
    reply_words(reply, spec->tips);
    reply_set(reply, specs);
    for (size_t i = 0; i < specs; i++) reply_key_spec(reply, &spec->keys[i]);
    size_t subcommands = subcommands_count(command);
    reply_array(reply, subcommands);
    for (const struct command *sub = command->first_sub; sub; sub = sub->next_sub) command_reply_info(reply, sub);
}

/* --- DOCS --- */

static void reply_text_field(struct reply *reply, const char *name, const char *value) {
    if (value) reply_field_text(reply, name, value);
}
static void reply_arguments(struct reply *reply, const struct command_argument *argument) {
    static const struct flag_name names[] = {{1, "optional"}, {2, "multiple"}, {4, "multiple_token"}, {0, NULL}};
    reply_array(reply, (size_t)syntax_count(argument));
    for (; argument; argument = argument->next) {
        bool shown = argument->type != ARGUMENT_ONE_OF && argument->type != ARGUMENT_BLOCK;
        uint32_t flags =
            (argument->optional ? 1 : 0) | (argument->multiple ? 2 : 0) | (argument->multiple_token ? 4 : 0);
        reply_map(reply, 2 + (size_t)shown + (argument->key_spec >= 0) + (argument->token != NULL) +
                             (argument->summary != NULL) + (argument->since != NULL) +
                             (argument->deprecated_since != NULL) + (flags != 0) + (argument->children != NULL));
        reply_text_field(reply, "name", argument->name);
        reply_text_field(reply, "type", argument_type_name(argument->type));
        if (shown) reply_text_field(reply, "display_text", argument->display ? argument->display : argument->name);
        if (argument->key_spec >= 0) reply_field_integer(reply, "key_spec_index", argument->key_spec);
        reply_text_field(reply, "token", argument->token);
        reply_text_field(reply, "summary", argument->summary);
        reply_text_field(reply, "since", argument->since);
        reply_text_field(reply, "deprecated_since", argument->deprecated_since);
        if (flags) {
            reply_bulk_text(reply, "flags");
            reply_flags(reply, flags, names, "");
        }
        if (!argument->children) continue;
        reply_bulk_text(reply, "arguments");
        reply_arguments(reply, argument->children);
    }
}
static void reply_history(struct reply *reply, const char *const *history) {
    size_t count = 0;
    while (history[2 * count]) count++;
    reply_bulk_text(reply, "history");
    reply_set(reply, count);
    for (size_t i = 0; i < count; i++) {
        reply_array(reply, 2);
        reply_bulk_text(reply, history[2 * i]);
        reply_bulk_text(reply, history[2 * i + 1]);
    }
}
void command_reply_docs(struct reply *reply, const struct command *command) {
    static const struct flag_name names[] = {{1, "deprecated"}, {2, "syscmd"}, {0, NULL}};
    const struct command_spec *spec = command->spec;
    uint32_t flags = (spec->deprecated_since ? 1 : 0) | (spec->flags & CMD_SYSCMD ? 2 : 0);
    size_t subcommands = subcommands_count(command);
    char error[128] = "";
    struct command_argument *arguments =
        spec->syntax ? syntax_parse(spec->syntax, error) : NULL; /* valid: it was parsed at registration */
    const struct command_argument *shown = arguments ? arguments : spec->arguments;
    reply_map(reply, 1 + (spec->since != NULL) + (spec->module != NULL) + (spec->summary != NULL) +
                         (spec->complexity != NULL) + (flags != 0) + (spec->deprecated_since != NULL) +
                         (spec->replaced_by != NULL) + (spec->history != NULL) + (shown != NULL) + (subcommands != 0));
    reply_text_field(reply, "summary", spec->summary);
    reply_text_field(reply, "since", spec->since);
    reply_text_field(reply, "group", command_group_name(spec->group));
    reply_text_field(reply, "complexity", spec->complexity);
    reply_text_field(reply, "module", spec->module);
    if (flags) {
        reply_bulk_text(reply, "doc_flags");
        reply_flags(reply, flags, names, "");
    }
    reply_text_field(reply, "deprecated_since", spec->deprecated_since);
    reply_text_field(reply, "replaced_by", spec->replaced_by);
    if (spec->history) reply_history(reply, spec->history);
    if (shown) {
        reply_bulk_text(reply, "arguments");
        reply_arguments(reply, shown);
    }
    if (arguments) syntax_free(arguments);
    if (!subcommands) return;
    reply_bulk_text(reply, "subcommands");
    reply_map(reply, subcommands);
    for (const struct command *sub = command->first_sub; sub; sub = sub->next_sub) {
        reply_bulk_text(reply, sub->full_name);
        command_reply_docs(reply, sub);
    }
}
