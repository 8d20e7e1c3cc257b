# Direct placement: values move between the store and memory that a client has registered, by one-sided operations of
# the server. The client is tests/programs/rdma-place, on plain verbs. seconds: 40

set clear {clear "over TLS placement is refused"}

# A client: {process id, channel}. Each line that `place` sends gets one line as its answer.
proc placer {args} {
    set pair [open_beside {*}$::opt(launcher) [tool rdma-place] --host $::opt(rdma_host) --port [srv port] {*}$args]
    assert_equal ready [line_of [lindex $pair 1] rdma-place]
    return $pair
}
proc place {client args} {
    puts [lindex $client 1] [join $args " "]
    return [line_of [lindex $client 1] rdma-place]
}
proc call {client args} {
    place $client send {*}$args
    return [place $client reply]
}
proc blob_field {name} {info_field blob blob_$name}
proc nothing_is_pinned {} {
    wait_for_condition 10000 {[blob_field transfers] == 0 && [blob_field pinned_bytes] == 0}
}
# The clients of the tests before are gone: what follows counts resources.
proc await_own_connection {} {
    wait_for_condition 10000 {[info_field clients connected_clients] == 1}
}
# A value of the pattern that `fill` makes would need bytes in Tcl; these tests compare checksums.
proc set_from {client key name offset length seed args} {
    place $client fill $name $offset $length $seed
    assert_equal +OK [call $client blob.set $key $length @$name+$offset $length {*}$args]
    return [place $client crc $name $offset $length]
}

