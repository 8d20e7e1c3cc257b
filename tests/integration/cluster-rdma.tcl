# A cluster whose clients and replicas use RDMA: what clients are told, links of replicas, a failover. Other suites of
# clusters run over RDMA, too; this one has no tests over TCP. tests/interop/cluster_clients.py has nodes of Valkey, and
# RDMA ports that differ from the TCP ports. seconds: 18

if {!$::opt(rdma)} return

source [file join $::root tests harness slot_migration.tcl]

proc wait_for_rdma_link {i} {
    wait_for_condition 20000 {
        [repl_field $i master_link_status] eq "up" && [repl_field $i master_link_transport] in {rdma rdma-tls}
    } "the link of node $i is [repl_field $i master_link_transport]"
}

start_cluster {primaries 3 replicas 1 overrides {rdma-replication yes cluster-announce-client-rdma-port 7003}} {
    # Nodes 3 to 5 are not told another port than 7003, either: it is announced to clients only.
    test "replicas dial the RDMA port that their primary tells on the bus, not the one for clients" {
        foreach i {3 4 5} {
            wait_for_rdma_link $i
            assert_match "*rdma_port=[node $i port]*" [n [expr {$i - 3}] info replication]
        }
    }

    test "clients over RDMA are told RDMA ports, clients over TCP are not" {
        wait_for_condition 10000 {[lsort -unique [lmap range [n 0 cluster slots] {lindex $range 2 1}]] eq "7003"}
        assert_match "*:7003@*:7003@*:7003@*" [n 0 cluster nodes]
        assert_match "MOVED * *:7003" [string range [n 0 -typed get foo] 1 end]
        set tcp [new_client -level [node_level 0] -tcp 1]
        assert_match "-MOVED 12182 *:[node 2 port]" [$tcp -typed get foo]
        set ports [lmap range [$tcp cluster slots] {lindex $range 2 1}]
        assert_equal [lmap i {0 1 2} {node $i port}] $ports
        assert_equal {} [lindex [$tcp cluster slots] 0 2 3]
        assert {[string first rdma-port [$tcp cluster shards]] < 0}
    }

    test "CLIENT CAPA rdma-endpoints: SLOTS and SHARDS also have the RDMA port" {
        set tcp [new_client -level [node_level 0] -tcp 1]
        set other [new_client -level [node_level 0] -tcp 1]
        assert_equal OK [$tcp client capa rdma-endpoints]
        assert_match "* capa=e *" [$tcp client info]
        assert_match "id=[$tcp client id] *" [$other client list capa e]
        foreach range [$tcp cluster slots] {assert_equal {rdma-port 7003} [lindex $range 2 3]}
        assert_equal 6 [regexp -all {rdma-port 7003} [$tcp cluster shards]]
        assert {[string first rdma-port [$other cluster slots][$other cluster shards]] < 0}
        assert_match "-MOVED 12182 *:[node 2 port]" [$tcp -typed get foo]
        $tcp hello 3
        assert_equal {rdma-port 7003} [lindex [$tcp cluster slots] 0 2 3]
    }

    test "after a failover the old primary follows over RDMA, with a partial synchronization" {
        n 0 set [slot_tag 1]:a 1
        wait_for_cluster_offset 3 0
        n 3 cluster failover
        wait_for_condition 20000 {[is_primary 3] && ![is_primary 0]}
        wait_for_rdma_link 0
        assert_match "*Successful partial resynchronization*" [server_text [node 0 id]]
        n 3 set [slot_tag 1]:b 2
        wait_for_cluster_offset 0 3
        n 0 readonly
        assert_equal 2 [n 0 get [slot_tag 1]:b]
    }

    test "a replica takes over from a killed primary, which comes back as its replica over RDMA" {
        node_kill 3
        wait_for_condition 30000 {[is_primary 0]}
        assert_equal 2 [n 0 get [slot_tag 1]:b]
        node_start 3
        wait_for_rdma_link 3
        wait_for_cluster_offset 3 0
        wait_for_cluster_agreement
    }
}

