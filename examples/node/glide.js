// Valkey GLIDE through valkey-rdma-proxy or under valkey-rdma-run. Its core is native and knows only TCP.
//
//     node glide.js HOST PORT        a loopback port of the proxy, or the mapped address of the server
'use strict';
const { GlideClient } = require('@valkey/valkey-glide');
const [host, port] = process.argv.slice(2);

async function main() {
    const client = await GlideClient.createClient({ addresses: [{ host, port: Number(port) }], requestTimeout: 5000 });
    const keys = Array.from({ length: 50 }, (_, number) => `example:glide:${number}`);
    await Promise.all(keys.map((key, number) => client.set(key, String(number))));
    const values = await client.mget(keys);
    console.log('sum', values.reduce((sum, value) => sum + Number(value), 0));
    const large = 'x'.repeat(1000000);
    await client.set(keys[0], large);
    if ((await client.get(keys[0])) !== large) throw new Error('the large value has changed');
    await client.del(keys);
    const info = await client.customCommand(['CLIENT', 'INFO']);
    console.log('transport', /transport=(\w+)/.exec(String(info))?.[1] ?? 'tcp');
    client.close();
}
main().catch((error) => { console.error(error); process.exit(1); });
