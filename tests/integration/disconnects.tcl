# Clients that disconnect while their requests cannot be executed: the server frees them as soon as the connection ends,
# however many requests follow the one that waits, with and without I/O threads.

proc wait_named {name count} {
    wait_for_condition 10000 {[llength [regexp -all -inline " name=$name " [r client list]]] == $count} {
        fail "not $count clients are named $name: [r client list]"
    }
}
proc named_client {name} {
    set c [new_client]
    $c client setname $name
    return $c
}

foreach threads {1 3} {
    set suffix [expr {$threads > 1 ? " (I/O threads)" : ""}]
    start_server [list overrides [list io-threads $threads] tags {disconnects}] {
        foreach behind {0 3 30000 150000} {
            test "a blocked client with $behind requests behind is freed when its peer goes$suffix" {
                r del list ran
                set c [named_client blocked]
                $c -write "[resp_command blpop list 0][string repeat [resp_command set ran 1] [scaled $behind]]"
                $c -flush
                wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
                $c -close
                wait_named blocked 0
                assert_equal 0 [info_field clients blocked_clients]
                r rpush list v
                assert_equal {1 0} [list [r llen list] [r exists ran]]
            }
        }

        test "a client that shuts down its sending direction while it is blocked is freed$suffix" -tags {tcp-only} {
            r del list
            foreach behind {0 3 50000} {
                set c [named_client half]
                $c -write "[resp_command blpop list 0][string repeat [resp_command ping] $behind]"
                $c -flush
                wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
                $c -halfclose
                wait_named half 0
                $c -close
            }
        }

        test "a client that blocks after a turn of many slow requests is freed when its peer has gone$suffix" {
            r del list ran
            set c [named_client slow]
            $c -write "[string repeat [resp_command debug sleep 0.005] 20][resp_command blpop list\
                0][resp_command set ran 1]"
            $c -flush
            $c -close
            wait_named slow 0
            r rpush list v
            assert_equal {1 0} [list [r llen list] [r exists ran]]
        }

        foreach held {1 100000} {
            test "a paused client with $held requests is freed when its peer goes, and nothing is executed$suffix" {
                r del ran
                set c [named_client paused]
                r client pause 1000000 write
                $c -write [string repeat [resp_command incr ran] [scaled $held]]
                $c -flush
                wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
                $c -close
                wait_named paused 0
                assert_equal 0 [info_field clients blocked_clients]
                r client unpause
                assert_equal 0 [r exists ran]
            }
        }

        test "a large argument that a pause holds back is executed after requests that arrived behind it$suffix" {
            set c [new_client]
            set large [string repeat x 200000]
            r client pause 1000000 write
            $c -send set large $large
            $c -flush
            wait_for_condition 5000 {[info_field clients blocked_clients] == 1}
            for {set i 0} {$i < 2000} {incr i} {$c -send append large $i}
            for {set i 0} {$i < 2000} {incr i} {append large $i}
            $c -flush
            r client unpause
            assert_equal OK [$c -read]
            for {set i 0} {$i < 2000} {incr i} {$c -read}
            assert {[r get large] eq $large}
        }

        test "the requests behind a blocked one count against client-query-buffer-limit$suffix" {
            r config set client-query-buffer-limit 2mb
            set c [named_client greedy]
            $c -write [resp_command blpop list-of-nobody 0]
            set more [string repeat [resp_command set k [string repeat y 1000]] 200]
            wait_for_condition 20000 {
                [catch {$c -write $more; $c -flush}] || ![string match "* name=greedy *" [r client list]]
            }
            wait_named greedy 0
            assert_equal 0 [info_field clients blocked_clients]
            r config set client-query-buffer-limit 1gb
        }

        test "requests behind those that wait for a reply barrier are executed before the end$suffix" -needs {ours 1} \
            -tags {tcp-only} {
            r del count
            set hold [new_client]
            $hold debug reply-barrier hold
            set c [named_client half]
            $c -write [resp_command incr count]
            $c -flush
            wait_for_condition 5000 {[dict get [$hold debug reply-barrier status] clients] == 1}
            $c -write [string repeat [resp_command incr count] 50000]
            $c -halfclose
            $hold debug reply-barrier off
            for {set i 1} {$i <= 50001} {incr i} {assert_equal $i [$c -read]}
            wait_named half 0
        }
    }
}
