# Clusters. Node i is the i-th server of the innermost cluster: first the primaries, then their replicas in turn.
#
#   start_cluster {primaries 3 replicas 1 overrides {...}} { ... }
#   n 0 cluster info                a command to node 0, as `r` for a server
#   node 0 port                     what `srv` knows: port, pid, dir, log, id ...
#   node_id 0                       its id in the cluster
#
# Options: `form 0` starts the nodes and does nothing else; `slots 0` gives them no slots; `tls 1` encrypts clients, bus
# and replication. The node timeout is 2 s, unless `overrides` says otherwise.

set ::cluster_nodes {}

proc node_level {i} {
    set at [lsearch -exact $::servers [lindex $::cluster_nodes $i]]
    if {$at < 0} {error "there is no node $i"}
    expr {$at - [llength $::servers] + 1}
}
proc n {i args} {r [node_level $i] {*}$args}
proc node {i what} {srv [node_level $i] $what}
proc nodes {} {
    set all {}
    for {set i 0} {$i < [llength $::cluster_nodes]} {incr i} {lappend all $i}
    return $all
}
# Nodes whose process runs.
proc nodes_running {} {lmap i [nodes] {if {![process_alive [node $i pid]]} continue; set i}}
proc node_id {i} {
    set id [node $i id]
    if {![info exists ::server($id,node_id)]} {set ::server($id,node_id) [n $i cluster myid]}
    return $::server($id,node_id)
}
# The node with this id; -1: none.
proc node_of {id} {
    foreach i [nodes] {
        set known ::server([lindex $::cluster_nodes $i],node_id)
        if {[info exists $known] ? [set $known] eq $id : [node_id $i] eq $id} {return $i}
    }
    return -1
}

# The lines of CLUSTER NODES as node i shows them: a dictionary from ids to dictionaries.
proc cluster_view {i} {
    set view [dict create]
    foreach line [split [string trim [n $i cluster nodes]] \n] {
        set slots [lassign $line id address flags primary ping pong epoch link]
        dict set view $id [dict create address $address flags [split $flags ,] primary $primary ping $ping pong $pong\
            epoch $epoch link $link slots $slots]
    }
    return $view
}
proc node_flags {i about} {dict get [cluster_view $i] [node_id $about] flags}
proc cluster_field {i name} {
    regexp -line "^$name:(\[^\\r\]*)" [n $i cluster info] -> value
    return $value
}
proc info_field_of {i section name} {dict get [info_dict [n $i info $section]] $name}
# A field of INFO replication; "" if the node has none, or cannot answer.
proc repl_field {i name} {
    if {[catch {n $i info replication} text] || ![regexp "\n$name:(\[^\r\n\]*)" $text -> value]} {return ""}
    return $value
}
proc is_primary {i} {expr {"master" in [node_flags $i $i]}}
proc primary_of {i} {node_of [dict get [cluster_view $i] [node_id $i] primary]}

