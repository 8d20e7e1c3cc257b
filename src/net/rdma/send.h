/* send.h: the sending half of the data path: output becomes work requests.
 *
 * Output
 *   conn.out writes into a chunk of registered memory, and the written bytes become segments. A flush sends as much as
 *   the peer's buffer and the send queue accept, in messages of bounded length. A message is some WRITEs and a
 *   WRITE_WITH_IMM(total), each gathering several segments. Small messages travel inside the work request, so their
 *   chunk is free immediately. Chunks that a posted request still reads stay in `held` until it has completed. Output
 *   beyond the limit on send memory waits in ordinary memory.
 *
 * Send queue
 *   Every work request has a sequence number; completions come in order, so a completed one retires all before it.
 *   posted - retired never exceeds the depth of the queue, hence posting cannot find it full. CONTROL_RESERVE entries
 *   are kept for control messages. Requests are signalled at every quarter of the send queue or 64 KiB, and by the tick
 *   when the connection has become quiet, so a full queue always has a completion coming.
 *
 * Placements (place.c)
 *   A placement has a position in the stream. The bytes before it are posted first, then its own requests, then the
 *   bytes behind it.
 *
 * Waits (stall.c)
 *   A connection whose peer's buffer is full is stalled. A connection that needs send memory where there is none is in
 *   its device context's list `starved`. */
#pragma once
#include "net/placement.h"
#include "net/rdma/connection.h"

extern struct output_ops rdma_output_ops; /* share_min changes with the settings */
void rdma_send_settings_changed(void);
void rdma_send_init(struct rdma_connection *c);
void rdma_send_begin(struct rdma_connection *c); /* after the queue pair was created */
void rdma_send_flush(struct rdma_connection *c);
void rdma_send_pump(struct rdma_connection *c);            /* sends what can be sent now */
void rdma_send_resume(struct rdma_connection *c);          /* the peer has space again */
void rdma_send_continue(struct rdma_connection *c);        /* the send queue has space again */
size_t rdma_send_pending(const struct rdma_connection *c); /* bytes */
/* Sends a control message. False: the send queue is full; try again after a completion. */
bool rdma_send_control(struct rdma_connection *c, const union rdma_wire_message *message);
bool rdma_send_count(struct rdma_connection *c, enum rdma_opcode opcode, uint32_t count); /* one with a count */
void rdma_send_keepalive(struct rdma_connection *c); /* does nothing if the send queue is full */
/* Posts a READ, signalled if asked to. False: the send queue is full; try again after a completion. */
bool rdma_send_read(struct rdma_connection *c, struct ibv_send_wr *wr, bool signal);
/* Posts a WRITE, signalled if asked to; `copied`: bytes of send memory that it reads. False: as above. */
bool rdma_send_write(struct rdma_connection *c, struct ibv_send_wr *wr, uint32_t copied, bool signal);
bool rdma_send_has_space(const struct rdma_connection *c); /* neither of them would fail */
/* Copies up to `max` bytes into send memory, which the request that is posted next reads. False: none is available. */
bool rdma_send_copy(struct rdma_connection *c, const char *data, uint32_t max, struct ibv_sge *sge);
void rdma_send_starved(struct rdma_connection *c);      /* it waits for send memory */
void rdma_send_check_linger(struct rdma_connection *c); /* finishes a closed connection whose last bytes have arrived */
void rdma_send_unregister(struct rdma_connection *c);   /* moves queued output to ordinary memory */
void rdma_send_drop(struct rdma_connection *c);         /* discards queued output */
void rdma_send_tick(struct rdma_connection *c);
size_t rdma_send_memory(const struct rdma_connection *c); /* bytes held */
void rdma_send_release(struct rdma_connection *c);

/* place.c: placements (net/placement.h) in the output. */
void rdma_place(struct output *out, struct placement *placement); /* an operation of the output */
uint64_t rdma_place_ahead(const struct rdma_connection *c); /* bytes of the stream before the next one; or UINT64_MAX */
/* Posts a part of the next one. False: it has to wait; sending is resumed when it can go on. */
bool rdma_place_post(struct rdma_connection *c, uint64_t *began_us); /* 0 at first, in a run of calls */
bool rdma_place_is_silent(const struct rdma_connection *c); /* no request reports the end of the last one posted */
void rdma_place_resume(struct rdma_device *device);         /* memory of values was registered */
void rdma_place_reap(struct rdma_connection *c);            /* ends those whose requests have completed */
void rdma_place_drop(struct rdma_connection *c);            /* drops those that are not posted; the others end later */
void rdma_place_fail(struct rdma_connection *c); /* the queue pair is gone: what has not completed, has failed */
/* Whether request `seq` belongs to one; *reads: it is a READ. */
bool rdma_place_holds(const struct rdma_connection *c, uint32_t seq, bool *reads);

/* stall.c */
void rdma_stall_begin(struct rdma_connection *c);   /* there is output to send, and the peer's buffer is full */
void rdma_stall_end(struct rdma_connection *c);     /* the peer has space again, or the connection is over */
void rdma_starved_begin(struct rdma_connection *c); /* enters the list of connections without send memory */
void rdma_starved_end(struct rdma_connection *c);   /* leaves it */
void rdma_send_relieve(struct rdma_device *device); /* frees send memory, which has run out */
void rdma_send_feed(struct rdma_device *device);    /* resumes connections that waited for send memory */
