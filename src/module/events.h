/* events.h: server events that modules subscribe to. */
#pragma once
#include "module/module.h"

void module_events_start(void);
void module_event_changed(struct module *module, bool loaded); /* the event of a module's load, or unload */
void module_events_cron(void);
void module_events_before_wait(void);
void module_events_shutdown(void);
void module_jobs_before_wait(void); /* runs jobs of AddPostNotificationJob that no command has run */
