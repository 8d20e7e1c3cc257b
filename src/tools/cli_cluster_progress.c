/* cli_cluster_progress.c: how far an atomic slot migration is, for a person at a terminal.
 *
 * The slots arrive one after the other, so the keys that have moved are those of the slots before the one that is
 * arriving, and what the target has of that one. Bytes are what the source says it has sent for migrations. A target
 * that hides the number of keys (COUNTKEYSINSLOT) lets the line show bytes only. */
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "tools/cli_cluster.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NUMBER_TEXT = 24, SHOWN_US = 500 * 1000 };

struct cluster_progress {
    struct cli_node *source, *target;
    const struct slot_move *moves;
    int count, at; /* slots; the one that is arriving */
    uint64_t *keys, total, done;
    uint64_t bytes_before, began_us, shown_us;
    bool shown;
};

/* Keys of a slot; 0: the node does not say. */
static uint64_t slot_keys(struct cli_node *node, int slot) {
    char text[NUMBER_TEXT];
    snprintf(text, sizeof text, "%d", slot);
    const struct resp_value *reply = CLUSTER_TRY(node, "CLUSTER", "COUNTKEYSINSLOT", text);
    return reply && reply->type == RESP_INTEGER && reply->integer > 0 ? (uint64_t)reply->integer : 0;
}

static uint64_t exported_bytes(struct cli_node *node) {
    static const char name[] = "total_net_cluster_slot_export_bytes:";
    const struct resp_value *reply = CLUSTER_TRY(node, "INFO", "stats");
    const char *found = reply && reply->text.data ? strstr(reply->text.data, name) : NULL;
    return found ? strtoull(found + sizeof name - 1, NULL, 10) : 0;
}

struct cluster_progress *cluster_progress_new(struct cli_node *source, struct cli_node *target,
                                              const struct slot_move *moves, int count) {
    if (!isatty(STDOUT_FILENO)) return NULL;
    struct cluster_progress *p = mem_calloc(1, sizeof *p);
    *p = (struct cluster_progress){.source = source, .target = target, .moves = moves, .count = count};
    p->keys = mem_alloc((size_t)count * sizeof *p->keys);
    for (int i = 0; i < count; i++) p->total += p->keys[i] = slot_keys(source, moves[i].slot);
    p->bytes_before = exported_bytes(source);
    p->began_us = clock_monotonic_us();
    return p;
}

void cluster_progress_show(struct cluster_progress *p) {
    if (!p) return;
    uint64_t now = clock_monotonic_us(), there = 0, bytes = 0;
    if (now - p->shown_us < SHOWN_US) return;
    p->shown_us = now;
    while (p->at < p->count && (there = slot_keys(p->target, p->moves[p->at].slot)) >= p->keys[p->at]) {
        p->done += p->keys[p->at++];
        there = 0;
    }
    uint64_t keys = p->done + there, sent = exported_bytes(p->source);
    if (sent > p->bytes_before) bytes = sent - p->bytes_before;
    double seconds = (double)(now - p->began_us) / 1e6;
    char left[NUMBER_TEXT + 16] = "";
    if (keys && keys < p->total)
        snprintf(left, sizeof left, ", %.0f s left", seconds * (double)(p->total - keys) / (double)keys);
    printf("%s%llu of %llu keys, %.1f MB/s%s\033[K", p->shown ? "\r" : "\n", (unsigned long long)keys,
           (unsigned long long)p->total, seconds > 0 ? (double)bytes / 1e6 / seconds : 0, left);
    fflush(stdout);
    p->shown = true;
}

void cluster_progress_free(struct cluster_progress *p, bool moved) {
    if (!p) return;
    double seconds = (double)(clock_monotonic_us() - p->began_us) / 1e6;
    if (moved) printf("%s%llu keys in %.1f s\033[K\n", p->shown ? "\r" : "\n", (unsigned long long)p->total, seconds);
    mem_free(p->keys);
    mem_free(p);
}
