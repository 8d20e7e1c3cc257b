/* info.c: the engine of INFO: finds sections by name and writes them in order, each under its title. Features write the
 * contents of their sections. */
#include "server/stats/info.h"
#include "lib/system/memory.h"
#include "lib/text/number.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct info_section **sections; /* sorted by order, then by time of registration */
static size_t sections_count;

static bool (*offers_section)(const char *name); /* NULL: all */
void info_offer(bool (*offers)(const char *name)) {
    offers_section = offers;
}

void info_register(const struct info_section *added) {
    for (; added->name; added++) {
        if (offers_section && !offers_section(added->name)) continue;
        sections = mem_realloc(sections, (sections_count + 1) * sizeof *sections);
        size_t at = sections_count++;
        for (; at && sections[at - 1]->order > added->order; at--) sections[at] = sections[at - 1];
        sections[at] = added;
    }
}
void info_line(struct output *out, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    int len = vsnprintf(text, sizeof text - 2, format, args);
    va_end(args);
    if (len < 0) return;
    size_t used = (size_t)len < sizeof text - 2 ? (size_t)len : sizeof text - 3;
    text[used++] = '\r', text[used++] = '\n';
    output_write(out, (struct slice){text, used});
}
void info_number(struct output *out, const char *name, uint64_t value) {
    char text[256];
    size_t len = strlen(name);
    if (len > sizeof text - NUMBER_TEXT_MAX - 3) len = sizeof text - NUMBER_TEXT_MAX - 3;
    memcpy(text, name, len);
    text[len++] = ':';
    len += format_uint64(text + len, value);
    text[len++] = '\r', text[len++] = '\n';
    output_write(out, (struct slice){text, len});
}
void info_reset(void) {
    for (size_t i = 0; i < sections_count; i++)
        if (sections[i]->reset) sections[i]->reset();
}
static bool is_wanted(const struct info_section *section, int count, const struct slice *names) {
    for (int i = 0; i < count; i++) {
        if (slice_is(names[i], section->name)) return true;
        if (section->when == INFO_NAMED_ONLY) continue;
        if (slice_is(names[i], "all") || slice_is(names[i], "everything")) return true;
        if (section->when == INFO_DEFAULT && slice_is(names[i], "default")) return true;
    }
    return count == 0 && section->when == INFO_DEFAULT;
}
static void (*write_late)(struct output *out, int count, const struct slice *names, bool separate);
void info_set_late_sections(void (*write)(struct output *out, int count, const struct slice *names, bool separate)) {
    write_late = write;
}
static bool is_known(struct slice name) {
    if (slice_is(name, "all") || slice_is(name, "default")) return true;
    for (size_t i = 0; i < sections_count; i++)
        if (slice_is(name, sections[i]->name)) return true;
    return false;
}
static bool wants_all_late(int count, const struct slice *names) {
    for (int i = 0; i < count; i++)
        if (slice_is(names[i], "everything") || slice_is(names[i], "modules")) return true;
    return false;
}
bool info_has_late(int count, const struct slice *names) {
    bool unknown = wants_all_late(count, names);
    for (int i = 0; i < count; i++) unknown |= !is_known(names[i]);
    return write_late && unknown;
}
void info_write(struct output *out, int count, const struct slice *names, bool late) {
    const char *title = NULL;
    for (size_t i = 0; i < sections_count; i++) {
        const struct info_section *section = sections[i];
        if (!is_wanted(section, count, names)) continue;
        if (!title || strcmp(title, section->title) != 0) {
            if (title) output_write(out, SLICE("\r\n"));
            title = section->title;
            info_line(out, "# %s", title);
        }
        section->write(out);
    }
    if (!late || !info_has_late(count, names)) return;
    write_late(out, wants_all_late(count, names) ? -1 : count, names, title != NULL);
}
