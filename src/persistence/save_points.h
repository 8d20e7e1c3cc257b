/* save_points.h: the option `save`: pairs of seconds and changes. A snapshot is due when that many seconds have passed
 * since the last one and at least that many changes were made. */
#pragma once
#include "server/config/config.h"
struct save_point {
    int64_t seconds, changes;
};
int save_points_count(void);
const struct save_point *save_point_due(uint64_t changes, int64_t seconds); /* NULL: none is due */
/* Setter, getter and line of the file of the option. */
const char *save_points_set(const struct config_option *option, int count, const struct slice *words);
void save_points_get(const struct config_option *option, struct output *out);
void save_points_rewrite(const struct config_option *option, struct output *out); /* nothing for a Sentinel */
