# Slots that move from node to node with SETSLOT and MIGRATE: redirections meanwhile, replicas, shard channels,
# statistics, and CLUSTERSCAN over all nodes. seconds: 7

# Moves a slot as valkey-cli does: from node `from` to node `to`.
proc open_slot {slot from to} {
    n $to cluster setslot $slot importing [node_id $from]
    n $from cluster setslot $slot migrating [node_id $to]
}
proc close_slot {slot from to} {
    foreach i [list $to $from] {assert_equal OK [n $i cluster setslot $slot node [node_id $to]]}
}
# Sets a key of an open slot from node 1 to node 0, following ASK.
proc cluster_write {slot key value} {
    set got [n 1 -typed set $key $value]
    if {![string match "-ASK $slot *" $got]} {
        assert_equal +OK $got
        return
    }
    n 0 asking
    assert_equal +OK [n 0 -typed set $key $value]
}
# Sends a command to the node that serves its first argument.
proc routed {args} {
    set got [n 0 -typed {*}$args]
    if {[string match "-MOVED *:[node_shown_port 1]" $got]} {return [n 1 -typed {*}$args]}
    return $got
}
proc errors {i name} {
    if {[regexp "errorstat_$name:count=(\\d+)" [n $i info errorstats] -> count]} {return $count}
    return 0
}

