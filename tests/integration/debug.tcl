# DEBUG on values: OBJECT, RELOAD, LISTPACK, QUICKLIST, SDSLEN and the other subcommands that tests for Valkey use.
# seconds: 6

# Values of every type and encoding.
proc make_values {} {
    r config set list-max-listpack-size 128 hash-max-listpack-entries 128 set-max-listpack-entries 128 \
        zset-max-listpack-entries 128
    r set int 12345
    r set embstr hello
    r set raw [string repeat x 1000]
    r set binary [randstring 500 500]
    r rpush list a b 1 ""
    r sadd intset 1 2 3 70000
    r sadd set a b 3 ""
    r zadd zset 1 a 2.5 b -inf c
    r hset hash f v g 1
    for {set i 0} {$i < 1000} {incr i} {
        r rpush quicklist element:$i
        r sadd hashtable-set member:$i
        r hset hashtable field:$i value:$i
        r zadd skiplist [expr {$i / 7.0}] member:$i
    }
    r lset quicklist 500 [string repeat y 100000]
    if {[unmet_need {command xadd}] eq ""} {
        r xadd stream 1-1 f v
        r xgroup create stream g 0
        r xreadgroup group g c streams stream >
    }
    if {[unmet_need {command hpexpireat}] eq ""} {
        r hset fields f v g w
        r hpexpireat fields 33177117420000 fields 1 f
    }
}

