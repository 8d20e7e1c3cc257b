/* tls_private.h: shared by tls.c and tls_context.c only. */
#ifndef NET_TLS_PRIVATE_H
#define NET_TLS_PRIVATE_H
#include "net/tls.h"
#include <openssl/ssl.h>

void tls_start(void);                      /* once for the process, before any other call of OpenSSL; any thread */
SSL *tls_session_open(enum tls_role role); /* NULL: no context, or no memory */
/* The text of OpenSSL's first queued error, "error:0A00010B:SSL routines::wrong version number"; empties the queue. */
const char *tls_error_text(char *text, size_t size);
#endif
