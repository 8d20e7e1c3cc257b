/* cli_cluster_show.c: what valkey-cli --cluster shows: messages, prompts, nodes as text and as JSON. */
#include "tools/cli_cluster.h"
#include <stdarg.h>
#include <stdlib.h>

void cluster_say(const struct cli_cluster *c, enum cluster_tone tone, const char *format, ...) {
    static const char *const codes[] = {"", "\033[29;1m", "\033[32;1m", "\033[33;1m", "\033[31;1m"};
    const char *term = getenv("TERM");
    bool colour = tone != TONE_PLAIN && c->cli->options.tty_output && term && strstr(term, "xterm");
    va_list args;
    va_start(args, format);
    if (colour) fputs(codes[tone], stdout);
    vprintf(format, args);
    if (colour) fputs("\033[0m", stdout);
    va_end(args);
    fflush(stdout);
}

void cluster_progress(char mark) {
    putchar(mark);
    fflush(stdout);
}

static bool question_put(const char *question, char *answer, size_t size) {
    fputs(question, stdout);
    fflush(stdout);
    if (!fgets(answer, (int)size, stdin)) return false;
    answer[strcspn(answer, "\r\n")] = '\0';
    return true;
}

bool cluster_ask(const char *question, char *answer, size_t size) {
    if (question_put(question, answer, size)) return true;
    putchar('\n');
    return false;
}

bool cluster_confirm_by_hand(const char *question) {
    char answer[16];
    return question_put(question, answer, sizeof answer) && strcasecmp(answer, "yes") == 0;
}
bool cluster_confirm(const struct cli_cluster *c, const char *question) {
    return c->options->yes || cluster_confirm_by_hand(question);
}

static void node_show(const struct cli_node *node, const char *indent, bool planned) {
    const struct cli_node_line *line = &node->line;
    bool primary = node_is_primary(node);
    printf("%s%c: %s %s\n", indent, primary ? 'M' : 'S', line->id, node->name);
    if (primary || !planned) {
        struct memory_output m = MEMORY_OUTPUT_INIT;
        slots_write(&line->slots, &m.out);
        struct slice slots = memory_output_slice(&m);
        printf("%s   slots:%.*s (%d slots) %s\n", indent, (int)slots.len, slots.len ? slots.data : "",
               line->slots_count, primary ? "master" : "slave");
        memory_output_free(&m);
    }
    if (!primary) printf("%s   replicates %s\n", indent, line->primary);
    if (primary && node->replicas) printf("%s   %d additional replica(s)\n", indent, node->replicas);
}

void cluster_show_node(const struct cli_node *node, const char *indent) {
    node_show(node, indent, false);
}

void cluster_show_planned(const struct cli_node *node) {
    node_show(node, "", true);
}

bool cluster_show_summary(struct cli_cluster *c) {
    int64_t keys = 0;
    int primaries = 0;
    for (int i = 0; i < c->count; i++) {
        struct cli_node *node = c->nodes[i];
        if (!node_is_primary(node)) continue;
        const struct resp_value *reply = CLUSTER_CALL(node, "DBSIZE");
        if (!reply) return false;
        printf("%s (%.8s...) -> %lld keys | %d slots | %d replicas.\n", node->name, node->line.id,
               (long long)reply->integer, node->line.slots_count, node->replicas);
        keys += reply->integer;
        primaries++;
    }
    cluster_say(c, TONE_OK, "[OK] %lld keys in %d primaries.\n", (long long)keys, primaries);
    printf("%.2f keys per slot on average.\n", (double)keys / HASH_SLOTS);
    return true;
}

static void open_slots_write(const struct cli_node_line *line, bool importing, FILE *file) {
    bool any = false;
    for (int i = 0; i < line->open_count; i++) {
        const struct cli_open_slot *open = &line->open[i];
        if (open->importing != importing) continue;
        if (!any) fprintf(file, ",\n    \"%s\": {", importing ? "importing" : "migrating");
        fprintf(file, "%s\"%d\": \"%s\"", any ? "," : "", open->slot, open->peer);
        any = true;
    }
    if (any) fputc('}', file);
}

bool cluster_write_json(const struct cli_cluster *c, FILE *file) {
    fputs("[\n", file);
    for (int i = 0; i < c->count; i++) {
        const struct cli_node_line *line = &c->nodes[i]->line;
        const char *separator = "";
        /* A host is an address or a name: nodes refuse quotes and backslashes in both. */
        fprintf(file, "%s  {\n    \"name\": \"%s\",\n    \"host\": \"%s\",\n    \"port\": %d,\n    \"replicate\": ",
                i ? ",\n" : "", line->id, line->host, line->port);
        const char *quote = *line->primary ? "\"" : "";
        fprintf(file, "%s%s%s,\n    \"slots\": [", quote, *line->primary ? line->primary : "null", quote);
        for (unsigned at = 0, first, last; slot_bitmap_range(&line->slots, &at, &first, &last); separator = ",")
            fprintf(file, first == last ? "%s[%u]" : "%s[%u,%u]", separator, first, last);
        fprintf(file, "],\n    \"slots_count\": %d,\n    \"flags\": \"%s\",\n    \"current_epoch\": %llu",
                line->slots_count, line->flags & NODE_REPLICA ? "slave" : "master", (unsigned long long)line->epoch);
        if (c->problems) fprintf(file, ",\n    \"cluster_errors\": %u", c->problems);
        open_slots_write(line, false, file);
        open_slots_write(line, true, file);
        fputs("\n  }", file);
    }
    fputs("\n]", file);
    return !ferror(file);
}
