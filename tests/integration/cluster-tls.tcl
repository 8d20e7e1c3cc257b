# A cluster over TLS.

# The proxy may exist from another build.
proc has_tls {} {expr {![catch {exec ldd $::opt(server)} libraries] && [string match *libssl* $libraries]}}
if {![has_tls] || [tool tls-proxy] eq "" || [tool openssl] eq ""} {
    test "a cluster over TLS" {skip_test "built without TLS, or openssl(1) is not installed"}
    return
}

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
