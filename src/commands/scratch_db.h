/* scratch_db.h: a database that nobody looks at, in which a command builds a value before it moves it to its key by
 * db_rename: what fails half-way, or reads what it is going to replace, never touches the data. Empty before and after
 * each use. */
#ifndef COMMANDS_WORKBENCH_H
#define COMMANDS_WORKBENCH_H
#include "store/keyspace.h"
struct db *scratch_db(void);
#endif
