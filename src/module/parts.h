/* parts.h: what the files of this directory do when modules start, are loaded, and at each turn of the loop. */
#pragma once
#include "module/module.h"

/* events.c, notifications.c: server events and keyspace events that modules subscribe to. */
void module_events_start(void);
void module_event_changed(struct module *module, bool loaded); /* the event of a module's load, or unload */
void module_events_cron(void);
void module_events_before_wait(void);
void module_events_shutdown(void);
void module_jobs_before_wait(void); /* runs jobs of AddPostNotificationJob that no command has run */

/* config.c: options of modules. */
void module_configs_start(void);         /* before the configuration is read */
void module_configs_check_waiting(void); /* all modules of the file are loaded: ends the server if a line is left */
/* A module is about to be loaded, with these names and values of MODULE LOADEX. */
void module_configs_begin(int options, const struct slice *pairs);
/* It is loaded. False: it must be unloaded again, and the log says why. */
bool module_configs_end(const struct module *module, int options);
void module_configs_forget(void); /* the load with names and values has ended, in whatever way */

/* cluster.c: messages that modules send each other on the cluster bus. */
void module_cluster_start(void);
void messages_before_wait(void); /* delivers those that could not be delivered within a call or a load */

/* info.c: sections of INFO that modules write, as the section `late` of info.h; what they say in a crash report. */
void module_info_write_crash(struct output *out);
