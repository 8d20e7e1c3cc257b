/* repl_hooks.h: hooks through which the server and persistence reach replication, which is a higher layer (src/repl).
 * That layer installs them; without them the server is a primary that has no replicas. Main thread only. */
#pragma once
#include "formats/rdb_file.h"
#include "resp/reply.h"

struct memory_report;
enum { REPL_AUX_MAX = 8 };
struct repl_hooks {
    /* Writes the AUX fields of an RDB file, at most REPL_AUX_MAX, and returns their number. Their bytes stay valid. */
    size_t (*write_aux)(struct rdb_aux *fields);
    /* Called for each AUX field of an RDB file that is loaded. True: expired keys are loaded too, because replicas that
     * continue with this data have them. */
    bool (*read_aux)(struct slice name, struct slice value);
    void (*data_replaced)(void);                 /* see role_data_replaced(); called on a primary */
    void (*write_replicas)(struct reply *reply); /* the array of replicas in a primary's reply to ROLE */
    void (*report_memory)(struct memory_report *report);
};
extern const struct repl_hooks *repl_hooks; /* NULL: no replication */
