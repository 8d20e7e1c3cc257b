/* tls-proxy: lets a program that speaks only TCP talk over TLS; see proxy_pairs.h.
 *
 *   tls-proxy --listen-port 0 --host H --port P --cacert FILE [--cert FILE --key FILE] [--transport rdma-tls] */
#include "net/tls.h"
#include "proxy_pairs.h"

int main(int argc, char **argv) {
    int port = 0;
    const char *transport = "tls";
    struct connect_options to = {0};
    struct tls_settings settings = {.auth = TLS_AUTH_YES};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--listen-port") == 0)
            port = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--transport") == 0)
            transport = argv[i + 1];
        else if (strcmp(argv[i], "--host") == 0)
            to.host = argv[i + 1];
        else if (strcmp(argv[i], "--port") == 0)
            to.port = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--cacert") == 0)
            settings.ca_file = argv[i + 1];
        else if (strcmp(argv[i], "--cert") == 0)
            settings.cert_file = argv[i + 1];
        else if (strcmp(argv[i], "--key") == 0)
            settings.key_file = argv[i + 1];
    }
    if (!transport_find(transport)) {
        fprintf(stderr, "tls-proxy: there is no transport %s\n", transport);
        return 2;
    }
    if (!to.host || to.port <= 0 || argc % 2 == 0) {
        fprintf(stderr, "usage: tls-proxy --listen-port PORT --host HOST --port PORT --cacert FILE\n");
        return 2;
    }
    char error[512];
    struct tls_context *context = tls_context_new(TLS_CLIENT, &settings, error, sizeof error);
    if (!context) {
        fprintf(stderr, "tls-proxy: %s\n", error);
        return 1;
    }
    tls_use(TLS_CLIENT, context);
    int status = proxy_run("tls-proxy", port, transport, &to);
    tls_use(TLS_CLIENT, NULL);
    return status;
}
