/* rdma_options.h: options of the RDMA transport, except for the addresses (listeners.h). */
#pragma once
#include "server/config/config.h"
extern const struct config_option rdma_options[];
void rdma_options_apply(void); /* before listening */
/* An option's check: in a build without RDMA only the default is valid. */
const char *rdma_option_check(const struct config_option *option, struct slice text);
