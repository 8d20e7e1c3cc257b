/* rdma_options.h: options of the RDMA transport, other than where to listen (listeners.h). */
#ifndef SERVER_RDMA_OPTIONS_H
#define SERVER_RDMA_OPTIONS_H
#include "server/config/config.h"
extern const struct config_option rdma_options[];
void rdma_options_apply(void); /* before listening */
/* An option's check: without RDMA in the build it may only have its default. */
const char *rdma_option_check(const struct config_option *option, struct slice text);
#endif
