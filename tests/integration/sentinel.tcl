# Sentinels of ours: what they answer, and that they fail a group over.
# seconds: 39

start_sentinels {config {"# kept" "sentinel parallel-syncs group 2"}} {
    test "Sentinels know the group and each other" {
        assert_equal "sentinel group" [s 0 role]
        assert_match "OK 3 usable Sentinels*" [s 0 sentinel ckquorum group]
        assert_equal 2 [llength [s 1 sentinel replicas group]]
        foreach command {slaves replicas} {
            set names($command) [lsort [lmap replica [s 1 sentinel $command group] {dict get $replica name}]]
        }
        assert_equal $names(slaves) $names(replicas)
        assert_equal 2 [llength [s 1 sentinel sentinels group]]
        assert_match "*master0:name=group,status=ok,address=127.0.0.1:*,slaves=2,sentinels=3*" [s 2 info sentinel]
        assert_equal master [sentinel_field 0 flags]
        assert_equal [named_port 0] [lindex [s 0 sentinel get-master-addr-by-name group] 1]
    }

    test "The file keeps its lines and gets the state" {
        s 0 sentinel flushconfig
        set text [file_bytes [s_srv 0 conf]]
        assert_match "*# kept\n*" $text
        assert_match "*sentinel monitor group 127.0.0.1 [named_port 0] 2\n*" $text
        assert_match "*sentinel myid [s 0 sentinel myid]\n*" $text
        assert_equal 2 [regexp -all {sentinel known-replica group 127.0.0.1 \d+\n} $text]
        assert_equal 2 [regexp -all {sentinel known-sentinel group 127.0.0.1 \d+ "?[0-9a-f]{40}"?\n} $text]
    }

    test "Only the commands of a Sentinel are known" {
        foreach command {{get x} {config get port} {multi} {cluster info} {debug sleep 0}} {
            assert_error_like "ERR unknown command*" {s 0 {*}$command}
        }
        assert_equal {server version proto id mode modules} [dict keys [s 0 hello 2]]
        assert_error "ERR Only HELLO messages are accepted by Sentinel instances." {s 0 publish channel text}
        assert_error "ERR No such master with that name" {s 0 sentinel primary nothing}
        assert_equal {} [s 0 sentinel get-primary-addr-by-name nothing]
        assert_error "ERR Unknown option or number of arguments for SENTINEL SET 'foo'" {
            s 0 sentinel set group foo bar
        }
        assert_error "ERR Invalid argument '0' for SENTINEL SET 'quorum'" {s 0 sentinel set group quorum 0}
        assert_error_like "ERR Reconfiguration of scripts path is denied*" {
            s 0 sentinel set group notification-script /bin/true
        }
        assert_error "ERR Duplicate master name." {s 0 sentinel monitor group 127.0.0.1 1 1}
        assert_error "ERR Quorum must be 1 or greater." {s 0 sentinel monitor other 127.0.0.1 1 0}
        assert_error "ERR Invalid IP address or hostname specified" {s 0 sentinel monitor other nowhere 1 1}
    }

    test "A group can be added, changed, reset and removed" {
        assert_equal OK [s 0 sentinel monitor other 127.0.0.1 1 1]
        assert_equal OK [s 0 sentinel set other down-after-milliseconds 77 quorum 3]
        assert_equal 3 [dict get [s 0 sentinel master other] quorum]
        assert_equal 1 [s 0 sentinel reset oth*]
        assert_error_like "NOQUORUM 1 usable Sentinels*" {s 0 sentinel ckquorum other}
        assert_equal OK [s 0 sentinel remove other]
        assert_equal 1 [llength [s 0 sentinel masters]]
    }

    test "A Sentinel gives one vote for an epoch, also after a crash" {
        set port [named_port 0]
        set a [string repeat a 40]
        set b [string repeat b 40]
        assert_equal "0 $a 77" [s 2 sentinel is-master-down-by-addr 127.0.0.1 $port 77 $a]
        assert_equal "0 $a 77" [s 2 sentinel is-master-down-by-addr 127.0.0.1 $port 77 $b]
        assert_equal "0 * 0" [s 2 sentinel is-primary-down-by-addr 127.0.0.1 $port 78 *]
        stop_sentinel 2
        start_sentinel 2
        assert_equal "0 * 77" [s 2 sentinel is-master-down-by-addr 127.0.0.1 $port 77 $b]
        assert_equal "0 $b 78" [s 2 sentinel is-master-down-by-addr 127.0.0.1 $port 78 $b]
        wait_for_known 2 2
    }

    test "EXPLAIN says who would be promoted" {
        set text [join [s 0 sentinel explain group] \n]
        assert_match "*The primary is up*Votes: 3 Sentinels are known, 3 are up*would be promoted*" $text
    }

    test "A killed primary is replaced, and comes back as a replica" {
        set events [new_client -host 127.0.0.1 -port [s_srv 0 port]]
        $events psubscribe *
        set new [primary_dies_and_returns]
        assert_equal $new [named_port 1]
        assert_match "*sentinel monitor group 127.0.0.1 $new 2\n*" [file_bytes [s_srv 1 conf]]
        $events -close
        assert_equal 1 [llength [lsort -unique [lmap i {0 1 2} {sentinel_field $i config-epoch}]]]
    }

    test "SENTINEL FAILOVER moves the role, COORDINATED too" {
        foreach how {{} coordinated} {
            set port [ask_for_failover {*}$how]
            set new [wait_for_switch $port]
            wait_for_followers $new
            wait_for_condition 5000 {
                [string match *paused_reason:none* [g [server_of_port $port] info clients]]
            } "the old primary stays paused"
        }
        assert_error "ERR Unknown failover option specified" {s 0 sentinel failover group quickly}
    }

    test "A replica that became a primary by itself is corrected" {
        set port [named_port 0]
        set other [expr {([server_of_port $port] + 1) % 3}]
        foreach i {0 1 2} {s $i sentinel debug publish-period 300}
        g $other replicaof no one
        wait_for_followers $port
        foreach i {0 1 2} {s $i sentinel debug publish-period 2000}
    }

    test "A minority of Sentinels does not fail over, and says why" {
        stop_sentinel 1
        stop_sentinel 2
        set port [named_port 0]
        set level [sentinel_level [lindex $::sentinel_ids 0]]
        set from [log_size $level]
        kill_group_server [server_of_port $port]
        wait_for_condition 20000 {[string match *s_down* [sentinel_field 0 flags]]} "the primary is not S_DOWN"
        wait_for_log "*No failover of 'group' now: 1 of the 2 Sentinels that must agree say that it is down*" $from \
            20000 $level
        assert_match "*it is not down in the view of the quorum*" \
            [string tolower [join [s 0 sentinel explain group] \n]]
        start_sentinel 1
        wait_for_switch $port
    }
}

test "A Sentinel needs a file" {
    catch {run_server --sentinel} text
    assert_match "*Sentinel needs config file on disk to save state. Exiting...*" $text
}
