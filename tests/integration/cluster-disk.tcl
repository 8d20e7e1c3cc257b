# nodes.conf on a disk that fails, is slow, or loses power: what a node has told others it knows after a restart.
# seconds: 16

set temporary "*/nodes.conf.tmp*"
proc conf_of {i} {file_bytes [file join [node $i dir] nodes.conf]}
proc temporary_files {i} {glob -nocomplain -directory [node $i dir] nodes.conf.tmp*}

start_cluster {primaries 2 faults 1} {
    test "nothing is told before it is on disk, and the node serves its clients meanwhile" {
        set before [cluster_field 1 cluster_current_epoch]
        node_faults 0 "sync $temporary wait"
        set c [new_client -level [node_level 0] -deferring 1]
        $c cluster bumpepoch
        wait_for_condition 10000 {[set epoch [cluster_field 0 cluster_my_epoch]] > $before}
        assert_equal 1 [info_field_of 0 clients blocked_clients]
        # Pings would tell it at once, many times over.
        set sent [cluster_field 0 cluster_stats_messages_ping_sent]
        wait_for_condition 10000 {[info_field_of 0 memory mem_cluster_links] > 0}
        for {set i 0} {$i < 20} {incr i} {
            assert_equal PONG [n 0 ping]
            assert_equal $before [cluster_field 1 cluster_current_epoch]
            after 20 ;# the ticks in which it would be told
        }
        assert {![string match "* $epoch connected*" [conf_of 0]]}
        assert_equal 1 [info_field_of 0 clients blocked_clients]
        node_faults 0
        assert_equal "BUMPED $epoch" [$c -read]
        $c -close
        wait_for_condition 10000 {[cluster_field 1 cluster_current_epoch] == $epoch}
        assert_match "* $epoch connected*" [conf_of 0]
        wait_for_cluster_agreement
    }

    test "a node whose file cannot be written goes on with best-effort, and says so" {
        n 0 config set cluster-config-save-behavior best-effort
        foreach {rule reason} [list \
            "open $temporary fail EROFS" "Read-only file system" \
            "write $temporary fail ENOSPC" "No space left on device" \
            "sync $temporary fail EIO" "Input/output error" \
            "rename */nodes.conf fail EACCES" "Permission denied" \
        ] {
            set before [conf_of 0]
            node_faults 0 $rule
            assert_equal "-ERR error saving the cluster node config: $reason" [n 0 -typed cluster saveconfig]
            assert_equal $before [conf_of 0]
            assert_equal {} [temporary_files 0]
            assert_equal PONG [n 0 ping]
        }
        # Each failure is logged; what it means only from time to time.
        set log [log_text 0 [node_level 0]]
        foreach what {"Could not open temp" "Could not rename tmp"} {assert_match "*$what cluster config file*" $log}
        set advice "Cluster config updated even though writing the cluster config file to disk failed."
        assert_equal 1 [regexp -all $advice $log]
        node_faults 0
        assert_equal OK [n 0 cluster saveconfig]
        n 0 config set cluster-config-save-behavior sync
    }

    test "CLUSTER SAVECONFIG that fails does not end the node" {
        set from [node_log_size 0]
        node_faults 0 "rename */nodes.conf fail EACCES"
        assert_equal "-ERR error saving the cluster node config: Permission denied" [n 0 -typed cluster saveconfig]
        assert_equal PONG [n 0 ping]
        assert [log_has "Could not rename tmp cluster config file: Permission denied" $from [node_level 0]]
        node_faults 0
        assert_equal OK [n 0 cluster saveconfig]
    }

    test "by default a node whose file cannot be written ends" {
        set before [conf_of 0]
        set id [node 0 id]
        set from [node_log_size 0]
        node_faults 0 "sync $temporary fail EIO"
        set ::server($id,expect_exit) 1
        catch {n 0 cluster setslot 0 migrating [node_id 1]}
        assert_equal 1 [server_reap $id]
        assert [log_has "Could not sync tmp cluster config file: Input/output error" $from [node_level 0]]
        assert [log_has "Fatal: can't update cluster config file." $from [node_level 0]]
        assert_equal $before [conf_of 0]
        node_faults 0
        reconnect_of $id
        node_start 0
        wait_for_cluster_agreement
    }

    test "a node that ends at any step of a write starts again with the old file or the new one" {
        foreach rule [list \
            "open $temporary kill" "write $temporary kill" "write $temporary kill after=100" "sync $temporary kill" \
            "rename */nodes.conf kill" "write $temporary powercut after=50" "rename */nodes.conf powercut" \
        ] {
            set epoch [cluster_field 1 cluster_current_epoch]
            set id [node 0 id]
            set name [n 0 cluster myid]
            node_faults 0 $rule
            set ::server($id,expect_exit) 1
            catch {n 0 cluster saveconfig}
            assert_equal SIGKILL [server_reap $id] $rule
            node_faults 0
            reconnect_of $id
            node_start 0
            assert_equal $name [n 0 cluster myid] $rule
            # What the ended process left is gone; the new one may be writing.
            foreach file [temporary_files 0] {assert_match "*.tmp-[node 0 pid]-*" $file}
            # What the other one has heard is known again, or more.
            assert {[cluster_field 0 cluster_current_epoch] >= $epoch} $rule
            assert {[cluster_field 1 cluster_current_epoch] <= [cluster_field 0 cluster_current_epoch]} $rule
            wait_for_cluster_agreement
        }
    }

    test "a node removes at its start what it left behind when it was killed, and nothing else" {
        node_kill 0
        set dir [node 0 dir]
        write_file [file join $dir kept] kept
        foreach name {nodes.conf.tmp-1-2 nodes.conf.tmp-4242-123456789012} {write_file [file join $dir $name] x}
        set kept {nodes.conf.tmp nodes.conf.tmp- nodes.conf.tmp-1 nodes.conf.tmp-1- nodes.conf.tmp-1-2x\
            nodes.conf.tmp-1-2-3 other.conf.tmp-1-2}
        foreach name $kept {write_file [file join $dir $name] x}
        file mkdir [file join $dir nodes.conf.tmp-5-6]
        file link -symbolic [file join $dir nodes.conf.tmp-7-8] [file join $dir kept]
        set from [node_log_size 0]
        node_start 0
        assert [log_has "Removed 2 unfinished cluster config files of earlier processes" $from [node_level 0]]
        foreach name {nodes.conf.tmp-1-2 nodes.conf.tmp-4242-123456789012} {
            assert {![file exists [file join $dir $name]]} $name
        }
        foreach name [list {*}$kept kept nodes.conf.tmp-5-6 nodes.conf.tmp-7-8] {
            assert {[file exists [file join $dir $name]]} $name
        }
        wait_for_cluster_agreement
    }
}

