/* geohash.h: encodes positions on Earth as 52-bit integers (geohash), so that near positions often have near values.
 *
 * Longitude and latitude are each quantized to 26 bits. The interleaved bits of both, latitude first, form an integer
 * of 52 bits, which a double holds exactly. Latitudes end at 85.05112878 degrees, the limit of the Mercator projection.
 * A prefix of the bits names a cell: the scores of all positions in a cell form one range.
 *
 * Distances are great-circle distances on a sphere of radius 6372797.560856 m (haversine formula). Any thread may call
 * these functions. */
#pragma once
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GEO_LONGITUDE_MAX 180.0
#define GEO_LATITUDE_MAX  85.05112878
enum { GEO_STEPS = 26, GEO_CELLS = 9, GEOHASH_TEXT = 12 };

struct geo_point {
    double longitude, latitude;
};
static inline bool geo_is_valid(struct geo_point p) {
    return p.longitude >= -GEO_LONGITUDE_MAX && p.longitude <= GEO_LONGITUDE_MAX && p.latitude >= -GEO_LATITUDE_MAX &&
           p.latitude <= GEO_LATITUDE_MAX;
}
uint64_t geo_encode(struct geo_point point); /* the point must be valid */
/* Accepts any number: a score that is not a valid geohash decodes to some point on the edge of the map. */
struct geo_point geo_decode_score(double score);
double geo_distance(struct geo_point a, struct geo_point b); /* meters */
void geo_text(struct geo_point point,
              char text[static GEOHASH_TEXT]); /* the standard geohash string, 11 characters and NUL */

/* The area of a search: a circle, a box with sides along parallels and meridians, or a polygon whose sides are straight
 * lines in longitude and latitude. A self-intersecting polygon uses the even-odd rule. Lengths are in meters. */
enum geo_form { GEO_CIRCLE, GEO_BOX, GEO_POLYGON };
struct geo_shape {
    enum geo_form form;
    struct geo_point center;
    double radius, width, height;    /* of a polygon: radius, the distance from the center to the farthest corner */
    const struct geo_point *corners; /* polygon only; must be valid points */
    size_t corner_count;
};
/* Makes the shape a polygon. Its center is the mean of its corners as vectors from the Earth's center, projected to the
 * surface. `corners` must outlive the shape. */
void geo_polygon(struct geo_shape *shape, const struct geo_point *corners, size_t count);
/* Sets *distance, the distance from the center, when it returns true. */
bool geo_contains(const struct geo_shape *shape, struct geo_point point, double *distance);
/* Computes score ranges [low, high) that together cover all positions of the shape. Returns their number. */
struct geo_range {
    uint64_t low, high;
};
int geo_ranges(const struct geo_shape *shape, struct geo_range ranges[static GEO_CELLS]);
