/* verbs.h: loads rdma-core (libibverbs.so.1, librdmacm.so.1) at run time, for the client library. */
#pragma once
#include <stdbool.h>
#include <stddef.h>

/* Call it before any function of net/rdma/. Any thread may call it, any number of times. Returns 0, or -ENOSYS with the
 * reason in `error`. */
int verbs_load(char *error, size_t error_size);