# Waits until all running nodes are in this state.
proc wait_for_cluster_state {state {ms 30000}} {
    foreach i [nodes_running] {
        wait_for_condition $ms {[cluster_field $i cluster_state] eq $state} "node $i is not in state $state"
    }
}
# Waits until all running nodes agree on the roles of the nodes, the primary of each replica, and the owners of slots.
proc cluster_opinion {i} {
    set opinion {}
    dict for {id line} [cluster_view $i] {
        set flags [lmap flag [dict get $line flags] {if {$flag in {myself nofailover}} continue; set flag}]
        set slots [lmap slot [dict get $line slots] {if {[string match {\[*} $slot]} continue; set slot}]
        lappend opinion [list $id $flags [dict get $line primary] $slots]
    }
    return [lsort $opinion]
}
proc wait_for_cluster_agreement {{ms 30000}} {
    set running [nodes_running]
    wait_for_condition $ms {[llength [lsort -unique [lmap i $running {cluster_opinion $i}]]] == 1} {
        fail_assertion "the nodes do not agree: [lmap i $running {list $i [cluster_opinion $i]}]"
    }
}
# Waits until the replicas that run are linked to their primaries.
proc wait_for_cluster_replicas {{ms 30000}} {
    foreach i [nodes_running] {
        if {[is_primary $i]} continue
        wait_for_condition $ms {[string match "*master_link_status:up*" [n $i info replication]]} \
            "replica $i is not linked"
    }
}
# Waits until the replica has all that its primary has written.
proc wait_for_cluster_offset {replica primary {ms 20000}} {
    wait_for_condition $ms {[cluster_offset $replica] == [cluster_offset $primary]}
}
proc cluster_offset {i} {
    set text [n $i info replication]
    if {[regexp {slave_repl_offset:(\d+)} $text -> offset]} {return $offset}
    regexp {master_repl_offset:(\d+)} $text -> offset
    return $offset
}

# The process of a node ends, stops, goes on, starts again.
proc node_kill {i {signal KILL}} {
    set id [node $i id]
    reconnect_of $id
    proxy_stop $id
    set ::server($id,expect_exit) 1
    kill_process $signal $::server($id,pid)
    server_reap $id 60000
}
proc node_start {i {overrides {}}} {
    set id [node $i id]
    if {$overrides ne ""} {
        set f [open $::server($id,conf) a]
        foreach {k v} $overrides {puts $f "$k [conf_value $k $v]"}
        close $f
    }
    server_launch $id
    if {![server_wait_up $id]} {error "node $i did not come back: [string range [server_text $id] end-2000 end]"}
    set ::server($id,expect_exit) 0
}
proc node_restart {i {signal TERM} {overrides {}}} {
    node_kill $i $signal
    node_start $i $overrides
}
proc node_pause {i} {
    kill_process STOP [node $i pid]
    wait_for_condition 5000 {[process_state [node $i pid]] eq "T"}
}
proc node_resume {i} {kill_process CONT [node $i pid]}
proc node_log_size {i} {log_size [node_level $i]}
proc wait_for_node_log {i pattern {from 0} {ms 20000}} {wait_for_log $pattern $from $ms [node_level $i]}

# A key that hashes to this slot is [slot_tag 866]:anything. The tag is four characters of '@' to 'O', that is, 16 bits;
# slots are a CRC, so the slot of a tag is that of @@@@, xor a value for each bit that is set.
proc slot_tag {slot} {
    if {![info exists ::slot_pivots]} slot_pivots_make
    set rest [expr {$slot ^ [tag_slot 0]}]
    set bits 0
    foreach top [lsort -integer -decreasing [array names ::slot_pivots]] {
        if {!($rest >> $top & 1)} continue
        lassign $::slot_pivots($top) value mask
        set rest [expr {$rest ^ $value}]
        set bits [expr {$bits ^ $mask}]
    }
    return "{[tag_text $bits]}"
}
proc tag_text {bits} {
    binary format c4 [lmap shift {12 8 4 0} {expr {64 + ($bits >> $shift & 15)}}]
}
# CRC-16/XMODEM modulo 16384.
proc tag_slot {bits} {
    set crc 0
    binary scan [tag_text $bits] c4 bytes
    foreach byte $bytes {
        set crc [expr {$crc ^ $byte << 8}]
        for {set bit 0} {$bit < 8} {incr bit} {
            set crc [expr {($crc & 0x8000 ? $crc << 1 ^ 0x1021 : $crc << 1) & 0xffff}]
        }
    }
    expr {$crc & 16383}
}
# Gaussian elimination: the value and the bits of a pivot, by the highest bit of the value.
proc slot_pivots_make {} {
    for {set i 0} {$i < 16} {incr i} {
        set value [expr {[tag_slot [expr {1 << $i}]] ^ [tag_slot 0]}]
        set mask [expr {1 << $i}]
        for {set top 13} {$top >= 0} {incr top -1} {
            if {!($value >> $top & 1)} continue
            if {![info exists ::slot_pivots($top)]} {
                set ::slot_pivots($top) [list $value $mask]
                break
            }
            lassign $::slot_pivots($top) pivot pivot_mask
            set value [expr {$value ^ $pivot}]
            set mask [expr {$mask ^ $pivot_mask}]
        }
    }
}

# The node that serves a slot, as `viewer` (default: a running node) sees it; -1: nobody.
proc slot_owner {slot {viewer ""}} {
    if {$viewer eq ""} {set viewer [lindex [nodes_running] 0]}
    dict for {id line} [cluster_view $viewer] {
        foreach range [dict get $line slots] {
            lassign [split $range -] first last
            if {[string match {\[*} $range] || $slot < $first} continue
            if {$slot <= [expr {$last eq "" ? $first : $last}]} {return [node_of $id]}
        }
    }
    return -1
}
proc node_tls_port {i} {
    set id [node $i id]
    expr {[info exists ::server($id,tls_port)] ? $::server($id,tls_port) : 0}
}
# The port that other nodes and clients are redirected to, and that of the bus.
proc node_shown_port {i} {expr {$::opt(rdma) ? [node $i port] : [node_base_port $i]}}
# That of MEET, to which the bus adds 10000.
proc node_base_port {i} {expr {[node_tls_port $i] ? [node_tls_port $i] : [node $i port]}}
proc node_bus_port {i} {expr {[node_base_port $i] + 10000}}

proc start_cluster {options body} {
    if {[block_left_out $options $body]} return
    set o [dict merge {primaries 3 replicas 0 overrides {} form 1 slots 1 tls 0 faults 0 tags {}} $options]
    set saved [list $::servers $::cluster_nodes $::tags $::opt(tls) $::opt(rdma)]
    lappend ::tags cluster {*}[dict get $o tags]
    if {[dict get $o tls]} {
        set ::opt(tls) 1
        set ::opt(rdma) 0
    }
    set ids {}
    set code [catch {
        set ids [cluster_start_nodes $o]
        lappend ::servers {*}$ids
        set ::cluster_nodes $ids
        if {[dict get $o form]} {cluster_form $o}
        uplevel 1 $body
    } result opts]
    lassign $saved ::servers ::cluster_nodes ::tags ::opt(tls) ::opt(rdma)
    foreach c $::test_clients {catch {$c -close}}
    set problem [cluster_stop_nodes $ids]
    set died [expr {$code == 1 && [dict get $opts -errorcode] eq "SERVER_DIED"}]
    if {$problem ne "" && !$died} {unit_problem "nodes of a cluster: [string trim $problem {; }]"}
    if {$died && ![llength $::servers]} return
    if {$code} {return -options $opts $result}
}

# Stops all nodes at once. Returns what was wrong with them.
proc cluster_stop_nodes {ids} {
    set problem ""
    set ended {}
    foreach id $ids {
        if {$::server($id,stopped)} continue
        if {[process_alive $::server($id,pid)]} {
            kill_process CONT $::server($id,pid)
            kill_process TERM $::server($id,pid)
        } elseif {!$::server($id,expect_exit)} {
            lappend ended $id
        }
    }
    foreach id $ids {
        set why ""
        if {!$::server($id,stopped)} {
            reconnect_of $id
            proxy_stop $id
            set code [server_reap $id]
            if {$code eq "timeout"} {
                kill_process KILL $::server($id,pid)
                server_reap $id
            }
            if {$id in $ended} {
                set why "had ended by itself ($code)"
            } elseif {$code ne "0"} {
                set why "ended with $code on SIGTERM"
            }
        }
        foreach report [server_reports $id] {append why "; $report"}
        if {$why ne ""} {append problem "; node [lsearch -exact $ids $id]: $why\n[log_tail $id 10]"}
    }
    return $problem
}

proc cluster_start_nodes {o} {
    set count [expr {[dict get $o primaries] * (1 + [dict get $o replicas])}]
    set defaults {cluster-enabled yes cluster-node-timeout 2000 repl-diskless-sync-delay 0}
    if {$::opt(tls) && ![dict get $o faults]} {lappend defaults tls-cluster yes tls-replication yes}
    set options [dict create overrides [dict merge $defaults [dict get $o overrides]]]
    if {[dict get $o faults]} {dict set options no_rdma 1}
    set ids {}
    for {set i 0} {$i < $count} {incr i} {
        if {[dict get $o faults]} {dict set options env [node_faults_env $i]}
        lappend ids [server_start [concat $options {wait 0}]]
    }
    set up {}
    foreach id $ids {
        if {![server_wait_up $id]} { ;# perhaps another process took its port
            server_stop $id
            set id [server_start [dict replace $::server($id,options) wait 1]]
        }
        lappend up $id
    }
    return $up
}
proc node_faults_env {i} {
    list LD_PRELOAD=[tool preload/disk-faults.so] DISK_FAULTS=[file join $::unit_dir faults$i] \
        ASAN_OPTIONS=verify_asan_link_order=0
}
proc node_faults {i args} {write_file [file join $::unit_dir faults$i] [join $args \n]\n}

# Makes a cluster of the nodes: slots, epochs, MEET, replicas.
proc cluster_form {o} {
    set primaries [dict get $o primaries]
    set count [llength $::cluster_nodes]
    for {set i 0} {$i < $primaries} {incr i} {
        n $i cluster set-config-epoch [expr {$i + 1}]
        if {![dict get $o slots]} continue
        n $i cluster addslotsrange [expr {16384 * $i / $primaries}] [expr {16384 * ($i + 1) / $primaries - 1}]
    }
    for {set i 1} {$i < $count} {incr i} {
        n 0 cluster meet 127.0.0.1 [node_base_port $i]
    }
    foreach i [nodes] {
        wait_for_condition 30000 {
            [cluster_field $i cluster_known_nodes] == $count && ![string match *handshake* [n $i cluster nodes]]
        } "node $i does not know all nodes"
    }
    for {set i $primaries} {$i < $count} {incr i} {n $i cluster replicate [node_id [expr {$i % $primaries}]]}
    foreach i [nodes] {node_id $i}
    if {[dict get $o slots]} {wait_for_cluster_state ok}
    wait_for_cluster_agreement
    wait_for_cluster_replicas
}
