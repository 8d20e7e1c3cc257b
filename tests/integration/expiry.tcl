# Keys with a time to live.
# seconds: 5

start_server {tags {expire}} {
    test "EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT set the expiry" {
        r set k v
        assert_typed :1 expire k 100
        assert_range [r pttl k] 95000 100000
        assert_typed :1 pexpire k 200000
        assert_range [r ttl k] 195 200
        set at [expr {[clock seconds] + 300}]
        assert_typed :1 expireat k $at
        assert_typed :$at expiretime k
        assert_typed :1 pexpireat k ${at}123
        assert_typed :${at}123 pexpiretime k
        assert_equal v [r get k]
        foreach {cmd value} {expire 10 pexpire 10 expireat 99999999999 pexpireat 99999999999999} {
            assert_typed :0 $cmd none $value
        }
    }

    test "TTL, PTTL, EXPIRETIME and PEXPIRETIME return -2 for no key and -1 for no expiry" {
        r set k v
        r del none
        foreach cmd {ttl pttl expiretime pexpiretime} {
            assert_typed :-2 $cmd none
            assert_typed :-1 $cmd k
        }
    }

    test "TTL rounds to the nearest second" {
        r set k v
        r pexpire k 1400
        assert_equal 1 [r ttl k]
        r pexpire k 1900
        assert_equal 2 [r ttl k]
    }

    test "PERSIST removes the expiry" {
        r set k v ex 100
        replies {
            {persist k} :1
            {ttl k} :-1
            {persist k} :0
            {persist none} :0
        }
    }

    test "a time of zero or in the past deletes the key immediately" {
        foreach {cmd value} {expire 0 expire -1 expire -1000 pexpire 0 pexpire -1 expireat 1 expireat 0 expireat\
            -5 pexpireat 1 pexpireat -1} {
            r set k v
            assert_typed :1 $cmd k $value
            assert_typed :0 exists k
        }
    }

    test "NX sets only where there is no expiry" {
        r set k v
        replies {
            {expire k 100 nx} :1
            {expire k 200 NX} :0
            {pexpire k 200 nx} :0
            {expireat k 99999999999 nx} :0
            {pexpireat k 99999999999 nx} :0
        }
        assert_range [r ttl k] 95 100
    }

    test "XX sets only where there is an expiry" {
        r set k v
        replies {
            {expire k 100 xx} :0
            {ttl k} :-1
            {expire k 100} :1
            {expire k 200 XX} :1
        }
        assert_range [r ttl k] 195 200
    }

    test "GT sets only a later time; no expiry counts as endless" {
        r set k v
        replies {
            {expire k 100 gt} :0
            {expire k 100} :1
            {expire k 50 gt} :0
            {expire k 200 GT} :1
            {expireat k 1 gt} :0
        }
        assert_range [r ttl k] 195 200
    }

    test "LT sets only an earlier time; no expiry counts as endless" {
        r set k v
        replies {
            {expire k 100 lt} :1
            {expire k 200 lt} :0
            {expire k 50 LT} :1
        }
        assert_range [r ttl k] 45 50
        replies {
            {expire k -1 lt} :1
            {exists k} :0
        }
    }

    test "a past time with NX, XX, GT and LT" {
        r set k v
        replies {
            {expire k -1 xx} :0
            {expire k -1 gt} :0
            {exists k} :1
            {expire k -1 nx} :1
            {exists k} :0
            {set k v} +OK
            {expire k -1 lt} :1
            {exists k} :0
        }
    }

    test "XX goes together with GT and LT" {
        r set k v
        replies {
            {expire k 10 xx gt} :0
            {expire k 10 xx lt} :0
            {expire k 100} :1
            {expire k 50 xx gt} :0
            {expire k 50 xx lt} :1
            {expire k 70 gt xx} :1
        }
        assert_range [r ttl k] 65 70
    }

    test "options that exclude each other are refused" {
        r set k v
        foreach cmd {expire pexpire expireat pexpireat} {
            foreach {options text} {
                {nx xx} {NX and XX, GT or LT options at the same time are not compatible}
                {nx gt} {NX and XX, GT or LT options at the same time are not compatible}
                {lt nx} {NX and XX, GT or LT options at the same time are not compatible}
                {gt lt} {GT and LT options at the same time are not compatible}
                {xx gt lt} {GT and LT options at the same time are not compatible}
                {foo} {Unsupported option foo}
                {nx foo} {Unsupported option foo}
            } {
                assert_typed "-ERR $text" $cmd k 99999999999 {*}$options
                assert_typed "-ERR $text" $cmd none 99999999999 {*}$options
            }
        }
        assert_typed :-1 ttl k
    }

    test "bad times are refused" {
        r set k v
        foreach cmd {expire pexpire expireat pexpireat} {
            foreach bad {x "" 1.5 " 1" 9223372036854775808} {
                assert_typed "-ERR value is not an integer or out of range" $cmd k $bad
                assert_typed "-ERR value is not an integer or out of range" $cmd none $bad
            }
        }
        foreach {cmd bad} {
            expire 9223372036854775807  expire -9223372036854775808  expire 9223372036854775  expire 9223372036854776
            pexpire 9223372036854775807  pexpire 9223372036854775000
            expireat 9223372036854775807  expireat -9223372036854775808  expireat 9223372036854776
        } {
            assert_typed "-ERR invalid expire time in '$cmd' command" $cmd k $bad
        }
        replies {
            {ttl k} :-1
            {pexpireat k 9223372036854775807} :1
            {pexpiretime k} :9223372036854775807
            {expireat k 9223372036854775} :1
            {expiretime k} :9223372036854775
        }
    }

    # --- Expiring ---------------------------------------------------------------------

    test "an expired key is not there, whether or not it has been removed" {
        r flushall
        r debug set-active-expire 0
        r set k v px 5
        let_pass 5
        replies {
            {get k} nil$
            {exists k} :0
            {ttl k} :-2
            {expire k 10} :0
        }
        r debug set-active-expire 1
    }

    test "a key lives until its time" {
        r set k v px 150
        assert_equal v [r get k]
        wait_for_condition 3000 {[r get k] eq ""}
        set at [expr {[clock milliseconds] + 120}]
        r set k v pxat $at
        while {[r get k] ne ""} {after 1}
        assert_range [clock milliseconds] $at [expr {$at + 300}]
    }

    test "DBSIZE still counts an expired key until it is removed" {
        r flushall
        r debug set-active-expire 0
        r set k v px 1
        let_pass 1
        assert_typed :1 dbsize
        assert_typed nil$ get k
        assert_typed :0 dbsize
        r debug set-active-expire 1
    }

    test "active expiry removes keys that are not accessed" {
        r flushall
        r config resetstat
        for {set i 0} {$i < 100} {incr i} {r psetex k:$i 20 v}
        r set stay v
        wait_for_condition 5000 {[r dbsize] == 1}
        assert_equal 100 [info_field stats expired_keys]
    }

    test "active expiry works in every database" {
        r flushall
        foreach db {0 3 15} {
            set c [new_client -db $db]
            for {set i 0} {$i < 20} {incr i} {$c psetex k:$i 20 v}
        }
        wait_for_condition 5000 {![regexp {db\d+:} [r info keyspace]]}
    }

    test "many keys expire soon after their time while the server keeps serving" -timeout 90 {
        r flushall
        set c [new_client -deferring 1]
        for {set i 0} {$i < 40000} {incr i} {$c set key:$i v px 1000}
        for {set i 0} {$i < 40000} {incr i} {$c -read}
        set worst 0
        wait_for_condition 15000 {
            [set t [clock milliseconds]; r ping; set worst [expr {max($worst, [clock milliseconds] - $t)}]; r dbsize]\
                == 0
        }
        assert_lessthan $worst 500
    }

    test "keys with a far expiry stay among many that expire" {
        r flushall
        for {set i 0} {$i < 500} {incr i} {
            r psetex short:$i 30 v
            r setex long:$i 1000 v
            r set plain:$i v
        }
        wait_for_condition 5000 {[r dbsize] == 1000}
        assert_match "db0:keys=1000,expires=500,avg_ttl=*" [lindex [split [r info keyspace] "\r\n"] 2]
    }

    test "expired_keys counts lazily removed keys too" {
        r flushall
        r debug set-active-expire 0
        r config resetstat
        r psetex a 1 v
        r psetex b 1 v
        let_pass 1
        r get a
        r exists b
        assert_equal 2 [info_field stats expired_keys]
        r debug set-active-expire 1
    }

    test "EXPIRE with a past time is no expiry in the statistics" {
        r flushall
        r config resetstat
        r set a v
        r expire a -1
        assert_typed :0 exists a
    }

    test "DEBUG SET-ACTIVE-EXPIRE 0 stops active expiry" {
        r flushall
        r debug set-active-expire 0
        r psetex k 1 v
        set began [info_field server server_time_usec]
        wait_for_condition 3000 {[info_field server server_time_usec] > $began + 250000} "some crons have run"
        assert_typed :1 dbsize
        r debug set-active-expire 1
        wait_for_condition 3000 {[r dbsize] == 0}
    }

    test "RENAME, COPY and MOVE take the exact time along" {
        r flushall
        r set a v pxat 99999999999123
        r rename a b
        assert_typed :99999999999123 pexpiretime b
        r copy b c
        assert_typed :99999999999123 pexpiretime c
        r move c 4
        assert_equal 99999999999123 [[new_client -db 4] pexpiretime c]
    }

    test "times are frozen within a pipeline's command but not across it" {
        r set k v px 100000
        set c [new_client -deferring 1]
        for {set i 0} {$i < 50} {incr i} {$c pttl k}
        set last 100000
        for {set i 0} {$i < 50} {incr i} {
            set t [$c -read]
            assert {$t <= $last && $t > 90000}
            set last $t
        }
    }

    test "random expiry commands agree with a model" {
        r flushall
        array unset model
        for {set i 0} {$i < 1500} {incr i} {
            set k k[randint 10]
            set has [info exists model($k)]
            set at [expr {99999000000 + [randint 1000000]}]
            switch [randint 6] {
                0 {
                    r set $k v
                    set model($k) -1
                }
                1 {
                    assert_equal $has [r expireat $k $at]
                    if {$has} {set model($k) $at}
                }
                2 {
                    set ok [expr {$has && $model($k) == -1}]
                    assert_equal $ok [r expireat $k $at nx]
                    if {$ok} {set model($k) $at}
                }
                3 {
                    set ok [expr {$has && $model($k) != -1 && $at > $model($k)}]
                    assert_equal $ok [r expireat $k $at gt]
                    if {$ok} {set model($k) $at}
                }
                4 {
                    set ok [expr {$has && ($model($k) == -1 || $at < $model($k))}]
                    assert_equal $ok [r expireat $k $at lt]
                    if {$ok} {set model($k) $at}
                }
                5 {
                    set ok [expr {$has && $model($k) != -1}]
                    assert_equal $ok [r persist $k]
                    if {$ok} {set model($k) -1}
                }
            }
            set want [expr {[info exists model($k)] ? $model($k) : -2}]
            assert_equal $want [r expiretime $k]
        }
    }

    # --- Import mode ------------------------------------------------------------------

    test "in import mode nothing expires by itself, and an import source sees it" -needs {config import-mode ours 1} {
        r flushall
        assert_typed "-ERR Server is not in import mode" client import-source on
        assert_typed +OK client import-source off
        assert_typed "-ERR wrong number of arguments for 'client|import-source' command" client import-source
        with_config {import-mode yes} {
            set c [new_client]
            assert_reply $c "-ERR syntax error" client import-source maybe
            assert_reply $c +OK client import-source on
            assert_match "*flags=*I*" [$c client list id [$c client id]]
            r set k v px 1
            r hset h stays s
            r hpexpire h 1 fields 1 stays
            r hset h s2 2
            wait_for_condition 2000 {![r exists k] && [r hget h stays] eq ""}
            assert_equal {{} {} {s2 2} 0} [list [r get k] [r keys k] [r hgetall h] [r exists k]]
            assert_equal v [$c get k]
            assert_equal k [$c keys k]
            assert_reply $c {* :0} hpttl h fields 1 stays
            assert_equal {s 2} [$c hmget h stays s2]
            assert_equal s [$c hget h stays]
            assert_equal 2 [r hlen h]
            assert_typed :2 dbsize
            # A time in the past is set like any other.
            $c set past v
            assert_reply $c :1 expireat past 1
            assert_reply $c :1 exists past
            assert_typed :0 exists past
            $c hset h past v
            assert_reply $c {* :1} hexpireat h 1 fields 1 past
            assert_reply $c {$v} hget h past
            assert_typed nil$ hget h past
            # After import-source off, or RESET, it does not see expired keys either.
            assert_reply $c +OK client import-source off
            assert_reply $c nil$ get k
            assert_reply $c +OK client import-source on
            assert_reply $c +RESET reset
            assert_reply $c nil$ get k
            $c client import-source on
            # A command that writes deletes it first.
            assert_typed +OK set k w nx
            assert_equal w [$c get k]
        }
        wait_for_condition 5000 {[r dbsize] == 2 && [r hlen h] == 1}
        assert_reply $c nil$ get past
    }

    test "in import mode nothing is evicted" -needs {config import-mode ours 1} {
        r flushall
        r set k v
        with_config {import-mode yes maxmemory 1 maxmemory-policy allkeys-lru} {
            r get k
            assert_typed {$v} get k
        }
        assert_typed {$v} get k
    }

    test "a key that is given a past time expires: event and count" {
        r flushall
        set listener [new_listener]
        foreach command {{expire k 0} {pexpireat k 1} {set k w exat 1} {set k w pxat 1 get} {getex k pxat 1}} {
            r set k v
            set before [info_field stats expired_keys]
            r config set notify-keyspace-events EA
            r {*}$command
            r config set notify-keyspace-events ""
            assert_equal {{expired k}} [heard $listener] $command
            assert_equal 1 [expr {[info_field stats expired_keys] - $before}] $command
        }
    }

    test "GETEX checks its time before it looks for the key" {
        r flushall
        r rpush l a
        foreach key {none l} {
            assert_typed "-ERR invalid expire time in 'getex' command" getex $key ex 0
            assert_typed "-ERR value is not an integer or out of range" getex $key ex abc
        }
    }

    test "MSETEX with a past time sets keys that have expired; MEMORY USAGE counts them and leaves them" {
        with_debug_active_expire_off {
            r flushall
            r msetex 2 k v j w pxat 1
            assert_equal 2 [r dbsize]
            assert_morethan [r memory usage k] 0
            assert_equal 2 [r dbsize]
            assert_typed nil$ get k
            assert_equal 1 [r dbsize]
            assert_typed nil$ memory usage k
        }
    }
}
