/* The thread that copies the bytes of large READs and WRITEs, as the DMA engine of a card does: the thread that posts
 * such a request goes on at once. See bulk.c. */
#pragma once

#include "qp.h"

/* Whether the device's thread copies a READ or WRITE of this length. The first such call starts the thread. */
bool bulk_takes(uint64_t len);
/* The first waiting request of the queue pair is one to copy. qp locked. */
void bulk_submit(struct qp *qp);
/* The thread does not touch the queue pair's request or its memory any more, and will not. qp locked. */
void bulk_stop(struct qp *qp);
/* The thread has forgotten the queue pair, which is not in RTS. qp not locked. */
void bulk_leave(struct qp *qp);
/* The thread is in no part of a copy that began with what has been withdrawn. */
void bulk_quiesce(void);
void bulk_forget(void); /* in a forked child */

/* For send.c, around each part of a copy, with the checks that permit it. bulk_quiesce waits for one. */
void bulk_part_begin(void), bulk_part_end(void);

/* Copies past the caches. */
void bulk_stream(void *to, const void *from, uint64_t n);