start_server {overrides {loglevel verbose}} {
    test "a value goes to the client's memory and comes from it, whatever its size" -needs $clear {
        set c [placer]
        place $c region a 8000000 both
        foreach length {1 7 8 100 1000 1023 1024 1025 2048 4097 65536 200000 1048576 3145728 3145729} {
            set crc [set_from $c k:$length a 0 $length $length]
            assert_equal $length [r strlen k:$length]
            assert_equal $crc [r blob.info k:$length crc]
            assert_equal "*2 \[:$length :$crc\]" [call $c blob.get k:$length @a+4000000 $length]
            assert_equal $crc [place $c crc a 4000000 $length]
        }
        nothing_is_pinned
    }

    test "both generations of names do the same" -needs $clear {
        set c [placer]
        place $c region a 100000 both
        place $c fill a 0 50000 3
        set crc [place $c crc a 0 50000]
        assert_equal +OK [call $c BLOB.RDMA_SET k 50000 @a+0 50000]
        assert_equal "*2 \[:50000 :$crc\]" [call $c BLOB.RDMA_GET k @a+50000 50000]
        assert_equal "*2 \[:50000 :$crc\]" [call $c blob.get k @a+50000 50000]
        assert_equal [r get k] [r blob.get k]
        assert_equal [r get k] [r blob.tcp_get k]
        assert_equal OK [r blob.tcp_set k2 hello]
        assert_equal OK [r blob.set k3 hello]
        assert_equal {hello hello} [r mget k2 k3]
        assert_typed {* +len :5 +crc :2591144780 +tier +dram} blob.info k2
        assert_typed :5 blob.info k2 LEN
        assert_typed +dram blob.info k2 tier
        assert_typed nil$ blob.info missing nofield
        assert_match {\*1 \[$32 *\]} [call $c blob.hello 00ff]
        assert_equal {-ERR DMA session already established (one BLOB.HELLO per connection)} [call $c blob.hello 00ff]
        assert_equal {-ERR RDMA session already established} [call $c blob.rdma_hello 00ff]
    }

    test "several ranges are filled and read one after the other, each by its own key" -needs $clear {
        set c [placer]
        place $c region a 10000 both
        place $c region b 10000 both
        place $c text a 0 HelloWide
        place $c text b 100 World
        assert_equal +OK [call $c blob.set k 10 @a+0 5 @b+100 5000]
        assert_equal HelloWorld [r get k]
        # The surplus is untouched, and a range that is not needed may have a wrong key.
        assert_match "*2 \\\[:10 :*" [call $c blob.get k @b+3 4 @a+200 1 @a+300 2 @b+400 100 1 1 1]
        assert_equal Hell [place $c show b 3 4]
        assert_equal o. [place $c show a 200 2]
        assert_equal Wo. [place $c show a 300 3]
        assert_equal rld. [place $c show b 400 4]
    }

    test "replies prove the arrival: a pipeline of gets on one connection is complete when its replies are" \
        -needs $clear {
        set c [placer]
        place $c region a 20000000 both
        for {set i 0} {$i < 40} {incr i} {set sums($i) [set_from $c key:$i a 0 400000 $i]}
        for {set i 0} {$i < 40} {incr i} {
            place $c send blob.get key:$i @a+[expr {400000 * $i}] 400000
        }
        for {set i 0} {$i < 40} {incr i} {
            assert_equal "*2 \[:400000 :$sums($i)\]" [place $c reply]
            assert_equal $sums($i) [place $c crc a [expr {400000 * $i}] 400000]
        }
        nothing_is_pinned
    }

    test "errors come in the order of the module, with its texts, and leave memory untouched" -needs $clear {
        set c [placer]
        place $c region a 10000 both
        r set k 0123456789
        r rpush list x
        foreach {command reply} {
            {blob.get missing 1 x y} {$-1}
            {blob.get list x y z} {-WRONGTYPE Operation against a key holding the wrong kind of value}
            {blob.get k 1 2} {-ERR wrong number of arguments for 'BLOB.GET' command}
            {blob.get k 1 2 3 4} {-ERR address args must be rkey, addr, len triples}
            {blob.rdma_get k 1 2} {-ERR wrong number of arguments for 'BLOB.RDMA_GET' command}
            {blob.rdma_get k 1 2 3 4} {-ERR memory address args must be rkey, addr, len triples}
            {blob.get k x 2 3} {-ERR invalid rkey}
            {blob.get k 4294967296 2 30} {-ERR invalid rkey}
            {blob.get k 1 0x2 3} {-ERR invalid remote_addr}
            {blob.rdma_get k 1 -2 3} {-ERR invalid memory address}
            {blob.get k 1 2 0} {-ERR invalid addr len}
            {blob.rdma_get k 1 2 18446744073709551616} {-ERR invalid memory address len}
            {blob.get k 1 2 9} {-ERR client address space smaller than object length}
            {blob.rdma_get k 1 2 3 +1 02 6} {-ERR client memory address length 9 smaller than object length 10}
            {blob.set k 10} {+OK}
            {blob.set k 10 1 2} {-ERR wrong number of arguments for 'BLOB.SET' command}
            {blob.set k x 1 2 3} {-ERR invalid len}
            {blob.set k 0 1 2 x} {-ERR invalid addr len}
            {blob.set k 0 1 2 3} {-ERR object length must be > 0}
            {blob.rdma_set k 0 1 2 x} {-ERR object length must be > 0}
            {blob.rdma_set k 536870913 1 2 x} {-ERR max object size exceeded}
            {blob.set k 536870913 1 2 600000000} {-ERR max object size exceeded}
            {blob.rdma_set list 5 1 2 x} {-WRONGTYPE Operation against a key holding the wrong kind of value}
            {blob.set k 5 1 2 3} {-ERR client address space smaller than object length}
            {blob.set k 5 1 2 5 EX} {-ERR syntax error}
            {blob.set k 5 1 2 5 EX 0} {-ERR invalid expire time in 'blob.set' command}
            {blob.set k 5 1 2 5 NX XX} {-ERR syntax error}
            {blob.set k 5 1 2 5 EX 1 PX 1} {-ERR syntax error}
            {blob.tcp_get k x} {-ERR wrong number of arguments for 'BLOB.TCP_GET' command}
            {blob.info k crc x} {-ERR wrong number of arguments for 'BLOB.INFO' command}
            {blob.info k size} {-ERR invalid information field}
            {blob.hello xy} {-ERR invalid peer address hex}
            {blob.hello abc} {-ERR invalid peer address hex}
            {blob.rdma_hello 0g} {-ERR invalid rdma address hex}
        } {
            assert_equal $reply [call $c {*}$command] $command
        }
        assert_equal "-ERR too many addresses (max 256)" [call $c blob.get k {*}[lrepeat 257 1 1 1]]
        assert_equal +PONG [call $c ping]
        assert_equal 10 [r get k]
    }

    test "options of SET: times, conditions, and what is propagated" -needs $clear {
        set c [placer]
        place $c region a 10000 both
        place $c text a 0 value
        r del k
        set f [new_follower]
        assert_equal {$-1} [call $c blob.set k 5 @a+0 5 xx]
        assert_equal +OK [call $c blob.set k 5 @a+0 5 NX EX 100]
        assert_morethan [r ttl k] 90
        assert_equal {$-1} [call $c blob.set k 5 @a+0 5 nx]
        assert_equal +OK [call $c blob.set k 3 @a+0 5 KEEPTTL XX]
        assert_morethan [r ttl k] 90
        assert_equal val [r get k]
        assert_equal +OK [call $c blob.set k 5 @a+0 5 pxat 33177117420000]
        assert_equal 33177117420000 [r pexpiretime k]
        assert_equal +OK [call $c blob.set k 5 @a+0 5]
        assert_equal -1 [r ttl k]
        assert_equal +OK [call $c blob.set k 5 @a+0 5 exat 1]
        assert_equal 0 [r exists k]
        assert_equal OK [r blob.set k inline]
        set wanted {{SET k value PXAT *} {SET k val KEEPTTL} {SET k value PXAT 33177117420000} {SET k value} {UNLINK k}
            {SET k inline}}
        foreach got [heard $f] pattern $wanted {assert_match $pattern $got}
    }

    test "the value is a plain string with the events of SET" -needs $clear {
        set c [placer]
        place $c region a 3000000 both
        r config set notify-keyspace-events KEA
        set s [new_client]
        $s subscribe __keyevent@0__:set __keyevent@0__:expire
        $s -read
        set crc [set_from $c k a 0 2000000 5 EX 100]
        assert_equal {message __keyevent@0__:set k} [$s -read]
        assert_equal {message __keyevent@0__:expire k} [$s -read]
        r config set notify-keyspace-events ""
        assert_equal string [r type k]
        assert_equal 2000000 [r strlen k]
        r restore copy 0 [r dump k]
        assert_equal $crc [r blob.info copy crc]
        assert_equal OK [r debug reload]
        assert_equal $crc [r blob.info k crc]
    }

    test "a checksum follows the value through every change" -needs $clear {
        set c [placer]
        place $c region a 3000000 both
        set first [set_from $c k a 0 1000000 5]
        assert_equal $first [r blob.info k crc]
        foreach change {
            {append k x} {setrange k 17 XYZ} {setbit k 99 1} {bitfield k set u8 1000 7} {setrange k 1500000 end}
            {getset k short} {set k 12} {incr k} {append k x} {setrange k 100000 far} {copy other k replace}
        } {
            r set other [string repeat z 70000]
            r {*}$change
            set crc [r blob.info k crc]
            assert_match "*2 \\\[:[r strlen k] :$crc\\\]" [call $c blob.get k @a+0 3000000]
            assert_equal $crc [place $c crc a 0 [r strlen k]]
        }
    }

    # The placement is posted, or waits, while the key changes.
    foreach {name change} {
        append {append k more} setrange {setrange k 1500000 XXXX} bitfield {bitfield k incrby u8 0 1}
        overwriting {set k short}
        del {del k} unlink {unlink k} getdel {getdel k} flushall {flushall} expiry {pexpire k 0} rename {rename other k}
        blob.set {blob.set k xyz}
    } {
        test "a get shows the value of its moment: $name while it is in flight" -needs $clear {
            set c [placer]
            place $c region a 30000000 both
            set crc [set_from $c k a 0 2000000 7]
            r set other x
            for {set i 0} {$i < 12} {incr i} {place $c send blob.get k @a+[expr {2000000 * $i}] 2000000}
            place $c send {*}$change
            place $c send blob.info k crc
            for {set i 0} {$i < 12} {incr i} {
                assert_equal "*2 \[:2000000 :$crc\]" [place $c reply]
                assert_equal $crc [place $c crc a [expr {2000000 * $i}] 2000000]
            }
            place $c reply
            assert {[place $c reply] ne ":$crc"}
            nothing_is_pinned
        }
    }

    test "a region without the right, a wrong key, and a wrong length end their own connection, with a logged reason" \
        -needs $clear {
        r set k [string repeat v 100000]
        await_own_connection
        foreach {name command} {
            "a WRITE" {blob.get k @r+0 100000} "a WRITE" {blob.get k 12345678 4096 100000}
            "a WRITE" {blob.get k @w+50000 100000} "a READ" {blob.set k 1000 @w+0 1000}
            "a READ" {blob.set k 100000 @r+50000 100000}
        } {
            unharmed {
                set c [placer]
                place $c region r 100000 read
                place $c region w 100000 write
                set from [log_size]
                assert_equal closed [call $c {*}$command]
                wait_for_log "its device refused $name" $from
                nothing_is_pinned
            }
            assert_equal 100000 [r strlen k]
        }
    }

    test "a client without READs gets an error for a placement from its memory" -needs $clear {
        set c [placer --no-reads]
        place $c region a 100000 both
        assert_match "-ERR EFA read: the client allows no READs *" [call $c blob.set new 5 @a+0 5]
        assert_equal 0 [r exists new]
        assert_equal +OK [call $c blob.set new hello]
        assert_equal "*2 \[:5 :2591144780\]" [call $c blob.get new @a+0 5]
    }

    test "transactions and scripts refuse placement and say what to do" -needs $clear {
        set c [placer]
        place $c region a 100000 both
        r set k hello
        call $c multi
        assert_equal +QUEUED [call $c blob.get k @a+0 5]
        assert_equal +QUEUED [call $c blob.set k 5 @a+0 5]
        assert_equal +QUEUED [call $c blob.get k]
        assert_match {\*3 \[-ERR Blocking module command called from transaction: *BLOB.GET key* -ERR * $5 hello\]} \
            [call $c exec]
        assert_error_like "*called from Lua script*BLOB.GET key*" {
            r eval {return redis.call('blob.get', 'k', 1, 2, 5)} 0
        }
        assert_equal hello [r eval {return redis.call('blob.get', 'k')} 0]
    }

    test "over TCP placement is refused with what to do, and the plain forms work" {
        set t [new_client -tcp 1]
        $t set k hello
        assert_error_like "ERR direct placement needs an RDMA connection: connect to rdma-port, or use BLOB.GET key*" \
            {$t blob.get k 1 2 5}
        assert_error_like "ERR direct placement needs an RDMA connection*" {$t blob.rdma_set k 5 1 2 5}
        assert_error_like "ERR RDMA provider unavailable on this instance" {$t blob.rdma_hello 00}
        assert_equal hello [$t blob.get k]
        assert_equal "" [$t blob.get missing 1 2 3]
    }

    test "without replies a get transfers nothing, and a set is executed" -needs $clear {
        set c [placer]
        place $c region a 300000 both
        foreach mode {off skip} {
            r del k l
            set crc [set_from $c k a 0 100000 1]
            place $c fill a 100000 100000 2
            set before [place $c crc a 100000 100000]
            set gets [blob_field gets]
            place $c send client reply $mode
            place $c send blob.get k @a+100000 100000
            if {$mode eq "off"} {
                place $c send blob.set l 100000 @a+0 100000
                assert_equal +OK [call $c client reply on]
                assert_equal $crc [r blob.info l crc]
            }
            assert_equal +PONG [call $c ping]
            assert_equal $before [place $c crc a 100000 100000]
            assert_equal $gets [blob_field gets]
            nothing_is_pinned
        }
    }

    test "limits make clients wait, and let them go on in order" -needs $clear {
        r config set blob-max-client-transfers 1 blob-max-transfers 1 blob-max-transfer-memory 1
        set clients {}
        r set k [string repeat v 300000]
        set crc [r blob.info k crc]
        for {set i 0} {$i < 4} {incr i} {
            set c [placer]
            place $c region a 300000 both
            lappend clients $c
        }
        foreach c $clients {place $c send repeat 50 blob.get k @a+0 300000}
        foreach c $clients {place $c send repeat 5 blob.set k 300000 @a+0 300000}
        foreach c $clients {assert_equal 0 [place $c replies 55]}
        assert_equal 300000 [r strlen k]
        assert_equal $crc [r blob.info k crc]
        nothing_is_pinned
        r config set blob-max-client-transfers 128 blob-max-transfers 4096 blob-max-transfer-memory 1gb
    }

    test "a killed client leaves nothing behind, at whatever step" -needs $clear {
        set crc ""
        for {set round 0} {$round < 12} {incr round} {
            set c [placer]
            place $c region a 4000000 both
            set crc [set_from $c k a 0 2000000 1]
            puts [lindex $c 1] "send repeat 20 [expr {$round % 2 ? {blob.get k @a+0 2000000} :
                {blob.set k 2000000 @a+0 2000000}}]"
            if {$round % 3 == 0} {place $c reply}
            exec kill -KILL [lindex $c 0]
            nothing_is_pinned
            assert_equal $crc [r blob.info k crc]
        }
    }

    test "a region that is deregistered under way ends the connection" -needs $clear {
        set c [placer]
        place $c region a 4000000 both
        set crc [set_from $c k a 0 2000000 1]
        place $c send repeat 30 blob.get k @a+0 2000000
        place $c drop a
        place $c send blob.get k @a+0 2000000
        assert_equal closed [place $c replies 31]
        nothing_is_pinned
        assert_equal $crc [r blob.info k crc]
    }

    test "ACL categories, COMMAND DOCS and CLIENT LIST know the commands" {
        set names {blob.get blob.hello blob.info blob.rdma_get blob.rdma_hello blob.rdma_set blob.set}
        assert_equal [concat $names {blob.tcp_get blob.tcp_set}] [lsort [r acl cat largeobj]]
        assert {"blob.get" in [r acl cat read] && "blob.set" in [r acl cat write]}
        assert_equal {k} [r command getkeys blob.get k 1 2 3]
        assert_equal {k} [r command getkeys blob.set k 5 1 2 3 ex 5]
        assert_match "*registered memory*" [dict get [dict get [r command docs blob.get] blob.get] summary]
    }
}

