/* latency_monitor.c: see latency_monitor.h. Each event keeps its last 160 samples: the maximum of each second with an
 * event. */
#include "server/stats/latency_monitor.h"
#include "lib/structures/histogram.h"
#include "lib/system/clock.h"
#include "lib/system/memory.h"
#include "lib/system/ticks.h"
#include "server/command/command.h"
#include "server/command/help.h"
#include "server/command/spec.h"
#include "server/config/config.h"
#include "server/feature.h"
#include "server/server.h"
#include <stdarg.h>
#include <stdio.h>

enum { SAMPLES = 160, EVENTS_MAX = 64, GRAPH_ROWS = 4, GRAPH_COLUMNS = 80, HISTOGRAM_FIRST = 10, HISTOGRAM_LAST = 30 };

struct latency_sample {
    int64_t time; /* seconds, 0: none */
    uint64_t ms;
};
static struct event {
    const char *name;
    struct latency_sample samples[SAMPLES]; /* ring */
    int next;
    uint64_t max_ms, sum_ms, count; /* of all times, not of the samples */
} * events[EVENTS_MAX];
static int events_count;
static int64_t threshold_ms;
uint64_t latency_threshold_us = UINT64_MAX, latency_threshold_ticks = UINT64_MAX;

static struct event *event_find(struct slice name) {
    for (int i = 0; i < events_count; i++)
        if (slice_is(name, events[i]->name)) return events[i];
    return NULL;
}

void latency_event_add(const char *name, uint64_t us) {
    struct event *event = event_find(slice_of(name));
    uint64_t ms = us / 1000;
    if (!event) {
        if (events_count == EVENTS_MAX) return;
        event = events[events_count++] = mem_calloc(1, sizeof *event);
        event->name = mem_strdup(name); /* a module's may be unloaded */
    }
    if (ms > event->max_ms) event->max_ms = ms;
    event->sum_ms += ms;
    event->count++;
    int64_t now = clock_ms() / 1000;
    struct latency_sample *last = &event->samples[(event->next + SAMPLES - 1) % SAMPLES];
    if (last->time == now) {
        if (ms > last->ms) last->ms = ms;
        return;
    }
    event->samples[event->next] = (struct latency_sample){now, ms};
    event->next = (event->next + 1) % SAMPLES;
}

/* Oldest first. */
static int event_samples(const struct event *event, struct latency_sample samples[SAMPLES]) {
    int count = 0;
    for (int i = 0; i < SAMPLES; i++) {
        const struct latency_sample *sample = &event->samples[(event->next + i) % SAMPLES];
        if (sample->time) samples[count++] = *sample;
    }
    return count;
}

/* --- Commands --- */

static void latest_run(struct call *call) {
    reply_array(call->reply, (size_t)events_count);
    for (int i = 0; i < events_count; i++) {
        const struct latency_sample *last = &events[i]->samples[(events[i]->next + SAMPLES - 1) % SAMPLES];
        reply_array(call->reply, 6);
        reply_bulk_text(call->reply, events[i]->name);
        reply_integer(call->reply, last->time);
        reply_integer(call->reply, (int64_t)last->ms);
        reply_integer(call->reply, (int64_t)events[i]->max_ms);
        reply_integer(call->reply, (int64_t)events[i]->sum_ms);
        reply_integer(call->reply, (int64_t)events[i]->count);
    }
}

static void history_run(struct call *call) {
    const struct event *event = event_find(call->argv[2]);
    struct latency_sample samples[SAMPLES];
    int count = event ? event_samples(event, samples) : 0;
    reply_array(call->reply, (size_t)count);
    for (int i = 0; i < count; i++) {
        reply_array(call->reply, 2);
        reply_integer(call->reply, samples[i].time);
        reply_integer(call->reply, (int64_t)samples[i].ms);
    }
}

static void latency_reset_run(struct call *call) {
    int kept = 0, reset = 0;
    for (int i = 0; i < events_count; i++) {
        bool named = call->argc == 2;
        for (int a = 2; a < call->argc; a++) named |= slice_is(call->argv[a], events[i]->name);
        if (named) {
            mem_free((char *)(uintptr_t)events[i]->name);
            mem_free(events[i]);
            reset++;
        } else {
            events[kept++] = events[i];
        }
    }
    events_count = kept;
    reply_integer(call->reply, reset);
}

