/* setslot.h: CLUSTER SETSLOT waits for replicas. See setslot.c. */
#pragma once
#include "formats/rdb_file.h"

struct server_part;
extern const struct server_part setslot_part;
/* The open slots in RDB files. A primary writes one AUX field, whose bytes stay valid, or none; returns the number of
 * fields. A replica reads it. */
size_t setslot_write_aux(struct rdb_aux *field);
void setslot_copy_begins(void); /* a copy of the primary's data begins: closes the slots that are open here */
void setslot_read_aux(struct slice name, struct slice value);
