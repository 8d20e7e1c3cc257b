/* scratch_db.h: a private database in which a command builds a value before db_rename() moves it to its key: a command
 * that fails halfway, or reads what it will replace, never changes the data before that. Empty before and after each
 * use. */
#ifndef COMMANDS_SCRATCH_DB_H
#define COMMANDS_SCRATCH_DB_H
#include "store/keyspace.h"
struct db *scratch_db(void);
#endif
