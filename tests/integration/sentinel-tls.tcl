# Sentinels that reach servers and each other over TLS.
# seconds: 27

# The proxy may exist from another build.
if {$::opt(rdma)} {
    test "Sentinels over TLS" {skip_test "the clients of this run speak RDMA"}
    return
}
if {[skip_without_tls "Sentinels over TLS" tls-proxy]} return

start_sentinels {tls 1} {
    test "Sentinels over TLS name the ports of TLS" {
        assert_equal [g_srv 0 tls_port] [named_port 0]
        foreach i {0 1 2} {
            foreach replica [s $i sentinel replicas group] {
                assert {[dict get $replica port] in [list [g_srv 1 tls_port] [g_srv 2 tls_port]]}
            }
            foreach other [s $i sentinel sentinels group] {
                assert {[dict get $other port] in [lmap j {0 1 2} {s_srv $j tls_port}]}
            }
        }
        assert_match "OK 3 usable Sentinels*" [s 0 sentinel ckquorum group]
    }

    test "their connections are TLS" {
        # The clients of the tests come through a proxy; those of the Sentinels have a name.
        set clients [g 0 client list]
        assert_equal 6 [regexp -all {name=sentinel-[0-9a-f]{8}-(?:cmd|pubsub)} $clients]
        foreach line [split [string trim $clients] \n] {
            if {![string match "*name=sentinel-*" $line]} continue
            assert_match "*laddr=127.0.0.1:[g_srv 0 tls_port] *" $line
        }
    }

    test "Sentinels over TLS fail the group over when the primary dies, and take it back" {
        set new [primary_dies_and_returns]
        assert_match "*sentinel monitor group 127.0.0.1 $new 2\n*" [file_bytes [s_srv 1 conf]]
    }

    test "SENTINEL FAILOVER over TLS, also COORDINATED" {
        foreach how {{} coordinated} {
            set port [ask_for_failover {*}$how]
            wait_for_followers [wait_for_switch $port]
        }
    }

    test "a Sentinel with another authority's certificates reaches nobody" {
        stop_sentinel 2
        set dir [file join $::unit_dir others]
        file mkdir $dir
        exec [file join $::root tests harness make-certificates] $dir
        set conf [file_bytes [s_srv 2 conf]]
        write_file [s_srv 2 conf] [string map [list [certificates] $dir] $conf]
        set id [lindex $::sentinel_ids 2]
        set ::server($id,tls) 0 ;# the tests reach it at its plain port
        set ::server($id,client_port) $::server($id,port)
        start_sentinel 2
        wait_for_condition 20000 {[string match *s_down* [sentinel_field 2 flags]]} "the primary does not look down"
        assert_error_like "NOQUORUM*" {s 2 sentinel ckquorum group}
        wait_for_condition 20000 {
            [string match "*s_down*" [join [lmap other [s 0 sentinel sentinels group] {dict get $other flags}]]]
        } "the others do not miss it"
        assert_equal master [sentinel_field 0 flags]
    }
}