start_server {tags {debug}} {
    test "DEBUG OBJECT shows the encoding of a value and its length in a file" {
        r flushall
        make_values
        foreach {key encoding bytes} {
            int int 3 embstr embstr 6 list listpack 20 intset intset 25 set listpack 18 zset listpack 30 \
                hash listpack 19
        } {
            set pattern "Value at:0x* refcount:1 encoding:$encoding serializedlength:$bytes lru:* lru_seconds_idle:*"
            assert_match $pattern [string map {refcount:2147483647 refcount:1} [r debug object $key]]
            assert_match "Value at:0x* refcount:* encoding:$encoding lru:* lru_seconds_idle:*" \
                [r debug object $key fast]
        }
        foreach {key encoding} {raw raw quicklist quicklist hashtable-set hashtable hashtable hashtable\
            skiplist skiplist} {
            assert_match "Value at:* encoding:$encoding serializedlength:* lru:*" [r debug object $key]
        }
        foreach {key most} {raw 40 quicklist 8000} {
            regexp {serializedlength:(\d+)} [r debug object $key] -> bytes
            assert_range $bytes 10 $most
        }
        assert_error "ERR no such key" {r debug object nosuch}
    }

    test "DEBUG OBJECT shows the time of the last access, or how often a key is used, as the policy says" {
        r flushall
        r set k v
        if {[string match *lfu* [r debug object k]]} {fail "no LFU policy is set"}
        r config set maxmemory-policy allkeys-lfu
        r set k v
        assert_match "Value at:0x* refcount:1 encoding:embstr serializedlength:2 lfu_freq:* lfu_access_time_minutes:*" \
            [r debug object k]
        if {[string match *lru* [r debug object k]]} {fail "an LFU policy is set"}
        r config set maxmemory-policy noeviction
    }

    test "DEBUG DIGEST does not count the expiration of fields" -needs {command hpexpireat} {
        r flushall
        r hset h f v g w
        keeps_data {r hpexpireat h 33177117420000 fields 1 f}
        assert_equal d127864ed50239662bf61bafc9bda63c17da5b37 [r debug digest-value h]
    }

    test "DEBUG OBJECT of a quicklist shows its nodes" {
        r flushall
        r config set list-max-listpack-size 10
        for {set i 0} {$i < 105} {incr i} {r rpush l $i}
        assert_match "* lru_seconds_idle:* ql_nodes:11 ql_avg_node:9.55 ql_listpack_max:10 ql_compressed:0\
            ql_uncompressed_size:*" [r debug object l]
        r config set list-compress-depth 1
        assert_match "* ql_nodes:11 ql_avg_node:9.55 ql_listpack_max:10 ql_compressed:?" [r debug object l fast]
        for {set i 0} {$i < 106} {incr i} {r rpush deep $i}
        assert_match "* ql_nodes:11 ql_avg_node:9.64 ql_listpack_max:10 ql_compressed:1 ql_uncompressed_size:*" \
            [r debug object deep]
        r config set list-compress-depth 0 list-max-listpack-size 128
        r rpush short a
        if {[string match *ql_* [r debug object short]]} {fail "a listpack has no nodes"}
    }

    test "DEBUG RELOAD writes and reads back every value, with its expiry, its database and its idle time" {
        r flushall
        make_values
        r set volatile v pxat 33177117420000
        r select 3
        r set other v
        r select 0
        r config set maxmemory-policy allkeys-lru
        r restore idle 0 [r dump int] idletime 1000
        set before [r debug digest-value {*}[lsort [r keys *]]]
        set encodings [lmap key [lsort [r keys *]] {r object encoding $key}]
        set digest [r debug digest]
        assert_equal OK [r debug reload]
        assert_equal $digest [r debug digest]
        assert_equal $encodings [lmap key [lsort [r keys *]] {r object encoding $key}]
        assert_equal 33177117420000 [r pexpiretime volatile]
        assert_range [r object idletime idle] 999 1100
        r select 3
        assert_equal v [r get other]
        assert_equal 1 [r dbsize]
        r select 0
        r config set maxmemory-policy allkeys-lfu
        r restore often 0 [r dump int] freq 200
        r debug reload
        assert_range [r object freq often] 150 200
        r config set maxmemory-policy noeviction
        if {[r exists fields]} {
            assert_equal 33177117420000 [r hpexpiretime fields fields 1 f]
            assert_equal -1 [r hpexpiretime fields fields 1 g]
        }
        assert_equal OK [r debug reload merge]
        assert_equal OK [r debug reload noflush merge]
        assert_equal $before [r debug digest-value \
            {*}[lsort [lmap key [r keys *] {if {$key in {often}} continue; set key}]]]
        assert_error "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE options." {r debug reload foo}
    }

    test "DEBUG POPULATE notifies of new keys" {
        r flushall
        r config set notify-keyspace-events En
        set c [new_client]
        $c psubscribe __keyevent@*__:new
        r debug populate 2 kind 3
        r debug populate 3 kind 3
        foreach i {0 1 2} {assert_equal kind:$i [lindex [$c -read] 3]}
        r config set notify-keyspace-events ""
    }

    test "DEBUG RELOAD leaves out what has expired" {
        r flushall
        with_debug_active_expire_off {
            r set stays v
            r set gone v px 1
            r debug sleep 0.01
            assert_equal 2 [r dbsize]
            r debug reload
            assert_equal 1 [r dbsize]
            assert_equal v [r get stays]
            if {[unmet_need {command hsetex}] eq ""} {
                r hset h f v
                r hsetex h px 1 fields 2 g v i v
                r hsetex all px 1 fields 2 g v i v
                r debug sleep 0.01
                assert_equal {3 2} [list [r hlen h] [r hlen all]]
                r debug reload
                assert_equal {1 0} [list [r hlen h] [r exists all]]
            }
        }
    }

    test "DEBUG RELOAD propagates that expired keys and fields are gone: replicas and the append-only file have them" \
        -needs {ours 1} {
        r flushall
        set follower [new_follower]
        with_debug_active_expire_off {
            r set gone v px 1
            r hset h f 1
            r hset h g 2
            r hpexpire h 1 fields 1 f
            r debug sleep 0.01
            heard $follower
            r debug reload
            assert_equal {MULTI {UNLINK gone} {HDEL h f} EXEC} [heard $follower]
            assert_equal {{} 1} [list [r get gone] [info_field persistence rdb_last_load_keys_expired]]
            assert_equal 1 [r hlen h]
        }
    }

    test "DEBUG RELOAD sends no events and propagates nothing; clients that wait for a key are served" {
        r flushall
        make_values
        set listener [new_listener]
        set follower [new_follower]
        heard $follower
        r config set notify-keyspace-events KEAmn
        r debug reload
        r config set notify-keyspace-events ""
        assert_equal {} [heard $listener]
        assert_equal {} [heard $follower]
    }

    test "DEBUG RELOAD NOSAVE without a file, or into keys that are there, fails and loses nothing" -needs {ours 1} {
        r flushall
        r set k v
        assert_error "ERR Error trying to load the RDB dump, check server logs." {r debug reload noflush}
        assert_equal v [r get k]
        file delete [srv dir]/dump.rdb
        foreach options {nosave {nosave noflush merge}} {
            assert_error "ERR Error trying to load the RDB dump, check server logs." {r debug reload {*}$options}
            assert_equal v [r get k]
        }
    }

    test "DEBUG LISTPACK and QUICKLIST print, and refuse other encodings" {
        r flushall
        make_values
        foreach key {list set zset hash} {assert_equal "Listpack structure printed on stdout" [r debug listpack $key]}
        assert_equal "Quicklist structure printed on stdout" [r debug quicklist quicklist]
        assert_equal "Quicklist structure printed on stdout" [r debug quicklist quicklist 1]
        replies {
            {debug listpack quicklist} "-ERR Not a listpack encoded object."
            {debug listpack int} "-ERR Not a listpack encoded object."
            {debug quicklist list} "-ERR Not a quicklist encoded object."
            {debug quicklist set 1} "-ERR Not a quicklist encoded object."
            {debug listpack nosuch} "-ERR no such key"
            {debug quicklist nosuch} "-ERR no such key"
        }
    }

    test "DEBUG SDSLEN" {
        r flushall
        make_values
        assert_match {key_sds_len:6 key_sds_avail:* obj_alloc:* val_sds_len:5 val_sds_avail:* val_alloc:*} \
            [r debug sdslen embstr]
        assert_match {key_sds_len:3 key_sds_avail:* obj_alloc:* val_sds_len:1000 val_sds_avail:* val_alloc:*} \
            [r debug sdslen raw]
        assert_error "ERR Not an sds encoded string." {r debug sdslen list}
        assert_error "ERR no such key" {r debug sdslen nosuch}
    }

    test "DEBUG QUICKLIST-PACKED-THRESHOLD: lists of elements that are nodes of their own" {
        foreach {threshold expected} {
            1b +OK 100 +OK 100b +OK 4293918720 +OK
            x "-ERR argument must be a memory value bigger than 1 and smaller than 4gb"
            4293918721 "-ERR argument must be a memory value bigger than 1 and smaller than 4gb"
            4gb "-ERR argument must be a memory value bigger than 1 and smaller than 4gb"
            -1 "-ERR argument must be a memory value bigger than 1 and smaller than 4gb"
        } {assert_typed $expected debug quicklist-packed-threshold $threshold}
        r flushall
        r config set list-max-listpack-size 16
        # Elements of 1 to 60 bytes around a bound of 30: every command on them, against a list in Tcl.
        r debug quicklist-packed-threshold 30b
        set model {}
        for {set i 0} {$i < 300} {incr i} {
            set element [string repeat [randint 10] [expr {1 + [randint 60]}]]
            switch -exact -- [randint 6] {
                0 - 1 {r rpush l $element; lappend model $element}
                2 {r lpush l $element; set model [linsert $model 0 $element]}
                3 {
                    if {$model eq ""} continue
                    set at [randint [llength $model]]
                    r lset l $at $element
                    lset model $at $element
                }
                4 {
                    if {$model eq ""} continue
                    set pivot [lindex $model [randint [llength $model]]]
                    r linsert l before $pivot $element
                    set model [linsert $model [lsearch -exact $model $pivot] $element]
                }
                5 {
                    if {$model eq ""} continue
                    set at [randint [llength $model]]
                    set gone [lindex $model $at]
                    r lrem l 1 $gone
                    set at [lsearch -exact $model $gone]
                    set model [lreplace $model $at $at]
                }
            }
            if {$i % 50 == 49} {
                assert_equal $model [r lrange l 0 -1]
                r debug reload
                assert_equal $model [r lrange l 0 -1]
            }
        }
        # Larger than the limit of a node, but not in a separate node.
        r debug quicklist-packed-threshold 1mb
        r del l
        r config set list-max-listpack-size -1
        foreach size {10000 100000 20 70000} {r rpush l [string repeat x $size]}
        assert_equal {10000 100000 20 70000} [lmap element [r lrange l 0 -1] {string length $element}]
        r lset l 0 [string repeat y 50000]
        assert_equal 50000 [string length [r lindex l 0]]
        r ltrim l 1 2
        assert_equal {100000 20} [lmap element [r lrange l 0 -1] {string length $element}]
        r debug quicklist-packed-threshold 0
        r config set list-max-listpack-size -2
    }

    test "DEBUG MALLCTL and MALLCTL-STR show and set what the allocator has" \
        -needs {true {[string match jemalloc* [info_field memory mem_allocator]]}} {
        assert_morethan [r debug mallctl arenas.narenas] 0
        assert_match {[0-9]*.[0-9]*} [r debug mallctl-str version]
        assert_morethan [r debug mallctl epoch 1] 0
        replies {
            {debug mallctl nosuch} "-ERR No such file or directory"
            {debug mallctl-str nosuch} "-ERR No such file or directory"
            {debug mallctl epoch x} "-ERR value is not an integer or out of range"
        }
    }

    test "DEBUG CHANGE-REPL-ID" {
        set before [info_field replication master_replid]
        assert_equal OK [r debug change-repl-id]
        set after [info_field replication master_replid]
        assert_regexp {^[0-9a-f]{40}$} $after
        assert_not_equal $before $after
        assert_equal $after [info_field replication master_replid]
    }

    test "switches of DEBUG that tests written for Valkey use are taken, with their words checked" {
        replies {
            {debug dict-resizing 0} +OK {debug dict-resizing 1} +OK
            {debug dict-resizing} "-ERR unknown subcommand or wrong number of arguments for 'dict-resizing'. Try\
                DEBUG HELP."
            {debug pause-cron 1} +OK {debug pause-cron 0} +OK
            {debug pause-after-fork 0} +OK
            {debug replybuffer resizing 0} +OK {debug replybuffer resizing 1} +OK
            {debug replybuffer peak-reset-time never} +OK {debug replybuffer peak-reset-time 10} +OK\
                {debug replybuffer peak-reset-time reset} +OK
            {debug replybuffer peak-reset-time x} "-ERR value is not an integer or out of range"
            {debug replybuffer foo 1}\
                "-ERR unknown subcommand or wrong number of arguments for 'replybuffer'. Try DEBUG HELP."
            {debug ReplyBuffer Foo 1}\
                "-ERR unknown subcommand or wrong number of arguments for 'ReplyBuffer'. Try DEBUG HELP."
            {debug hashtable-can-abort-shrink 0} +OK {debug client-enforce-reply-list 1} +OK\
                {debug client-enforce-reply-list 0} +OK
            {debug client-enforce-reply-list}\
                "-ERR unknown subcommand or wrong number of arguments for 'client-enforce-reply-list'. Try DEBUG HELP."
            {debug set-disable-deny-scripts 0} +OK {debug set-active-expire 0} +OK {debug set-active-expire 1} +OK\
                {debug quicklist-packed-threshold 0} +OK
            {debug jmap} "-ERR unknown subcommand or wrong number of arguments for 'jmap'. Try DEBUG HELP."
            {debug ziplist k} "-ERR unknown subcommand or wrong number of arguments for 'ziplist'. Try DEBUG HELP."
        }
    }

    test "DEBUG PAUSE-AFTER-FORK stops the server when it starts a save, until SIGCONT" {
        r debug pause-after-fork 1
        r -send bgsave
        wait_for_condition 20000 {[process_state [srv pid]] eq "T"}
        kill_process CONT [srv pid]
        assert_match "Background saving started" [r -read]
        r debug pause-after-fork 0
        wait_for_condition 20000 {[info_field persistence rdb_bgsave_in_progress] == 0}
    }

    test "DEBUG STRINGMATCH-TEST" {
        assert_match "Apparently *did not crash: test passed" [r debug stringmatch-test]
    }

    test "DEBUG REPLICATE propagates its command and does not execute it" -needs {ours 1} {
        set follower [new_follower]
        heard $follower
        assert_equal OK [r debug replicate set k elsewhere]
        assert_equal {{set k elsewhere}} [heard $follower]
        assert_equal 0 [r exists k]
        $follower -close
        assert_error "ERR unknown subcommand or wrong number of arguments for 'replicate'. Try DEBUG HELP." \
            {r debug replicate}
    }

    test "DEBUG HELP names what there is" {
        set help [r debug help]
        foreach word {CLIENT-EVICTION CRASH-AND-RECOVER DIGEST HTSTATS LISTPACK OBJECT QUICKLIST\
            QUICKLIST-PACKED-THRESHOLD RELOAD REPLICATE SDSLEN SET-SKIP-CHECKSUM-VALIDATION SLEEP STRINGMATCH-TEST} {
            if {[lsearch -glob $help "$word*"] < 0} {fail "$word is not in the help"}
        }
    }
}

