/* info.h: INFO is a table of sections, each registered by its feature. */
#pragma once
#include "lib/text/output.h"
struct info_section {
    const char *name, *title; /* "server", "Server"; sections with the same name share one title */
    int order; /* as in Valkey: server 10, clients 20, memory 30, persistence 40, threads 45, stats 50, replication 60,
                  cpu 70, modules 80, commandstats 90, errorstats 100, latencystats 110, cluster 120, keyspace 130 */
    enum {
        INFO_DEFAULT,
        INFO_ALL_ONLY, /* shown by "all", "everything" and its name */
        INFO_NAMED_ONLY
    } when;
    void (*write)(struct output *out);
    void (*reset)(void); /* CONFIG RESETSTAT; may be NULL */
};
/* Leaves out the sections for which this returns false, from now on. */
void info_offer(bool (*offers)(const char *name));
void info_register(const struct info_section *sections); /* ends with name NULL */
void info_line(struct output *out, const char *format, ...)
    __attribute__((format(printf, 2, 3)));                              /* adds CRLF; at most 1000 bytes */
void info_number(struct output *out, const char *name, uint64_t value); /* a line "name:value" */
/* Sections whose names are only known when they are written: `write` writes those with the given names, all of them if
 * `count` is -1. `separate`: a blank line must precede the first. Called if a name is not that of a registered section,
 * and for "modules" and "everything". Modules write them, and may show data. */
void info_set_late_sections(void (*write)(struct output *out, int count, const struct slice *names, bool separate));
/* INFO with these arguments may show such sections. */
bool info_has_late(int count, const struct slice *names);
/* Writes the sections that INFO with these arguments shows, `late` ones, too. */
void info_write(struct output *out, int count, const struct slice *names, bool late);
void info_reset(void); /* calls all sections' reset */
