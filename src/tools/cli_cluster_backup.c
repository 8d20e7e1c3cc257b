/* cli_cluster_backup.c: copies the data set of each primary into an RDB file, and the layout of the cluster into
 * nodes.json. */
#include "lib/system/memory.h"
#include "tools/cli_cluster.h"
#include "tools/cli_modes.h"
#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

/* --rdb of one node; it ends the program with a message if it fails. */
static bool node_save(struct cli_cluster *c, const struct cli_node *node, const char *directory) {
    struct cli copy = {.options = c->cli->options}; /* shares its texts */
    size_t size = strlen(directory) + sizeof node->name + NODE_ID + 32;
    char *path = mem_alloc(size);
    snprintf(path, size, "%s/valkey-node-%s-%d-%s.rdb", directory, node->line.host, node->line.port, node->line.id);
    copy.options.endpoint.host = (char *)node->line.host;
    copy.options.endpoint.port = node->line.port;
    copy.options.endpoint.socket = NULL;
    copy.options.file = path;
    copy.options.db = 0;
    session_init(&copy.session);
    bool saved = mode_rdb(&copy, false) == 0;
    session_free(&copy.session);
    mem_free(path);
    return saved;
}

static bool layout_save(const struct cli_cluster *c, const char *directory) {
    size_t size = strlen(directory) + 16;
    char *path = mem_alloc(size);
    snprintf(path, size, "%s/nodes.json", directory);
    cluster_say(c, TONE_STEP, "Saving cluster configuration to: %s\n", path);
    FILE *file = fopen(path, "w");
    bool saved = file && cluster_write_json(c, file);
    if (file && (fflush(file) != 0 || fsync(fileno(file)) != 0)) saved = false;
    if (file && fclose(file) != 0) saved = false;
    if (!saved) cluster_say(c, TONE_ERROR, "[ERR] Could not save %s: %s\n", path, strerror(errno));
    mem_free(path);
    return saved;
}

int cluster_backup(struct cli_cluster *c, const char *directory) {
    struct stat info;
    unsigned problems = cluster_check(c, true, false);
    if (stat(directory, &info) != 0 || !S_ISDIR(info.st_mode)) {
        cluster_say(c, TONE_ERROR, "[ERR] %s is not a valid directory\n", directory);
        return 1;
    }
    for (int i = 0; i < c->count; i++) {
        if (!node_is_primary(c->nodes[i])) continue;
        cluster_say(c, TONE_STEP, ">>> Node %s -> Saving RDB...\n", c->nodes[i]->name);
        if (!node_save(c, c->nodes[i], directory)) return 1;
    }
    if (!layout_save(c, directory)) return 1;
    if (problems)
        cluster_say(c, TONE_WARNING,
                    "*** Cluster seems to have some problems, please be aware of it if you're going to "
                    "restore this backup.\n");
    cluster_say(c, TONE_OK, "[OK] Backup created into: %s\n", directory);
    return 0;
}
