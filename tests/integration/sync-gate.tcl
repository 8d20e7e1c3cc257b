# Every way by which data leave a server with sync-replication: each is tried with a write that no replica has, and at a
# primary that was replaced. docs/durability.md has the list. seconds: 25

set gate_options {sync-replication yes min-sync-replicas 1 repl-diskless-sync-delay 0 repl-timeout 20
    slowlog-log-slower-than 0 notify-keyspace-events KA}

proc gate_field {level name} {field $level $name default}
proc gate_join {level of} {
    r $level replicaof [srv $of host] [srv $of port]
    wait_for_condition 15000 {
        [gate_field $level sync_replication] eq "following" && [gate_field $level sync_eligible] eq 1
    }
}
proc gate_ready {level replicas} {
    wait_for_condition 20000 {
        [gate_field $level sync_writable] eq 1 && [gate_field $level sync_in_sync_replicas] == $replicas &&
        [gate_field $level sync_set_changes] eq 0
    }
}
# What has arrived for a client within the time; "" for a client that was closed.
proc arrived {c {ms 300}} {
    set fd $resp::S([string range $c 8 end],fd)
    set until [expr {[clock milliseconds] + $ms}]
    set got ""
    fconfigure $fd -blocking 0
    while {[clock milliseconds] < $until && ![eof $fd]} {
        if {[catch {append got [read $fd]}]} {break}
        after 10
    }
    return $got
}
proc freeze {args} {foreach level $args {exec kill -STOP [srv $level pid]}}
proc thaw {args} {foreach level $args {exec kill -CONT [srv $level pid]}}

# Commands without the flags `write` and `readonly`, by what docs/durability.md says of them. A command that is not here
# fails the first test: decide what its reply says of data.
set says_data {eval evalsha fcall cluster|countkeysinslot cluster|getkeysinslot cluster|slot-stats memory|stats}
set says_safe_data {info slowlog|get commandlog|get function|list function|dump function|stats}
set says_by_arguments {exec debug}
set says_no_data {
    acl|cat acl|deluser acl|dryrun acl|genpass acl|getuser acl|help acl|list acl|load acl|log acl|save acl|setuser
    acl|users acl|whoami asking auth bgrewriteaof bgsave blob.hello blob.rdma_hello client|caching client|capa
    client|getname client|getredir
    client|help client|id client|import-source client|info client|kill client|list client|no-evict client|no-touch
    client|pause client|reply client|setinfo client|setname client|tracking client|trackinginfo client|unblock
    client|unpause cluster|addslots cluster|addslotsrange cluster|bumpepoch cluster|cancelslotmigrations
    cluster|count-failure-reports cluster|delslots cluster|delslotsrange cluster|failover cluster|flushslots
    cluster|forget cluster|getslotmigrations cluster|help cluster|info cluster|keyslot cluster|links cluster|meet
    cluster|migrateslots cluster|myid cluster|myshardid cluster|nodes cluster|replicas cluster|replicate cluster|reset
    cluster|saveconfig cluster|set-config-epoch cluster|setslot cluster|shards cluster|slaves cluster|slots
    cluster|syncslots commandlog|help commandlog|len commandlog|reset command|count command|docs command|getkeys
    command|getkeysandflags command|help command|info command|list config|get config|help config|resetstat
    config|rewrite config|set discard echo failover function|help function|kill hello lastsave latency|doctor
    latency|graph latency|help latency|histogram latency|history latency|latest latency|reset memory|doctor memory|help
    memory|malloc-stats memory|purge module|help module|list module|load module|loadex module|unload
    monitor multi object|help pfselftest ping psubscribe psync publish
    pubsub|channels pubsub|help pubsub|numpat pubsub|numsub pubsub|shardchannels pubsub|shardnumsub
    punsubscribe quit readonly readwrite replconf replicaof reset role save script|debug script|exists script|flush
    script|help script|kill script|load script|show select shutdown slaveof slowlog|help slowlog|len slowlog|reset
    spublish ssubscribe subscribe sunsubscribe sync time unsubscribe unwatch wait waitaof watch xgroup|help xinfo|help
}
proc commands_walk {rows result} {
    upvar 1 $result found
    foreach row $rows {
        if {[llength [lindex $row 9]]} {
            commands_walk [lindex $row 9] found
        } elseif {"write" ni [lindex $row 2] && "readonly" ni [lindex $row 2]} {
            lappend found [lindex $row 0]
        }
    }
}

