// ioredis or iovalkey with Sentinels, for sentinel_clients.py: node sentinel_clients.js LIBRARY SENTINEL-PORT...
// Prints "replica PORT" once, then "PORT VALUE" of a counter for ever.
'use strict';

const library = process.argv[2];
const Client = require(library).default || require(library);
const sentinels = process.argv.slice(3).map((port) => ({ host: '127.0.0.1', port: Number(port) }));

function connect(role) {
    const options = { sentinels, name: 'group', role, sentinelRetryStrategy: () => 100, retryStrategy: () => 100 };
    const client = new Client(options);
    client.on('error', () => {});
    return client;
}

async function main() {
    const replica = connect('slave');
    console.log(`replica ${(await replica.config('GET', 'port'))[1]}`);
    replica.disconnect();
    const primary = connect('master');
    for (;;) {
        try {
            const port = (await primary.config('GET', 'port'))[1];
            console.log(`${port} ${await primary.incr(`counter:${library}`)}`);
        } catch (error) {
            // READONLY of an old primary: the library asks the Sentinels anew when the connection ends.
        }
        await new Promise((resolve) => setTimeout(resolve, 50));
    }
}

main();
