# The snapshot of slots that move: it is of one moment, whatever commands do meanwhile, and holds nobody for long.
# seconds: 65

source [file join $::root tests harness slot_migration.tcl]

proc source_field {section name} {dict get [node_info 0 $section] $name}
proc delay {us} {n 0 config set rdb-key-save-delay $us}
# The target gets commands, as one of Valkey does: its user may not use chunks.
proc as_commands {yes} {
    if {$yes} {
        n 1 acl setuser mover on >secret -@all +@write +@connection +cluster|syncslots +select ~*
        n 0 config set primaryuser mover primaryauth secret
    } else {
        n 0 config set primaryuser "" primaryauth ""
    }
}
# A test that failed leaves nothing to the next one.
proc large_slot {slot} {
    as_commands 0
    n 0 debug slotmigration prevent-pause 0
    delay 0
    catch {n 0 cluster cancelslotmigrations}
    n 0 cluster flushslot $slot
    fill_slot 0 $slot
    # DEBUG POPULATE writes nothing into the append-only file.
    n 0 eval {for i = 0, 2999 do redis.call('set', KEYS[1]..':'..i, string.rep('v', 300)..i) end} 1 [key_in $slot p]
    n 0 eval {for i = 1, 6000 do redis.call('hset', KEYS[1], 'f'..i, i) redis.call('zadd', KEYS[2], i, 'm'..i) end}\
        2 [key_in $slot table] [key_in $slot ranks]
}
# Changes of any kind, of keys that are written already and others that are not.
proc change_slot {slot round} {
    for {set i $round} {$i < 3000} {incr i 211} {n 0 append [key_in $slot p]:$i ,$round}
    n 0 incr [key_in $slot number]
    n 0 rpush [key_in $slot list] $round
    n 0 hincrby [key_in $slot table] f$round 1
    n 0 zrem [key_in $slot ranks] m$round
    n 0 set [key_in $slot new$round] $round
    n 0 pexpire [key_in $slot p]:[expr {2900 + $round}] 1
    n 0 rename [key_in $slot p]:[expr {2000 + $round}] [key_in $slot renamed]:$round
    n 0 eval {redis.call('incr', KEYS[1]) redis.call('del', KEYS[2]) redis.call('rpush', KEYS[3], ARGV[1])}\
        3 [key_in $slot counter] [key_in $slot p]:[expr {2500 + $round}] [key_in $slot list] $round
}
proc keys_there {slot} {n 1 cluster countkeysinslot $slot}
proc wait_for_first_keys {slot} {wait_for_condition 10000 {[keys_there $slot] > 100}}
proc ends_well {slot} {
    migration_is 0 success
    migration_is 1 success
    foreach i {0 1} {n $i debug slotmigration prevent-pause 0}
    migrate 1 0 $slot $slot
    migration_is 1 success
    migration_is 0 success
}

