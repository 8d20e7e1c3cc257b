/* geohash.c: see geohash.h. */
#include "commands/geo/geohash.h"
#include <math.h>

static const double EARTH_RADIUS = 6372797.560856, MERCATOR_MAX = 20037726.37;

static double radians(double degrees) {
    return degrees * (M_PI / 180.0);
}
static double degrees(double rad) {
    return rad / (M_PI / 180.0);
}

/* --- Bits --- */

/* Spreads 32 bits over the even bits of 64. */
static uint64_t spread(uint32_t bits) {
    uint64_t x = bits;
    x = (x | x << 16) & UINT64_C(0x0000ffff0000ffff);
    x = (x | x << 8) & UINT64_C(0x00ff00ff00ff00ff);
    x = (x | x << 4) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    x = (x | x << 2) & UINT64_C(0x3333333333333333);
    return (x | x << 1) & UINT64_C(0x5555555555555555);
}
static uint32_t gather(uint64_t x) {
    x &= UINT64_C(0x5555555555555555);
    x = (x | x >> 1) & UINT64_C(0x3333333333333333);
    x = (x | x >> 2) & UINT64_C(0x0f0f0f0f0f0f0f0f);
    x = (x | x >> 4) & UINT64_C(0x00ff00ff00ff00ff);
    x = (x | x >> 8) & UINT64_C(0x0000ffff0000ffff);
    return (uint32_t)(x | x >> 16);
}

/* A cell of 2^steps by 2^steps. */
struct cell {
    uint32_t x, y; /* longitude and latitude index */
    int steps;
};
struct area {
    double west, east, south, north;
};

static uint64_t cell_bits(struct cell cell) {
    return spread(cell.y) | spread(cell.x) << 1;
}

static struct cell cell_of(struct geo_point p, double latitude_max, int steps) {
    double x = (p.longitude + GEO_LONGITUDE_MAX) / (2 * GEO_LONGITUDE_MAX),
           y = (p.latitude + latitude_max) / (2 * latitude_max);
    x *= (double)(UINT64_C(1) << steps);
    y *= (double)(UINT64_C(1) << steps);
    return (struct cell){(uint32_t)x, (uint32_t)y, steps};
}

static struct area area_of(struct cell cell) {
    double count = (double)(UINT64_C(1) << cell.steps), wide = 2 * GEO_LONGITUDE_MAX, high = 2 * GEO_LATITUDE_MAX;
    return (struct area){.west = -GEO_LONGITUDE_MAX + cell.x / count * wide,
                         .east = -GEO_LONGITUDE_MAX + (cell.x + 1.0) / count * wide,
                         .south = -GEO_LATITUDE_MAX + cell.y / count * high,
                         .north = -GEO_LATITUDE_MAX + (cell.y + 1.0) / count * high};
}

/* Returns the cell `east` and `north` cells away; coordinates wrap around at the edge of the map. A point exactly on
 * the edge is in a cell past the last one and must be found there, so a coordinate that does not move does not wrap. */
static struct cell neighbor(struct cell cell, int east, int north) {
    uint32_t mask = (UINT32_C(1) << cell.steps) - 1;
    return (struct cell){east ? (cell.x + (uint32_t)east) & mask : cell.x,
                         north ? (cell.y + (uint32_t)north) & mask : cell.y, cell.steps};
}

/* --- Points --- */

uint64_t geo_encode(struct geo_point point) {
    return cell_bits(cell_of(point, GEO_LATITUDE_MAX, GEO_STEPS));
}

static double within(double value, double limit) {
    return value > limit ? limit : value < -limit ? -limit : value;
}

static struct geo_point geo_decode(uint64_t score) {
    struct area area = area_of((struct cell){gather(score >> 1), gather(score), GEO_STEPS});
    return (struct geo_point){within((area.west + area.east) / 2, GEO_LONGITUDE_MAX),
                              within((area.south + area.north) / 2, GEO_LATITUDE_MAX)};
}

struct geo_point geo_decode_score(double score) {
    /* ZADD accepts any score. A score outside 64 bits is converted as on x86-64, so that all servers give the same
     * reply. */
    if (!(score < 0x1p64)) return geo_decode(0);
    if (score < 0) return geo_decode((uint64_t)(score < -0x1p63 ? INT64_MIN : (int64_t)score));
    return geo_decode((uint64_t)score);
}

static double latitude_distance(double a, double b) {
    return EARTH_RADIUS * fabs(radians(b) - radians(a));
}

double geo_distance(struct geo_point a, struct geo_point b) {
    double v = sin((radians(b.longitude) - radians(a.longitude)) / 2);
    if (v == 0.0) return latitude_distance(a.latitude, b.latitude);
    double south = radians(a.latitude), north = radians(b.latitude), u = sin((north - south) / 2);
    return 2.0 * EARTH_RADIUS * asin(sqrt(u * u + cos(south) * cos(north) * v * v));
}

void geo_text(struct geo_point point, char text[static GEOHASH_TEXT]) {
    static const char alphabet[] = "0123456789bcdefghjkmnpqrstuvwxyz";
    uint64_t bits = cell_bits(cell_of(point, 90, GEO_STEPS));
    /* 52 bits are ten characters and two bits; the eleventh character is always '0'. */
    for (int i = 0; i < 10; i++) text[i] = alphabet[bits >> (52 - (i + 1) * 5) & 31];
    text[10] = alphabet[0];
    text[11] = 0;
}

/* --- Shapes --- */

/* The sums are not divided by the number of corners: a replica, which may be one of Valkey, computes the distances of
 * STOREDIST itself, and they must have the same bits. */
