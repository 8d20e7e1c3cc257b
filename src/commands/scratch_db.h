/* scratch_db.h: a private database in which a command builds a value before db_rename() moves it to its key. So a
 * command that fails does not change the data, and a command may read the value that it replaces. The database is empty
 * before and after each use. */
#pragma once
#include "store/keyspace.h"
struct db *scratch_db(void);