# Ways for an uncommitted write: what is sent (a list of requests), and what must not arrive.
set library {#!lua name=lostlib
server.register_function("f1", function() return 1 end)}
set open_ways {
    {{get secret}} uncommitted
    {{exists secret}} :1
    {{keys *}} secret
    {{dbsize}} :1
    {{scan 0}} secret
    {{object encoding secret}} str
    {{memory usage secret}} :
    {{memory stats}} keys.count
    {{dump secret}} uncommitted
    {{type secret}} string
    {{lpush secret x}} WRONGTYPE
    {{multi} {get secret} {exec}} uncommitted
    {{multi} {eval {return redis.call('set', 'other', 'x')} 0} {ping} {exec}} OK\r\n+PONG
    {{eval {return redis.call('get', 'secret')} 0}} uncommitted
    {{eval_ro {return redis.call('get', 'secret')} 0}} uncommitted
    {{fcall f1 0}} :1
    {{function list}} lostlib
    {{function dump}} lostlib
    {{function stats}} libraries_count\r\n:1
    {{slowlog get -1}} uncommitted
    {{commandlog get -1 slow}} uncommitted
    {{info keyspace}} keys=
    {{info everything}} db0:keys=
    {{debug digest}} \r\n
    {{debug object secret}} encoding
    {{sort secret}} WRONGTYPE
    {{touch secret}} :1
    {{wait 0 0} {get secret}} uncommitted
}

# MIGRATE to a host whose name ends in ".slow" connects when this file exists (programs/preload/slow-names.c).
set names [file join $::unit_dir names]
set in_group [list overrides $gate_options \
    env [list LD_PRELOAD=[tool preload/slow-names.so] SLOW_NAMES=$names ASAN_OPTIONS=verify_asan_link_order=0]]

