/* scratch_db.c: see scratch_db.h. */
#include "commands/scratch_db.h"

struct db *scratch_db(void) {
    static struct keyspace *keyspace;
    static const struct store_hooks nobody;
    if (!keyspace) keyspace = keyspace_new(1, &nobody);
    return keyspace_db(keyspace, 0);
}