start_cluster [list primaries 2 replicas 1 overrides [list rdma-replication yes appendonly yes\
    cluster-node-timeout 10000]] {
    proc rdma_field {i name} {
        regexp "\n$name:(\\d+)" [n $i info rdma] -> value
        return $value
    }
    proc rdma_windows {i} {rdma_field $i rdma_read_windows}
    # With TLS chunks are encrypted, and the source tells the key.
    set ::chunk_key [expr {$::opt(tls) ? [string repeat 5a 32] : ""}]
    # A link like that of node 0 to node 1, up to the answer about chunks.
    proc import_link {job} {
        set c [new_client -level [node_level 1]]
        $c -write [resp_command cluster syncslots establish source [node_id 0] name $job slotsrange 40 41]
        assert_equal OK [$c -read]
        $c -write [resp_command cluster syncslots ack]
        $c -write [resp_command cluster syncslots capa slot-chunks slot-pull {*}$::chunk_key]
        assert_equal {CLUSTER SYNCSLOTS CAPA slot-chunks slot-pull} [$c -read]
        return $c
    }

    test "slots of all types are fetched by RDMA READ, and the same bytes go to the replica" {
        wait_for_rdma_link 2
        wait_for_rdma_link 3
        set tag [slot_tag 5]
        n 0 debug populate 5000 ${tag}p 1000
        n 0 set ${tag}large [string repeat x 300000]
        n 0 rpush ${tag}list {*}[lrepeat 5000 element]
        n 0 set ${tag}number 12 ex 10000
        n 0 sadd ${tag}set a b c
        n 0 zadd ${tag}zset 1.5 a 2 b
        n 0 hsetex ${tag}expiring ex 10000 fields 1 f v
        n 0 xadd ${tag}stream 1-1 f v
        set before [n 0 debug digest]
        assert_equal OK [migrate 0 1 5 6]
        migration_is 0 success
        assert_match "*which the target fetches by RDMA READ*" [server_text [node 0 id]]
        assert_equal $before [n 1 debug digest]
        wait_for_cluster_offset 3 1
        assert_equal $before [n 3 debug digest]
        assert_equal 0 [n 0 dbsize]
        n 1 debug loadaof
        assert_equal $before [n 1 debug digest]
        assert_equal OK [migrate 1 0 5 6]
        migration_is 1 success
        assert_equal $before [n 0 debug digest]
        wait_for_condition 5000 {[rdma_windows 0] == 0 && [rdma_windows 1] == 0}
    }

    test "a migration that is cancelled while chunks are fetched leaves nothing" {
        n 0 config set rdb-key-save-delay 200
        migrate 0 1 5 6
        migration_is 0 snapshotting
        wait_for_condition 10000 {[n 1 cluster countkeysinslot 5] > 200}
        n 0 cluster cancelslotmigrations
        migration_is 0 cancelled
        migration_is 1 failed
        foreach i {1 3} {wait_for_condition 5000 {[n $i cluster countkeysinslot 5] == 0}}
        wait_for_condition 5000 {[rdma_windows 0] == 0 && [rdma_windows 1] == 0}
        n 0 config set rdb-key-save-delay 0
        assert_equal 5007 [n 0 cluster countkeysinslot 5]
    }

    test "a replica that is away while chunks arrive gets them from the stream" {
        set before [n 0 debug digest]
        n 0 config set rdb-key-save-delay 200
        migrate 0 1 5 6
        migration_is 0 snapshotting
        wait_for_condition 10000 {[n 1 cluster countkeysinslot 5] > 200}
        node_pause 3
        n 1 client kill type replica
        set there [n 1 cluster countkeysinslot 5]
        wait_for_condition 10000 {[n 1 cluster countkeysinslot 5] > $there + 200}
        node_resume 3
        migration_is 0 success
        wait_for_rdma_link 3
        wait_for_cluster_offset 3 1
        assert_equal $before [n 1 debug digest]
        assert_equal $before [n 3 debug digest]
        n 0 config set rdb-key-save-delay 0
        migrate 1 0 5 6
        migration_is 1 success
    }

    test "offers that lie end the migration at the target, not the target" {
        set number 0
        foreach {reason offers} {
            "offer of a chunk is malformed" {{0 4096 100 1}}
            "offer of a chunk is malformed" {{1 4096 100 1 1}}
            "offer of a chunk is malformed" {{0 4096 4294967296 1 1}}
            "offer of a chunk is malformed" {{0 4096 100 1 -1}}
            "an invalid length" {{0 4096 0 1 1}}
            "an invalid length" {{0 4096 1048577 1 1}}
            "connection lost" {{0 4096 100 1 1}}
            "connection lost" {{0 18446744073709551615 100 4294967295 1}}
        } {
            set c [import_link [format %040d [incr number]]]
            set from [node_log_size 1]
            foreach offer $offers {$c -write [resp_command cluster syncslots offer {*}$offer]}
            migration_is 1 failed
            wait_for_node_log 1 "*$reason*" $from
            $c -close
        }
        set c [import_link [format %040d [incr number]]]
        set from [node_log_size 1]
        for {set i 0} {$i < 9} {incr i} {$c -write [resp_command cluster syncslots offer $i 4096 100 1 1]}
        migration_is 1 failed
        $c -close
        set c [new_client -level [node_level 1] -tcp 1]
        $c -write [resp_command cluster syncslots establish source [node_id 0] name [format %040d [incr number]]\
            slotsrange 40 41]
        assert_equal OK [$c -read]
        $c -write [resp_command cluster syncslots ack][resp_command cluster syncslots capa slot-chunks slot-pull]
        assert_equal {CLUSTER SYNCSLOTS CAPA slot-chunks} [$c -read]
        $c -write [resp_command cluster syncslots offer 0 4096 100 1 1]
        migration_is 1 failed
        $c -close
        assert_equal PONG [n 1 ping]
        assert_equal 0 [rdma_windows 1]
    }

    test "slots of small keys are fetched, and the changes meanwhile follow" {
        for {set slot 100} {$slot < 400} {incr slot} {
            set tag [slot_tag $slot]
            set ::fetched($slot) [list]
            for {set i 0} {$i < 20} {incr i} {lappend ::fetched($slot) $tag$i [string repeat $i 200]}
            n 0 mset {*}$::fetched($slot)
        }
        set from [node_log_size 0]
        migrate 0 1 100 399
        for {set slot 100} {$slot < 400} {incr slot} {
            catch {n 0 append [slot_tag $slot]0 changed}
        }
        migration_is 0 success
        migration_is 1 success
        set text [log_text $from [node_level 0]]
        assert_match "*in chunks, between commands, which the target fetches by RDMA READ*" $text
        assert_match "*keys were sent between commands*" $text
        wait_for_cluster_offset 3 1
        assert_equal [n 1 debug digest] [n 3 debug digest]
        for {set slot 100} {$slot < 400} {incr slot} {
            set tag [slot_tag $slot]
            foreach {key value} $::fetched($slot) {
                if {$key eq "${tag}0"} continue
                if {[n 1 get $key] ne $value} {fail_assertion "$key is [n 1 get $key]"}
            }
        }
        migrate 1 0 100 399
        migration_is 1 success
    }

    test "without memory for the buffers the chunks come through the link" {
        foreach i {0 1} {
            set before [n $i config get rdma-max-registered-memory]
            n $i config set rdma-max-registered-memory\
                [expr {max(8388608, [rdma_field $i rdma_registered_bytes] + 1000000)}]
            migrate 0 1 5 6
            migration_is 0 success
            assert_match "*cannot * by RDMA READ: *" [server_text [node $i id]]
            n $i config set {*}$before
            migrate 1 0 5 6
            migration_is 1 success
        }
        assert_equal 5007 [n 0 cluster countkeysinslot 5]
    }

    test "a large value at the end is not counted by the output limit" {
        set limit [lindex [n 0 config get client-output-buffer-limit] 1]
        n 0 config set client-output-buffer-limit "replica 5mb 0 0" repl-backlog-size 16kb
        at_test_end [list n 0 config set client-output-buffer-limit $limit repl-backlog-size 10mb]
        n 0 set [slot_tag 7]huge [string repeat x 30000000]
        migrate 0 1 7 7
        migration_is 0 success
        migration_is 1 success
        assert_equal 30000000 [n 1 strlen [slot_tag 7]huge]
        migrate 1 0 7 7
        migration_is 1 success
        migration_is 0 success
        n 0 del [slot_tag 7]huge
    }

    test "what is fetched is of one moment, and each change follows once" {
        set tag [slot_tag 8]
        n 0 debug populate 3000 ${tag}p 300
        n 0 rpush ${tag}list {*}[lrepeat 5000 element]
        n 0 config set rdb-key-save-delay 2000
        n 0 debug slotmigration prevent-pause 1
        migrate 0 1 8 8
        wait_for_condition 10000 {[n 1 cluster countkeysinslot 8] > 100}
        for {set round 1} {$round <= 30} {incr round} {
            for {set i $round} {$i < 3000} {incr i 211} {n 0 append ${tag}p:$i ,$round}
            n 0 rpush ${tag}list $round
            n 0 incr ${tag}counter
            n 0 rename ${tag}p:[expr {2000 + $round}] ${tag}renamed:$round
            n 0 del ${tag}p:[expr {2500 + $round}]
        }
        assert_equal snapshotting [dict get [migration 0] state]
        n 0 config set rdb-key-save-delay 0
        migration_is 0 waiting-to-pause
        proc sums {i} {lmap k [lsort [n $i keys [slot_tag 8]*]] {list $k [n $i debug digest-value $k]}}
        set before [sums 0]
        n 0 debug slotmigration prevent-pause 0
        migration_is 0 success
        migration_is 1 success
        assert_equal $before [sums 1]
        migrate 1 0 8 8
        migration_is 1 success
        migration_is 0 success
        n 0 cluster flushslot 8
    }

    test "a target that cannot be reached by RDMA is reached by TCP at once" {
        n 1 config set cluster-announce-rdma-port 1
        set from [node_log_size 0]
        wait_for_condition 10000 {[lindex [n 0 cluster slots] 1 2 1] == 1} ;# as node 0 has heard
        migrate 0 1 5 6
        migration_is 0 success
        wait_for_node_log 0 "*no RDMA connection to the target*Using TCP*in chunks, between commands*" $from
        assert_equal 5007 [n 1 cluster countkeysinslot 5]
    }
}