# Waits until the server has restarted in the same process, and connects to it.
proc wait_restarted {} {
    set pid [srv pid]
    wait_for_condition 15000 {
        ![catch {
            reconnect
            r ping
        }]
    }
    assert_equal $pid [info_field server process_id]
}
proc assert_disconnected {args} {
    assert {[catch {r {*}$args} error]}
    assert_match "client: connection closed*" $error
}

start_server {overrides {save {3600 1}} args {--maxclients 500} tags {debug}} {
    test "DEBUG RESTART keeps data, configuration and arguments" -needs {version 9.0} {
        r set kept 1
        r config set maxmemory 100mb
        assert_disconnected debug restart
        wait_restarted
        assert_equal 1 [r get kept]
        assert_equal {104857600 500} [list [config_get maxmemory] [config_get maxclients]]
    }

    test "DEBUG CRASH-AND-RECOVER loses what is not saved, and waits before it starts again" -needs {version 9.0} {
        r set lost 1
        r config set maxmemory 50mb
        set began [clock milliseconds]
        assert_disconnected debug crash-and-recover 300
        wait_restarted
        assert {[clock milliseconds] - $began >= 300}
        assert_equal {1 0 104857600} [list [r get kept] [r exists lost] [config_get maxmemory]]
    }

    test "DEBUG RESTART refuses a delay that is no number" -needs {version 9.0} {
        assert_error "ERR value is not an integer or out of range" {r debug restart x}
        assert_error "ERR value is not an integer or out of range" {r debug crash-and-recover 1.5}
    }

    test "DEBUG RESTART fails if the configuration cannot be rewritten" -needs {version 9.0} {
        set conf [srv conf]
        file rename $conf $conf.moved
        file mkdir $conf
        assert_error "ERR failed to restart the server. Check server logs." {r debug restart}
        assert_equal PONG [r ping]
        file delete $conf
        file rename $conf.moved $conf
    }
}

