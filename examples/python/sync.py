#!/usr/bin/env python3
"""A synchronous client of redis-py or valkey-py through valkey-rdma-proxy.

    sync.py SOCKET        the Unix socket of the proxy"""
import sys

try:
    import valkey as client_library
    Client = client_library.Valkey
except ImportError:
    import redis as client_library
    Client = client_library.Redis

client = Client(unix_socket_path=sys.argv[1], decode_responses=True)
client.set('example:python', 'hello')
with client.pipeline() as pipeline:
    for number in range(1000):
        pipeline.incrby('example:sum', number)
    total = pipeline.execute()[-1]
print(client.get('example:python'), total)
print('transport', client.execute_command('CLIENT INFO')['transport'])
client.delete('example:python', 'example:sum')