start_server {overrides {maxmemory 40mb maxmemory-policy allkeys-lru}} {
    test "memory for a value is asked for before its transfer: keys are evicted for it" -needs $clear {
        set c [placer]
        place $c region a 3000000 both
        for {set i 0} {$i < 40} {incr i} {set crc [set_from $c key:$i a 0 3000000 $i]}
        assert_morethan [info_field stats evicted_keys] 5
        assert_lessthan [info_field memory used_memory] 42000000
        r config set maxmemory-policy noeviction
        set sets [blob_field sets]
        for {set i 0} {$i < 30} {incr i} {
            set reply [call $c blob.set more:$i 3000000 @a+0 3000000]
            if {$reply ne "+OK"} break
        }
        assert_equal "-OOM command not allowed when used memory > 'maxmemory'." $reply
        assert_equal [expr {$sets + $i}] [blob_field sets]
        nothing_is_pinned
    }
}

start_server {overrides {appendonly yes appendfsync always}} {
    test "what was set is in the append-only file, and after a restart" -needs $clear {
        set c [placer]
        place $c region a 3000000 both
        foreach i {1 2 3} {set sums($i) [set_from $c k:$i a 0 [expr {900000 * $i}] $i]}
        r bgrewriteaof
        set sums(2) [set_from $c k:2 a 0 900000 22]
        wait_for_condition 10000 {[info_field persistence aof_rewrite_in_progress] == 0}
        set sums(3) [set_from $c k:3 a 0 900000 33]
        r bgsave
        place $c send blob.get k:1 @a+0 900000
        place $c send append k:1 x
        assert_equal "*2 \[:900000 :$sums(1)\]" [place $c reply]
        assert_equal $sums(1) [place $c crc a 0 900000]
        assert_equal :900001 [place $c reply]
        set sums(1) [r blob.info k:1 crc]
        wait_for_condition 10000 {[info_field persistence rdb_bgsave_in_progress] == 0}
        restart_server
        foreach i {1 2 3} {assert_equal $sums($i) [r blob.info k:$i crc]}
    }
}

