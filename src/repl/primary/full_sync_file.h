/* full_sync_file.h: the full synchronization from a file (repl-diskless-sync no, or a replica without the capability
 * "eof"): a background save writes dbfilename. When the file is complete, each waiting replica gets "$<length>" and the
 * file. A replica that connects while the file is being written joins, at the stream position of the replicas that
 * already wait. */
#pragma once
#include "repl/primary/replicas.h"

struct save_content;
int full_sync_file_start(const struct save_content *content); /* 0 or a negative errno */
/* The replica waits for the file that is being written. False: that is not right for it. */
bool full_sync_file_join(struct replica *replica);
void full_sync_file_send(struct replica *replica);   /* as much as the connection takes */
void full_sync_file_forget(struct replica *replica); /* closes the file */
/* Ends the save of the file if no replica waits for it any more and no save points are configured. */
void full_sync_file_kill_unneeded(void);
void full_sync_file_listen(void); /* at start */