void geo_polygon(struct geo_shape *shape, const struct geo_point *corners, size_t count) {
    double x = 0, y = 0, z = 0;
    for (size_t i = 0; i < count; i++) {
        double longitude = radians(corners[i].longitude), latitude = radians(corners[i].latitude);
        x += cos(latitude) * cos(longitude);
        y += cos(latitude) * sin(longitude);
        z += sin(latitude);
    }
    shape->form = GEO_POLYGON;
    shape->corners = corners;
    shape->corner_count = count;
    shape->center = (struct geo_point){degrees(atan2(y, x)), degrees(atan2(z, sqrt(x * x + y * y)))};
    shape->radius = 0;
    for (size_t i = 0; i < count; i++) shape->radius = fmax(shape->radius, geo_distance(shape->center, corners[i]));
}

/* A line to the east from a point inside the polygon crosses an odd number of its sides. */
static bool polygon_contains(const struct geo_shape *shape, struct geo_point point) {
    bool inside = false;
    for (size_t i = 0, before = shape->corner_count - 1; i < shape->corner_count; before = i++) {
        struct geo_point a = shape->corners[before], b = shape->corners[i];
        if ((a.latitude > point.latitude) == (b.latitude > point.latitude)) continue;
        double crossing =
            a.longitude + (b.longitude - a.longitude) * (point.latitude - a.latitude) / (b.latitude - a.latitude);
        if (point.longitude < crossing) inside = !inside;
    }
    return inside;
}

bool geo_contains(const struct geo_shape *shape, struct geo_point point, double *distance) {
    if (shape->form == GEO_POLYGON && !polygon_contains(shape, point)) return false;
    if (shape->form == GEO_BOX) {
        if (latitude_distance(point.latitude, shape->center.latitude) > shape->height / 2) return false;
        if (geo_distance(point, (struct geo_point){shape->center.longitude, point.latitude}) > shape->width / 2)
            return false;
    }
    *distance = geo_distance(shape->center, point);
    return shape->form != GEO_CIRCLE || *distance <= shape->radius;
}

static struct area bounds_of(const struct geo_shape *shape) {
    struct geo_point center = shape->center;
    bool is_box = shape->form == GEO_BOX;
    double height = is_box ? shape->height / 2 : shape->radius, width = is_box ? shape->width / 2 : shape->radius;
    double up = degrees(height / EARTH_RADIUS);
    /* Meridians converge towards the poles: the side nearer to the pole has the larger span of longitude. */
    double edge = center.latitude < 0 ? center.latitude - up : center.latitude + up;
    double across = degrees(width / EARTH_RADIUS / cos(radians(edge)));
    return (struct area){center.longitude - across, center.longitude + across, center.latitude - up,
                         center.latitude + up};
}

/* The number of steps at which three by three cells cover the shape. */
static int estimate_steps(double radius, double latitude) {
    if (radius == 0) return GEO_STEPS;
    int steps = 1;
    for (; radius < MERCATOR_MAX; radius *= 2) steps++;
    steps -= 2; /* the shape may start at the edge of the middle cell */
    if (latitude > 66 || latitude < -66) {
        steps--;
        if (latitude > 80 || latitude < -80) steps--;
    }
    return steps < 1 ? 1 : steps > GEO_STEPS ? GEO_STEPS : steps;
}

static bool too_small(struct cell cell, const struct area *bounds) {
    return area_of(neighbor(cell, 0, 1)).north < bounds->north ||
           area_of(neighbor(cell, 0, -1)).south > bounds->south || area_of(neighbor(cell, 1, 0)).east < bounds->east ||
           area_of(neighbor(cell, -1, 0)).west > bounds->west;
}

static struct geo_range range_of(struct cell cell) {
    uint64_t low = cell_bits(cell) << 2 * (GEO_STEPS - cell.steps);
    return (struct geo_range){low, low + (UINT64_C(1) << 2 * (GEO_STEPS - cell.steps))};
}

int geo_ranges(const struct geo_shape *shape, struct geo_range ranges[static GEO_CELLS]) {
    static const struct {
        int east, north;
    } around[GEO_CELLS] = {{0, 0}, {0, 1}, {0, -1}, {1, 0}, {-1, 0}, {1, 1}, {-1, 1}, {1, -1}, {-1, -1}};
    struct area bounds = bounds_of(shape);
    double radius = shape->form == GEO_BOX
                        ? sqrt(shape->width / 2 * (shape->width / 2) + shape->height / 2 * (shape->height / 2))
                        : shape->radius;
    int steps = estimate_steps(radius, shape->center.latitude), count = 0;
    struct cell middle = cell_of(shape->center, GEO_LATITUDE_MAX, steps);
    if (steps > 1 && too_small(middle, &bounds)) middle = cell_of(shape->center, GEO_LATITUDE_MAX, --steps);
    struct area area = area_of(middle);
    /* Skips neighbors on sides that the shape does not reach. Below two steps cells are so large that this would skip
     * the other side of the map. */
    bool no_north = steps >= 2 && area.north > bounds.north, no_south = steps >= 2 && area.south < bounds.south;
    bool no_east = steps >= 2 && area.east > bounds.east, no_west = steps >= 2 && area.west < bounds.west;
    for (int i = 0; i < GEO_CELLS; i++) {
        int east = around[i].east, north = around[i].north;
        if ((north > 0 && no_north) || (north < 0 && no_south) || (east > 0 && no_east) || (east < 0 && no_west))
            continue;
        struct geo_range range = range_of(neighbor(middle, east, north));
        /* With few cells the east and west neighbors are the same cell. */
        bool twice = false;
        for (int j = 0; j < count; j++) twice |= ranges[j].low == range.low;
        if (!twice) ranges[count++] = range;
    }
    return count;
}
