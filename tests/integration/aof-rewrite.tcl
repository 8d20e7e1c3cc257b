# Rewriting the append-only file: BGREWRITEAOF, by itself, all types, and what interrupts it.
# seconds: 20

# Keys of every type and encoding, in two databases.
proc populate {} {
    r flushall
    r select 0
    r mset number 12345 short abc float 1.5
    r set long [string repeat 0123456789 100]
    r set blob [string repeat 0123456789abcdef 10000]
    r set binary "\x00\r\n\xff*1"
    r set volatile v px 100000000
    r set empty ""
    foreach {name count} {few 10 many 1000} {
        for {set i 0} {$i < $count} {incr i} {
            r rpush list:$name $i element:$i
            r sadd ints:$name $i
            r sadd set:$name member:$i $i
            r zadd zset:$name [expr {$i / 7.0}] member:$i
            r hset hash:$name field:$i [string repeat v $i]
            r xadd stream:$name $i-1 f v:$i g w
        }
    }
    r zadd zset:few -inf lowest +inf highest 1e300 large
    r hset timed a 1 b 2 c 3
    r hpexpire timed 100000000 fields 2 a b
    r hset timed:all a 1
    r hpexpire timed:all 100000000 fields 1 a
    r hset hash:blob f [string repeat x 200000]
    r expire hash:few 100000
    r xdel stream:few 3-1 9-1
    r xgroup create stream:few g 2-1 entriesread 2
    r xgroup create stream:few empty $
    r xgroup createconsumer stream:few empty idle
    r xreadgroup group g alice count 3 streams stream:few >
    r xreadgroup group g bob count 2 streams stream:few >
    r xack stream:few g 4-1
    r xadd drained 5-5 f v
    r xdel drained 5-5
    r xgroup create nothing g 0 mkstream
    r pfadd hll a b c
    r setbit bits 1000 1
    r geoadd geo 13.361389 38.115556 Palermo
    r select 5
    r set elsewhere v
    r select 0
}

