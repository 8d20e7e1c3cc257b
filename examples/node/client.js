// ioredis or iovalkey through valkey-rdma-proxy: 50 connections.
//
//     node client.js ioredis|iovalkey SOCKET        the Unix socket of the proxy
'use strict';
const [library, path] = process.argv.slice(2);
const Client = require(library);

async function main() {
    const clients = Array.from({ length: 50 }, () => new Client({ path }));
    await Promise.all(clients.map((client, number) => client.set(`example:${number}`, number)));
    const values = await Promise.all(clients.map((client, number) => client.get(`example:${number}`)));
    console.log('sum', values.reduce((sum, value) => sum + Number(value), 0));
    const info = await clients[0].client('INFO');
    console.log('transport', /transport=(\w+)/.exec(info)[1]);
    await clients[0].del(...clients.map((_, number) => `example:${number}`));
    await Promise.all(clients.map((client) => client.quit()));
}
main().catch((error) => { console.error(error); process.exit(1); });
