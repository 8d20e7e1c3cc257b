/* save_points.c: see save_points.h. */
#include "persistence/save_points.h"
#include "server/server.h"
#include <stdio.h>
#include <string.h>

enum { SAVE_POINTS_MAX = 256 };
static struct save_point points[SAVE_POINTS_MAX];
static int points_count;
/* The include depth of the last `save` line read from configuration files; 0: none so far. The first line replaces the
 * default. A line after an included file replaces the points of that file. Other lines add points. */
static int line_depth;

int save_points_count(void) {
    return points_count;
}

const struct save_point *save_point_due(uint64_t changes, int64_t seconds) {
    for (int i = 0; i < points_count; i++)
        if (changes >= (uint64_t)points[i].changes && seconds > points[i].seconds) return &points[i];
    return NULL;
}

const char *save_points_set(const struct config_option *option, int count, const struct slice *words) {
    int64_t numbers[2 * SAVE_POINTS_MAX];
    int depth = config_reading_depth(), start = line_depth && depth >= line_depth ? points_count : 0;
    if (count % 2 || count / 2 + start > SAVE_POINTS_MAX) return "Invalid save parameters";
    for (int i = 0; i < count; i++)
        if (!config_parse_number(words[i], &numbers[i]) || numbers[i] < (i % 2 ? 0 : 1) ||
            (i % 2 && numbers[i] > INT32_MAX))
            return "Invalid save parameters";
    if (!count) start = 0;
    line_depth = depth;
    points_count = start + count / 2;
    for (int i = 0; i < count; i += 2) points[start + i / 2] = (struct save_point){numbers[i], numbers[i + 1]};
    return NULL;
}

void save_points_get(const struct config_option *option, struct output *out) {
    for (int i = 0; i < points_count; i++) {
        char text[64];
        int len = snprintf(text, sizeof text, "%s%lld %lld", i ? " " : "", (long long)points[i].seconds,
                           (long long)points[i].changes);
        output_write(out, (struct slice){text, (size_t)len});
    }
}
void save_points_rewrite(const struct config_option *option, struct output *out) {
    if (strcmp(server.mode, "sentinel") == 0) return;
    output_write(out, SLICE("save "));
    if (points_count)
        save_points_get(option, out);
    else
        output_write(out, SLICE("\"\""));
    output_write(out, SLICE("\n"));
}