if {[tool openssl] ne "" && ![catch {exec ldd $::opt(server)} libraries] && [string match *libssl* $libraries]} {
    start_cluster [list primaries 2 replicas 0 tls 1 overrides [list rdma-replication yes tls-rdma yes\
        rdma-bind 127.0.0.1]] {
        test "with TLS the chunks that are fetched are encrypted" {
            foreach i {0 1} {n $i config set rdma-port [node_tls_port $i]}
            n 0 client capa rdma-endpoints
            wait_for_condition 10000 {[string match "*rdma-port [node_tls_port 1]*" [n 0 cluster slots]]} {
                fail_assertion [n 0 cluster slots]
            }
            set tag [slot_tag 5]
            n 0 debug populate 3000 ${tag}p 1000
            n 0 set ${tag}large [string repeat x 300000]
            set before [n 0 debug digest]
            wait_for_condition 10000 {
                [n 0 cluster migrateslots slotsrange 5 5 node [node_id 1]] eq "OK"
            }
            wait_for_condition 20000 {[dict get [lindex [n 0 cluster getslotmigrations] 0] state] eq "success"} {
                fail_assertion [n 0 cluster getslotmigrations]
            }
            assert_match "*which the target fetches by RDMA READ*" [server_text [node 0 id]]
            assert_equal $before [n 1 debug digest]
        }
    }
}
