# Limits on clients: their number, idle time, unread output and memory. seconds: 12

start_server {overrides {maxclients 10} tags {limits}} {
    test "the client above maxclients gets an error and is closed" {
        set clients {}
        # The main client counts as one.
        r ping
        for {set i 0} {$i < 9} {incr i} {
            lappend clients [new_client]
            [lindex $clients end] ping
        }
        set before [info_field stats rejected_connections]
        set c [new_client]
        assert_too_many_clients $c
        assert_equal [expr {$before + 1}] [info_field stats rejected_connections]
        assert_equal 10 [info_field clients connected_clients]
        foreach x $clients {assert_equal PONG [$x ping]}
        # After a client has disconnected, another can connect.
        [lindex $clients 0] -close
        wait_for_condition 3000 {[info_field clients connected_clients] == 9}
        set c [new_client]
        assert_equal PONG [$c ping]
    }

    test "maxclients can be changed at run time, those connected stay" {
        wait_for_condition 5000 {[info_field clients connected_clients] == 1}
        set clients {}
        for {set i 0} {$i < 5} {incr i} {lappend clients [new_client]; [lindex $clients end] ping}
        r config set maxclients 3
        foreach x $clients {assert_equal PONG [$x ping]}
        set c [new_client]
        assert_too_many_clients $c
        r config set maxclients 20
        set c [new_client]
        assert_equal PONG [$c ping]
    }

    test "maxclients is not affected by clients that came and went" {
        r config set maxclients 10
        for {set i 0} {$i < 200} {incr i} {
            set c [new_client]
            $c ping
            $c -close
            if {$i % 5 == 0} {wait_for_condition 3000 {[info_field clients connected_clients] == 1}}
        }
        assert_equal PONG [r ping]
    }
}

# Empties the database and waits until its memory is free, because limits are set relative to used memory.
proc flush_all {} {
    r flushall sync
    wait_for_condition 5000 {[info_field memory lazyfree_pending_objects] == 0}
}