start_cluster [list primaries 2 replicas 1 overrides {appendonly yes cluster-node-timeout 10000}] {
    wait_for_cluster_replicas

    foreach form {chunks commands} {
        test "what is sent as $form is of one moment, and each change follows once; no process is forked" {
            large_slot 7
            as_commands [expr {$form eq "commands"}]
            set forks [source_field stats total_forks]
            set from [node_log_size 0]
            delay 2000
            n 0 debug slotmigration prevent-pause 1
            migrate 0 1 7 7
            wait_for_first_keys 7
            for {set round 1} {$round <= 40} {incr round} {change_slot 7 $round}
            assert_equal snapshotting [dict get [migration 0] state]
            delay 0
            migration_is 0 waiting-to-pause
            migration_is 1 waiting-for-paused
            for {} {$round <= 50} {incr round} {change_slot 7 $round}
            set short {}
            for {set i 1} {$i < $round} {incr i} {lappend short [key_in 7 p]:[expr {2900 + $i}]}
            wait_for_condition 5000 {[n 0 exists {*}$short] == 0}
            set before [n 0 debug digest]
            n 0 debug slotmigration prevent-pause 0
            migration_is 0 success
            migration_is 1 success
            assert_equal $before [n 1 debug digest] [n 1 cluster countkeysinslot 7]
            wait_for_cluster_offset 3 1
            assert_equal $before [n 3 debug digest]
            assert_equal $forks [source_field stats total_forks]
            assert_equal [expr {$form eq "chunks"}] [log_has "sends its snapshot in chunks" $from [node_level 0]]
            as_commands 0
            ends_well 7
            n 0 cluster flushslot 7
        }

        test "a migration that sends $form is cancelled, cut off, flushed or loaded over at any moment" {
            large_slot 7
            as_commands [expr {$form eq "commands"}]
            set round 0
            foreach {how source} {cancel cancelled cut failed kill-target failed flushall failed reload failed} {
                delay 2000
                migrate 0 1 7 7
                wait_for_first_keys 7
                change_slot 7 [incr round]
                switch $how {
                    cancel {n 0 cluster cancelslotmigrations}
                    cut {
                        regexp {id=(\d+) [^\n]* flags=i } [n 1 client list] -> id
                        n 1 client kill id $id
                    }
                    kill-target {node_kill 1}
                    flushall {n 0 flushall}
                    reload {n 0 debug reload}
                }
                if {$how ne "reload"} {migration_is 0 $source} ;# it forgets the job
                if {$how eq "kill-target"} {node_start 1} else {migration_is 1 failed}
                wait_for_condition 10000 {[keys_there 7] == 0}
                assert_equal none [source_field clients paused_reason]
                if {$how eq "flushall"} {large_slot 7}
                as_commands [expr {$form eq "commands"}] ;# the target may have restarted
                change_slot 7 [incr round]
                delay 0
            }
            wait_for_condition 20000 {![catch {migrate 0 1 7 7}]}
            migration_is 0 success
            as_commands 0
            ends_well 7
            n 0 cluster flushslot 7
        }
    }

    test "a slot that is flushed during the snapshot is empty at the target, and takes new keys" {
        large_slot 7
        delay 2000
        migrate 0 1 7 7
        wait_for_first_keys 7
        n 0 cluster flushslot 7
        n 0 set [key_in 7 string] again
        delay 0
        migration_is 0 success
        migration_is 1 success
        assert_equal 1 [keys_there 7]
        assert_equal again [n 1 get [key_in 7 string]]
        ends_well 7
    }

    # Seven keys are written, and the target takes no more.
    proc stop_target {} {
        n 0 cluster flushslot 7
        for {set i 0} {$i < 300} {incr i} {n 0 set [key_in 7 big$i] [string repeat $i 40000]}
        n 0 config set forkless-buffer-limit 1mb
        at_test_end {n 0 config set forkless-buffer-limit 64mb}
        delay 100000
        migrate 0 1 7 7
        wait_for_condition 10000 {[keys_there 7] > 0}
        node_pause 1
        at_test_end {catch {node_resume 1}}
    }

    test "a slow target keeps writes waiting beyond forkless-buffer-limit, and gets all" {
        set pauses [source_field persistence forkless_write_pauses]
        set from [node_log_size 0]
        stop_target
        set c [new_client -level [node_level 0] -deferring 1]
        for {set i 0} {$i < 300} {incr i} {$c -send setrange [key_in 7 big$i] 0 x}
        wait_for_condition 10000 {[source_field persistence forkless_write_pauses] > $pauses}
        wait_for_node_log 0 "*Writes of clients wait for slot migration*" $from
        assert_equal save_backlog [source_field clients paused_reason]
        assert_equal 0 [n 0 exists [key_in 7 none]]
        # The limit, and one part of about seven keys; 300 of 40 to 120 KB are in the slot.
        assert_lessthan [source_field memory mem_cluster_slot_export] 4000000
        n 0 debug slotmigration prevent-pause 1
        node_resume 1
        delay 0
        for {set i 0} {$i < 300} {incr i} {$c -read}
        $c -close
        n 0 debug slotmigration prevent-pause 0
        migration_is 0 success
        migration_is 1 success
        assert_equal none [source_field clients paused_reason]
        for {set i 0} {$i < 300} {incr i 50} {
            assert_equal x[string range [string repeat $i 40000] 1 end] [n 1 get [key_in 7 big$i]]
        }
        assert_equal 300 [keys_there 7]
        ends_well 7
    }

    test "a target that takes nothing ends the migration after five seconds of paused writes, and these go on" {
        stop_target
        set c [new_client -level [node_level 0] -deferring 1]
        for {set i 0} {$i < 300} {incr i} {$c -send setrange [key_in 7 big$i] 0 y}
        for {set i 0} {$i < 300} {incr i} {$c -read 20000}
        $c -close
        migration_is 0 failed
        assert_equal "The target kept writes waiting during the snapshot" [dict get [migration 0] message]
        assert_equal none [source_field clients paused_reason]
        node_resume 1
        delay 0
        migration_is 1 failed
    }

    test "a migration that is cancelled while writes wait lets them go on" {
        set pauses [source_field persistence forkless_write_pauses]
        stop_target
        set c [new_client -level [node_level 0] -deferring 1]
        for {set i 0} {$i < 300} {incr i} {$c -send setrange [key_in 7 big$i] 0 z}
        wait_for_condition 10000 {[source_field persistence forkless_write_pauses] > $pauses}
        n 0 cluster cancelslotmigrations
        for {set i 0} {$i < 300} {incr i} {$c -read}
        $c -close
        assert_equal none [source_field clients paused_reason]
        node_resume 1
        delay 0
        migration_is 1 failed
    }

    test "what expires while the target takes nothing is bounded by four times forkless-buffer-limit" {
        stop_target
        n 0 eval {for i = 0, 299 do redis.call('pexpire', KEYS[1]..i, 1) end} 1 [key_in 7 big]
        wait_for_condition 10000 {[n 0 dbsize] == 0}
        migration_is 0 failed
        assert_equal "Failed to perform snapshot" [dict get [migration 0] message]
        assert_equal none [source_field clients paused_reason]
        node_resume 1
        delay 0
        migration_is 1 failed
    }

    test "the output limit does not count a large value that the target has not taken" {
        set limit [lindex [n 0 config get client-output-buffer-limit] 1]
        n 0 config set client-output-buffer-limit "replica 5mb 0 0" repl-backlog-size 16kb
        at_test_end [list n 0 config set client-output-buffer-limit $limit repl-backlog-size 10mb]
        n 0 set [key_in 7 huge] [string repeat x 40000000]
        n 0 debug slotmigration prevent-pause 1
        node_pause 1
        at_test_end {catch {node_resume 1}}
        set from [node_log_size 0]
        migrate 0 1 7 7
        node_resume 1
        migration_is 0 snapshotting
        node_pause 1
        for {set i 0} {$i < 10} {incr i} {n 0 append [key_in 7 counter] [string repeat $i 20000]}
        assert_equal snapshotting [dict get [migration 0] state]
        node_resume 1
        migration_is 0 waiting-to-pause
        assert ![log_has "output buffer limits" $from [node_level 0]]
        n 0 debug slotmigration prevent-pause 0
        migration_is 0 success
        migration_is 1 success
        assert_equal {40000000 200000} [list [n 1 strlen [key_in 7 huge]] [n 1 strlen [key_in 7 counter]]]
        ends_well 7
        n 0 cluster flushslot 7
    }

    test "a source that is killed in the middle leaves nothing at the target, and has all" {
        large_slot 7
        n 0 waitaof 1 0 5000
        set before [n 0 debug digest]
        delay 2000
        migrate 0 1 7 7
        wait_for_first_keys 7
        node_kill 0
        migration_is 1 failed
        wait_for_condition 10000 {[keys_there 7] == 0}
        node_start 0
        wait_for_condition 20000 {![catch {n 0 debug digest} ::after_restart] && $::after_restart eq $before}
    }
}

set strace [tool strace]
start_cluster [list primaries 2 overrides {cluster-node-timeout 10000}] {
    test "strace sees the source start no process" {
        if {$::strace eq ""} {skip_test "strace is not installed"}
        large_slot 7
        set before [n 0 debug digest]
        set trace [file join [srv [node_level 0] dir] trace]
        set out [open "|$::strace -f -e trace=fork,vfork,clone,clone3 -o $trace -p [node 0 pid] 2>@1" r]
        at_test_end [list catch [list close $out]]
        if {![string match *attached* [gets $out]]} {skip_test "strace may not attach to processes"}
        migrate 0 1 7 7
        migration_is 0 success
        migration_is 1 success
        exec kill -INT [pid $out]
        catch {close $out}
        assert_equal $before [n 1 debug digest]
        foreach call [lsearch -all -inline -regexp [split [file_bytes $trace] \n] {(fork|clone3?)\(}] {
            assert_match *CLONE_THREAD* $call
        }
    }
}
