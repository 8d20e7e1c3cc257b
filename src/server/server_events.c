/* server_events.c: see server_events.h. */
#include "server/server_events.h"

uint32_t server_events_wanted;
void (*server_event_listener)(enum server_event event, unsigned kind, const void *data);
void (*modules_reply)(struct reply *reply);
const char *(*modules_refuse_direct_load)(bool swap);