start_server {env SOFTRDMA_MAX_MESSAGE=32768} {
    test "no request is longer than the port takes" -needs [concat $::on_software_device $clear] {
        set c [placer]
        place $c region a 2000000 both
        set crc [set_from $c k a 0 1000000 1]
        assert_equal "*2 \[:1000000 :$crc\]" [call $c blob.get k @a+1000000 1000000]
        assert_equal $crc [place $c crc a 1000000 1000000]
        assert_equal 1000000 [string length [r get k]]
    }
}

start_server [with_faults {rnr-for-ever send:rnr} overrides {blob-transfer-timeout 300 blob-max-client-transfers 4}] {
    test "a client whose transfers do not end is closed, and its values are released" \
        -needs [concat $::on_software_device $clear] {
        unharmed {
            r set k [string repeat v 20000]
            set c [placer]
            place $c region a 20000 both
            regexp {qp=(\d+)} [call $c client info] -> pair
            set from [log_size]
            fault rnr-for-ever $pair
            place $c send repeat 10 blob.get k @a+0 20000
            wait_for_condition 5000 {[blob_field pinned_bytes] == 80000}
            assert_match "* transfers=4 pinned=80000*" [r client list]
            assert_equal 1 [blob_field waiting_clients]
            r del k
            wait_for_condition 5000 {[blob_field timed_out_clients] == 1}
            wait_for_log "none of its 4 transfers has ended for" $from
            nothing_is_pinned
            fault_end rnr-for-ever
        }
    }
}

