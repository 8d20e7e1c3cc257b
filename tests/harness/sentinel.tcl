# Groups of servers with Sentinels. Servers 0, 1 and 2 are a primary and its replicas at the beginning.
#
#   start_sentinels {servers 3 sentinels 3 config {"sentinel parallel-syncs group 2"}} { ... }
#   s 0 sentinel masters            a command to Sentinel 0
#   g 1 info replication            a command to server 1
#   sentinel_field 0 flags          a field of the group's primary as Sentinel 0 shows it
#
# `down-after-milliseconds` is 1 second. The name of the group is "group".
#
# With `tls 1` servers and Sentinels connect to each other over TLS; the ports that the Sentinels name are those of TLS.
#
# With `faults 1` the disk of each Sentinel can fail: sentinel_faults 0 "sync *.conf.tmp* fail EIO" sets the rules of
# Sentinel 0 (programs/preload/disk-faults.c), sentinel_faults 0 ends them.
#
# `env {NAME=VALUE ...}` is the environment of the Sentinels, which may preload another library.

set ::sentinel_ids {}
set ::sentinel_group {}

proc sentinel_level {id} {expr {[lsearch -exact $::servers $id] - [llength $::servers] + 1}}
proc s {i args} {r [sentinel_level [lindex $::sentinel_ids $i]] {*}$args}
# A Sentinel closes the connections of clients to a server whose role it changes.
proc g {i args} {
    set id [lindex $::sentinel_group $i]
    if {![catch {r [sentinel_level $id] {*}$args} reply options]} {return $reply}
    if {![string match "*connection closed*" $reply]} {return -options $options $reply}
    reconnect_of $id
    r [sentinel_level $id] {*}$args
}
proc s_srv {i what} {srv [sentinel_level [lindex $::sentinel_ids $i]] $what}
proc g_srv {i what} {srv [sentinel_level [lindex $::sentinel_group $i]] $what}

proc sentinel_field {i name} {dict get [s $i sentinel primary group] $name}
# The port of the primary that Sentinel i names.
proc named_port {i} {lindex [s $i sentinel get-primary-addr-by-name group] 1}
proc sentinels_running {} {
    set running {}
    for {set i 0} {$i < [llength $::sentinel_ids]} {incr i} {
        if {[process_alive [s_srv $i pid]]} {lappend running $i}
    }
    return $running
}
# Waits until all running Sentinels name another port than this, and returns it.
proc wait_for_switch {from {ms 30000}} {
    wait_for_condition $ms {
        [llength [lsort -unique [lmap i [sentinels_running] {named_port $i}]]] == 1 &&
        [named_port [lindex [sentinels_running] 0]] != $from
    } "the Sentinels do not agree on another primary than $from"
    return [named_port [lindex [sentinels_running] 0]]
}
# The port at which the others reach a server.
proc group_port {id} {expr {$::server($id,tls) ? $::server($id,tls_port) : $::server($id,port)}}
proc server_of_port {port} {
    for {set i 0} {$i < [llength $::sentinel_group]} {incr i} {
        if {[group_port [lindex $::sentinel_group $i]] == $port} {return $i}
    }
    error "no server has port $port"
}
# All servers but the primary follow it.
proc wait_for_followers {port {ms 30000}} {
    for {set i 0} {$i < [llength $::sentinel_group]} {incr i} {
        if {[group_port [lindex $::sentinel_group $i]] == $port || ![process_alive [g_srv $i pid]]} continue
        wait_for_condition $ms {
            [string match "*master_port:$port\r\n*master_link_status:up*" [g $i info replication]]
        } "server $i does not follow $port"
    }
}
proc wait_for_known {replicas others {ms 30000}} {
    foreach i [sentinels_running] {
        wait_for_condition $ms {
            [sentinel_field $i num-slaves] >= $replicas && [sentinel_field $i num-other-sentinels] >= $others
        } "Sentinel $i does not know the group"
        wait_for_condition $ms {
            ![string match *disconnected* [s $i sentinel replicas group]]
        } "Sentinel $i is not connected to the replicas"
    }
}
proc kill_group_server {i {signal KILL}} {
    set id [lindex $::sentinel_group $i]
    reconnect_of $id
    proxy_stop $id
    set ::server($id,expect_exit) 1
    kill_process $signal $::server($id,pid)
    server_reap $id 20000
}
proc start_again {id} {
    server_launch $id
    if {![server_wait_up $id]} {error "a server did not come back: [string range [server_text $id] end-2000 end]"}
    set ::server($id,expect_exit) 0
}
proc start_group_server {i} {start_again [lindex $::sentinel_group $i]}
proc stop_sentinel {i {signal KILL}} {
    set id [lindex $::sentinel_ids $i]
    reconnect_of $id
    proxy_stop $id
    set ::server($id,expect_exit) 1
    kill_process $signal $::server($id,pid)
    server_reap $id 20000
}
proc start_sentinel {i} {start_again [lindex $::sentinel_ids $i]}

