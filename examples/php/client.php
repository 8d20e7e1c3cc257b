<?php
// A PHP client (phpredis) through valkey-rdma-proxy.
//
//     php client.php SOCKET
$client = new Redis();
$client->connect($argv[1]);
$client->set('example:php', 'hello');
echo $client->get('example:php'), "\n";
preg_match('/transport=(\w+)/', $client->rawCommand('CLIENT', 'INFO'), $found);
echo 'transport ', $found[1], "\n";
$client->del('example:php');
