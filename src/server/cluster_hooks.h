/* cluster_hooks.h: hooks through which lower layers reach the cluster (src/cluster). They are installed at start, where
 * this server is a node of a cluster. Main thread only. */
#pragma once
#include "formats/rdb_file.h"
#include "lib/text/output.h"
#include "lib/text/slice.h"

enum { CLUSTER_NODE_ID_LEN = 40, CLUSTER_AUX_MAX = 4 };
/* What a node is for modules. Texts are valid until the next change of the cluster. */
struct cluster_node_facts {
    const char *ip;       /* "": not known */
    struct slice primary; /* the id; empty: it is none's replica, or its primary is not known */
    int port;             /* for clients */
    bool myself, is_primary, pfail, fail, no_failover;
};
struct client;
/* A message of a module: `module` is the number that it has on the bus. */
struct cluster_module_message {
    uint64_t module;
    uint8_t type;
    struct slice payload;
};
struct cluster_hooks {
    size_t (*connections)(void);   /* of the cluster bus, when all nodes are linked: they count against maxclients */
    size_t (*link_memory)(void);   /* bytes of these connections */
    struct slice (*node_id)(void); /* of this node; valid until CLUSTER RESET */
    bool (*knows)(struct slice node_id);
    int (*primary_rdma_port)(void); /* of the primary that this node follows, as it announces it; 0: not known */
    /* To the other nodes; this one has `receivers` of it. */
    void (*publish)(struct slice channel, struct slice message, bool shard, size_t receivers);
    /* Modules. Sends a message to the node, or with an empty id to all. False: no such node, or it is not linked. */
    bool (*send_module)(struct slice node, const struct cluster_module_message *message);
    size_t (*nodes)(void); /* their number, this one included */
    /* Visits the ids of those that have an address and have been met. */
    void (*each_node)(void (*visit)(void *context, struct slice id), void *context);
    /* `client`: ports and addresses are those for this one; NULL: for TCP. False: no such node. */
    bool (*node_facts)(struct slice id, const struct client *client, struct cluster_node_facts *facts);
    void (*limit)(bool no_failover, bool no_redirection); /* this replica starts none; every slot is served here */
    void (*reset_stats)(void);                            /* CONFIG RESETSTAT */
    /* The AUX fields of RDB files: writes at most CLUSTER_AUX_MAX fields, whose bytes stay valid, and returns the
     * number. Reads one, of a full copy from the primary or of a file; copy_begins() is called before the first of a
     * copy. */
    size_t (*write_aux)(struct rdb_aux *fields);
    void (*copy_begins)(void);
    void (*read_aux)(struct slice name, struct slice value, bool is_copy);
    /* Migrations of slots to this node that are in progress, for RDB files; the array stays valid. The counterpart is
     * called for each in a file that is loaded, before its keys. */
    size_t (*imports)(const struct rdb_slot_import **list);
    void (*read_import)(const struct rdb_slot_import *import);
    /* The same and what write_aux() tells of migrations, as commands: the head of an append-only base file without RDB
     * preamble. */
    void (*write_commands)(struct output *out);
    void (*ports_changed)(void); /* those that clients connect to */
    void (*load_begins)(void);   /* the data set is about to be replaced, or loaded at start */
    void (*loaded)(void);        /* that is over */
    void (*migration_memory)(size_t *imports, size_t *exports);        /* bytes of their connections */
    void (*migration_traffic)(uint64_t *imported, uint64_t *exported); /* bytes */
    /* For a crash report: allocates nothing. */
    void (*write_info)(struct output *out);  /* CLUSTER INFO */
    void (*write_nodes)(struct output *out); /* CLUSTER NODES */
};
extern const struct cluster_hooks *cluster_hooks; /* NULL: not a node of a cluster */
/* Why no slots may be migrated from or to this node, a whole error; NULL: they may. NULL as a whole: nobody objects. */
extern const char *(*cluster_migration_refused)(void);
/* A message of a module has arrived; its bytes are valid during the call, which may be within a command. NULL: modules
 * get none. */
extern void (*cluster_module_received)(struct slice sender, const struct cluster_module_message *message);

static inline size_t cluster_connections(void) {
    return __builtin_expect(cluster_hooks != NULL, 0) ? cluster_hooks->connections() : 0;
}