proc sentinel_faults {i args} {write_file [file join $::unit_dir faults$i] [join $args \n]\n}

# The primary is killed, another server takes its place, and it comes back as a replica. Returns the new primary's port.
proc primary_dies_and_returns {} {
    set port [named_port 0]
    set old [server_of_port $port]
    g $old set key value
    g $old wait 2 10000
    kill_group_server $old
    set new [wait_for_switch $port]
    assert_equal value [g [server_of_port $new] get key]
    start_group_server $old
    wait_for_followers $new
    return $new
}
# SENTINEL FAILOVER as soon as it is possible. Returns the old primary's port.
proc ask_for_failover {args} {
    wait_for_known 2 2
    set port [named_port 0]
    wait_for_condition 20000 {![catch {s 0 sentinel failover group {*}$args}]} "no failover is possible"
    return $port
}

proc start_sentinels {options body} {
    if {[block_left_out $options $body]} return
    set o [dict merge {servers 3 sentinels 3 quorum 2 config {} overrides {} tls 0 faults 0 env {} tags {}} $options]
    set saved [list $::servers $::sentinel_ids $::sentinel_group $::tags $::opt(tls)]
    if {[dict get $o tls]} {set ::opt(tls) 1}
    # A Sentinel with a preloaded library has only a plain port.
    if {[dict get $o faults] || [dict get $o env] ne ""} {set ::opt(tls) 0}
    lappend ::tags sentinel {*}[dict get $o tags]
    set ids {}
    set ::sentinel_ids {}
    set ::sentinel_group {}
    set code [catch {
        for {set i 0} {$i < [dict get $o servers]} {incr i} {
            set overrides [list repl-diskless-sync-delay 0 {*}[dict get $o overrides]]
            if {$::opt(rdma)} {lappend overrides rdma-replication yes}
            if {$::opt(tls)} {lappend overrides tls-replication yes}
            if {$i} {lappend overrides replicaof "127.0.0.1 [group_port [lindex $ids 0]]"}
            lappend ids [server_start [list overrides $overrides]]
            lappend ::servers [lindex $ids end]
            lappend ::sentinel_group [lindex $ids end]
        }
        set port [group_port [lindex $ids 0]]
        for {set i 0} {$i < [dict get $o sentinels]} {incr i} {
            set config [list "sentinel monitor group 127.0.0.1 $port [dict get $o quorum]" \
                "sentinel down-after-milliseconds group 1000" "sentinel failover-timeout group 10000" \
                {*}[dict get $o config]]
            set how [list args --sentinel config $config]
            if {$::opt(tls)} {lappend how overrides {tls-replication yes}}
            if {[dict get $o faults]} {
                sentinel_faults $i
                lappend how no_rdma 1 env [list LD_PRELOAD=[tool preload/disk-faults.so] \
                    DISK_FAULTS=[file join $::unit_dir faults$i] ASAN_OPTIONS=verify_asan_link_order=0]
            }
            if {[dict get $o env] ne ""} {
                lappend how no_rdma 1 env [list {*}[dict get $o env] ASAN_OPTIONS=verify_asan_link_order=0]
            }
            lappend ids [server_start $how]
            lappend ::servers [lindex $ids end]
            lappend ::sentinel_ids [lindex $ids end]
        }
        wait_for_followers $port
        wait_for_known [expr {[dict get $o servers] - 1}] [expr {[dict get $o sentinels] - 1}]
        uplevel 1 $body
    } result opts]
    lassign $saved ::servers ::sentinel_ids ::sentinel_group ::tags ::opt(tls)
    foreach c $::test_clients {catch {$c -close}}
    set problem [string trim [join [lmap id [lreverse $ids] {server_stop $id}] " "]]
    foreach id $ids {foreach report [server_reports $id] {append problem "; $report"}}
    if {$problem ne ""} {unit_problem "servers of a group with Sentinels: $problem"}
    if {$code} {return -options $opts $result}
}
