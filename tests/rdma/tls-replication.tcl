# Replication by TLS over RDMA: what the link uses, both kinds of synchronization, changes of the primary, and what a
# replica does when TLS over RDMA is not there. seconds: 15

if {[skip_without_tls "replication by TLS over RDMA"]} return

# A server with TLS over TCP and RDMA on the same port number; `r` is a client over TCP.
proc start_tls_node {overrides body} {
    set port [free_port]
    set addresses [lsort -unique [list 127.0.0.1 $::opt(rdma_host)]] ;# the replica may fall back to TCP
    set settings [dict merge [list bind [join $addresses] tls-port $port rdma-bind $::opt(rdma_host) rdma-port $port \
        tls-rdma yes tls-cert-file [crt server.crt] tls-key-file [crt server.key] tls-ca-cert-file [crt ca.crt] \
        tls-replication yes rdma-replication yes repl-diskless-sync-delay 0 repl-timeout 20 \
        protected-mode no] $overrides]
    uplevel 1 [list start_server [list no_rdma 1 overrides $settings tags tls] $body]
}
proc wait_link {transport} {
    wait_for_condition 20000 {
        [field 0 master_link_status] eq "up" && [field 0 master_link_transport] eq $transport
    } "the link is [field 0 master_link_status], over [field 0 master_link_transport]"
}
proc log_count {regexp from} {regexp -all $regexp [log_text $from]}
proc wait_same {} {wait_for_condition 20000 {[r -1 debug digest] eq [r debug digest]}}
proc fill {count} {
    for {set i 0} {$i < $count} {incr i} {r set key:$i [numbered 20000 $i]}
}

# So much memory cannot be registered for a snapshot: the copy comes through the connection.
set unfetched {rdma-replication-snapshot-memory 64mb rdma-max-registered-memory 48mb}
foreach {kind settings} [list \
    "a fetched copy" {} \
    "a fetched copy, with I/O threads," {io-threads 3} \
    "a disk-based copy" [list repl-diskless-sync no {*}$unfetched] \
    "a diskless copy" [list repl-diskless-sync yes {*}$unfetched] \
    "two channels" [list repl-diskless-sync yes dual-channel-replication-enabled yes {*}$unfetched]
] {
    start_tls_node $settings {
        set port [config_get tls-port]
        fill 500
        start_tls_node [dict merge $settings [list replicaof "$::opt(rdma_host) $port"]] {
            test "a replica gets $kind and the stream by TLS over RDMA" {
                wait_link rdma-tls
                wait_same
                assert_match "*transport=rdma-tls*tls=TLSv1.3*" [r -1 client list type replica]
                if {[string match "a fetched*" $kind]} {
                    assert_equal 1 [field -1 rdma_sync_delivered]
                    assert {[info_field rdma rdma_reads] > 0}
                    assert_equal 0 [info_field rdma rdma_read_windows]
                    assert {[log_has "replicas fetch the encrypted snapshot by RDMA READ" 0 -1]}
                } else {
                    assert_equal 0 [info_field rdma rdma_reads]
                }
                r -1 set large [numbered 3000000]
                r -1 set small 1
                assert_equal 1 [r -1 wait 1 10000]
                assert_equal [numbered 3000000] [r get large]
            }

            test "a link that breaks continues where it was: $kind" {
                set full [field -1 sync_full stats]
                assert_equal 1 [r -1 client kill type replica]
                r -1 set after broken
                wait_for_condition 20000 {[r get after] eq "broken"}
                wait_link rdma-tls
                assert_equal $full [field -1 sync_full stats]
                wait_same
            }
        }
    }
}

start_tls_node {tls-rdma no} {
    set port [config_get tls-port]
    r set key value
    start_tls_node [list replicaof "$::opt(rdma_host) $port"] {
        test "a primary whose RDMA port has no TLS is followed by TLS over TCP, never in clear text" {
            wait_link tls
            assert_equal value [r get key]
            assert_match "*transport=tls*" [r -1 client list type replica]
            assert_regexp {master_link_rdma_error:.+} [r info replication]
        }
        test "the link changes to TLS over RDMA when the primary offers it" {
            r -1 config set tls-rdma optional
            r -1 client kill type replica
            wait_link rdma-tls
            r -1 set key later
            wait_for_condition 20000 {[r get key] eq "later"}
        }
        test "a primary that trusts another authority is not followed at all" {
            set from [log_size]
            r config set tls-ca-cert-file [crt foreign-ca.crt]
            r -1 client kill type replica
            wait_for_condition 20000 {[field 0 master_link_status] eq "down"}
            r -1 set key secret
            wait_for_condition 20000 {[log_count "Error condition on socket for SYNC" $from] > 1}
            assert_equal 1 [log_count {No RDMA connection to [^\n]*certificate[^\n]*\. Using TLS over TCP} $from]
            assert_equal 0 [log_count "Using TCP" $from]
            assert_equal later [r get key]
            r config set tls-ca-cert-file [crt ca.crt]
            wait_for_condition 20000 {[r get key] eq "secret"}
        }
    }
}

start_tls_node {tls-rdma optional} {
    set port [config_get tls-port]
    fill 500
    start_tls_node {} {
        start_tls_node {tls-replication no} {
            test "a replica with TLS and one without fetch snapshots of their own, one after the other" {
                r replicaof $::opt(rdma_host) $port
                r -1 replicaof $::opt(rdma_host) $port
                foreach {level transport} {0 rdma -1 rdma-tls} {
                    wait_for_condition 20000 {
                        [field $level master_link_status] eq "up" && [field $level master_link_transport] eq $transport
                    }
                    wait_for_condition 20000 {[r -2 debug digest] eq [r $level debug digest]}
                }
                assert_equal {2 2} [list [field -2 rdma_sync_snapshots] [field -2 rdma_sync_delivered]]
                foreach kind {"the encrypted" "the"} {
                    assert {[log_has "replicas fetch $kind snapshot by RDMA READ" 0 -2]}
                }
            }
        }
    }
}
