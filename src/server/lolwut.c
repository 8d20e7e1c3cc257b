/* lolwut.c: LOLWUT: a text picture, different each time, and the version. The picture is a landscape: the hills are
 * sums of waves under a sky with stars. */
#include "lib/system/random.h"
#include "lib/text/number.h"
#include "server/command/command.h"
#include "server/command/spec.h"
#include "server/config/settings.h"
#include "server/feature.h"
#include "server/server.h"
#include <math.h>
#include <stdio.h>

enum { WIDTH_MAX = 200, HEIGHT_MAX = 60, HILLS = 3, WAVES = 3 };
struct hill {
    double base, size[WAVES], length[WAVES], shift[WAVES];
};
static double draw(double low, double high) {
    return low + (high - low) * (double)random_below(1 << 20) / (1 << 20);
}
static double height_at(const struct hill *hill, int x) {
    double height = hill->base;
    for (int i = 0; i < WAVES; i++) height += hill->size[i] * sin(x / hill->length[i] + hill->shift[i]);
    return height;
}
static void paint(struct output *out, int width, int height) {
    static const char grounds[HILLS + 1] = " .:#";
    struct hill hills[HILLS];
    for (int i = 0; i < HILLS; i++) { /* nearer hills are lower and steeper */
        hills[i].base = height * (0.65 - 0.22 * i);
        for (int j = 0; j < WAVES; j++) {
            hills[i].size[j] = height * draw(0.02, 0.11) / (j + 1);
            hills[i].length[j] = draw(6, 16) / (j + 1);
            hills[i].shift[j] = draw(0, 6.3);
        }
    }
    for (int row = height - 1; row >= 0; row--) {
        char line[WIDTH_MAX + 2];
        for (int x = 0; x < width; x++) {
            int nearest = 0;
            for (int i = 0; i < HILLS; i++)
                if (row < height_at(&hills[i], x)) nearest = i + 1;
            line[x] = nearest ? grounds[nearest] : random_below(40) ? ' ' : random_below(5) ? '\'' : '*';
        }
        line[width] = '\n';
        output_write(out, (struct slice){line, (size_t)width + 1});
    }
}
/* LOLWUT [VERSION n] [width] [height]. The picture is the same for every VERSION. */
static void run_lolwut(struct call *call) {
    int64_t width = 66, height = 16, version;
    int at = 1;
    if (call->argc >= 3 && slice_is(call->argv[1], "version")) {
        if (!argument_integer(call, 2, &version)) return;
        at = 3;
    }
    if ((call->argc > at && !parse_int64(call->argv[at], &width)) ||
        (call->argc > at + 1 && !parse_int64(call->argv[at + 1], &height))) {
        reply_not_integer(call->reply);
        return;
    }
    width = width < 1 ? 1 : width > WIDTH_MAX ? WIDTH_MAX : width;
    height = height < 1 ? 1 : height > HEIGHT_MAX ? HEIGHT_MAX : height;
    struct memory_output text = MEMORY_OUTPUT_INIT;
    paint(&text.out, (int)width, (int)height);
    output_write(&text.out, slice_of(server_settings.redis_names ? "\nRedis ver. " SERVER_REDIS_VERSION "\n"
                                                                 : "\nValkey ver. " SERVER_VERSION "\n"));
    reply_verbatim(call->reply, "txt", memory_output_slice(&text));
    memory_output_free(&text);
}
static const struct command_spec lolwut_commands[] = {
    {COMMAND("lolwut", run_lolwut, -1, CMD_READONLY | CMD_FAST, .group = GROUP_SERVER, "5.0.0"),
     .summary = "Prints generative art and the version of the server.", .syntax = "[VERSION version:integer]"},
    {.name = NULL}};

const struct feature lolwut_feature = {.name = "lolwut", .commands = COMMANDS(lolwut_commands)};
