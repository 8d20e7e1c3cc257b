/* wait.h: WAIT, WAITAOF, and min-replicas-to-write. Main thread only. */
#pragma once
#include "server/command/command.h"
#include "server/config/config.h"
#include "server/server.h"
#include <stdint.h>

extern const struct server_part wait_part;
extern const struct command_spec wait_commands[];
extern const struct config_option wait_options[];

void repl_wait_acknowledged(void);       /* a replica has acknowledged */
size_t repl_replicas_at(int64_t offset); /* replicas that are online and have acknowledged the stream up to it */
bool repl_min_replicas_set(void);        /* min-replicas-to-write and min-replicas-max-lag */
size_t repl_good_replicas(void);         /* online, with an acknowledgement in the last min-replicas-max-lag seconds */