start_cluster {primaries 2 replicas 1} {
    set slot 12222 ;# of y, at node 1
    set port(0) [node_shown_port 0]
    set port(1) [node_shown_port 1]

    test "keys of other nodes: MOVED, at the primary and at its replica" {
        assert_equal "-MOVED $slot 127.0.0.1:$port(1)" [n 0 -typed get y]
        assert_equal "-MOVED $slot 127.0.0.1:$port(1)" [n 2 -typed get y]
        assert_equal "-MOVED $slot 127.0.0.1:$port(1)" [n 3 -typed get y]
        assert_equal "-MOVED $slot 127.0.0.1:$port(1)" [n 0 -typed eval "return 1" 1 y]
        assert_equal "-MOVED $slot 127.0.0.1:$port(1)" [n 0 -typed ssubscribe y]
        assert_match "-ERR Attempted to access a non local key in a cluster node script: on *"\
            [n 0 -typed eval "return redis.call('get','y')" 0]
    }

    test "a replica serves reads after READONLY, and transactions of reads" {
        n 1 set y 1
        wait_for_cluster_offset 3 1
        n 3 readonly
        assert_equal 1 [n 3 get y]
        assert_equal "-MOVED $slot 127.0.0.1:$port(1)" [n 3 -typed set y 2]
        assert_equal +OK [n 3 -typed multi]
        assert_equal +QUEUED [n 3 -typed get y]
        assert_equal 1 [n 3 exec]
        assert_equal "-MOVED 3300 127.0.0.1:$port(0)" [n 3 -typed get b]
        foreach command {eval eval_ro} {
            assert_equal "-MOVED $slot 127.0.0.1:$port(1)" [n 3 -typed $command "#!lua\nreturn 1" 1 y]
            assert_equal 1 [n 3 $command "#!lua flags=no-writes\nreturn 1" 1 y]
        }
        n 3 readwrite
        assert_equal "-MOVED $slot 127.0.0.1:$port(1)" [n 3 -typed get y]
    }

    test "messages reach the subscribers of all nodes, and those of shard channels of the shard" {
        # A message on a link that has brought no ping yet is dropped, as by Valkey.
        foreach i [nodes] {
            wait_for_condition 20000 {[regexp -all {direction from} [n $i cluster links]] == 3}
        }
        set near [new_client -port [node 0 port]]
        set far [new_client -port [node 3 port]]
        set shard [new_client -port [node 3 port]]
        $near subscribe news
        $far subscribe news
        assert_equal {ssubscribe y 1} [$shard ssubscribe y]
        assert_equal 0 [n 1 publish news hello]
        assert_equal {message news hello} [$near -read]
        assert_equal {message news hello} [$far -read]
        assert_equal 0 [n 1 spublish y hello]
        assert_equal {smessage y hello} [$shard -read]
    }

    test "SETSLOT is executed by the replicas, too" {
        n 1 xgroup create "{y}stream" group $ mkstream ;# for a client that waits, below
        open_slot $slot 1 0
        foreach i {1 3} {assert_match "*\\\[$slot->-[node_id 0]\\\]*" [n $i cluster nodes]}
        foreach i {0 2} {assert_match "*\\\[$slot-<-[node_id 1]\\\]*" [n $i cluster nodes]}
        assert_equal "-ERR Please use SETSLOT only with masters." [n 2 -typed cluster setslot $slot stable]
    }

    test "missing keys of a slot that leaves: ASK; some of them: TRYAGAIN" {
        set again "-TRYAGAIN Multiple keys request during rehashing of slot"
        set moved "-MOVED $slot 127.0.0.1:$port(1)"
        assert_equal "-ASK $slot 127.0.0.1:$port(0)" [n 1 -typed get "{y}x"]
        assert_equal 1 [n 1 get y]
        assert_equal $again [n 1 -typed mget y "{y}x"]
        assert_equal $moved [n 0 -typed get "{y}x"]
        n 0 asking
        assert_equal +OK [n 0 -typed set "{y}x" 1]
        assert_equal $moved [n 0 -typed get "{y}x"]
        n 0 asking
        assert_equal $again [n 0 -typed mget "{y}x" y]
        # A transaction that begins with ASKING has it until EXEC; an error ends it.
        foreach {command reply} {asking +OK multi +OK {get \{y\}x} +QUEUED {get \{y\}x} +QUEUED} {
            assert_equal $reply [n 0 -typed {*}$command]
        }
        assert_equal {1 1} [n 0 exec]
        assert_equal $moved [n 0 -typed get "{y}x"]
        # A command that needs a key in two databases cannot be queued, either.
        assert_equal +OK [n 1 -typed multi]
        assert_equal $again [n 1 -typed move y 1]
        assert_match "-EXECABORT *" [n 1 -typed exec]
        n 0 asking
        assert_match "-ERR wrong number*" [n 0 -typed get]
        assert_equal $moved [n 0 -typed get "{y}x"]
        # A replica has the open slot for its readers only.
        n 2 asking
        assert_equal $moved [n 2 -typed get "{y}x"]
        n 2 readonly
        n 2 asking
        assert_equal "" [n 2 get "{y}none"]
        n 2 readwrite
    }

    test "a client that waits for a key of the slot is sent after it, as soon as the key has moved" {
        set c [new_client -port [node 1 port]]
        $c -send xreadgroup group group consumer block 0 streams "{y}stream" >
        wait_for_condition 5000 {[info_field_of 1 clients blocked_clients] == 1}
        assert_equal OK [n 1 migrate 127.0.0.1 [node_base_port 0] "{y}stream" 0 5000]
        assert_equal "-ASK $slot 127.0.0.1:[node 0 port]" [$c -readline]
        $c -close
        n 0 asking
        assert_equal 1 [n 0 del "{y}stream"]
    }

    test "a replica that is copied anew has the open slots" {
        set from [node_log_size 3]
        n 1 config set repl-backlog-size 16kb
        node_kill 3
        for {set i 0} {$i < 40} {incr i} {n 1 set y [string repeat x 10000]}
        set file [file join [node 3 dir] nodes.conf]
        set f [open $file]
        set text [regsub -all { \[[^]]*\]} [read $f] {}]
        close $f
        set f [open $file w]
        puts -nonewline $f $text
        close $f
        node_start 3
        wait_for_cluster_replicas
        wait_for_condition 10000 {[string match "*\\\[$slot->-[node_id 0]\\\]*" [n 3 cluster nodes]]}
    }

    test "a slot that its primary closed is closed at a replica that is copied anew" {
        node_kill 3
        wait_for_condition 10000 {[string match "*connected_slaves:0*" [n 1 info replication]]}
        assert_equal OK [n 1 cluster setslot $slot stable]
        for {set i 0} {$i < 40} {incr i} {n 1 set y [string repeat x 10000]}
        node_start 3
        wait_for_cluster_replicas
        wait_for_condition 10000 {![string match "*\\\[$slot*" [n 3 cluster nodes]]}
        n 1 cluster setslot $slot migrating [node_id 0]
    }

    test "a slot moves while clients write: no key is lost or in two nodes, replicas are equal" {
        for {set i 0} {$i < 200} {incr i} {cluster_write $slot "{y}$i" $i}
        set written 200
        while {[llength [set keys [n 1 cluster getkeysinslot $slot 7]]]} {
            assert_equal OK [n 1 migrate 127.0.0.1 [node_base_port 0] "" 0 10000 replace keys {*}$keys]
            for {set i 0} {$i < 10} {incr i} {
                cluster_write $slot "{y}$written" $written
                cluster_write $slot "{y}[expr {$written % 50}]" again$written
                incr written
            }
        }
        set hears [new_client -port [node 1 port]]
        assert_equal {ssubscribe y 1} [$hears ssubscribe y]
        set waits [new_client -port [node 1 port]]
        $waits -send blpop "{y}list" 0
        close_slot $slot 1 0
        assert_equal {sunsubscribe y 0} [$hears -read]
        $hears -close
        $waits -close
        wait_for_cluster_agreement
        assert_equal 0 [n 1 cluster countkeysinslot $slot]
        assert_equal [expr {$written + 2}] [n 0 cluster countkeysinslot $slot] ;# with y and {y}x
        for {set i 50} {$i < $written} {incr i} {assert_equal $i [n 0 get "{y}$i"]}
        foreach {replica primary} {2 0 3 1} {
            wait_for_cluster_offset $replica $primary
            assert_equal [n $primary debug digest] [n $replica debug digest]
        }
        assert_equal 0 [errors 0 CROSSSLOT]
    }

    test "SETSLOT NODE is refused while the slot has keys" {
        assert_match "-ERR Can't assign hashslot $slot to a different node while I still hold keys*"\
            [n 0 -typed cluster setslot $slot node [node_id 1]]
    }

    test "SETSLOT gives up if a replica does not acknowledge it in time" {
        node_pause 2
        set no "-NOREPLICAS Not enough good replicas to write."
        assert_equal $no [n 0 -typed cluster setslot 0 migrating [node_id 1] timeout 100]
        assert_not_match "*\\\[0->-*" [n 0 cluster nodes]
        node_resume 2
        assert_equal OK [n 0 cluster setslot 0 migrating [node_id 1] timeout 0]
        assert_equal OK [n 0 cluster setslot 0 stable]
    }

    test "SETSLOT reads TIMEOUT behind words that it ignores" {
        assert_error "ERR timeout is not an integer or out of range" {n 0 cluster setslot 0 stable x timeout a}
        assert_error "ERR Missing timeout value" {n 0 cluster setslot 0 stable timeout 5 timeout}
        assert_equal OK [n 0 cluster setslot 0 stable x timeout 1000]
    }

    test "SETSLOT in a transaction does not wait" {
        foreach {command reply} {multi +OK {cluster setslot 0 stable} +QUEUED} {
            assert_equal $reply [n 0 -typed {*}$command]
        }
        assert_equal OK [n 0 exec]
    }

    test "CLUSTERSCAN finds every key once" {
        for {set i 0} {$i < 500} {incr i} {assert_equal +OK [routed set key$i 1]}
        set cursor 0
        set found {}
        while 1 {
            lassign [routed clusterscan $cursor count 20] - cursor page ;# typed: * $CURSOR {* $KEY $KEY}
            set cursor [string range $cursor 1 end]
            lappend found {*}[lrange $page 1 end]
            if {$cursor eq "0"} break
        }
        set all [expr {[n 0 dbsize] + [n 1 dbsize]}]
        assert_equal $all [llength $found]
        assert_equal $all [llength [lsort -unique $found]]
        assert_equal "-ERR Invalid cursor" [routed clusterscan "{x}"]
        assert_equal "-ERR SLOT option can only be specified once" [routed clusterscan 0 slot 1 slot 2]
        assert_equal "-ERR Cursor slot mismatch with SLOT argument" [routed clusterscan "0-{y}-0" slot 1]
    }

    test "the cursor of CLUSTERSCAN has the tag that Valkey has for its slot" {
        foreach {s tag} {0 06S 1 Qi 2 5L5 9 ru 80 avs 120 ban} {
            assert_equal "0-{$tag}-0" [string range [lindex [routed clusterscan 0 slot $s] 1] 1 end]
            assert_equal "0-{$tag}-0" [string range [lindex [routed clusterscan 0 match "{$tag}*"] 1] 1 end]
        }
    }

    test "CLUSTERSCAN with MATCH of one slot goes there from a cursor before it, and ends behind it" {
        assert_equal "\$0-{Qi}-0" [lindex [routed clusterscan "0-{06S}-0" match "{Qi}*"] 1]
        assert_equal "\$0" [lindex [routed clusterscan "0-{Qi}-0" match "{06S}*"] 1]
    }

    test "CLUSTERSCAN of a slot that leaves goes on at the other node" {
        n 0 cluster setslot 0 migrating [node_id 1]
        assert_equal "-ASK 0 127.0.0.1:$port(1)" [n 0 -typed clusterscan "0-{06S}-0"]
        n 0 cluster setslot 0 stable
        assert_equal "*" [lindex [n 0 -typed clusterscan "0-{06S}-0"] 0]
    }

    test "CONFIG RESETSTAT begins the figures of the bus again" {
        assert {[regexp messages_meet_sent [n 0 cluster info]]}
        n 0 config set cluster-ping-interval 60000
        n 0 config resetstat
        assert {[cluster_field 0 cluster_stats_messages_sent] < 20}
        assert {![regexp messages_meet_sent [n 0 cluster info]]}
        n 0 config set cluster-ping-interval 0
    }

    test "SLOT-STATS counts the bytes of requests and replies" {
        n 0 config set cluster-slot-stats-enabled yes
        n 0 set y 12345
        n 0 get y
        set got [lindex [n 0 cluster slot-stats slotsrange $slot $slot] 0]
        assert_equal $slot [lindex $got 0]
        assert_equal 51 [dict get [lindex $got 1] network-bytes-in]
        assert_equal 47 [dict get [lindex $got 1] network-bytes-out] ;# 5 + 11, and 31 to the replica
        n 0 config resetstat
        foreach command {multi {get y} {get y} exec} {n 0 {*}$command}
        set got [lindex [n 0 cluster slot-stats orderby network-bytes-in limit 1] 0]
        assert_equal $slot [lindex $got 0]
        assert_equal 69 [dict get [lindex $got 1] network-bytes-in]
        n 0 config resetstat
        for {set i 0} {$i < 5} {incr i} {n 0 blpop "{y}missing" 0.01}
        set got [lindex [lindex [n 0 cluster slot-stats slotsrange $slot $slot] 0] 1]
        assert {[dict get $got cpu-usec] > 0} ;# of waits that timed out
        assert_equal 0 [dict get $got network-bytes-in]
        n 0 config resetstat
        set commands {{set y 1} {get y} {append y 2} {strlen y} {type y} {ttl y} {blpop {{y}missing} 0.01}}
        set sum 0
        foreach command $commands {n 0 {*}$command}
        set stats [n 0 info commandstats]
        foreach command $commands {
            assert {[regexp "cmdstat_[lindex $command 0]:\[^\n\]*,usec=(\\d+)" $stats -> usec]}
            incr sum $usec
        }
        set got [lindex [lindex [n 0 cluster slot-stats slotsrange $slot $slot] 0] 1]
        assert_equal $sum [dict get $got cpu-usec] ;# whole microseconds, the same that INFO shows
        assert_equal "-ERR Unrecognized sort metric for ORDERBY." [n 0 -typed cluster slot-stats orderby foo]
        n 0 config set cluster-slot-stats-enabled no
        assert_equal key-count [lindex [lindex [lindex [n 0 cluster slot-stats slotsrange $slot $slot] 0] 1] 0]
    }
}

