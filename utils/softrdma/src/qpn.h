/* Queue pair numbers: unique on the machine, found from any process. */
#pragma once

#include <stdint.h>

struct qp;

/* A number for `qp`; 0: none left. */
uint32_t qpn_take(struct qp *qp);
void qpn_give_back(uint32_t qpn);
struct qp *qpn_find(uint32_t qpn);         /* in this process, or NULL */
void qpn_door(char out[64], uint32_t qpn); /* the name behind which the owner of a number listens */
void qpn_forget(void);