# The READs of one connection wait: its BLOB.SET is under way until the fault ends.
start_server [with_faults {held send:hold,op=read}] {
    proc set_held {client args} {
        regexp {qp=(\d+)} [call $client client info] -> pair
        fault held $pair
        place $client send blob.set {*}$args
        wait_for_condition 5000 {[blob_field transfers] == 1}
    }
    set held [concat $::on_software_device $clear]
    set reads_ahead [concat $::without_threads $clear] ;# clients of I/O threads have no sets read ahead

    foreach {name meanwhile reply after} {
        "the role" {replicaof 127.0.0.1 1} -READONLY* {replicaof no one}
        "permissions" {acl setuser default -blob.set} -NOPERM* {acl setuser default +blob.set}
        "memory" {config set maxmemory 1} -OOM* {config set maxmemory 0}
        "the type of the key" {rpush k x} -WRONGTYPE* {ping}
    } {
        test "$name is asked for again when the transfer of a set has ended" -needs $held {
            set c [placer]
            place $c region a 100000 both
            r flushall
            set_held $c k 50000 @a+0 50000
            r {*}$meanwhile
            fault_end held
            assert_match $reply [place $c reply]
            r {*}$after
            assert {[r type k] ne "string"}
            nothing_is_pinned
        }
    }

    test "a set that is under way is executed after FLUSHALL, after a pause of writes, and not by CLIENT UNBLOCK" \
        -needs $held {
        set c [placer]
        place $c region a 100000 both
        set id [string range [call $c client id] 1 end]
        r flushall
        set sets [blob_field sets]
        set_held $c k 50000 @a+0 50000
        r flushall
        assert_equal 0 [r client unblock $id]
        r client pause 100000 write
        fault_end held
        wait_for_condition 5000 {[blob_field sets] == $sets + 1}
        assert_equal 0 [r exists k]
        r client unpause
        assert_equal +OK [place $c reply]
        assert_equal 50000 [r strlen k]
    }

    test "small transfers do not overtake a large one that waits for memory" -needs $held {
        foreach name {c d e} {
            set $name [placer]
            place [set $name] region a 1000000 both
        }
        set sums(large) [set_from $d large a 0 900000 1]
        set sums(small) [set_from $e small a 0 100000 2]
        r config set blob-max-transfer-memory 1000000
        set_held $c k 600000 @a+0 600000
        place $d send blob.get large @a+0 900000
        wait_for_condition 5000 {[blob_field waiting_clients] == 1}
        place $e send blob.get small @a+0 100000
        wait_for_condition 5000 {[blob_field waiting_clients] == 2}
        fault_end held
        assert_equal +OK [place $c reply]
        assert_equal "*2 \[:900000 :$sums(large)\]" [place $d reply]
        assert_equal "*2 \[:100000 :$sums(small)\]" [place $e reply]
        assert_equal 0 [blob_field waiting_clients]
        nothing_is_pinned
        r config set blob-max-transfer-memory 1gb
    }

    test "of two sets of a key the later one wins, even if it ends first" -needs $held {
        set c [placer]
        set d [placer]
        place $c region a 100000 both
        place $d region a 100000 both
        place $d fill a 0 60000 1
        set crc [place $d crc a 0 60000]
        r del k
        set_held $c k 50000 @a+0 50000
        assert_equal +OK [call $d blob.set k 60000 @a+0 60000]
        fault_end held
        assert_equal +OK [place $c reply]
        assert_equal $crc [r blob.info k crc]
        assert_equal 1 [blob_field sets_overtaken]
    }

    test "sets of a pipeline are read ahead, and executed in their order" -needs $reads_ahead {
        set c [placer]
        place $c region a 4000000 both
        r flushall
        for {set i 0} {$i < 40} {incr i} {
            place $c fill a [expr {100000 * $i}] 100000 $i
            set sums($i) [place $c crc a [expr {100000 * $i}] 100000]
        }
        set ahead [blob_field sets_ahead]
        set_held $c k:0 100000 @a+0 100000
        for {set i 1} {$i < 40} {incr i} {place $c send blob.set k:$i 100000 @a+[expr {100000 * $i}] 100000}
        place $c send blob.set k:7 100000 @a+0 100000
        place $c send append k:39 x
        wait_for_condition 5000 {[blob_field transfers] == 17}
        assert_equal 0 [r dbsize]
        fault_end held
        for {set i 0} {$i < 41} {incr i} {assert_equal +OK [place $c reply]}
        assert_equal :100001 [place $c reply]
        set sums(7) $sums(0)
        for {set i 0} {$i < 39} {incr i} {assert_equal $sums($i) [r blob.info k:$i crc]}
        assert_morethan [blob_field sets_ahead] [expr {$ahead + 15}]
        nothing_is_pinned
    }

    test "only sets directly behind one, which would be accepted, are read ahead; few bytes are" -needs $reads_ahead {
        set c [placer]
        place $c region a 40000000 both
        r flushall
        foreach {requests transfers replies} {
            {{get k} {blob.set l 50000 @a+0 50000}} 1 {{$50000 *} +OK}
            {{blob.set l 50000 @a+0 50000} multi {blob.set m 50000 @a+0 50000} exec} 2 {+OK +OK +QUEUED {\*1 *-ERR*}}
            {{blob.set list 50000 @a+0 50000}} 1 {-WRONGTYPE*}
            {{blob.set k 50000 @a+0 50000 nx} {blob.set l 50000 @a+0 50000}} 1 {{$-1} +OK}
            {{blob.set l 40000000 @a+0 40000000} {blob.set m 40000000 @a+0 40000000} {blob.set n 9 @a+0 9}} 2
                {+OK +OK +OK}
            {{blob.set l x @a+0 9} {blob.set n 9 @a+0 9}} 1 {-ERR* +OK}
        } {
            r del list
            r rpush list x
            r set k x
            set_held $c k 50000 @a+0 50000
            foreach request $requests {place $c send {*}$request}
            wait_for_condition 5000 {[blob_field transfers] == $transfers}
            fault_end held
            assert_equal +OK [place $c reply]
            foreach pattern $replies {assert_match $pattern [place $c reply] $requests}
            nothing_is_pinned
        }
    }

    test "reading ahead leaves half of blob-max-transfer-memory to others" -needs $reads_ahead {
        set c [placer]
        place $c region a 200000 both
        with_config {blob-max-transfer-memory 200000} {
            foreach {length transfers} {50000 2 50001 1} {
                set ahead [blob_field sets_ahead]
                set_held $c k 50000 @a+0 50000
                place $c send blob.set l $length @a+0 $length
                place $c send ping
                wait_for_condition 5000 {[blob_field transfers] == $transfers}
                fault_end held
                foreach reply {+OK +OK +PONG} {assert_equal $reply [place $c reply]}
                assert_equal [expr {$transfers - 1}] [expr {[blob_field sets_ahead] - $ahead}]
                nothing_is_pinned
            }
        }
    }

    test "what was read ahead is dropped if its request is refused then, and nothing else" -needs $reads_ahead {
        set c [placer]
        place $c region a 200000 both
        foreach {meanwhile after} {
            {acl setuser default resetkeys ~k ~n} {acl setuser default ~*}
            {rpush l x} ping
        } {
            r flushall
            place $c text a 100000 first
            place $c text a 100100 later
            set_held $c k 50000 @a+0 50000
            place $c send blob.set l 5 @a+100000 5
            wait_for_condition 5000 {[blob_field transfers] == 2}
            r {*}$meanwhile
            fault_end held
            assert_equal +OK [place $c reply]
            assert_match {-[NW][OR][PO]*} [place $c reply]
            # The next request has the same key, ranges and length, and is another one.
            r {*}$after
            r del l
            assert_equal +OK [call $c blob.set l 5 @a+100100 5]
            assert_equal later [r get l]
            nothing_is_pinned
        }
    }

    test "a client that is killed while its sets are read ahead leaves nothing" -needs $reads_ahead {
        await_own_connection
        unharmed {
            foreach how {{client kill id} kill} {
                set c [placer]
                place $c region a 3000000 both
                set id [string range [call $c client id] 1 end]
                r del k l m
                set before [info_field memory used_memory]
                set_held $c k 1000000 @a+0 1000000
                place $c send blob.set l 1000000 @a+0 1000000
                place $c send blob.set m 1000000 @a+0 1000000
                wait_for_condition 5000 {[blob_field transfers] == 3}
                if {$how eq "kill"} {exec kill -KILL [lindex $c 0]} else {r {*}$how $id}
                nothing_is_pinned
                assert_equal 0 [r exists k l m]
            }
        }
    }

    test "a client that is killed during a set leaves neither the key nor memory behind" -needs $held {
        await_own_connection
        unharmed {
            foreach how {{client kill id} kill} {
                set c [placer]
                place $c region a 3000000 both
                set id [string range [call $c client id] 1 end]
                r del k
                set before [info_field memory used_memory]
                set_held $c k 3000000 @a+0 3000000
                if {$how eq "kill"} {exec kill -KILL [lindex $c 0]} else {r {*}$how $id}
                nothing_is_pinned
                assert_equal 0 [r exists k]
                wait_for_condition 5000 {[info_field memory used_memory] < $before + 1000000}
            }
        }
    }

    foreach {what options before meanwhile reply length ttl} {
        "XX and a deletion" xx {} {del k} {$-1} 0 -2
        "NX and another set" nx {del k} {set k other} {$-1} 5 -1
        "KEEPTTL and a time to live" keepttl {} {pexpire k 33177117420000} +OK 50000 3*
        "KEEPTTL and an expiry" keepttl {} {pexpire k 0} +OK 50000 -1
        "RENAME" {} {} {rename k other} +OK 50000 -1
        "MOVE" {} {} {move k 1} +OK 50000 -1
        "SWAPDB" {} {} {swapdb 0 1} +OK 50000 -1
        "an edit" {} {} {append k more} +OK 50000 -1
        "another type in its place" {} {del k} {rpush k x} -WRONGTYPE* * -1
    } {
        test "a set is executed when its transfer has ended: $what meanwhile" -needs $held {
            set c [placer]
            place $c region a 100000 both
            r flushall
            r set k before
            if {$before ne ""} {r {*}$before}
            set_held $c k 50000 @a+0 50000 {*}$options
            r {*}$meanwhile
            fault_end held
            assert_match $reply [place $c reply]
            if {$length ne "*"} {assert_equal $length [r strlen k]}
            assert_match $ttl [r ttl k]
            nothing_is_pinned
        }
    }

    test "a set whose key is evicted meanwhile sets it" -needs $held {
        set c [placer]
        place $c region a 100000 both
        r flushall
        r set k [string repeat x 100000]
        set_held $c k 50000 @a+0 50000
        with_config {maxmemory-policy allkeys-lru maxmemory 1} {
            r ping
            catch {r set other x}
            wait_for_condition 5000 {[r exists k] == 0}
        }
        fault_end held
        assert_equal +OK [place $c reply]
        assert_equal 50000 [r strlen k]
    }

    test "a set that waits for its transfer counts once, and fails transactions that watch its key" -needs $held {
        set c [placer]
        set other [new_client]
        place $c region a 100000 both
        r flushall
        $other watch k
        r config resetstat
        set_held $c k 50000 @a+0 50000
        fault_end held
        assert_equal +OK [place $c reply]
        assert_match "*cmdstat_blob.set:calls=1,*" [r info commandstats]
        $other multi
        $other get k
        assert_equal {} [$other exec]
    }

    test "a set whose transfer ends while a script is busy is executed after the script" -needs $held {
        set c [placer]
        set other [new_client -deferring 1]
        place $c region a 100000 both
        r flushall
        with_config {busy-reply-threshold 10} {
            set_held $c k 50000 @a+0 50000
            $other -send eval {while true do end} 0
            wait_for_condition 5000 {[catch {r get k} error] && [string match "BUSY*" $error]}
            fault_end held
            place $c send get k
            for {set i 0} {$i < 20} {incr i} {assert_error_like "BUSY*" {r get k}}
            r script kill
            assert_error_like "*Script killed*" {$other -read}
            assert_equal +OK [place $c reply]
            assert_match {$50000 *} [place $c reply]
        }
        nothing_is_pinned
    }

    test "a snapshot that is written during a set has the value before it" -needs $held {
        set c [placer]
        place $c region a 300000 both
        r flushall
        set old [set_from $c k a 0 200000 1]
        for {set i 0} {$i < 20} {incr i} {r set key:$i [string repeat v 10000]}
        place $c fill a 100000 100000 2
        set new [place $c crc a 100000 100000]
        with_config {rdb-key-save-delay 50000} {
            set_held $c k 100000 @a+100000 100000
            r bgsave
            assert_equal 1 [info_field persistence rdb_bgsave_in_progress]
            fault_end held
            assert_equal +OK [place $c reply]
            assert_equal $new [r blob.info k crc]
            wait_for_condition 20000 {[info_field persistence rdb_bgsave_in_progress] == 0}
        }
        r debug reload nosave
        assert_equal $old [r blob.info k crc]
    }

    test "a server that is shut down during a transfer ends in order" -needs $held {
        set c [placer]
        place $c region a 100000 both
        r flushall
        set_held $c new:1 50000 @a+0 50000
        place $c send blob.set new:2 50000 @a+0 50000
        restart_server
        assert_equal closed [place $c replies 2]
        assert_equal 0 [r exists new:1 new:2]
        nothing_is_pinned
    }
}

