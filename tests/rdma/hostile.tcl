# Peers that break the rules: the server disconnects each with a logged reason and serves all others.
# The cases are made by build/programs/rdma-hostile.
# seconds: 60

proc hostile {args} {
    run -timeout 170 {*}$::opt(launcher) [tool rdma-hostile] --host $::opt(rdma_host) --port [srv port] \
        --wait [expr {5000 * $::test_patience}] {*}$args
}
set kinds [split [string trim [exec [tool rdma-hostile] --list]] \n]

# The log tells of breaches at most so often a second at the usual level, of every one at `verbose`.
start_server {overrides {loglevel verbose}} {
    foreach kind $kinds {
        test "peer: [string map {_ { }} $kind]" {
            set from [log_size]
            set got [hostile --kind $kind --cases [scaled 5] --seed $::opt(seed)]
            if {[dict get $got code] ne 0} {fail "seed $::opt(seed): [dict get $got out][dict get $got err]"}
            assert_equal PONG [r ping]
            if {$kind in {control_short control_empty control_long control_opcode feature_unknown\
                immediate_beyond_the_buffer immediate_beyond_the_rest
                feature_not_offered feature_set_unasked feature_set_twice feature_asked_after_set credit_without_ring \
                    credit_of_nothing credit_beyond
                credit_twice taken_without_ring taken_without_buffer ring_beyond_the_credit word_beyond_the_space \
                    immediate_that_lies_while_polled poll_begun_twice poll_begun_unasked
                poll_ended_unasked poll_begin_without_the_feature poll_begin_twice poll_begin_of_no_word \
                    poll_end_unasked}} {
                set line {Error (?:on the connection of|accepting) a client(?: connection)?: [^\n]{8}}
                wait_for_condition 5000 {[regexp -all $line [log_text $from]] >= [scaled 5]}
            }
            if {[string match lawful* $kind]} {
                assert_not_match "*protocol violation*" [log_text $from]
            }
        }
    }

    test "the server holds nothing of peers that are gone" {
        wait_for_condition 20000 {[info_field clients connected_clients] == 1}
        assert_equal PONG [r ping]
        assert_equal PONG [[new_client -tcp 1] ping]
    }
}

start_server {} {
    test "10,000 hostile messages on 3,000 connections leave the server serving" -timeout 175 {
        puts "seed $::opt(seed)"
        set before [process_memory [srv pid]]
        set messages 0
        # In parts, to look after the server between them. Short parts go on with the kinds where the part before has
        # ended.
        set cases [scaled 300 5]
        for {set part 0} {$part < 10} {incr part} {
            set first [expr {$::test_scale > 1 ? $part * $cases : 0}]
            set got [hostile --cases $cases --first $first --seed [expr {$::opt(seed) + $part}]]
            if {[dict get $got code] ne 0} {
                fail "seed [expr {$::opt(seed) + $part}]: [dict get $got out][dict get $got err]"
            }
            regexp {(\d+) messages} [dict get $got out] -> n
            incr messages $n
            assert_equal PONG [r ping]
            set c [new_client]
            assert_equal PONG [$c ping]
            $c -close
        }
        assert_morethan $messages [expr {$::test_scale > 1 ? 50 : 10000}]
        wait_for_condition 20000 {[info_field clients connected_clients] <= 2}
        assert_lessthan [expr {[process_memory [srv pid]] - $before}] 200000
    }
}

start_server {overrides {requirepass secret} auth secret} {
    test "hostile peers without authentication leave the server serving" {
        set got [hostile --cases [scaled 33 11] --wait 3000]
        # Its lawful kinds expect PONG and get NOAUTH here; only dying counts.
        assert_equal PONG [r ping]
        foreach kind {control_short control_long immediate_beyond_the_buffer memory_of_huge_length write_outside\
            read_of_the_buffer} {
            set got [hostile --kind $kind --cases [scaled 5]]
            if {[dict get $got code] ne 0} {fail [dict get $got out][dict get $got err]}
        }
        assert_equal PONG [r ping]
    }

    test "however much it writes, a peer without authentication gets no larger buffer" {
        set before [info_field rdma rdma_receive_buffers_grown]
        set registered [info_field rdma rdma_registered_receive_bytes]
        set got [hostile --kind lawful_many_buffers --cases [scaled 5]]
        if {[dict get $got code] ne 0} {fail [dict get $got out][dict get $got err]}
        assert_equal $before [info_field rdma rdma_receive_buffers_grown]
        assert_lessthan [info_field rdma rdma_registered_receive_bytes] [expr {$registered + 5 * 32768 + 1}]
    }
}

foreach threads {1 3} {
    start_server [list overrides [list requirepass secret io-threads $threads] auth secret] {
        test "peers that end behind QUIT, without authentication, leave nothing, $threads threads" {
            set before [info_field clients connected_clients]
            set got [hostile --kind end_behind_quit --cases [scaled 20] --seed $::opt(seed)]
            if {[dict get $got code] ne 0} {fail "seed $::opt(seed): [dict get $got out][dict get $got err]"}
            wait_for_condition 5000 {[info_field clients connected_clients] == $before}
        }
    }
}