start_server {tags {limits}} {
    test "timeout closes idle clients and no others" {
        set idle [new_client]
        $idle ping
        r config set timeout 1
        set busy [new_client]
        set end [expr {[clock milliseconds] + 6000}]
        set closed 0
        while {!$closed && [clock milliseconds] < $end} {
            assert_equal PONG [$busy ping]
            r ping
            set closed [$idle -eof 100]
        }
        assert_equal 1 $closed
        assert_equal PONG [$busy ping]
        r config set timeout 0
    }

    test "a hard output buffer limit closes a client that does not read" {
        r set big [string repeat x 1000000]
        r config set client-output-buffer-limit "normal 3000000 0 0"
        set before [info_field stats client_output_buffer_limit_disconnections]
        set from [log_size]
        set c [new_client]
        $c client setname slow
        for {set i 0} {$i < 100} {incr i} {
            if {[catch {$c -send get big}]} break
        }
        wait_for_condition 5000 {[info_field stats client_output_buffer_limit_disconnections] > $before}
        wait_for_log "scheduled to be closed ASAP" $from
        wait_for_log "for overcoming of output buffer limits." $from
        assert_closed $c
        assert_equal PONG [r ping]
        r config set client-output-buffer-limit "normal 0 0 0"
    }

    test "a soft output buffer limit closes only after its time" {
        r config set client-output-buffer-limit "normal 0 100000 1"
        set before [info_field stats client_output_buffer_limit_disconnections]
        set c [new_client]
        set began [clock milliseconds]
        for {set i 0} {$i < 20} {incr i} {$c -send get big}
        assert_equal $before [info_field stats client_output_buffer_limit_disconnections]
        # The limit is checked when more is written to the client, and by the server's timer.
        wait_for_condition 8000 {[catch {$c -send ping}] ||\
            [info_field stats client_output_buffer_limit_disconnections] > $before}
        assert_range [expr {[clock milliseconds] - $began}] 900 8000
        r config set client-output-buffer-limit "normal 0 0 0"
    }

    test "a client below the limits that reads late gets everything" {
        r set big [set big [numbered 1000000]]
        r config set client-output-buffer-limit "normal 50000000 0 0"
        set c [new_client]
        for {set i 0} {$i < 20} {incr i} {$c -send get big}
        r ping
        for {set i 0} {$i < 20} {incr i} {assert_equal $big [$c -read]}
        r config set client-output-buffer-limit "normal 0 0 0"
        r del big
    }

    test "unread replies show in CLIENT LIST and INFO memory" -tags {tcp-only} {
        r set big [string repeat x 1000000]
        set before [info_field memory mem_clients_normal]
        set c [new_client]
        set id [$c client id]
        for {set i 0} {$i < 20} {incr i} {$c -send get big}
        wait_for_condition 5000 {[regexp "id=$id \[^\n]* omem=(\\d+)" [r client list] -> omem] && $omem > 1000000}
        wait_for_condition 5000 {[info_field memory mem_clients_normal] > $before + 1000000}
        $c -close
        wait_for_condition 5000 {[info_field memory mem_clients_normal] < $before + 1000000}
    }

    test "maxmemory with noeviction refuses writes that need memory and nothing else" {
        flush_all
        r set a 1
        r config set maxmemory 1 maxmemory-policy noeviction
        replies {
            {set b 1} "-OOM command not allowed when used memory > 'maxmemory'."
            {append a x} "-OOM command not allowed when used memory > 'maxmemory'."
            {incr a} "-OOM command not allowed when used memory > 'maxmemory'."
            {get a} {$1}
            {expire a 100} :1
            {del a} :1
            {ping} +PONG
        }
        r config set maxmemory 0
        assert_equal OK [r set b 1]
    }

    foreach policy {allkeys-lru allkeys-lfu allkeys-random volatile-lru volatile-lfu volatile-random volatile-ttl} {
        test "maxmemory with $policy evicts" {
            flush_all
            r config resetstat
            set limit [expr {[info_field memory used_memory] + 2000000}]
            r config set maxmemory-policy $policy maxmemory $limit
            for {set i 0} {$i < 6000} {incr i 100} {
                for {set j 0} {$j < 100} {incr j} {
                    r -send set key:[expr {$i + $j}] [string repeat v 1000] ex [expr {1000 + $i}]
                }
                for {set j 0} {$j < 100} {incr j} {assert_equal OK [r -read]}
            }
            assert_morethan [info_field stats evicted_keys] 1000
            assert_lessthan [info_field memory used_memory] [expr {$limit + 1000000}]
            assert_range [r dbsize] 100 5000
            assert_equal $policy [info_field memory maxmemory_policy]
            r config set maxmemory 0 maxmemory-policy noeviction
        }
    }

    test "a write is refused above maxmemory while a deleted value is being freed" {
        r flushall
        for {set i 0} {$i < 300} {incr i} {
            r eval {for i = 1, 1000 do redis.call('zadd', KEYS[1], i, ARGV[1] .. i) end} 1 large $i:
        }
        with_config {maxmemory-policy noeviction} {
            r multi
            r unlink large
            r config set maxmemory 1
            r exec
            assert_error_like "OOM*" {r set k v}
            r config set maxmemory 0
        }
        wait_for_condition 20000 {[info_field memory lazyfree_pending_objects] == 0}
    }

    test "volatile policies evict only keys with an expiry" {
        flush_all
        r debug populate 200 stay 1000
        set limit [expr {[info_field memory used_memory] + 1000000}]
        r config set maxmemory-policy volatile-lru maxmemory $limit
        for {set i 0} {$i < 2000} {incr i} {r set go:$i [string repeat v 1000] ex 1000}
        assert_equal 200 [llength [r keys stay:*]]
        assert_lessthan [r dbsize] 2000
        flush_all
        r debug populate 3000 stay 1000
        assert_typed "-OOM command not allowed when used memory > 'maxmemory'." set x y
        r config set maxmemory 0 maxmemory-policy noeviction
        flush_all
    }

    test "volatile-ttl evicts what would expire first" {
        flush_all
        for {set i 0} {$i < 100} {incr i} {
            r set near:$i [string repeat v 1000] ex 100
            r set far:$i [string repeat v 1000] ex 100000
        }
        r config set maxmemory-samples 64 maxmemory-policy volatile-ttl maxmemory \
            [expr {[info_field memory used_memory] + 150000}]
        for {set i 0} {$i < 220} {incr i} {r set more:$i [string repeat v 1000] ex 50000}
        assert_range [llength [r keys far:*]] 90 100
        assert_range [llength [r keys near:*]] 0 90
        r config set maxmemory 0 maxmemory-policy noeviction maxmemory-samples 5
    }

    test "allkeys-lru keeps keys that are used" {
        flush_all
        r debug populate 300 old 1000
        r config set maxmemory-samples 64
        wait_for_condition 4000 {[r object idletime old:0] >= 2}
        for {set i 0} {$i < 100} {incr i} {r get old:$i}
        r config set maxmemory-policy allkeys-lru maxmemory [expr {[info_field memory used_memory] + 100000}]
        for {set i 0} {$i < 200} {incr i} {r set new:$i [string repeat v 1000]}
        set used 0
        set unused 0
        foreach k [r keys old:*] {
            if {[lindex [split $k :] 1] < 100} {incr used} else {incr unused}
        }
        assert_range $used 80 100
        assert_lessthan $unused 140
        r config set maxmemory 0 maxmemory-policy noeviction maxmemory-samples 5
    }

    test "maxmemory-clients closes the clients that hold most" {
        flush_all
        r set big [string repeat x 1000000]
        set c [new_client]
        $c client setname hog
        r client no-evict on
        r config set maxmemory-clients 5mb
        for {set i 0} {$i < 60} {incr i} {if {[catch {$c -send get big}]} break}
        wait_for_condition 5000 {[info_field stats evicted_clients] >= 1}
        assert_closed $c
        assert_equal PONG [r ping]
        r config set maxmemory-clients 0
    }
}

# The cron checks clients often: it must not count output as unsent that was written in this turn of the loop.
start_server {overrides {requirepass secret hz 500 dynamic-hz no} tags {limits}} {
    # As in Valkey since 8.0.3; the limits for normal clients are off by default.
    test "unread replies of a client that has not authenticated are bounded" -needs {ours 1} -timeout 150 {
        set admin [new_client]
        $admin auth secret
        set c [new_client]
        set flood [string repeat "*1\r\n\$4\r\nPING\r\n" 20000]
        set closed 0
        for {set i 0} {$i < 200 && !$closed} {incr i} {set closed [catch {$c -write $flood}]}
        # Waiting for the end of the connection would read from it, so that no output accumulates: query the server
        # first. The buffers of kernel and proxy take hundreds of thousands of replies, for which a server under a
        # sanitizer needs time.
        wait_for_condition 90000 {[regexp {client_output_buffer_limit_disconnections:1\M} [$admin info stats]]}
        assert {$closed || [$c -eof 30000]}
    }

    test "a client that has not authenticated is answered as long as it reads" -needs {ours 1} {
        set c [new_client]
        for {set i 0} {$i < 20} {incr i} {
            $c -write [string repeat "*1\r\n\$4\r\nPING\r\n" 500]
            for {set j 0} {$j < 500} {incr j} {assert_equal "-NOAUTH Authentication required." [$c -readline]}
        }
        assert_equal OK [$c auth secret]
    }
}
