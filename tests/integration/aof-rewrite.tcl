# Rewriting the append-only file: BGREWRITEAOF, automatic rewrites, all types, and interruptions. seconds: 10

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
    # Pending entries that are no longer in the stream: deleted in the middle, trimmed, or all of them.
    foreach {key count trim delete} {lost:some 6 {maxlen 4} {4-1} lost:first 3 {maxlen 1} {} lost:all 2 {} {1-1 2-1}} {
        for {set i 1} {$i <= $count} {incr i} {r xadd $key $i-1 f v}
        foreach group {g h} {r xgroup create $key $group 0}
        r xreadgroup group g alice streams $key >
        r xreadgroup group h bob count 1 streams $key >
        if {$trim ne ""} {r xtrim $key {*}$trim}
        foreach id $delete {r xdel $key $id}
    }
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

# What is known about each stream, without the times of consumers.
proc streams {} {
    set out {}
    foreach key [lsort [r keys *]] {
        if {[r type $key] ne "stream"} continue
        set state [r xinfo stream $key full]
        lappend out $key
        foreach field {length last-generated-id max-deleted-entry-id entries-added recorded-first-entry-id} {
            lappend out [dict get $state $field]
        }
        foreach group [dict get $state groups] {
            foreach field {name last-delivered-id entries-read pending} {lappend out [dict get $group $field]}
            foreach consumer [dict get $group consumers] {lappend out [dict get $consumer name]}
        }
    }
    return $out
}

