/* rdma-proxy: lets a program that speaks only TCP talk over RDMA; see proxy_pairs.h.
 *
 *   rdma-proxy --listen-port 0 --rdma-host H --rdma-port P [--source A] */
#include "proxy_pairs.h"

int main(int argc, char **argv) {
    int port = 0;
    struct connect_options to = {0};
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--listen-port") == 0)
            port = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--rdma-host") == 0)
            to.host = argv[i + 1];
        else if (strcmp(argv[i], "--source") == 0)
            to.source_host = argv[i + 1];
        else if (strcmp(argv[i], "--rdma-port") == 0)
            to.port = atoi(argv[i + 1]);
    }
    if (!to.host || to.port <= 0 || argc % 2 == 0) {
        fprintf(stderr, "usage: rdma-proxy --listen-port PORT --rdma-host HOST --rdma-port PORT\n");
        return 2;
    }
    return proxy_run("rdma-proxy", port, "rdma", &to);
}