start_server [with_faults {held send:hold,op=read} overrides {
    cluster-enabled yes cluster-require-full-coverage no save ""
}] {
    test "a slot that leaves during a set refuses it" -needs [concat $::on_software_device $clear] {
        r cluster addslotsrange 0 16383
        wait_for_condition 10000 {[string match "*cluster_state:ok*" [r cluster info]]}
        set c [placer]
        place $c region a 100000 both
        regexp {qp=(\d+)} [call $c client info] -> pair
        fault held $pair
        place $c send blob.set k 50000 @a+0 50000
        wait_for_condition 5000 {[blob_field transfers] == 1}
        r cluster delslots [r cluster keyslot k]
        fault_end held
        assert_match "-CLUSTERDOWN Hash slot not served*" [place $c reply]
        nothing_is_pinned
        r cluster addslots [r cluster keyslot k]
        assert_equal 0 [r exists k]
    }
}

# The link of these replicas is TCP, to an address that is not of the loopback interface on a card.
set open {overrides {protected-mode no}}
start_server $open {
    start_server $open {
        test "a replica has what was placed, before and after its synchronization" -needs $clear {
            set c [open_beside {*}$::opt(launcher) [tool rdma-place] --host $::opt(rdma_host) --port [srv -1 port]]
            assert_equal ready [line_of [lindex $c 1] rdma-place]
            place $c region a 3000000 both
            set first [set_from $c k:1 a 0 3000000 1]
            r replicaof $::opt(rdma_host) [srv -1 port]
            wait_for_condition 20000 {[info_field replication master_link_status] eq "up"}
            set second [set_from $c k:2 a 0 2000000 2 EX 1000]
            wait_for_condition 10000 {[r exists k:2] == 1}
            assert_equal [list $first $second] [list [r blob.info k:1 crc] [r blob.info k:2 crc]]
            assert_morethan [r ttl k:2] 900
            assert_error_like "READONLY *" {r blob.set k:2 value}
        }
    }
}

