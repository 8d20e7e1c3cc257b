/* views.h: instances as replies, and the section of INFO. */
#pragma once
#include "resp/reply.h"
#include "sentinel/protocol/sentinel.h"
#include "server/stats/info.h"

void view_instance(struct reply *reply, const struct instance *instance);
void view_list(struct reply *reply, const struct instance_list *list);
/* [ip, port] of the group's primary. `rdma`: the client asked over RDMA, and gets the primary's RDMA port. */
void view_primary_address(struct reply *reply, const struct instance *group, bool rdma);
void view_info_cache(struct reply *reply, const struct instance *group);
extern const struct info_section sentinel_sections[];