# Node 1 loses a slot with its keys: node 0 claims it in a later epoch.
start_cluster {primaries 2 overrides {cluster-databases 4}} {
    proc lose_slot {slot} {
        n 0 multi ;# node 1 could claim the slot between them
        n 0 cluster delslots $slot
        n 0 cluster bumpepoch
        n 0 cluster addslots $slot
        assert_equal OK [lindex [n 0 exec] 2]
        wait_for_condition 20000 {[slot_owner $slot] == 0 && [n 1 cluster countkeysinslot $slot] == 0}
    }
    # The commands of the stream that are not about the link, up to this key.
    proc stream_until {c key} {
        set commands {}
        while {1} {
            set got [$c -read]
            if {[string tolower [lindex $got 0]] in {ping replconf}} continue
            if {[lrange $got 0 1] eq [list set $key]} {return $commands}
            lappend commands $got
        }
    }
    proc fill_slot {slot} {
        foreach db {0 2} {
            n 1 select $db
            for {set i 0} {$i < 200} {incr i} {n 1 set [slot_tag $slot]:$i x}
        }
        n 1 select 0
    }

    test "the keys of a lost slot are deleted by CLUSTER FLUSHSLOT where all replicas are of version 9.0 or later" {
        fill_slot 9000
        lassign [replica_full_sync capa eof capa psync2 version 9.0.0] c
        lose_slot 9000
        n 1 set [slot_tag 9001]:end 1
        set commands [lmap command [stream_until $c [slot_tag 9001]:end] {
            if {[lindex $command 0] eq "SELECT"} continue
            set command
        }]
        assert_equal {{CLUSTER FLUSHSLOT 9000 ASYNC}} $commands
        $c -close
        wait_for_condition 10000 {[info_field_of 1 replication connected_slaves] == 0}
    }

    test "older replicas get DEL for each key, in all databases" {
        fill_slot 9002
        lassign [replica_full_sync capa eof capa psync2 version 8.1.3] c
        lose_slot 9002
        n 1 set [slot_tag 9001]:end 2
        set db ""
        set deleted {0 {} 2 {}}
        foreach command [stream_until $c [slot_tag 9001]:end] {
            switch -- [lindex $command 0] {
                MULTI - EXEC {}
                SELECT {set db [lindex $command 1]}
                DEL {dict lappend deleted $db {*}[lrange $command 1 end]}
                default {fail "unexpected: $command"}
            }
        }
        set keys {}
        for {set i 0} {$i < 200} {incr i} {lappend keys [slot_tag 9002]:$i}
        foreach at {0 2} {assert_equal [lsort $keys] [lsort [dict get $deleted $at]]}
    }
}
