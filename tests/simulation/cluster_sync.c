/* The program that runs seeds of sync_cluster.h. */
#include "sync_cluster.h"

int main(int argc, char **argv) {
    return sync_cluster_simulate(argc, argv);
}
