/* geohash.h: places on Earth as integers whose order keeps near places together.
 *
 * Longitude and latitude are each cut into 2^26 steps; the bits of both numbers, latitude first, make one of 52 bits,
 * which a double holds exactly. Latitudes end at 85.05112878 degrees, where Mercator maps do. The first bits name a
 * cell: all places in it have scores between two numbers.
 *
 * Distances are along great circles of a sphere of radius 6372797.560856 m (haversine). Any thread. */
#ifndef LIB_GEOHASH_H
#define LIB_GEOHASH_H
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
uint64_t geo_encode(struct geo_point point); /* of a valid point */
struct geo_point geo_decode(uint64_t score); /* the middle of its cell */
struct geo_point
geo_decode_score(double score); /* of any number: where it belongs to no place, some point on an edge of the map */
double geo_distance(struct geo_point a, struct geo_point b);           /* meters */
void geo_text(struct geo_point point, char text[static GEOHASH_TEXT]); /* the standard geohash, 11 characters */

/* What is searched for: a circle, a box whose sides lie east-west and north-south, or a polygon on the map, whose sides
 * are straight lines of longitude and latitude; where they cross, what they go round twice is outside. Of a polygon
 * those places are found that lie about as near to its center as its farthest corner: one that crosses the 180th
 * meridian finds none on the far side. Lengths in meters. */
enum geo_form { GEO_CIRCLE, GEO_BOX, GEO_POLYGON };
struct geo_shape {
    enum geo_form form;
    struct geo_point center;
    double radius, width, height;    /* of a polygon: radius, the distance from the center to the farthest corner */
    const struct geo_point *corners; /* of a polygon; valid points */
    size_t corner_count;
};
/* Makes the shape a polygon. Its center has the direction, seen from the middle of the Earth, of the mean of its
 * corners. `corners` must outlive the shape. */
void geo_polygon(struct geo_shape *shape, const struct geo_point *corners, size_t count);
bool geo_contains(const struct geo_shape *shape, struct geo_point point,
                  double *distance); /* *distance from the center, set where true */
/* Ranges of scores that together hold all places of the shape: [low, high) each. Returns how many. */
struct geo_range {
    uint64_t low, high;
};
int geo_ranges(const struct geo_shape *shape, struct geo_range ranges[static GEO_CELLS]);
#endif
