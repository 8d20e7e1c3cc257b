#!/usr/bin/env python3
"""An asyncio client of redis-py or valkey-py through valkey-rdma-proxy: 20 tasks, a subscriber.

    asynchronous.py SOCKET        the Unix socket of the proxy"""
import asyncio
import sys

try:
    from valkey.asyncio import Valkey as Client
except ImportError:
    from redis.asyncio import Redis as Client


async def work(client, number):
    for _ in range(50):
        await client.incr('example:count')
    return number


async def main():
    client = Client(unix_socket_path=sys.argv[1], decode_responses=True)
    subscriber = client.pubsub()
    await subscriber.subscribe('example:news')
    await subscriber.get_message(timeout=5)  # the confirmation
    await asyncio.gather(*(work(client, number) for number in range(20)))
    print('count', await client.get('example:count'))
    await client.publish('example:news', 'hello')
    message = await subscriber.get_message(ignore_subscribe_messages=True, timeout=5)
    print('message', message['data'])
    print('transport', (await client.execute_command('CLIENT INFO'))['transport'])
    await client.delete('example:count')
    await subscriber.close()
    await client.close()


asyncio.run(main())
