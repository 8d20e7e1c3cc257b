/* crash.h: reports a crash of the server in the log. */
#ifndef SERVER_CRASH_H
#define SERVER_CRASH_H
void crash_catch_signals(void); /* SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT; and running out of memory */
#endif
