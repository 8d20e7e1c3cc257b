"""What the tests share: the address of the server, and the package of this source tree.

    utils/softrdma/softrdma python3 python/tests/test_client.py HOST PORT [REAL]

REAL: the server is not rdma-blob-standin.
"""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
host, port, real = "127.0.0.1", 6379, False


def main() -> None:
    global host, port, real
    host, port, real = sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3
    unittest.main(argv=sys.argv[:1], module="__main__")


standin_only = unittest.skipIf(len(sys.argv) > 3, "needs rdma-blob-standin")
