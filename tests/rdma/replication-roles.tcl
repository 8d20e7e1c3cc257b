# What clients and administrators of a group rely on holds over RDMA links as over TCP: acknowledged writes (WAIT,
# WAITAOF, min-replicas-to-write), changes of roles (FAILOVER, chains), announced ports, two channels, and every kind of
# data in a copy and in the stream.
# seconds: 5

set rdma {rdma-replication yes repl-diskless-sync-delay 0 repl-timeout 60 repl-diskless-load on-empty-db}

proc follow {level of} {
    r $level replicaof $::opt(rdma_host) [srv $of port]
    wait_link $level rdma
}
proc wait_link {level transport} {
    wait_for_condition 30000 {
        [field $level master_link_status] eq "up" && [field $level master_link_transport] eq $transport
    } "the link is [field $level master_link_status], over [field $level master_link_transport]"
}
proc library_of {number} {
    set options "function_name='number', callback=function() return $number end, flags={'no-writes'}"
    return "#!lua name=lib\nredis.register_function{$options}"
}
proc wait_same {a b} {
    wait_for_condition 30000 {[r $a debug digest] eq [r $b debug digest]} "the data differ"
}

start_server [list overrides $rdma] {
    r rpush list {*}[lrepeat 300 element]
    r hset hash f v g w
    r hpexpire hash 100000000 fields 1 f
    r xadd stream 1-1 field value
    r xgroup create stream group 0
    r function load [library_of 1]
    start_server [list overrides [list {*}$rdma appendonly yes]] {
        follow 0 -1

        test "RDMA: a copy and the stream bring field expiry, consumer groups and functions" {
            wait_same -1 0
            assert_equal [r -1 hpexpiretime hash fields 1 f] [r hpexpiretime hash fields 1 f]
            assert_equal 1 [r fcall_ro number 0]
            r -1 hpexpire hash 200000000 fields 1 g
            r -1 xreadgroup group group consumer streams stream >
            r -1 function load replace [library_of 2]
            wait_same -1 0
            assert_equal [r -1 hpexpiretime hash fields 1 g] [r hpexpiretime hash fields 1 g]
            assert_equal {1 1-1 1-1} [lrange [r xpending stream group] 0 2]
            wait_for_condition 10000 {[r fcall_ro number 0] == 2}
        }

        test "RDMA: keys and fields that expire on the primary are deleted on the replica" {
            r -1 set gone 1 px 50
            r -1 hset half f v g w
            r -1 hpexpire half 50 fields 1 f
            wait_for_condition 10000 {[r -1 exists gone] == 0 && [r -1 hlen half] == 1}
            wait_same -1 0
            assert_equal {0 1} [list [r exists gone] [r hlen half]]
        }

        test "RDMA: WAIT and WAITAOF count the replica, and min-replicas-to-write needs it" {
            r -1 set acknowledged 1
            assert_equal 1 [r -1 wait 1 20000]
            assert_equal 1 [r get acknowledged]
            r -1 set on_disk 1
            assert_equal {0 1} [r -1 waitaof 0 1 20000]
            r -1 config set min-replicas-to-write 1 min-replicas-max-lag 10
            wait_for_condition 10000 {![catch {r -1 set allowed 1}]}
            r replicaof no one
            wait_for_condition 10000 {[catch {r -1 set allowed 1} error] && [string match NOREPLICAS* $error]}
            r -1 config set min-replicas-to-write 0
            follow 0 -1
            wait_same -1 0
        }

        test "RDMA: a replica that is stale answers as replica-serve-stale-data says" {
            set key [r get acknowledged]
            r replicaof $::opt(rdma_host) [free_port]
            assert_equal $key [r get acknowledged]
            r config set replica-serve-stale-data no
            assert_error_like "MASTERDOWN*" {r get acknowledged}
            r config set replica-serve-stale-data yes
            follow 0 -1
        }

        start_server [list overrides $rdma] {
            follow 0 -1

            test "RDMA: FAILOVER exchanges the roles, and the chain continues without another copy" {
                set copies [field -1 sync_full stats]
                r -2 set before 1
                assert_equal OK [r -2 failover timeout 60000]
                wait_for_condition 30000 {[lindex [r -1 role] 0] eq "master"}
                wait_link -2 rdma
                wait_link 0 rdma
                r -1 set after 1
                wait_same -1 -2
                wait_same -1 0
                assert_equal {1 1} [r mget before after]
                assert_equal $copies [field -1 sync_full stats]
                wait_for_condition 10000 {[field -1 connected_slaves] == 2}
            }

            test "RDMA: a replica that becomes the primary serves the others by partial synchronization" {
                r replicaof no one
                set copies [field 0 sync_full stats]
                follow -1 0
                assert_equal $copies [field 0 sync_full stats]
                wait_link -2 rdma
                r set newest 1
                wait_same 0 -1
                wait_same 0 -2
            }
        }
    }
}

start_server [list overrides $rdma] {
    start_server [list overrides $rdma] {
        test "replica-announce-rdma-port: what each side learns" {
            r config set replica-announce-rdma-port 4444
            follow 0 -1
            assert_match *,rdma_port=4444* [field -1 slave0]
            r config set replica-announce-rdma-port 0
            r -1 client kill type replica
            wait_for_condition 30000 {[string match *,rdma_port=[srv port]* [field -1 slave0]]}
        }
    }
}

if {![software_device]} return

start_server {no_rdma 1 overrides {repl-diskless-sync-delay 0}} {
    start_server [list overrides $rdma] {
        test "a replica connects to the RDMA port that its primary announces" -needs $::on_software_device {
            set port [free_port]
            r -1 config set rdma-port $port rdma-bind $::opt(rdma_host) replica-announce-rdma-port [free_port]
            r replicaof $::opt(rdma_host) [srv -1 port]
            wait_link 0 tcp
            assert_not_equal "" [field 0 master_link_rdma_error]
            r -1 config set replica-announce-rdma-port $port
            r -1 client kill type replica
            wait_link 0 rdma
            assert [log_has "The primary listens for RDMA on port $port"]
        }
    }
}

# The replica's device cannot read from peers, so that the copy comes on a second channel.
start_server [list overrides [list {*}$rdma dual-channel-replication-enabled yes]] {
    for {set i 0} {$i < 2000} {incr i} {r set key:$i [string repeat x 1000]}
    start_server [list env SOFTRDMA_MAX_RD_ATOMIC=0 overrides [list {*}$rdma dual-channel-replication-enabled yes]] {
        test "dual channel over RDMA: the stream comes beside the copy" -needs $::on_software_device {
            r -1 config set rdb-key-save-delay 500
            r replicaof $::opt(rdma_host) [srv -1 port]
            wait_for_condition 20000 {[string match *type=main-channel* [r -1 info replication]]}
            assert_match *type=rdb-channel* [r -1 info replication]
            for {set i 0} {$i < 100} {incr i} {r -1 incr counter}
            r -1 config set rdb-key-save-delay 0
            wait_link 0 rdma
            wait_same -1 0
            assert_equal 100 [r get counter]
            assert_equal "" [field -1 rdma_sync_delivered]
        }
    }
}
