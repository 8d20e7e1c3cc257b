# Modules in a cluster: its nodes, and messages between modules. The module is tests/modules/peers.c.

set peers [file join $::root build modules peers.so]
start_cluster [list primaries 3 overrides [list loadmodule $peers]] {
    test "a module knows the nodes of its cluster" {
        set got [n 0 peers.nodes]
        assert_equal [list [n 0 cluster myid] 3] [lrange $got 0 1]
        assert_equal 3 [llength [lrange $got 2 end]]
        foreach node [lrange $got 2 end] {
            lassign $node id ip port flags
            assert_equal 1 [expr {[lsearch [list [n 0 cluster myid] [n 1 cluster myid] [n 2 cluster myid]] $id] >= 0}]
            assert_equal [expr {$id eq [n 0 cluster myid] ? 3 : 2}] $flags
            assert {$port > 0}
        }
    }

    test "each slot has a name of a key" {
        assert_equal 0 [n 0 peers.slots]
    }

    test "messages of a module reach one node, or all" {
        set sender [n 0 cluster myid]
        assert_equal OK [n 0 peers.send [n 1 cluster myid] 7 hello]
        set got ""
        wait_for_condition 5000 {[set got [n 1 peers.heard]] ne ""} "no message"
        assert_equal [list [list $sender 7 hello]] $got
        assert_equal OK [n 0 peers.send all 7 everybody]
        foreach node {1 2} {
            set got ""
            wait_for_condition 5000 {[set got [n $node peers.heard]] ne ""} "no message"
            assert_equal [list [list $sender 7 everybody]] $got
        }
        assert_equal {} [n 0 peers.heard]
        assert_equal NO [n 0 peers.send [string repeat a 40] 7 nobody]
        assert_equal NO [n 0 peers.send short 7 nobody]
    }

    test "a message of a kind that no module waits for is dropped" {
        assert_equal OK [n 0 peers.send all 8 nobody]
        assert_equal OK [n 0 peers.send all 7 after]
        set got ""
        wait_for_condition 5000 {[set got [n 1 peers.heard]] ne ""} "no message"
        assert_equal after [lindex $got 0 2]
    }

    test "a module learns of slot migrations, at both ends" {
        foreach node {0 1} {n $node peers.heard}
        proc kinds {heard} {lmap event $heard {lindex $event 1}}
        n 0 cluster migrateslots slotsrange 0 5 node [n 1 cluster myid]
        foreach {node begun done} {0 1 5 1 0 4} {
            set heard {}
            wait_for_condition 10000 {[llength [lappend heard {*}[n $node peers.heard]]] == 2} "no event"
            assert_equal [list $begun $done] [kinds $heard]
            lappend jobs {*}[lmap event $heard {lindex $event 0}]
            foreach event $heard {assert_equal 0-5 [lindex $event 2]}
        }
        assert_equal 1 [llength [lsort -unique $jobs]]
        n 0 cluster migrateslots slotsrange 6 9 node [n 1 cluster myid]
        n 0 cluster cancelslotmigrations
        set heard {}
        wait_for_condition 10000 {[llength [lappend heard {*}[n 0 peers.heard]]] == 2} "no event"
        assert_equal {1 3} [kinds $heard]
    }

    test "a module makes a node serve every slot" {
        foreach key {a b c d e f g h} {if {[catch {n 0 set $key 1} error]} break}
        assert_match "MOVED *" $error
        n 0 peers.flags 4
        assert_equal OK [n 0 set $key 1]
        n 0 peers.flags 0
        catch {n 0 set $key 1} error
        assert_match "MOVED *" $error
    }
}
