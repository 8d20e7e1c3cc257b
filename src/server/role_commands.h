/* role_commands.h: what depends on the role (role.h): the commands that it refuses, its options, ROLE and its lines of
 * INFO. */
#pragma once
struct output;
void role_start(void); /* at start, after the configuration is read: from here on the log shows the role */
void role_write_info(struct output *out); /* the first lines of INFO replication, up to the list of replicas */