start_server {overrides {io-threads 3 appendonly yes} tags {debug}} {
    test "DEBUG RESTART and CRASH-AND-RECOVER with I/O threads and an append-only file" -needs {version 9.0} {
        set clients {}
        for {set i 0} {$i < 10} {incr i} {lappend clients [set c [new_client]]; $c set key:$i v}
        foreach how {restart crash-and-recover} {
            assert_disconnected debug $how
            wait_restarted
            assert_equal 10 [r dbsize]
            foreach c $clients {$c -close}
            set clients [list [set c [new_client]]]
            assert_equal PONG [$c ping]
        }
    }
}

start_server {tags {debug}} {
    test "DEBUG CLIENT-EVICTION sorts clients by their memory" -needs {version 9.0} {
        assert_error "ERR maxmemory-clients is disabled." {r debug client-eviction}
        r config set maxmemory-clients 1gb
        set big [new_client]
        $big client no-evict off
        $big -send set k [string repeat x 100]
        $big -read
        wait_for_condition 5000 {[regexp -all {clients: [1-9]} [r debug client-eviction]] >= 1}
        set lines [split [string trimright [r debug client-eviction]] "\n"]
        assert_equal 19 [llength $lines]
        assert_match {bucket          0 -      32767: tot-mem: *, clients: *} [lindex $lines 0]
        assert_match {bucket 2147483648 - 4294967295: tot-mem:          0, clients: 0} [lindex $lines 17]
        assert_match {bucket 4294967296+            : tot-mem:          0, clients: 0} [lindex $lines 18]
        set before [regexp -inline {bucket    1048576.*?clients: (\d+)} [r debug client-eviction]]
        assert_equal 0 [lindex $before 1]
        $big multi
        $big set k [string repeat y 1500000]
        wait_for_condition 5000 {[regexp {bucket    1048576[^\n]*clients: 1} [r debug client-eviction]]}
        $big -close
        r config set maxmemory-clients 0
    }

    test "DEBUG keeps a client that is killed, and reads nothing from it" -needs {version 9.0} {
        replies {
            {debug protect-client 999999} "-ERR No such client"
            {debug protect-client x} "-ERR Invalid client id"
            {debug protect-client} "-ERR unknown subcommand or wrong number of arguments for 'protect-client'. Try\
                DEBUG HELP."
        }
        set c [new_client]
        set id [$c client id]
        assert_typed +OK debug protect-client $id
        $c -send set protected 1
        assert_equal 1 [r client kill id $id]
        assert_match "*flags=A *" [r client list id $id]
        assert_equal 0 [r exists protected]
        assert_equal "" [$c -available]
        $c -close
        r config set maxmemory-clients 1mb
        assert_equal PONG [r ping]
        assert_match "*flags=A *" [r client list id $id]
        r config set maxmemory-clients 0
    }

    test "DEBUG STRUCTSIZE" -needs {version 9.0} {
        assert_match {bits:* robj:* dictentry:* sdshdr5:* sdshdr8:* sdshdr16:* sdshdr32:* sdshdr64:* } \
            [r debug structsize]
    }
}
