// A cluster client of Node.js writes without a pause until it is told to check. Started by cluster_clients.py:
//
//     node cluster_clients.js LIBRARY PORT
//
// It prints "ready" after the first write. On each line "check" of its input it reads back all keys whose writes were
// acknowledged since the last check, and prints {acknowledged, lost, errors, last}. It ends with its input.
'use strict';
const [library, port] = [process.argv[2], Number(process.argv[3])];
const WINDOW = 4;
const PAUSE_MS = 2; // after each write: there are several clients, and all keys are read back

async function connect() {
    if (library === 'glide') {
        const { GlideClusterClient, Logger } = require('@valkey/valkey-glide');
        Logger.init('off');
        const c = await GlideClusterClient.createClient({ addresses: [{ host: '127.0.0.1', port }], requestTimeout: 2000 });
        return { set: (k, v) => c.set(k, v), get: (k) => c.get(k), close: () => c.close() };
    }
    const Redis = require(library);
    const c = new Redis.Cluster([{ host: '127.0.0.1', port }], { redisOptions: { commandTimeout: 2000 }, slotsRefreshTimeout: 3000 });
    c.on('error', () => {});
    c.on('node error', () => {});
    return { set: (k, v) => c.set(k, v), get: (k) => c.get(k), close: () => c.disconnect() };
}
const wait = (ms) => new Promise((done) => setTimeout(done, ms));

(async () => {
    const c = await connect();
    let acknowledged = [], errors = 0, last = '', next = 0, running = true, paused = false, ready = false, busy = 0;
    async function writer() {
        while (running) {
            if (paused) {
                await wait(5);
                continue;
            }
            const key = `${library}:${next++}`;
            busy++;
            try {
                if ((await c.set(key, key)) === 'OK') acknowledged.push(key);
                if (!ready) console.log('ready');
                ready = true;
            } catch (e) {
                errors++;
                last = String(e.message || e);
                await wait(20);
            }
            busy--;
            await wait(PAUSE_MS);
        }
    }
    async function read(key) {
        for (let attempt = 0; attempt < 100; attempt++) {
            try {
                return await c.get(key);
            } catch (e) {
                last = String(e.message || e);
                await wait(50);
            }
        }
        return 'no reply';
    }
    async function check() {
        paused = true;
        while (busy) await wait(5);
        const keys = acknowledged;
        let lost = 0;
        acknowledged = [];
        for (let at = 0; at < keys.length; at += 64) {
            const part = keys.slice(at, at + 64);
            const values = await Promise.all(part.map(read));
            values.forEach((value, i) => (lost += value !== part[i]));
        }
        console.log(JSON.stringify({ acknowledged: keys.length, lost, errors, last }));
        errors = 0;
        paused = false;
    }
    for (let i = 0; i < WINDOW; i++) writer();
    for await (const line of require('readline').createInterface({ input: process.stdin })) if (line === 'check') await check();
    running = false;
    c.close();
    process.exit(0);
})().catch((e) => {
    console.log(JSON.stringify({ failed: e.code === 'MODULE_NOT_FOUND' ? 'MODULE_NOT_FOUND' : String(e.stack) }));
    process.exit(1);
});
