/* control.h: control messages, which the two ends exchange beside the stream (wire.h), and the negotiation of features.
 *
 * The layers below send control messages of their own. Here is what all of them have in common: a message that finds
 * the send queue full waits in a flag of its layer, and send.wants_control says that there is one. */
#pragma once
#include "net/rdma/connection.h"

/* A completion of a receive. */
void rdma_control_received(struct rdma_connection *c, const struct ibv_wc *wc, const union rdma_wire_message *message);
void rdma_control_open(struct rdma_connection *c); /* our buffer was announced: asks for features */
void rdma_control_pump(struct rdma_connection *c); /* sends control messages that had to wait */
void rdma_control_tick(struct rdma_connection *c, uint64_t now);