# With synchronous replication a value is shown when it is committed, also by the device's WRITE.
set in_group {
    overrides {sync-replication yes min-sync-replicas 1 repl-diskless-sync-delay 0 repl-timeout 60 protected-mode no}
}
start_server $in_group {
    start_server $in_group {
        proc group_field {level name} {field $level $name default}
        # The replica (level 0) stops; then the primary executes a SET and a get of the value, which no replica has.
        proc get_uncommitted {client value} {
            exec kill -STOP [srv 0 pid]
            at_test_end [list exec kill -CONT [srv 0 pid]]
            r -1 config resetstat
            set writer [new_client -level -1 -deferring 1]
            $writer -send set k $value
            wait_for_condition 5000 {[string match "*cmdstat_set:calls=1,*" [r -1 info commandstats]]}
            place $client send blob.get k @a+0 100
            # On a slow machine the lease is over by now: then the read waits before it is executed.
            set until [expr {[clock milliseconds] + 1000}]
            while {[group_field -1 blob_transfers] != 1 && [clock milliseconds] < $until} {after 10}
            return $writer
        }
        proc group_client {} {
            set pair [open_beside {*}$::opt(launcher) [tool rdma-place] --host $::opt(rdma_host) --port [srv -1 port]]
            assert_equal ready [line_of [lindex $pair 1] rdma-place]
            place $pair region a 100 both
            return $pair
        }

        test "a value that is not committed is written to no client's memory" -needs $clear {
            r replicaof $::opt(rdma_host) [srv -1 port]
            wait_for_condition 20000 {
                [group_field -1 sync_writable] eq 1 && [group_field -1 sync_in_sync_replicas] == 1 &&
                [group_field -1 sync_set_changes] eq 0
            }
            set c [group_client]
            r -1 set k committed
            assert_match {\*2*} [call $c blob.get k @a+0 100]
            assert_equal committed [place $c show a 0 9]
            set writer [get_uncommitted $c uncommitted]
            after 300 ;# what is not held would have arrived
            assert_equal committed [place $c show a 0 9]
            exec kill -CONT [srv 0 pid]
            assert_match {\*2*:11*} [place $c reply]
            assert_equal uncommitted [place $c show a 0 11]
            assert_equal OK [$writer -read]
        }

        test "a client that is closed while its value is held back gets nothing" -needs $clear {
            set c [group_client]
            assert_match {\*2*} [call $c blob.get k @a+0 100]
            assert_equal uncommitted [place $c show a 0 11]
            regexp {id=(\d+)} [call $c client info] -> id
            get_uncommitted $c secret
            r -1 client kill id $id
            assert_equal closed [place $c reply]
            wait_for_condition 5000 {[group_field -1 blob_transfers] == 0 && [group_field -1 blob_pinned_bytes] == 0}
            exec kill -CONT [srv 0 pid]
            assert_equal uncommitted [place $c show a 0 11]
        }
    }
}

