/* process.h: the server as an operating system process: daemon, pid file, supervisor, title, limits, CPUs. */
#pragma once
#include <stdbool.h>
void process_daemonize(void); /* if configured; forks */
void process_setup(void);     /* CPUs, OOM score */
void process_write_pid_file(void);
void process_notify_ready(void); /* to the supervisor */
bool process_has_pid_file(void);
void process_remove_files(void); /* pid file, unfinished files; async-signal-safe */
/* A file that this process is writing and that is of no use unless it is completed. `directory`: AT_FDCWD, or the
 * descriptor of its directory. Both stay valid until process_finished_file(), which does nothing if the file was not
 * announced. Main thread. */
void process_unfinished_file(int directory, const char *name);
void process_finished_file(const char *name); /* the same pointer */
void process_background_start(void); /* background threads, and the allocator's; after the process is a daemon */
/* CPU lists of child processes, "" if they may run on any CPU. */
const char *process_aof_rewrite_cpulist(void);
const char *process_bgsave_cpulist(void);
enum process_kind { PROCESS_PRIMARY, PROCESS_REPLICA, PROCESS_CHILD };
bool process_set_oom_score(enum process_kind kind);
const char *process_supervisor(void); /* "no", "systemd", "upstart" */
const char *process_build_id(void);
void process_check_system_warnings(void); /* at start: overcommit, huge pages */
/* --check-system: checks the machine whose files are below `root` ("": this one), prints the findings, and returns the
 * exit status. */
int process_check_system(const char *root);
