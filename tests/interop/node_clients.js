// node-redis, ioredis and iovalkey against a server on 127.0.0.1. Started by node_clients.
'use strict';
const port = Number(process.argv[2]);
let passed = 0, failed = 0, skipped = 0;
const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
function equal(name, want, got) {
    if (same(want, got)) passed++;
    else {
        failed++;
        console.log(`[failed] ${name}: expected ${JSON.stringify(want)}, got ${JSON.stringify(got)}`);
    }
}
async function rejects(name, pattern, promise) {
    try {
        const got = await promise;
        equal(name, 'an error', got);
    } catch (e) {
        equal(name, true, pattern.test(String(e.message)) || String(e.message));
    }
}

async function nodeRedis(resp) {
    const name = `node-redis RESP${resp}`;
    const { createClient } = require('redis');
    const c = createClient({ socket: { host: '127.0.0.1', port }, RESP: resp, name: 'node' });
    c.on('error', () => {});
    await c.connect();
    equal(`${name}: ping`, 'PONG', await c.ping());
    await c.flushAll();
    equal(`${name}: set`, 'OK', await c.set('a', '1'));
    equal(`${name}: get`, '1', await c.get('a'));
    equal(`${name}: get of nothing`, null, await c.get('none'));
    equal(`${name}: set with options`, null, await c.set('a', '2', { NX: true, EX: 100 }));
    equal(`${name}: incr`, 2, await c.incr('a'));
    equal(`${name}: mset`, 'OK', await c.mSet({ x: '1', y: '2' }));
    equal(`${name}: mget`, ['1', '2', null], await c.mGet(['x', 'y', 'none']));
    equal(`${name}: expire`, 1, Number(await c.expire('x', 100)));
    equal(`${name}: ttl`, true, (await c.ttl('x')) > 90);
    equal(`${name}: getname`, 'node', await c.clientGetName());
    equal(`${name}: config get`, '10000', (await c.configGet('maxclients')).maxclients);
    equal(`${name}: info`, true, (await c.info('server')).includes('valkey_version'));
    await rejects(`${name}: an error reply`, /not an integer/, (async () => { await c.set('s', 'x'); return c.incr('s'); })());
    const many = await Promise.all(Array.from({ length: 5000 }, (_, i) => c.set(`p:${i}`, String(i)).then(() => c.get(`p:${i}`))));
    equal(`${name}: 5,000 at once`, true, many.every((v, i) => v === String(i)));
    const keys = new Set();
    for await (const page of c.scanIterator({ MATCH: 'p:*', COUNT: 100 })) for (const k of [].concat(page)) keys.add(k);
    equal(`${name}: scan`, 5000, keys.size);
    const big = 'x'.repeat(5000000);
    await c.set('big', big);
    equal(`${name}: 5 MB`, true, (await c.get('big')) === big);
    equal(`${name}: sendCommand`, 'hello', await c.sendCommand(['ECHO', 'hello']));
    await c.close();
}

async function io(library) {
    const Redis = require(library);
    const c = new Redis({ host: '127.0.0.1', port, connectionName: 'node', maxRetriesPerRequest: 1 });
    c.on('error', () => {});
    equal(`${library}: ping`, 'PONG', await c.ping());
    await c.flushall();
    equal(`${library}: set`, 'OK', await c.set('a', '1'));
    equal(`${library}: get`, '1', await c.get('a'));
    equal(`${library}: get of nothing`, null, await c.get('none'));
    equal(`${library}: set with options`, null, await c.set('a', '2', 'EX', 100, 'NX'));
    equal(`${library}: incr`, 2, await c.incr('a'));
    equal(`${library}: mset`, 'OK', await c.mset('x', '1', 'y', '2'));
    equal(`${library}: mget`, ['1', '2', null], await c.mget('x', 'y', 'none'));
    equal(`${library}: expire`, 1, await c.expire('x', 100));
    equal(`${library}: ttl`, true, (await c.ttl('x')) > 90);
    equal(`${library}: getname`, 'node', await c.client('GETNAME'));
    equal(`${library}: config get`, ['maxclients', '10000'], await c.config('GET', 'maxclients'));
    equal(`${library}: buffers`, true, Buffer.from([0, 255, 13, 10]).equals((await c.set('b', Buffer.from([0, 255, 13, 10])), await c.getBuffer('b'))));
    await c.set('s', 'x');
    await rejects(`${library}: an error reply`, /not an integer/, c.incr('s'));
    const p = c.pipeline();
    for (let i = 0; i < 3000; i++) p.set(`p:${i}`, i).get(`p:${i}`);
    const out = await p.exec();
    equal(`${library}: pipeline`, true, out.length === 6000 && out.every(([e, v], i) => !e && v === (i % 2 ? String((i - 1) / 2) : 'OK')));
    const keys = new Set();
    for await (const page of c.scanStream({ match: 'p:*', count: 100 })) page.forEach((k) => keys.add(k));
    equal(`${library}: scan`, 3000, keys.size);
    const big = 'x'.repeat(5000000);
    await c.set('big', big);
    equal(`${library}: 5 MB`, true, (await c.get('big')) === big);
    const d = c.duplicate({ db: 4 });
    await d.set('only4', '1');
    equal(`${library}: another database`, null, await c.get('only4'));
    await d.quit();
    equal(`${library}: quit`, 'OK', await c.quit());
}

(async () => {
    const parts = [['node-redis', () => nodeRedis(2)], ['node-redis RESP3', () => nodeRedis(3)], ['ioredis', () => io('ioredis')], ['iovalkey', () => io('iovalkey')]];
    for (const [name, part] of parts) {
        try {
            await part();
        } catch (e) {
            if (e.code === 'MODULE_NOT_FOUND') {
                skipped++;
                console.log(`[skipped] ${name}: the package is not installed`);
            } else {
                failed++;
                console.log(`[failed] ${name}: ${e.stack}`);
            }
        }
    }
    console.log(`${passed} passed, ${failed} failed${skipped ? `, ${skipped} skipped` : ''}`);
    process.exit(failed ? 1 : 0);
})();