start_cluster {primaries 3 replicas 1 faults 1} {
    # A replica of node 1, or that node after a failover, asks for votes; that of node 0 counts, but is not needed.
    proc elect {} {
        set candidate [expr {[is_primary 1] ? 4 : 1}]
        n $candidate config set loglevel debug
        wait_for_cluster_replicas
        set from [node_log_size $candidate]
        assert_equal OK [n $candidate cluster failover force]
        wait_for_condition 20000 {[is_primary $candidate]}
        list $candidate $from
    }
    set vote "auth-ack packet received from: [n 0 cluster myid]"

    test "a candidate hears of the vote of a node" {
        lassign [elect] candidate from
        wait_for_condition 10000 {[log_has $vote $from [node_level $candidate]]}
        wait_for_cluster_agreement
    }

    test "a node that ends at any step of writing its vote has not told it, and votes in later epochs only" {
        set directory [node 0 dir]
        foreach rule [list "open $temporary kill" "write $temporary kill" "sync $temporary powercut" \
            "rename */nodes.conf powercut" "sync $directory kill"] {
            set id [node 0 id]
            set ::server($id,expect_exit) 1
            wait_for_cluster_replicas
            n 0 cluster saveconfig ;# nothing but the vote is left to write
            node_faults 0 $rule
            lassign [elect] candidate from
            assert_equal SIGKILL [server_reap $id] $rule
            set epoch [cluster_field $candidate cluster_my_epoch]
            node_faults 0
            reconnect_of $id
            node_start 0
            wait_for_cluster_state ok
            wait_for_cluster_agreement
            assert {![log_has $vote $from [node_level $candidate]]} $rule
            lassign [elect] candidate from
            wait_for_condition 10000 {[log_has $vote $from [node_level $candidate]]}
            set later [cluster_field $candidate cluster_my_epoch]
            assert {$later > $epoch} $rule
            wait_for_condition 10000 {[string match "*lastVoteEpoch $later*" [conf_of 0]]}
            wait_for_cluster_agreement
        }
    }
}
