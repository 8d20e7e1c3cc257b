/* core.c: used by all files of the state machine: log lines, and notes of what to save or do at the end of a turn. */
#include "cluster/protocol/machine.h"
#include <stdarg.h>
#include <stdio.h>

void say(struct cluster *cluster, enum log_level level, const char *format, ...) {
    if (level < log_level) return;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    cluster->effects->log(cluster->context, level, text);
}

void changed_self(struct cluster *cluster) {
    cluster->unsaved |= UNSAVED_SELF;
    cluster->view_version++;
}
void changed_table(struct cluster *cluster) {
    cluster->unsaved |= UNSAVED_TABLE;
    cluster->view_version++;
}
void changed_view(struct cluster *cluster) {
    cluster->view_version++;
}
void todo(struct cluster *cluster, unsigned work) {
    cluster->todo |= work;
}
void save(struct cluster *cluster, bool durable) {
    cluster->unsaved = 0;
    cluster->saved_ms = cluster->now_ms;
    cluster->effects->save(cluster->context, durable);
}

void random_id(struct cluster *cluster, struct node_id *id) {
    for (size_t i = 0; i < NODE_ID_LEN; i += 16) {
        uint64_t number = cluster->effects->random(cluster->context);
        for (size_t digit = i; digit < i + 16 && digit < NODE_ID_LEN; digit++, number >>= 4)
            id->text[digit] = "0123456789abcdef"[number & 15];
    }
}

void say_bound(struct cluster *cluster, const struct cluster_link *link) {
    say_verbose(cluster, "Bound cluster node " NODE_FORMAT " to connection of client %s:%u", NODE_TEXT(link->node),
                link->peer, link->peer_port);
}

void election_reset(struct cluster *cluster) {
    cluster->election = (struct election){0};
}

void manual_reset(struct cluster *cluster) {
    struct manual_failover *manual = &cluster->manual;
    bool paused = manual->paused;
    *manual = (struct manual_failover){0};
    if (paused) cluster->effects->resume_writes(cluster->context);
}
