# A cluster whose clients and replicas use RDMA: what clients are told, links of replicas, a failover. Other suites of
# clusters run over RDMA, too; this one has no tests over TCP. tests/interop/cluster_clients.py has nodes of Valkey, and
# RDMA ports that differ from the TCP ports. seconds: 12

if {!$::opt(rdma)} return

proc replication_of {i name} {
    if {[catch {n $i info replication} text] || ![regexp "\n$name:(\[^\r\n\]*)" $text -> value]} {return ""}
    return $value
}
proc wait_for_rdma_link {i} {
    wait_for_condition 20000 {
        [replication_of $i master_link_status] eq "up" && [replication_of $i master_link_transport] eq "rdma"
    } "node $i is linked over [replication_of $i master_link_transport]"
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
        $tcp -close
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
        foreach c [list $tcp $other] {$c -close}
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