start_server $in_group {
    test "each command declares what its reply says of data" -needs {ours 1} {
        set found {}
        commands_walk [r command] found
        set known [concat $says_data $says_safe_data $says_by_arguments $says_no_data]
        foreach name $found {if {[string match sentinel* $name] == 0} {assert_in $name $known}}
    }
    start_server $in_group {
        start_server $in_group {
            start_server {overrides {}} {
                # Levels: -3 primary, -2 and -1 replicas, 0 a server outside of the group.
                gate_join -2 -3
                gate_join -1 -3
                gate_ready -3 2

                test "nothing shows a write that no replica has, by any way" -needs {ours 1} {
                    set watching [new_client -level -3 -deferring 1]
                    $watching -send watch secret
                    $watching -read
                    $watching -send multi
                    $watching -read
                    $watching -send ping
                    $watching -read
                    foreach name {subscriber monitor tracking blocked} {
                        set $name [new_client -level -3 -deferring 1]
                    }
                    $subscriber -send psubscribe *
                    $subscriber -read
                    $monitor -send monitor
                    $monitor -read
                    $tracking -send hello 3
                    $tracking -read
                    $tracking -send client tracking on bcast
                    $tracking -read
                    $blocked -send blpop elements 0
                    wait_for_condition 5000 {[gate_field -3 blocked_clients] == 1}
                    wait_for_condition 5000 {[r -3 info keyspace] eq "# Keyspace\r\n"}
                    freeze -2 -1
                    set writers {}
                    foreach request [list {set secret uncommitted} [list function load $library] {rpush elements e} {
                        eval {redis.call('set', 'from', 'script'); redis.call('publish', 'ch', 'secret')} 0} {
                        publish ch secret}] {
                        lappend writers [set c [new_client -level -3 -deferring 1]]
                        $c -send {*}$request
                    }
                    wait_for_condition 5000 {
                        [gate_field -3 sync_prepared_offset] > [gate_field -3 sync_committed_offset]
                    }
                    set clients {}
                    foreach {requests leak} $open_ways {
                        lappend clients [set c [new_client -level -3 -deferring 1]]
                        foreach request $requests {$c -send {*}$request}
                    }
                    $watching -send exec
                    set migrating [new_client -level -3 -deferring 1]
                    $migrating -send migrate [srv host] [srv port] secret 0 10000 copy
                    after 300
                    set leaks {}
                    foreach c $clients {requests leak} $open_ways {
                        if {[string first $leak [arrived $c 20]] >= 0} {lappend leaks $requests}
                    }
                    foreach name {subscriber tracking blocked watching} {
                        if {[arrived [set $name] 20] ne ""} {lappend leaks $name}
                    }
                    foreach c [lrange $writers 0 3] {if {[arrived $c 20] ne ""} {lappend leaks "a write"}}
                    if {[string match "*uncommitted*" [arrived $monitor 20]]} {lappend leaks monitor}
                    if {[r get secret] ne ""} {lappend leaks migrate}
                    # Monitoring is answered at once.
                    foreach request {info ping role {slowlog len} {client list} {config get port}} {
                        assert {[string length [r -3 {*}$request]] > 0} $request
                    }
                    thaw -2 -1
                    assert_equal {} $leaks
                    wait_for_condition 10000 {[r get secret] eq "uncommitted"}
                    assert_match "*OK*" [arrived $migrating 500]
                    assert_match "*secret*" [arrived $subscriber 100]
                    assert_match "*-1*" [arrived $watching 100]
                    wait_for_condition 5000 {[string match *uncommitted* [r -3 slowlog get -1]]}
                    assert_match "*lostlib*" [r -3 function list]
                    assert_match "*db0:keys=*" [r -3 info keyspace]
                    assert_equal OK [r -3 flushall]
                    assert_equal OK [r -3 function flush]
                }

                test "MIGRATE is refused where it cannot wait" -needs {ours 1} {
                    r -3 set k v
                    assert_match "*cannot be called in a transaction or a script*" [r -3 -typed eval \
                        {return redis.call('migrate', ARGV[1], ARGV[2], KEYS[1], 0, 1000)} 1 k [srv host] [srv port]]
                    assert_equal OK [r -3 migrate [srv host] [srv port] k 0 1000]
                    assert_equal v [r get k]
                }

                test "writes are paused while MIGRATE waits until its keys are safe" -needs {ours 1} {
                    r flushall
                    gate_ready -3 2
                    r -3 del k
                    freeze -2 -1
                    foreach name {writer mover late} {set $name [new_client -level -3 -deferring 1]}
                    r -3 config resetstat
                    $writer -send set k uncommitted
                    wait_for_condition 5000 {[string match "*cmdstat_set:calls=1*" [r -3 info commandstats]]}
                    $mover -send migrate [srv host] [srv port] k 0 10000
                    wait_for_condition 5000 {[gate_field -3 paused_reason] eq "migrate_in_progress"}
                    $late -send set k late
                    # Others that move keys wait, too.
                    set second [new_client -level -3 -deferring 1]
                    $second -send migrate [srv host] [srv port] k 0 10000
                    assert_equal "" [arrived $mover 200]
                    assert_equal 0 [r exists k]
                    thaw -2 -1
                    foreach name {writer mover late} {assert_equal OK [[set $name] -read] $name}
                    assert_equal uncommitted [r get k]
                    # The key was written again before the second one ran.
                    assert_error_like "ERR Target instance replied with error: BUSYKEY*" {$second -read}
                    assert_equal late [r -3 get k]
                    assert_equal none [gate_field -3 paused_reason]
                }

                test "MIGRATE waits for safety no longer than its timeout" -needs {ours 1} {
                    r flushall
                    gate_ready -3 2
                    r -3 del k
                    freeze -2 -1
                    foreach name {writer mover} {set $name [new_client -level -3 -deferring 1]}
                    r -3 config resetstat
                    $writer -send set k uncommitted
                    wait_for_condition 5000 {[string match "*cmdstat_set:calls=1*" [r -3 info commandstats]]}
                    $mover -send migrate [srv host] [srv port] k 0 2000
                    wait_for_condition 5000 {[gate_field -3 paused_reason] eq "migrate_in_progress"}
                    wait_for_condition 5000 {[gate_field -3 paused_reason] eq "none"}
                    assert_equal 0 [r exists k]
                    thaw -2 -1
                    assert_error_like "IOERR error or timeout writing*" {$mover -read}
                }

                test "pushes of a script that goes on running wait until its writes are safe" -needs {ours 1} {
                    r -3 config set busy-reply-threshold 20
                    foreach name {subscriber monitor tracking script} {
                        set $name [new_client -level -3 -deferring 1]
                    }
                    foreach {name request} {subscriber {psubscribe *} monitor monitor tracking {hello 3}
                        tracking {client tracking on bcast}} {
                        [set $name] -send {*}$request
                        [set $name] -read
                    }
                    gate_ready -3 2
                    r -3 set x 1 ;# it may show data at once for the next 0.7 s
                    wait_for_condition 5000 {[string match "*set*" [arrived $subscriber 20]]}
                    foreach name {monitor tracking} {arrived [set $name] 20}
                    freeze -2 -1
                    $script -send eval {
                        redis.call('set', 'secret', 'uncommitted')
                        local start = os.clock()
                        while os.clock() - start < 0.15 do end
                    } 0
                    set leaks {}
                    foreach name {subscriber monitor tracking} {
                        if {[string match "*secret*" [arrived [set $name] 300]]} {lappend leaks $name}
                    }
                    thaw -2 -1
                    assert_equal {} [$script -read]
                    assert_equal {} $leaks
                    foreach name {subscriber monitor tracking} {
                        assert_match "*secret*" [arrived [set $name] 500] $name
                    }
                    assert_equal OK [r -3 flushall]
                }

                test "no debugger shows data of the server before they are safe" -needs {ours 1} {
                    assert_match "-ERR With synchronous replication*" [r -3 -typed script debug sync]
                    assert_equal OK [r -3 script debug no]
                }

                test "a primary that was replaced answers nothing about data, by any way" -needs {ours 1} {
                    gate_ready -3 2
                    # MIGRATE that has sent a part of a value to a target that does not read.
                    r -3 config set rdbcompression no ;# more than the buffers of the network take
                    r -3 setrange large 40000000 old
                    freeze 0
                    set sending [new_client -level -3 -deferring 1]
                    $sending -send migrate [srv host] [srv port] large 0 20000 copy
                    assert_error_like "IOERR*" {$sending -read}
                    gate_ready -3 2
                    r -3 set x old
                    r -3 xgroup create s2 g $ mkstream
                    set watching [new_client -level -3 -deferring 1]
                    foreach request {{watch x} multi ping} {
                        $watching -send {*}$request
                        $watching -read
                    }
                    set early {}
                    foreach request {{blpop q 2} {xread block 2000 streams s 0} {bzpopmin z 2}} {
                        lappend early [set c [new_client -level -3 -deferring 1]]
                        $c -send {*}$request
                    }
                    set unblocked [new_client -level -3 -deferring 1]
                    $unblocked -send client id
                    set id [$unblocked -read]
                    $unblocked -send blpop q 0
                    wait_for_condition 5000 {[gate_field -3 blocked_clients] == 4}
                    set requests {{get x} {llen q} {blpop q 0.5} {blmove q2 q3 left left 0.5} {bzpopmin z 0.5}
                        {xread block 500 streams s 0} {xreadgroup group g c block 500 streams s2 >}
                        {blmpop 0.5 1 q left}
                        {function list} {function dump} {keys *} {memory stats} {debug digest} {multi|get x|exec}
                        {migrate HOST PORT x 0 3000 copy} {eval "return redis.call('get', 'x')" 0}}
                    set clients {}
                    foreach request $requests {lappend clients [new_client -level -3 -deferring 1]}
                    set operator [new_client -level -3 -deferring 1]
                    freeze -3
                    r -2 replicaof no one
                    wait_for_condition 15000 {[gate_field -2 sync_replication] eq "leading"}
                    gate_join -1 -2
                    gate_ready -2 1
                    foreach {request reply} {{set x new} OK {rpush q e} 1 {rpush q2 e} 1 {zadd z 1 m} 1
                        {xadd s2 1-1 f v} 1-1 {xadd s 1-1 f v} 1-1} {
                        assert_equal $reply [r -2 {*}$request]
                    }
                    r -2 function load [string map {lostlib newlib f1 f2} $library]
                    freeze -2 -1
                    thaw -3 0
                    foreach c $clients request $requests {
                        set request [string map [list HOST [srv host] PORT [srv port]] $request]
                        foreach line [split $request |] {$c -send {*}$line}
                    }
                    $watching -send exec
                    $operator -send client unblock $id
                    after 1500
                    set leaks {}
                    foreach c [concat $clients $early $unblocked $watching] request $requests {
                        set got [string map {+OK\r\n "" +QUEUED\r\n ""} [arrived $c 20]]
                        if {$got ne "" && ![regexp {^-(EXECABORT.*)?(NOSYNCREPLICAS|UNBLOCKED|IOERR)} $got]} {
                            lappend leaks "$request: $got"
                        }
                    }
                    if {[r get x] ne ""} {lappend leaks migrate}
                    if {[r exists large]} {lappend leaks "the rest of a value"}
                    thaw -2 -1
                    assert_equal {} $leaks
                    wait_for_condition 15000 {[gate_field -3 sync_replication] eq "fenced"}
                }

                test "MIGRATE that connects slowly sends nothing when another server leads meanwhile" -needs {ours 1} {
                    set source [expr {[gate_field -2 sync_replication] eq "leading" ? -2 : -3}]
                    lassign [lsearch -all -inline -not {-1 -2 -3} $source] next other
                    foreach level [list $next $other] {gate_join $level $source}
                    gate_ready $source 2
                    assert_equal OK [r $source set slow old]
                    set migrating [new_client -level $source -deferring 1]
                    $migrating -send migrate target.slow [srv port] slow 0 20000 copy
                    wait_for_condition 5000 {
                        [set asking [new_client -level $source -deferring 1]; $asking -send ping; arrived $asking] eq ""
                    } "the server does not wait for the name"
                    r $next replicaof no one
                    wait_for_condition 15000 {[gate_field $next sync_replication] eq "leading"}
                    gate_join $other $next
                    gate_ready $next 1
                    assert_equal OK [r $next set slow new]
                    write_file $names [srv host]
                    wait_for_condition 15000 {[gate_field $source sync_replication] eq "fenced"}
                    assert_match {-[NU]*} [arrived $migrating 500] ;# NOSYNCREPLICAS or UNBLOCKED
                    assert_equal "" [r get slow]
                }
            }
        }
    }
}

