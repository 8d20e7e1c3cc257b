/* open_files.h: the limit of open files, as far as maxclients and the I/O threads need it. */
#ifndef SERVER_CLIENTS_OPEN_FILES_H
#define SERVER_CLIENTS_OPEN_FILES_H
#include <stdbool.h>
void open_files_adjust(void); /* for maxclients; may lower it */
bool open_files_raise(void);  /* false: not possible */
#endif
