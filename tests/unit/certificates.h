/* certificates.h: certificates of an authority, a server and a client in a directory of their own, for tests over TLS.
 * leave_tls() removes them. */
#pragma once
#include "net/tls.h"
#include "unit.h"
#include <stdio.h>
#include <stdlib.h>

static char folder[] = "/tmp/test-tls-XXXXXX";
static char ca[64], own_cert[64], own_key[64];

static void path_make(char path[static 64], const char *name) {
    snprintf(path, 64, "%s/%s", folder, name);
}
static bool certificates_make(void) {
    char command[200];
    if (!mkdtemp(folder)) return false;
    snprintf(command, sizeof command, "tests/harness/make-certificates %s", folder);
    if (system(command) != 0) return false;
    path_make(ca, "ca.crt");
    path_make(own_cert, "server.crt");
    path_make(own_key, "server.key");
    return true;
}
static void use(enum tls_role role, struct tls_settings settings) {
    char error[512];
    struct tls_context *context = tls_context_new(role, &settings, error, sizeof error);
    if (!context) fail_msg("%s", error);
    tls_use(role, context);
}
static int leave_tls(void **state) {
    char command[200];
    tls_use(TLS_SERVER, NULL);
    tls_use(TLS_CLIENT, NULL);
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}
