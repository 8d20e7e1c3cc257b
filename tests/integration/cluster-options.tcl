# Options of a cluster node: what they refuse, and how other nodes learn of them. seconds: 21

start_cluster {primaries 2} {
    test "values that are refused, with the reason" {
        foreach {option value why} {
            cluster-enabled no "can't set immutable config"
            cluster-config-file x "can't set immutable config"
            cluster-port 1 "can't set immutable config"
            cluster-databases 2 "can't set immutable config"
            cluster-node-timeout -1 "argument must be between 0 and 9223372036854775807 inclusive"
            cluster-announce-ip "1.2.3.4;" "cluster-announce-ip contains invalid character"
            cluster-announce-ip 1111111111222222222233333333334444444444555555 "cluster-announce-ip is too long"
            cluster-announce-ip "1.2.3.4\0" "cluster-announce-ip contains invalid character"
            cluster-announce-human-nodename "a\0b" "Announced human node name contained invalid character"
            availability-zone "a\0b" "argument must not contain a null byte"
            cluster-announce-port 70000 "argument must be between 0 and 65535 inclusive"
            cluster-announce-hostname a_b "Hostnames may only contain alphanumeric characters, hyphens or dots"
            cluster-announce-human-nodename "a;b" "Announced human node name contained invalid character"
            cluster-announce-client-ipv4 ::1 "Invalid IPv4 address"
            cluster-announce-client-ipv6 1.2.3.4 "Invalid IPv6 address"
            cluster-preferred-endpoint-type x
                "argument(s) must be one of the following: ip, hostname, unknown-endpoint"
            cluster-config-save-behavior x "argument(s) must be one of the following: sync, best-effort"
            cluster-manual-failover-timeout 0 "argument must be between 1 and 2147483647 inclusive"
            cluster-message-gossip-perc 101 "argument must be between 1 and 100 inclusive"
        } {
            assert_error "ERR CONFIG SET failed (possibly related to argument '$option') - $why" \
                [list n 0 config set $option $value]
        }
    }

    test "the limit of a link counts the memory of its queue: one that is less than an empty queue ends each link" {
        n 0 config set cluster-link-sendbuf-limit 1
        wait_for_condition 10000 {[cluster_field 0 total_cluster_links_buffer_limit_exceeded] >= 1}
        n 0 config set cluster-link-sendbuf-limit 0
        wait_for_cluster_state ok
    }

    test "a node shows another port as soon as it listens there" -tags tcp-only {
        set before [srv [node_level 0] port]
        set other [free_port]
        n 0 cluster slots ;# fills what is kept of its reply
        assert_equal OK [n 0 config set port $other]
        assert_match "*:$other@*" [dict get [cluster_view 0] [node_id 0] address]
        assert_match "*$other*" [n 0 cluster slots]
        wait_for_condition 10000 {[string match "*:$other@*" [dict get [cluster_view 1] [node_id 0] address]]}
        n 0 config set port $before
        wait_for_condition 10000 {[string match "*:$before@*" [dict get [cluster_view 1] [node_id 0] address]]}
    }

    test "what a node announces reaches the other one, and its file" {
        n 0 config set cluster-announce-hostname host.example cluster-announce-human-nodename somebody
        wait_for_condition 10000 {
            [string match "*,host.example" [dict get [cluster_view 1] [node_id 0] address]]
        }
        foreach i {0 1} {
            wait_for_condition 10000 {
                [string match "*,host.example,*nodename=somebody,*" [file_bytes [file join [node $i dir] nodes.conf]]]
            }
        }
        n 0 config set cluster-announce-hostname "" cluster-announce-human-nodename ""
        wait_for_condition 10000 {![string match "*host.example*" [dict get [cluster_view 1] [node_id 0] address]]}
    }

    test "cluster-replica-no-failover shows as a flag" {
        n 0 config set cluster-replica-no-failover yes
        wait_for_condition 10000 {"nofailover" in [node_flags 1 0]}
        n 0 config set cluster-replica-no-failover no
        wait_for_condition 10000 {"nofailover" ni [node_flags 1 0]}
    }

    test "extreme times do no harm" {
        foreach value {0 1 9223372036854775807} {
            n 0 config set cluster-node-timeout $value cluster-replica-validity-factor 2147483647
            assert_equal $value [lindex [n 0 config get cluster-node-timeout] 1]
            wait_for_condition 10000 {[cluster_field 0 cluster_known_nodes] == 2}
        }
        n 0 config set cluster-node-timeout 2000 cluster-replica-validity-factor 10
        wait_for_cluster_state ok
    }
}