start_server {overrides {appendonly yes}} {
    foreach preamble {yes no} {
        test "all types and encodings survive a rewrite with aof-use-rdb-preamble $preamble" {
            r config set aof-use-rdb-preamble $preamble
            populate
            set digest [r debug digest]
            set streams [streams]
            aof_rewrite
            assert_equal ok [info_field persistence aof_last_bgrewrite_status]
            assert_match [expr {$preamble ? "*.base.rdb" : "*.base.aof"}] [aof_files b]
            assert_equal 0 [file size [aof_file i]]
            r debug loadaof
            assert_equal $digest [r debug digest]
            restart_server -signal KILL
            assert_equal $digest [r debug digest]
            assert_equal $streams [streams]
            assert_range [r hpttl timed fields 1 a] 1 100000000
            assert_range [r pttl volatile] 1 100000000
        }
    }

    test "writes during a rewrite are in the new incremental file" {
        r config set aof-use-rdb-preamble yes
        r flushall
        for {set i 0} {$i < 200} {incr i} {r set key:$i before}
        set old [concat [aof_files b] [aof_files i]]
        r config set rdb-key-save-delay 100000000
        assert_equal "Background append only file rewriting started" [r bgrewriteaof]
        assert_equal 2 [llength [aof_files i]]
        for {set i 0} {$i < 200} {incr i 2} {r set key:$i after}
        assert_equal 1 [info_field persistence aof_rewrite_in_progress]
        assert_range [info_field persistence aof_current_rewrite_time_sec] 0 60
        aof_end_slow_rewrite
        foreach name $old {
            assert {$name ni [concat [aof_files b] [aof_files i]]}
            wait_for_condition 5000 {![file exists [aof_dir]/$name]}
        }
        assert_equal "" [aof_files h]
        keeps_data {restart_server -signal KILL}
        assert_equal {after before} [r mget key:0 key:1]
    }

    test "one rewrite at a time; behind a BGSAVE and in a transaction it is scheduled" {
        aof_slow_rewrite
        assert_error "ERR Background append only file rewriting already in progress" {r bgrewriteaof}
        aof_end_slow_rewrite
        r config set rdb-key-save-delay 100000000
        r bgsave
        assert_equal "Background append only file rewriting scheduled" [r bgrewriteaof]
        assert_equal 1 [info_field persistence aof_rewrite_scheduled]
        set from [log_size]
        r bgsave cancel
        r config set rdb-key-save-delay 0
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

    test "a rewrite that fails leaves the files unchanged, and the server continues" {
        set from [log_size]
        set failures [info_field persistence aof_rewrites_consecutive_failures]
        aof_fail_rewrite
        r set during v
        assert {[log_has "Write error while rewriting the append-only file: Is a directory" $from]}
        assert {[log_has "Background AOF rewrite terminated with error" $from]}
        assert_equal err [info_field persistence aof_last_bgrewrite_status]
        assert_equal [expr {$failures + 1}] [info_field persistence aof_rewrites_consecutive_failures]
        assert_equal {} [glob -nocomplain -directory [srv dir] temp-*]
        r set after v
        restart_server -signal KILL
        assert_equal {v v} [r mget during after]
        aof_rewrite
        assert_equal {ok 0} [list [info_field persistence aof_last_bgrewrite_status] \
            [info_field persistence aof_rewrites_consecutive_failures]]
        assert_equal 1 [llength [aof_files i]]
    }

    test "a server that is killed during a rewrite has everything when it starts again" {
        aof_slow_rewrite
        r set during-kill v
        keeps_data {restart_server -signal KILL}
        # No process was left to remove its file.
        file delete {*}[glob -nocomplain -directory [srv dir] temp-rewriteaof-bg-*]
    }

    test "SHUTDOWN ends a rewrite and loses nothing" {
        aof_slow_rewrite
        r set before-shutdown v
        restart_server
        assert {[log_has "There is a child rewriting the AOF. Killing it!"]}
        assert_equal v [r get before-shutdown]
        assert_equal {} [glob -nocomplain -directory [srv dir] temp-*]
    }

    test "the file is rewritten by itself when it has grown" {
        r flushall
        aof_rewrite
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

    test "after a restart the file is rewritten by what it has grown since its base, too" {
        r flushall
        aof_rewrite
        for {set i 0} {$i < 150} {incr i} {r set k [string repeat x 1000]}
        restart_server
        assert_equal [file size [aof_file b]] [info_field persistence aof_base_size]
        set from [log_size]
        r config set auto-aof-rewrite-percentage 100 auto-aof-rewrite-min-size 100kb
        wait_for_log "Starting automatic rewriting of AOF on" $from
        aof_wait_rewritten
        assert_equal 1 [info_field persistence aof_rewrites]
        assert_lessthan [info_field persistence aof_current_size] 100000
        r config set auto-aof-rewrite-percentage 0
    }

    test "automatic rewrites that fail are tried again after a pause; BGREWRITEAOF is not bound by it" {
        aof_rewrite
        for {set i 0} {$i < 3} {incr i} {aof_fail_rewrite}
        set from [log_size]
        r config set auto-aof-rewrite-percentage 1 auto-aof-rewrite-min-size 1
        for {set i 0} {$i < 100} {incr i} {r set k [string repeat x 1000]}
        wait_for_log "Background AOF rewrite has repeatedly failed and triggered the limit, will retry in 1 minutes" \
            $from
        assert_not_match "*Starting automatic rewriting*" [log_text $from]
        r config set auto-aof-rewrite-percentage 0
        assert_equal "Background append only file rewriting started" [r bgrewriteaof]
        aof_wait_rewritten
        assert_equal 0 [info_field persistence aof_rewrites_consecutive_failures]
    }

    test "BGREWRITEAOF without the append-only file writes a base file" {
        r config set appendonly no
        aof_rewrite
        assert_equal ok [info_field persistence aof_last_bgrewrite_status]
        assert_equal {} [aof_files i]
        keeps_data {restart_server -signal KILL -overrides {appendonly yes}}
    }
}

start_server {overrides {appendonly yes}} {
    test "the base has the format that was set when its rewrite began" {
        r set k v
        aof_slow_rewrite
        r config set aof-use-rdb-preamble no
        aof_end_slow_rewrite
        assert_match *.base.rdb [aof_files b]
        assert_equal REDIS [string range [string map {VALKEY REDIS} [file_bytes [aof_file b]]] 0 4]
        restart_server -signal KILL
        assert_equal v [r get k]
    }

    test "aof-disable-auto-gc keeps files that are no longer needed, the newest first, until it is turned off" {
        r config set aof-disable-auto-gc yes
        set expected {}
        for {set i 0} {$i < 2} {incr i} {
            set expected [concat [aof_files i] [aof_files b] $expected]
            aof_rewrite
        }
        assert_equal $expected [aof_files h]
        r config set aof-disable-auto-gc no
        assert_equal {} [aof_files h]
        foreach name $expected {wait_for_condition 5000 {![file exists [aof_dir]/$name]}}
    }
}

start_server {} {
    test "a first rewrite that ends early starts again with a file of its own" {
        for {set i 0} {$i < 10} {incr i} {r set key:$i v}
        r config set rdb-key-save-delay 100000000
        set from [log_size]
        r config set appendonly yes
        wait_for_log "Background append only file rewriting started by pid" $from
        r set during v
        assert_equal 1 [llength [glob -nocomplain -directory [aof_dir] temp-*.incr]]
        set from [log_size]
        r flushall
        r config set rdb-key-save-delay 0
        wait_for_log "Removing the temp incr aof file" $from
        wait_for_log "Background AOF rewrite finished successfully" $from
        assert_equal {} [glob -nocomplain -directory [aof_dir] temp-*]
        assert_equal 0 [file size [aof_file i]]
        r set after v
        keeps_data {restart_server -signal KILL -overrides {appendonly yes}}
    }
}
