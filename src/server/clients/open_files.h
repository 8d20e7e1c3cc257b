/* open_files.h: the limit of open files, as far as maxclients and the I/O threads need it. */
#pragma once
#include <stdbool.h>
void open_files_adjust(void); /* for maxclients; may lower it */
bool open_files_raise(void);  /* false: not possible */
