/* listeners.h: the addresses on which the server listens: bind, port, tls-port, unixsocket, rdma-bind, rdma-port,
 * tls-rdma. */
#pragma once
#include "lib/text/output.h"
#include "server/config/config.h"
extern const struct config_option listener_options[];
/* Opens all listeners. Logs the reason and returns false if a required one cannot be opened. */
bool listeners_start(void);
void listeners_stop(void);               /* closes all, before the last replies are sent */
extern void (*listeners_changed)(void);  /* called when CONFIG SET has changed the addresses: the title shows them */
void listeners_log_ready(void);          /* "Ready to accept connections tcp" … */
void listeners_info(struct output *out); /* listenerN lines of INFO server */
int listeners_port(void);                /* of TCP, or if it has none, of TLS */
const struct config_strings *listeners_bind(void);            /* the addresses of TCP and TLS */
int listeners_tls_port(void);                                 /* 0: none */
int listeners_rdma_port(void);                                /* 0: no listener */
const char *listeners_first_address(char *text, size_t size); /* "*:6379", for the process title */
const char *listeners_unix_path(void);
/* bind-source-addr: the source address of outgoing connections, if this machine has it. Empty: any. */
const char *outgoing_source(void);
