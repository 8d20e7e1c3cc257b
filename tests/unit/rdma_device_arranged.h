/* rdma_device_arranged.h: for programs that need an RDMA device. If the machine has none, restarts the program under
 * utils/softrdma/softrdma. False: there is still no device; a message was printed. */
#pragma once
#include "net/rdma/rdma.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static bool rdma_device_arranged(const char *program) {
    if (rdma_device_name()) return true;
    if (getenv("RDMA_TEST_AGAIN")) {
        fprintf(stderr, "no RDMA device, not even under utils/softrdma/softrdma\n");
        return false;
    }
    setenv("RDMA_TEST_AGAIN", "1", 1);
    execl("utils/softrdma/softrdma", "softrdma", program, (char *)NULL);
    perror("utils/softrdma/softrdma");
    return false;
}
