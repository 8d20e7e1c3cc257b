# MIGRATE moves keys to another server.
# seconds: 4

start_server {} {
    set host [srv host]
    set port [srv port]
    start_server {} {
        # Level -1 is the target.
        proc both {} {
            r flushall
            r -1 flushall
        }

        test "MIGRATE moves a key with its value and its time to live" {
            both
            r set k v
            r set timed v px 100000
            assert_typed +OK migrate $host $port k 0 5000
            assert_typed +OK migrate $host $port timed 0 5000
            assert_typed :0 exists k timed
            assert_equal v [r -1 get k]
            assert_range [r -1 pttl timed] 1 100000
            assert_equal -1 [r -1 pttl k]
            assert_equal 1 [info_field stats migrate_cached_sockets]
        }

        test "MIGRATE connects from bind-source-addr" -needs {ours 1} {
            r set k v
            r config set bind-source-addr 127.0.0.9
            set client [new_client -deferring 1]
            $client migrate 127.0.0.1 [primary_listen] k 0 20000
            assert_equal 127.0.0.9 [lindex [fconfigure [primary_accept] -peername] 0]
            primary_close
            assert_error_like "IOERR*" {$client -read}
            r config set bind-source-addr ""
        }

        test "every type arrives as it was" {
            both
            r set string [string repeat x 200000]
            r rpush list a b [string repeat c 10000]
            r sadd set 1 2 x
            r zadd zset 1 a 2.5 b
            r hset hash f v g w
            r hpexpire hash 1000000 fields 1 f
            r xadd stream 1-1 f v
            r xgroup create stream g 0
            set digests {}
            set names [lsort [r keys *]]
            foreach name $names {lappend digests [r debug digest-value $name]}
            assert_typed +OK migrate $host $port "" 0 5000 keys {*}$names
            assert_equal 0 [r dbsize]
            set got {}
            foreach name $names {lappend got [r -1 debug digest-value $name]}
            assert_equal $digests $got
        }

        test "large values of every type arrive as they were" {
            both
            r set string [string repeat x 20000000]
            for {set i 0} {$i < 40} {incr i} {
                set items [lmap _ [lrepeat 500 x] {format %x%09d $i [incr count]}]
                r rpush list {*}$items [string repeat y 9000]
                r sadd set {*}$items
                r hset hash {*}$items
                r zadd zset {*}[concat {*}[lmap item $items {list [expr {rand()}] $item}]]
                r xadd stream * f [string repeat z 8000]
            }
            r xgroup create stream group 0
            r xreadgroup group group consumer count 3 streams stream >
            set names [lsort [r keys *]]
            set digests [lmap name $names {r debug digest-value $name}]
            assert_typed +OK migrate $host $port "" 0 20000 keys {*}$names
            assert_equal 0 [r dbsize]
            assert_equal $digests [lmap name $names {r -1 debug digest-value $name}]
        }

        test "COPY keeps the key, REPLACE overwrites it there" {
            both
            r set k new
            r -1 set k old
            assert_typed "-ERR Target instance replied with error: BUSYKEY Target key name already exists." migrate \
                $host $port k 0 5000
            assert_equal new [r get k]
            assert_typed +OK migrate $host $port k 0 5000 copy replace
            assert_equal new [r get k]
            assert_equal new [r -1 get k]
        }

        test "of several keys those that arrived are deleted here" {
            both
            r mset x 1 y 2 z 3
            r -1 set y there
            assert_typed "-ERR Target instance replied with error: BUSYKEY Target key name already exists." \
                migrate $host $port "" 0 5000 keys x y missing z x
            assert_equal {y} [r keys *]
            assert_equal {x y z} [lsort [r -1 keys *]]
            assert_equal there [r -1 get y]
        }

        test "keys go to another database, and errors of the target are reported" {
            both
            r set k v
            assert_typed +OK migrate $host $port k 3 5000
            set c [new_client -level -1]
            $c select 3
            assert_equal v [$c get k]
            $c -close
            r set k v
            assert_typed "-ERR Target instance replied with error: ERR DB index is out of range" migrate $host \
                $port k 99 5000
            assert_equal v [r get k]
        }

        test "passwords, which logs do not show" {
            both
            r set k v
            r -1 config set requirepass secret
            assert_typed "-ERR Target instance replied with error: NOAUTH Authentication required." migrate $host \
                $port k 0 5000
            assert_match "-ERR Target instance replied with error: WRONGPASS*" \
                [r -typed migrate $host $port k 0 5000 auth wrong]
            r config set slowlog-log-slower-than 0
            assert_typed +OK migrate $host $port k 0 5000 auth secret
            assert_not_match "*secret*" [r slowlog get 5]
            r config set slowlog-log-slower-than 10000
            r set k w
            assert_typed +OK migrate $host $port k 0 5000 replace auth2 default secret
            r -1 config set requirepass ""
            assert_equal w [r -1 get k]
        }

        test "errors" {
            both
            r set k v
            foreach {command error} [string map [list HOST $host PORT $port] {
                {migrate HOST PORT missing 0 1000} +NOKEY
                {migrate HOST PORT k x 1000} "-ERR value is not an integer or out of range"
                {migrate HOST PORT k 0 x} "-ERR value is not an integer or out of range"
                {migrate HOST PORT k 0 1000 foo} "-ERR syntax error"
                {migrate HOST PORT k 0 1000 auth} "-ERR syntax error"
                {migrate HOST PORT k 0 1000 auth2 x} "-ERR syntax error"
                {migrate HOST PORT k 0 1000 keys k}\
                    "-ERR When using MIGRATE KEYS option, the key argument must be set to the empty string"
                {migrate HOST 1 k 0 1000} "-IOERR error or timeout writing to target instance"
                {migrate HOST abc k 0 1000} "-IOERR error or timeout writing to target instance"
                {migrate nosuchhost.invalid 1 k 0 1000} "-IOERR error or timeout connecting to the client"
            }] {
                assert_equal $error [r -typed {*}$command] $command
            }
            assert_equal {a b} [r command getkeys migrate h 1 "" 0 1 auth2 keys p keys a b]
            assert_equal k [r command getkeys migrate h 1 k 0 1]
        }

        test "a target that does not answer costs the timeout, and the key stays" {
            both
            r set k v
            exec kill -STOP [srv -1 pid]
            assert_typed "-IOERR error or timeout reading to target instance" migrate $host $port k 0 100
            exec kill -CONT [srv -1 pid]
            assert_equal v [r get k]
            wait_for_condition 5000 {[r -1 exists k]} "the target executes the request that it has received"
            assert_equal 0 [info_field stats migrate_cached_sockets]
        }

        test "a kept connection that the target has closed is made again" {
            both
            r set k v
            assert_typed +OK migrate $host $port k 0 5000
            assert_equal 1 [info_field stats migrate_cached_sockets]
            r -1 client kill type normal skipme yes
            r set k w
            assert_typed +OK migrate $host $port k 0 5000 replace
            assert_equal w [r -1 get k]
        }

        test "in a transaction, and propagated as the deletion of what has moved" {
            both
            r mset a 1 b 2
            r multi
            r set c 3
            r migrate $host $port "" 0 5000 keys a c missing
            assert_equal {OK OK} [r exec]
            assert_equal b [r keys *]
            assert_equal {1 3} [r -1 mget a c]
        }
    }
}
