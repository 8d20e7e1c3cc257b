/* file.h: the file of promises: what a server of a group keeps on disk (struct quorum_state). Main thread only. */
#pragma once
#include "repl/quorum/protocol/record.h"

bool quorum_file_load(struct quorum_state *state); /* false: there is no file. Exits the process if it is damaged */
/* Returns a ticket: quorum_machine_saved() says when the state is on disk. */
uint64_t quorum_file_save(const struct quorum_state *state);
void quorum_file_stop(void);
