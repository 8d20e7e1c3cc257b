# A cluster over TLS. seconds: 10

# The proxy may exist from another build.
if {[skip_without_tls "a cluster over TLS" tls-proxy]} return

start_cluster {primaries 1 replicas 1 tls 1 overrides {tls-auth-clients no}} {
    test "a cluster over TLS: clients, bus and replication" {
        assert_equal ok [cluster_field 0 cluster_state]
        set tag [slot_tag 0]
        n 0 set $tag:k v
        wait_for_condition 10000 {[n 1 debug digest] eq [n 0 debug digest]}
        # CLUSTER NODES shows clients on TLS the ports of TLS; the bus is 10000 above that port.
        assert_match "127.0.0.1:[node_tls_port 1]@[node_bus_port 1]*" \
            [dict get [cluster_view 0] [node_id 1] address]
    }

    test "the bus needs a certificate of the peer, also where clients need none" {
        set dir [certificates]
        foreach {port certificate connects} [list \
            [node_tls_port 0] {} 1 \
            [node_bus_port 0] {} 0 \
            [node_bus_port 0] [list -cert $dir/client.crt -key $dir/client.key] 1 \
        ] {
            # What the bus refuses ends with an alert; the client port answers, the bus closes after bytes that are none
            # of its messages.
            catch {exec openssl s_client -connect 127.0.0.1:$port -CAfile $dir/ca.crt {*}$certificate -quiet \
                << "PING\r\nPING\r\nPING\r\nQUIT\r\n" 2>@1} out
            assert_equal $connects [expr {![string match -nocase "*alert*certificate*required*" $out]}] $out
        }
    }
}

# The nodes have certificates, and no TLS port.
set dir [certificates]
start_cluster [list primaries 3 replicas 1 overrides [list tls-cert-file $dir/server.crt tls-key-file $dir/server.key \
    tls-ca-cert-file $dir/ca.crt]] {
    test "a replica follows its primary to the other port when tls-replication changes" {
        set plain [srv [node_level 0] port]
        set encrypted [free_port]
        n 0 config set tls-port $encrypted
        wait_for_condition 20000 {[string match "*tls-port=$encrypted*" [n 3 cluster nodes]] ||
            [string match "*tls-port $encrypted*" [n 3 cluster shards]]} "the port is not told: [n 3 cluster shards]"
        foreach {on port transport} [list yes $encrypted tls no $plain tcp] {
            foreach i {0 3} {n $i config set tls-replication $on}
            n 0 client kill type replica
            wait_for_condition 20000 {
                [info_field_of 3 replication master_link_status] eq "up" &&
                [string match "* transport=$transport*" [n 0 client list type replica]]
            } "the link does not come back: [n 3 info replication]"
            assert_equal $port [info_field_of 3 replication master_port]
            n 0 set [slot_tag 0]:k $on
            wait_for_condition 10000 {[n 3 debug digest] eq [n 0 debug digest]}
        }
        n 0 config set tls-port 0
    }

    test "a replica that moves to a primary without a port of its transport leaves the old one" {
        set tag [slot_tag 0]
        n 0 set $tag:k v
        wait_for_cluster_replicas
        foreach i {0 3} {n $i config set tls-replication yes} ;# links that are up stay
        n 3 cluster replicate [node_id 1]
        wait_for_condition 10000 {[info_field_of 3 replication master_link_status] eq "down"}
        wait_for_condition 10000 {![string match *slave0:* [n 0 info replication]]}
        wait_for_node_log 3 "Primary [node_id 1] has told no TLS port"
        assert_equal slave [info_field_of 3 replication role]
        # It has no data of its new primary, and does not take its slots.
        node_kill 1
        wait_for_condition 20000 {"fail" in [node_flags 3 1]}
        wait_for_node_log 3 "*Currently unable to failover: Disconnected from primary for longer than allowed*"
        assert {"slave" in [node_flags 0 3]}
        node_start 1
        n 3 config set tls-replication no
        wait_for_condition 20000 {[info_field_of 3 replication master_link_status] eq "up"}
        wait_for_condition 20000 {[n 3 debug digest] eq [n 1 debug digest]}
    }
}
