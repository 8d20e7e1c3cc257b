/* script_hooks.h: hooks through which the server and persistence reach scripts and functions, which are a higher layer
 * (src/script). That layer installs these hooks; without them there are no scripts. Main thread only. */
#pragma once
#include "lib/text/output.h"
#include "lib/text/slice.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The Lua engine as a module: its name and version in HELLO, MODULE LIST, INFO and the log. */
#define SCRIPT_MODULE "lua"
enum { SCRIPT_MODULE_VERSION = 1 };

struct script_usage {
    size_t vm_eval, vm_functions;          /* bytes of the interpreters */
    size_t scripts_bytes, functions_bytes; /* of the texts, and of the tables that find them */
    size_t scripts, libraries, functions;  /* counts */
    uint64_t evicted;                      /* scripts, since the start or CONFIG RESETSTAT */
};
struct script_hooks {
    void (*usage)(struct script_usage *usage);
    void (*reset_stats)(void);
    void (*write_engines)(struct output *out); /* the section Scripting Engines of INFO */
    /* Whether the script that a call of EVAL, EVALSHA, FCALL or their read-only forms names declares flags. If so, they
     * replace CMD_WRITE, CMD_DENYOOM and CMD_STALE in `*flags`. An unknown script declares nothing. */
    bool (*declared)(const char *command, struct slice script, uint32_t *flags);
    const char *(*context)(void); /* of the running script, for ACL LOG; NULL: none runs */
    /* A script runs that may use keys of several slots. */
    bool (*any_slot)(void);
    /* The code of all libraries, in the order in which they were loaded. The array is valid until a library changes. */
    size_t (*libraries)(const struct slice **codes);
    /* Loads a library. `replace`: replaces a library of the same name, which is an error otherwise. Returns NULL, or
     * the error. */
    const char *(*load_library)(struct slice code, bool replace);
    /* Replaces all libraries. Returns NULL, or the error; on an error nothing changes. */
    const char *(*replace_libraries)(const struct slice *codes, size_t count);
};
extern const struct script_hooks *script_hooks; /* NULL: none */
void script_usage_read(struct script_usage *usage);