# The node timeout is longer than the test waits: only the refused connections can have started this failover.
start_cluster {primaries 3 replicas 1 overrides {cluster-fast-failover yes cluster-node-timeout 60000}} {
    test "with cluster-fast-failover a replica takes over as soon as the primary's process is gone" {
        node_kill 0
        wait_for_condition 20000 {[is_primary 3]}
        node_start 0
        wait_for_condition 20000 {![is_primary 0]}
        wait_for_cluster_agreement
    }
}

start_cluster {primaries 2 overrides {bind "127.0.0.1 -::1"}} {
    set key [slot_tag 0]
    set port [node_shown_port 0]
    proc wait_for_moved {where {client ""}} {
        global key
        if {$client eq ""} {set client [list n 1]}
        wait_for_condition 10000 {[{*}$client -typed get $key] eq "-MOVED 0 $where"}
    }

    test "MOVED follows what the owner announces and which endpoint is preferred" {
        wait_for_moved 127.0.0.1:$port
        n 0 config set cluster-announce-ip 10.1.2.3
        wait_for_moved 10.1.2.3:$port
        n 1 config set cluster-preferred-endpoint-type hostname
        assert_equal "-MOVED 0 ?:$port" [n 1 -typed get $key]
        n 0 config set cluster-announce-hostname host.example
        wait_for_moved host.example:$port
        n 1 config set cluster-preferred-endpoint-type unknown-endpoint
        assert_equal "-MOVED 0 :$port" [n 1 -typed get $key]
        n 1 config set cluster-preferred-endpoint-type ip
        assert_equal "-MOVED 0 10.1.2.3:$port" [n 1 -typed get $key]
        foreach value {7777 0} shown [list 7777 $port] {
            n 0 config set cluster-announce-client-port $value cluster-announce-client-tls-port $value \
                cluster-announce-client-rdma-port $value
            wait_for_moved 10.1.2.3:$shown
        }
    }

    test "MOVED names the address that the owner announces for the family of the client" {
        n 0 config set cluster-announce-client-ipv4 192.0.2.1 cluster-announce-client-ipv6 2001:db8::1
        wait_for_moved 192.0.2.1:$port
        if {!$::opt(tls) && [catch {new_client -host ::1 -port [node 1 port]} client] == 0} {
            assert_equal "-MOVED 0 2001:db8::1:[node 0 port]" [$client -typed get $key]
            assert_equal "-MOVED 0 192.0.2.1:$port" [n 1 -typed get $key]
            n 0 config set cluster-announce-client-ipv6 ""
            wait_for_moved 10.1.2.3:[node 0 port] $client
            $client -close
        }
        n 0 config set cluster-announce-client-ipv4 ""
        wait_for_moved 10.1.2.3:$port
    }

    test "after cluster-announce-ip was emptied the address is that of the connections" {
        wait_for_moved 10.1.2.3:$port
        n 0 config set cluster-announce-ip ""
        wait_for_moved 127.0.0.1:$port
        wait_for_condition 10000 {[string match "127.0.0.1:*" [dict get [cluster_view 0] [node_id 0] address]]}
    }

    test "each MOVED is counted as an error and as a rejected call" {
        n 1 config resetstat
        foreach command [list [list get $key] [list get $key] [list set $key 1] [list mget $key $key] readonly \
            [list get $key] readwrite multi [list get $key] exec {get} [list get $key]] {n 1 -typed {*}$command}
        assert_match "*errorstat_MOVED:count=7\r\n*" [n 1 info errorstats]
        assert_match "*total_error_replies:9\r\n*" [n 1 info stats]
        assert_match "*cmdstat_get:calls=0,*rejected_calls=6,failed_calls=0*" [n 1 info commandstats]
        assert_match "*cmdstat_set:calls=0,*rejected_calls=1,failed_calls=0*" [n 1 info commandstats]
        assert_match "*cmdstat_mget:calls=0,*rejected_calls=1,failed_calls=0*" [n 1 info commandstats]
    }
}