start_server {overrides {appendonly yes}} {
    foreach preamble {yes no} {
        test "all types and encodings survive a rewrite with aof-use-rdb-preamble $preamble" {
            r config set aof-use-rdb-preamble $preamble
            populate
            set digest [r debug digest]
            set stream [r xinfo stream stream:few full]
            r bgrewriteaof
            aof_wait_rewritten
            assert_equal ok [info_field persistence aof_last_bgrewrite_status]
            assert_match [expr {$preamble ? "*.base.rdb" : "*.base.aof"}] [aof_files b]
            assert_equal 0 [file size [aof_file i]]
            r debug loadaof
            assert_equal $digest [r debug digest]
            restart_server -signal KILL
            assert_equal $digest [r debug digest]
            assert_equal [dict get $stream length] [dict get [r xinfo stream stream:few full] length]
            foreach field {last-generated-id max-deleted-entry-id entries-added recorded-first-entry-id} {
                assert_equal [dict get $stream $field] [dict get [r xinfo stream stream:few full] $field] $field
            }
            assert_equal [list alice bob] [lsort [lmap c [r xinfo consumers stream:few g] {dict get $c name}]]
            assert_equal 4 [lindex [r xpending stream:few g] 0]
            assert_equal 5-5 [dict get [r xinfo stream drained] last-generated-id]
            assert_range [r hpttl timed fields 1 a] 1 100000000
            assert_range [r pttl volatile] 1 100000000
        }
    }

    test "writes during a rewrite are in the new incremental file" {
        r config set aof-use-rdb-preamble yes
        r flushall
        for {set i 0} {$i < 200} {incr i} {r set key:$i before}
        set old [concat [aof_files b] [aof_files i]]
        r config set rdb-key-save-delay 5000
        assert_equal "Background append only file rewriting started" [r bgrewriteaof]
        r config set rdb-key-save-delay 0
        assert_equal 2 [llength [aof_files i]]
        for {set i 0} {$i < 200} {incr i 2} {r set key:$i after}
        assert_equal 1 [info_field persistence aof_rewrite_in_progress]
        assert_range [info_field persistence aof_current_rewrite_time_sec] 0 60
        aof_wait_rewritten
        foreach name $old {
            assert {$name ni [concat [aof_files b] [aof_files i]]}
            wait_for_condition 5000 {![file exists [aof_dir]/$name]}
        }
        assert_equal "" [aof_files h]
        set digest [r debug digest]
        restart_server -signal KILL
        assert_equal $digest [r debug digest]
        assert_equal {after before} [r mget key:0 key:1]
    }

    test "one rewrite at a time; behind a BGSAVE and in a transaction it is scheduled" {
        set pid [aof_slow_rewrite]
        assert_error "ERR Background append only file rewriting already in progress" {r bgrewriteaof}
        kill_process KILL $pid
        aof_wait_rewritten
        r config set rdb-key-save-delay 100000000
        r bgsave
        r config set rdb-key-save-delay 0
        assert_equal "Background append only file rewriting scheduled" [r bgrewriteaof]
        assert_equal 1 [info_field persistence aof_rewrite_scheduled]
        set from [log_size]
        r bgsave cancel
        wait_for_log "Background AOF rewrite finished successfully" $from
        r multi
        r bgrewriteaof
        r set k in-transaction
        set from [log_size]
        assert_equal {{Background append only file rewriting scheduled} OK} [r exec]
        wait_for_log "Background AOF rewrite finished successfully" $from
        restart_server -signal KILL
        assert_equal in-transaction [r get k]
    }

    test "a child that is killed leaves the files as they were, and the server goes on" {
        set from [log_size]
        set failures [info_field persistence aof_rewrites_consecutive_failures]
        set pid [aof_slow_rewrite]
        r set during v
        kill_process KILL $pid
        aof_wait_rewritten
        assert {[log_has "Background AOF rewrite terminated by signal 9" $from]}
        assert_equal err [info_field persistence aof_last_bgrewrite_status]
        assert_equal [expr {$failures + 1}] [info_field persistence aof_rewrites_consecutive_failures]
        assert_equal {} [glob -nocomplain -directory [srv dir] temp-*]
        r set after v
        restart_server -signal KILL
        assert_equal {v v} [r mget during after]
        r bgrewriteaof
        aof_wait_rewritten
        assert_equal {ok 0} [list [info_field persistence aof_last_bgrewrite_status] \
            [info_field persistence aof_rewrites_consecutive_failures]]
        assert_equal 1 [llength [aof_files i]]
    }

    test "a server that is killed during a rewrite has everything when it starts again" {
        set pid [aof_slow_rewrite]
        r set during-kill v
        set digest [r debug digest]
        kill_process KILL $pid
        restart_server -signal KILL
        assert_equal $digest [r debug digest]
        # Nobody was left to remove what the child had written.
        file delete {*}[glob -nocomplain -directory [srv dir] temp-rewriteaof-bg-*]
    }

    test "SHUTDOWN kills a rewrite and loses nothing" {
        aof_slow_rewrite
        r set before-shutdown v
        restart_server
        assert {[log_has "There is a child rewriting the AOF. Killing it!"]}
        assert_equal v [r get before-shutdown]
        assert_equal {} [glob -nocomplain -directory [srv dir] temp-*]
    }

    test "the file is rewritten by itself when it has grown" {
        r flushall
        r bgrewriteaof
        aof_wait_rewritten
        set rewrites [info_field persistence aof_rewrites]
        r config set auto-aof-rewrite-percentage 100 auto-aof-rewrite-min-size 100kb
        set from [log_size]
        for {set i 0} {$i < 150} {incr i} {r set k [string repeat x 1000]}
        wait_for_log "Starting automatic rewriting of AOF on" $from
        aof_wait_rewritten
        assert_equal [expr {$rewrites + 1}] [info_field persistence aof_rewrites]
        assert_lessthan [info_field persistence aof_base_size] 100000
        r config set auto-aof-rewrite-percentage 0
        for {set i 0} {$i < 150} {incr i} {r set k [string repeat x 1000]}
        assert_equal [expr {$rewrites + 1}] [info_field persistence aof_rewrites]
    }

    test "automatic rewrites that fail are tried again after a pause; BGREWRITEAOF is not bound by it" {
        r bgrewriteaof
        aof_wait_rewritten
        for {set i 0} {$i < 3} {incr i} {
            kill_process KILL [aof_slow_rewrite]
            aof_wait_rewritten
        }
        wait_for_log "Background AOF rewrite has repeatedly failed and triggered the limit, will retry in 1 minutes"
        set from [log_size]
        r config set auto-aof-rewrite-percentage 1 auto-aof-rewrite-min-size 1
        for {set i 0} {$i < 100} {incr i} {r set k [string repeat x 1000]}
        assert_not_match "*Starting automatic rewriting*" [log_text $from]
        r config set auto-aof-rewrite-percentage 0
        assert_equal "Background append only file rewriting started" [r bgrewriteaof]
        aof_wait_rewritten
        assert_equal 0 [info_field persistence aof_rewrites_consecutive_failures]
    }

    test "BGREWRITEAOF without the append-only file writes a base file" {
        r config set appendonly no
        r bgrewriteaof
        aof_wait_rewritten
        assert_equal ok [info_field persistence aof_last_bgrewrite_status]
        assert_equal {} [aof_files i]
        set digest [r debug digest]
        restart_server -signal KILL -overrides {appendonly yes}
        assert_equal $digest [r debug digest]
    }
}
