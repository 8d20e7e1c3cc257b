/* setslot.h: CLUSTER SETSLOT waits for replicas. See setslot.c. */
#ifndef CLUSTER_SETSLOT_H
#define CLUSTER_SETSLOT_H
#include "formats/rdb_file.h"

struct server_part;
extern const struct server_part setslot_part;
/* The open slots in RDB files: writes one AUX field, whose bytes stay valid, or none; and reads it on a replica. */
size_t setslot_write_aux(struct rdb_aux *field);
void setslot_copy_begins(void); /* of the primary's data: closes the slots that are open here */
void setslot_read_aux(struct slice name, struct slice value);
#endif