start_cluster [list primaries 3 replicas 2 overrides {sync-replication yes min-sync-replicas 1
    repl-diskless-sync-delay 0 repl-timeout 20 cluster-node-timeout 15000}] {
    proc gate_of {i name} {
        regexp "\n$name:(\[^\r\n\]*)" [n $i info replication] -> value
        return $value
    }
    proc gate_shard_ready {i} {
        wait_for_condition 20000 {
            [gate_of $i sync_writable] eq 1 && [gate_of $i sync_in_sync_replicas] == 2 &&
            [gate_of $i sync_set_changes] eq 0
        }
    }
    proc client_of {i} {new_client -level [node_level $i] -deferring 1}
    foreach i {0 1 2} {gate_shard_ready $i}
    set replicas [lmap i [nodes] {if {[is_primary $i] || [primary_of $i] != 0} continue; set i}]
    proc each_pauses {which} {foreach i $which {node_pause $i}}
    proc each_resumes {which} {foreach i $which {node_resume $i}}

    test "messages of a transaction and a script reach other nodes when its writes are safe" -needs {ours 1} {
        set key [slot_tag 10]
        set subscriber [client_of 1]
        $subscriber -send subscribe ch
        $subscriber -read
        each_pauses $replicas
        set writer [client_of 0]
        foreach request [list multi [list set $key x] {publish ch first} exec] {$writer -send {*}$request}
        set script [client_of 0]
        $script -send eval {redis.call('set', KEYS[1], 'y'); return redis.call('publish', 'ch', 'second')} 1 $key
        set publisher [client_of 0]
        $publisher -send publish ch third
        assert_equal "" [arrived $subscriber 500]
        each_resumes $replicas
        set got [arrived $subscriber 1000]
        foreach text {first second third} {assert_match "*$text*" $got} ;# I/O threads may change their order
    }

    test "ASK and TRYAGAIN wait until the removal of the key is safe" -needs {ours 1} {
        set key [slot_tag 11]
        gate_shard_ready 0
        assert_equal OK [n 0 set $key old]
        assert_equal OK [n 0 set $key:stays here]
        assert_equal OK [n 1 cluster setslot 11 importing [node_id 0]]
        assert_equal OK [n 0 cluster setslot 11 migrating [node_id 1]]
        each_pauses $replicas
        set mover [client_of 0]
        $mover -send migrate [node 1 host] [node 1 port] $key 0 5000
        wait_for_condition 5000 {[gate_of 0 sync_prepared_offset] > [gate_of 0 sync_committed_offset]}
        set clients {}
        foreach request [list [list set $key new] [list get $key] [list mget $key $key:stays]] {
            lappend clients [set c [client_of 0]]
            $c -send {*}$request
        }
        foreach c [concat $mover $clients] {assert_equal "" [arrived $c 200]}
        foreach request {{cluster countkeysinslot 11} {cluster getkeysinslot 11 10}} {
            lappend clients [set c [client_of 0]]
            $c -send {*}$request
            assert_equal "" [arrived $c 100]
        }
        each_resumes $replicas
        wait_for_condition 5000 {[string match "+OK*" [arrived $mover 100]]}
        assert_match "-ASK 11 *" [arrived [lindex $clients 0] 200]
        assert_match "-ASK 11 *" [arrived [lindex $clients 1] 200]
        assert_match "-TRYAGAIN*" [arrived [lindex $clients 2] 200]
        assert_match ":1*" [arrived [lindex $clients 3] 200]
    }

    # The primary of slot 0, and its replicas.
    proc first_shard {} {
        set leads [slot_owner 0 1]
        list $leads {*}[lmap i [nodes] {if {[is_primary $i] || [primary_of $i] != $leads} continue; set i}]
    }
    # Another node of the shard leads while the primary is frozen.
    proc replace {leads next} {
        node_pause $leads
        assert_equal OK [n $next cluster failover force]
        wait_for_condition 20000 {[is_primary $next] && [slot_owner 0 1] == $next}
        wait_for_condition 20000 {[gate_of $next sync_writable] eq 1 && [gate_of $next sync_in_sync_replicas] >= 1}
    }

    test "a primary of a cluster that was replaced shows nothing, by the bus or by ASK" -needs {ours 1} {
        lassign [first_shard] leads next other
        set key [slot_tag 12]
        set moved [slot_tag 13] ;# its slot is open, and the key does not exist
        gate_shard_ready $leads
        assert_equal OK [n $leads set $key old]
        assert_equal OK [n 1 cluster setslot 13 importing [node_id $leads]]
        assert_equal OK [n $leads cluster setslot 13 migrating [node_id 1]]
        assert_match "-ASK 13 *" [n $leads -typed get $moved]
        set subscriber [client_of 1]
        $subscriber -send subscribe ch
        $subscriber -read
        set requests [list [list get $key] [list set $moved late] [list cluster countkeysinslot 13] \
            [list publish ch sent] [list eval {return redis.call('publish', 'ch', redis.call('get', KEYS[1]))} 1 $key]]
        set clients [lmap request $requests {client_of $leads}]
        replace $leads $next
        assert_equal OK [n $next cluster setslot 13 stable]
        foreach name [list $key $moved] {assert_equal OK [n $next set $name new]}
        each_pauses [list $next $other]
        foreach c $clients request $requests {$c -send {*}$request}
        node_resume $leads
        set leaks {}
        foreach c $clients request $requests {
            set got [arrived $c 400]
            # PUBLISH tells at once how many subscribers of this node it has reached.
            if {$got ne ":0\r\n" && ![regexp {^(-(NOSYNCREPLICAS|MOVED|CLUSTERDOWN).*)?$} $got]} {
                lappend leaks "$request: $got"
            }
        }
        # If it has learned that it was replaced before the PUBLISH, it is a replica, which may publish what it is told.
        set messages [arrived $subscriber 100]
        if {![regexp {^(\*3\r\n\$7\r\nmessage\r\n\$2\r\nch\r\n\$4\r\nsent\r\n)?$} $messages]} {
            lappend leaks "messages on the bus: $messages"
        }
        each_resumes [list $next $other]
        assert_equal {} $leaks
        wait_for_condition 20000 {[is_primary $next] && [primary_of $leads] == $next}
        assert_equal 0 [string match *old* [arrived $subscriber 100]]
        foreach name [list $key $moved] {assert_equal new [n $next get $name]}
    }

    test "a primary that was replaced while it sends slots gives the target nothing" -needs {ours 1} {
        lassign [first_shard] leads next other
        set key [slot_tag 14]
        gate_shard_ready $leads
        foreach slot {11 13} {foreach i [list $leads 1] {n $i cluster setslot $slot stable}}
        assert_equal OK [n $leads mset $key:1 old $key:2 old $key:3 old]
        n $leads config set rdb-key-save-delay 500000
        assert_equal OK [n $leads cluster migrateslots slotsrange 14 14 node [node_id 1]]
        wait_for_condition 10000 {
            [dict get [lindex [n $leads cluster getslotmigrations] 0] state] eq "snapshotting"
        }
        replace $leads $next
        assert_equal OK [n $next set $key:1 new]
        each_pauses [list $next $other]
        node_resume $leads
        assert_equal "" [arrived [client_of $leads] 2500] ;# the time in which it could send the rest of its snapshot
        assert_equal $next [slot_owner 14 1]
        each_resumes [list $next $other]
        wait_for_condition 20000 {[is_primary $next] && [primary_of $leads] == $next}
        wait_for_condition 20000 {
            [set jobs [n 1 cluster getslotmigrations]] eq "" || [dict get [lindex $jobs 0] state] eq "failed"
        }
        assert_equal $next [slot_owner 14 1]
        assert_equal {new old old} [n $next mget $key:1 $key:2 $key:3]
    }
}
