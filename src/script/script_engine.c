/* script_engine.c: see script_engine.h. */
#include "script/script_engine.h"
#include "lib/system/must.h"
#include "server/script_hooks.h"
#include "server/stats/info.h"
#include <strings.h>

struct script_engine script_engine_lua = {.name = "LUA", .module = SCRIPT_MODULE, .version = 4};
static struct list engines = LIST_INIT(engines); /* without Lua */

struct script_engine *script_engine_find(struct slice name) {
    if (slice_is(name, "lua")) return &script_engine_lua;
    list_each(&engines, link) {
        struct script_engine *engine = container_of(link, struct script_engine, link);
        if (name.len == strlen(engine->name) && strncasecmp(name.data, engine->name, name.len) == 0) return engine;
    }
    return NULL;
}

bool script_engine_register(struct script_engine *engine) {
    if (script_engine_find(slice_of(engine->name))) return false;
    list_append(&engines, &engine->link);
    return true;
}

void script_engine_unregister(struct script_engine *engine) {
    must(!script_running);
    script_cache_drop(engine);
    libraries_drop(engine);
    list_remove(&engines, &engine->link);
}

size_t script_engines_count(void) {
    return engines.len + 1;
}
void script_engines_each(void (*visit)(void *context, const struct script_engine *engine), void *context) {
    visit(context, &script_engine_lua);
    list_each(&engines, link) visit(context, container_of(link, struct script_engine, link));
}

void script_engines_reset(enum lua_vm_kind kind, bool in_background) {
    list_each(&engines, link) {
        struct script_engine *engine = container_of(link, struct script_engine, link);
        engine->reset(engine, kind, in_background);
    }
}

static struct script_engine_memory memory_of(struct script_engine *engine) {
    if (!script_engine_is_lua(engine)) return engine->memory(engine);
    struct script_usage usage;
    script_usage_read(&usage);
    return (struct script_engine_memory){.used = usage.vm_eval + usage.vm_functions};
}

static void engine_write(struct output *out, struct script_engine *engine, size_t index) {
    struct script_engine_memory memory = memory_of(engine);
    info_line(out, "engine_%zu:name=%s,module=%s,abi_version=%u,used_memory=%zu,memory_overhead=%zu", index,
              engine->name, engine->module, engine->version, memory.used, memory.overhead);
}

void script_engines_write(struct output *out) {
    struct script_engine_memory total = memory_of(&script_engine_lua);
    list_each(&engines, link) {
        struct script_engine_memory memory = memory_of(container_of(link, struct script_engine, link));
        total.used += memory.used;
        total.overhead += memory.overhead;
    }
    size_t index = 0;
    info_line(out, "engines_count:%zu", script_engines_count());
    info_line(out, "engines_total_used_memory:%zu", total.used);
    info_line(out, "engines_total_memory_overhead:%zu", total.overhead);
    engine_write(out, &script_engine_lua, index++);
    list_each(&engines, link) engine_write(out, container_of(link, struct script_engine, link), index++);
}