start_cluster {primaries 2} {
    test "a slot that moves: ASK and ASKING hold for the whole transfer of a set" -needs $clear {
        set slot [n 0 cluster keyslot k]
        set from [expr {$slot < 8192 ? 0 : 1}]
        set to [expr {1 - $from}]
        n $to cluster setslot $slot importing [node_id $from]
        n $from cluster setslot $slot migrating [node_id $to]
        foreach i [list $from $to] name {c d} {
            set $name [open_beside {*}$::opt(launcher) [tool rdma-place] --host $::opt(rdma_host) --port [node $i port]]
            assert_equal ready [line_of [lindex [set $name] 1] rdma-place]
            place [set $name] region a 400000 both
        }
        assert_match "-ASK $slot *" [call $c blob.set k 200000 @a+0 200000]
        assert_match "-ASK $slot *" [call $c blob.get k @a+0 200000]
        assert_match "-MOVED $slot *" [call $d blob.set k 200000 @a+0 200000]
        place $d fill a 0 200000 1
        set crc [place $d crc a 0 200000]
        assert_equal +OK [call $d asking]
        assert_equal +OK [call $d blob.set k 200000 @a+0 200000]
        assert_equal +OK [call $d asking]
        assert_equal "*2 \[:200000 :$crc\]" [call $d blob.get k @a+200000 200000]
        assert_equal $crc [place $d crc a 200000 200000]
        assert_match "-MOVED $slot *" [call $d blob.get k @a+200000 200000]
    }
}