static void text_add(struct output *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void text_add(struct output *out, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    output_write(out, (struct slice){text, len < (int)sizeof text ? (size_t)len : sizeof text - 1});
}

static void text_reply(struct call *call, struct memory_output *text) {
    reply_verbatim(call->reply, "txt", memory_output_slice(text));
    memory_output_free(text);
}

static void age_text(int64_t seconds, char text[8]) {
    if (seconds < 60)
        snprintf(text, 8, "%ds", (int)seconds);
    else if (seconds < 3600)
        snprintf(text, 8, "%dm", (int)(seconds / 60));
    else if (seconds < 86400)
        snprintf(text, 8, "%dh", (int)(seconds / 3600));
    else
        snprintf(text, 8, "%dd", (int)(seconds / 86400 % 10000));
}

/* Draws up to GRAPH_COLUMNS samples as bars between the lowest and the highest sample of the event, and writes their
 * ages vertically below them. A bar ends in one of three characters, which stand for thirds of a row. */
static void graph_part(const struct latency_sample *samples, int count, uint64_t low, uint64_t high,
                       struct output *out) {
    static const char tops[] = "_o#";
    enum { LEVELS = GRAPH_ROWS * (sizeof tops - 1) };
    char line[GRAPH_COLUMNS + 1], ages[GRAPH_COLUMNS][8];
    size_t longest = 0;
    int64_t now = clock_ms() / 1000;
    line[count] = '\n';
    for (int row = GRAPH_ROWS - 1; row >= -1; row--) { /* -1: an empty row */
        for (int i = 0; i < count; i++) {
            uint64_t level = high > low ? (samples[i].ms - low) * LEVELS / (high - low) : 0;
            if (level >= LEVELS) level = LEVELS - 1;
            int top = (int)level / (int)(sizeof tops - 1);
            line[i] = row == top ? tops[level % (sizeof tops - 1)] : row >= 0 && row < top ? '|' : ' ';
        }
        output_write(out, (struct slice){line, (size_t)count + 1});
    }
    for (int i = 0; i < count; i++) {
        age_text(now - samples[i].time, ages[i]);
        if (strlen(ages[i]) > longest) longest = strlen(ages[i]);
    }
    for (size_t row = 0; row < longest; row++) {
        for (int i = 0; i < count; i++) line[i] = row < strlen(ages[i]) ? ages[i][row] : ' ';
        output_write(out, (struct slice){line, (size_t)count + 1});
    }
}

static void graph_run(struct call *call) {
    const struct event *event = event_find(call->argv[2]);
    if (!event) {
        struct slice name = call->argv[2];
        reply_error_format(call->reply, "ERR No samples available for event '%.*s'",
                           (int)(name.len > 128 ? 128 : name.len), name.data);
        return;
    }
    struct latency_sample samples[SAMPLES];
    int count = event_samples(event, samples);
    uint64_t high = 0, low = UINT64_MAX;
    for (int i = 0; i < count; i++) {
        if (samples[i].ms > high) high = samples[i].ms;
        if (samples[i].ms < low) low = samples[i].ms;
    }
    struct memory_output text = MEMORY_OUTPUT_INIT;
    text_add(&text.out, "%s - high %llu ms, low %llu ms (all time high %llu ms)\n", event->name,
             (unsigned long long)high, (unsigned long long)low, (unsigned long long)event->max_ms);
    for (int i = 0; i < GRAPH_COLUMNS; i++) output_write(&text.out, SLICE("-"));
    output_write(&text.out, SLICE("\n"));
    for (int from = 0; from < count; from += GRAPH_COLUMNS) {
        if (from) output_write(&text.out, SLICE("\n"));
        graph_part(samples + from, count - from < GRAPH_COLUMNS ? count - from : GRAPH_COLUMNS, low, high, &text.out);
    }
    text_reply(call, &text);
}

static void doctor_event(const struct event *event, int number, struct output *out) {
    struct latency_sample samples[SAMPLES];
    int count = event_samples(event, samples);
    uint64_t sum = 0, deviation = 0;
    for (int i = 0; i < count; i++) sum += samples[i].ms;
    uint64_t mean = count ? sum / (uint64_t)count : 0;
    for (int i = 0; i < count; i++) deviation += samples[i].ms > mean ? samples[i].ms - mean : mean - samples[i].ms;
    int64_t age = count ? clock_ms() / 1000 - samples[0].time : 0;
    double period = age > 0 ? (double)age / count : 1;
    text_add(out,
             "%d. %s: %d latency spikes (average %llums, mean deviation %llums, period %.2f sec). Worst all time event "
             "%llums.\n",
             number, event->name, count, (unsigned long long)mean,
             (unsigned long long)(count ? deviation / (uint64_t)count : 0), period, (unsigned long long)event->max_ms);
}

static void doctor_run(struct call *call) {
    struct memory_output text = MEMORY_OUTPUT_INIT;
    if (latency_threshold_us == UINT64_MAX && events_count == 0) {
        text_add(&text.out, "Latency is not monitored. CONFIG SET latency-monitor-threshold <milliseconds> makes the "
                            "server record every event that takes this long.\n");
    } else if (events_count == 0) {
        text_add(&text.out, "No event has taken %lld milliseconds or more since monitoring began.\n",
                 (long long)threshold_ms);
    } else {
        bool commands = false, keys = false, forks = false;
        text_add(&text.out, "Latency spikes:\n\n");
        for (int i = 0; i < events_count; i++) {
            doctor_event(events[i], i + 1, &text.out);
            commands |= strstr(events[i]->name, "command") != NULL;
            keys |= strncmp(events[i]->name, "expire", 6) == 0 || strncmp(events[i]->name, "eviction", 8) == 0;
            forks |= strcmp(events[i]->name, "fork") == 0;
        }
        text_add(&text.out, "\nWhat may help:\n\n");
        if (commands)
            text_add(
                &text.out,
                "- COMMANDLOG GET 10 slow shows which commands took this long, if commandlog-execution-slower-than "
                "is not above latency-monitor-threshold.\n"
                "- Commands on large values and on many keys block all other clients: split the values, or iterate "
                "with SCAN, HSCAN, SSCAN and ZSCAN.\n");
        if (keys)
            text_add(&text.out,
                     "- Many keys expire or are evicted at a time. Spread their expiry, and free values in the "
                     "background (lazyfree-lazy-expire, lazyfree-lazy-eviction).\n");
        if (forks)
            text_add(&text.out, "- fork() takes long: turn transparent huge pages off. Virtual machines with slow page "
                                "tables make it slower.\n");
        text_add(&text.out, "- Other processes may use the CPU: server-cpulist pins the server to CPUs of its own.\n");
    }
    text_reply(call, &text);
}

/* The upper bounds are powers of two of nanoseconds, and the width of a bucket of two decimal digits above them, as
 * with Valkey: 1, 2, 4, 8, 16, 33, 66 microseconds. The last one takes all longer times. */
static uint64_t histogram_bound_ns(int power) {
    enum { WIDTH = 7 };
    return power == HISTOGRAM_LAST ? UINT64_C(1) << power
                                   : (UINT64_C(1) << power) + (UINT64_C(1) << (power - WIDTH)) - 1;
}

static void histogram_reply(struct reply *reply, struct command *command) {
    uint64_t bounds[HISTOGRAM_LAST + 1], counts[HISTOGRAM_LAST + 1], last = 0;
    int shown = 0;
    for (int power = HISTOGRAM_FIRST; power <= HISTOGRAM_LAST && last < command->latency->count; power++) {
        uint64_t ns = histogram_bound_ns(power), count = command->latency->count;
        if (power < HISTOGRAM_LAST)
            count = histogram_count_up_to(command->latency, (uint64_t)((double)ns / 1000 * ticks_per_us()));
        if (count == last) continue;
        bounds[shown] = ns / 1000;
        counts[shown++] = last = count;
    }
    reply_bulk_text(reply, command->full_name);
    reply_map(reply, 2);
    reply_field_integer(reply, "calls", (int64_t)command->latency->count);
    reply_bulk_text(reply, "histogram_usec");
    reply_map(reply, (size_t)shown);
    for (int i = 0; i < shown; i++) {
        reply_integer(reply, (int64_t)bounds[i]);
        reply_integer(reply, (int64_t)counts[i]);
    }
}

struct histogram_request {
    struct reply *reply;
    const struct command *only; /* only this command and its subcommands; NULL: all */
    size_t shown;
};

static void histogram_add(struct command *command, void *context) {
    struct histogram_request *request = context;
    if (!command->latency || !command->latency->count) return;
    if (request->only && command != request->only && command->parent != request->only) return;
    histogram_reply(request->reply, command);
    request->shown++;
}

static void histogram_run(struct call *call) {
    struct reply_deferred deferred;
    struct histogram_request request = {.reply = call->reply};
    reply_deferred_begin(call->reply, &deferred);
    if (call->argc == 2) commands_each_all(histogram_add, &request);
    for (int i = 2; i < call->argc; i++) {
        request.only = command_find(call->argv[i]);
        if (request.only) commands_each_all(histogram_add, &request);
    }
    reply_deferred_end(call->reply, &deferred, REPLY_MAP, request.shown);
}

static const char *const tips[] = {"nondeterministic_output", "request_policy:all_nodes", "response_policy:special",
                                   NULL};
static const char *const reset_tips[] = {"request_policy:all_nodes", "response_policy:agg_sum", NULL};
#define LATENCY_FLAGS (CMD_NO_DATA | CMD_ADMIN | CMD_NOSCRIPT | CMD_LOADING | CMD_STALE)
static const struct command_spec subcommands[] = {
    {COMMAND("doctor", doctor_run, 2, LATENCY_FLAGS, .group = GROUP_SERVER, "2.8.13"), .complexity = "O(1)",
     .summary = "Returns a report about latencies, in sentences.", .tips = tips},
    {COMMAND("graph", graph_run, 3, LATENCY_FLAGS, .group = GROUP_SERVER, "2.8.13"), .complexity = "O(1)",
     .summary = "Returns a graph of the latency samples of an event.", .syntax = "event:string", .tips = tips},
    {HELP_ROW(help_handler, "DOCTOR", "    Analyse the samples and give advice.", "GRAPH <event>",
              "    The latest samples of an event as an ASCII graph.", "HISTORY <event>",
              "    The samples of an event: times and milliseconds.", "LATEST",
              "    The last and the worst sample of each event, the sum of all its times, and their number.",
              "RESET [<event> ...]", "    Delete the samples of these events (default: of all).",
              "HISTOGRAM [COMMAND ...]",
              "    How long calls of these commands took (default: of all), in powers of two of microseconds."),
     .group = GROUP_SERVER, .since = "2.8.13"},
    {COMMAND("histogram", histogram_run, -2, LATENCY_FLAGS, .group = GROUP_SERVER, "7.0.0"),
     .complexity = "O(N) where N is the number of commands with a histogram",
     .summary = "Returns histograms of the latencies of commands.", .syntax = "[command:string...]", .tips = tips},
    {COMMAND("history", history_run, 3, LATENCY_FLAGS, .group = GROUP_SERVER, "2.8.13"), .complexity = "O(1)",
     .summary = "Returns the latency samples of an event.", .syntax = "event:string", .tips = tips},
    {COMMAND("latest", latest_run, 2, LATENCY_FLAGS, .group = GROUP_SERVER, "2.8.13"), .complexity = "O(1)",
     .summary = "Returns the latest latency sample of each event.", .tips = tips},
    {COMMAND("reset", latency_reset_run, -2, LATENCY_FLAGS, .group = GROUP_SERVER, "2.8.13"), .complexity = "O(1)",
     .summary = "Deletes the latency samples of events.", .syntax = "[event:string...]", .tips = reset_tips},
    {.name = NULL},
};
static const struct command_spec latency_commands[] = {
    {COMMAND("latency", NULL, -2, 0, .group = GROUP_SERVER, "2.8.13"), .complexity = "Depends on the subcommand.",
     .summary = "A container for commands about latency.", .subcommands = subcommands},
    {.name = NULL},
};

static const char *latency_apply(void) {
    latency_threshold_us = threshold_ms ? (uint64_t)threshold_ms * 1000 : UINT64_MAX;
    latency_threshold_ticks = threshold_ms ? ticks_of_us(latency_threshold_us) : UINT64_MAX;
    return NULL;
}
static void latency_start(void) {
    latency_apply();
}
static const struct server_part latency_part = {.name = "latency", .start = latency_start};

static const struct config_option latency_options[] = {
    {OPTION("latency-monitor-threshold", CONFIG_INT64, &threshold_ms, "0"), .min = 0, .max = INT64_MAX,
     .apply = latency_apply},
    {.name = NULL},
};

const struct feature latency_feature = {
    .name = "latency",
    .options = OPTIONS(latency_options),
    .commands = COMMANDS(latency_commands),
    .parts = PARTS(&latency_part),
};
